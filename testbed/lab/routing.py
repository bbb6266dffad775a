"""FRR's daemons in the namespaces of switches, from their start to their end, and their convergence."""

import json
import os
import select
import shlex
import shutil
import signal
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from ipaddress import ip_network
from pathlib import Path
from typing import Any

from testbed.errors import DeadlineError, TestbedError
from testbed.kernel import ownership
from testbed.lab import evpn, virtual_routers
from testbed.lab.context import Context
from testbed.lab.node import Node, find_interface
from testbed.lab.nodes.switch_node import Switch
from testbed.lab.processes import Process, how_it_ended
from testbed.protocol import events
from testbed.switch import frr, vrrp, vty
from testbed.switch.profile import Profile
from testbed.topology import IPNetwork, Plan, Svi
from testbed.topology.changes import Link

PROGRAMS = Path("/usr/lib/frr")
RUN = Path("/run/frr")
DATA_PLANES = Path("/run/testbed/bfd")
USER = "frr"
START_PAUSE_S = 0.05
TIMER_SLACK_NS = 2_000_000
"""By which the kernel may end a daemon's sleep late. FRR rounds timeouts down to milliseconds (lib/event.c) and then
polls without a pause: half a million instructions of an emulated processor for each timer. An update of routes waits
for several timers, which 20 ms would make longer by half."""
START_S = 60.0
"""Seconds for the first convergence. A fat tree of 20 switches has 80 daemons."""


class Routing:
    """The routing daemons of a lab's switches. `fileno` is readable when one has ended."""

    def __init__(
        self, context: Context, plan: Plan, nodes: Mapping[str, Node[Any]], may_end: Callable[[], bool]
    ) -> None:
        """`may_end` returns True if a daemon that ends is an event, and no error."""
        self._may_end = may_end
        self._context = context
        self._plan = plan
        self._nodes = nodes
        self._switches = [node for node in nodes.values() if isinstance(node, Switch) and frr.daemons(node.planned)]
        self._processes: dict[tuple[str, str], Process] = {}
        self._routes: dict[str, frr.Routes] = {switch.name: {} for switch in self._switches}
        self._changed_ns = 0
        self._released: set[tuple[str, str]] = set()
        """Ports whose links `change` makes anew or not at all."""
        self._ends = select.epoll()
        self._handles: dict[tuple[str, str], int] = {}
        """Pidfds of the daemons that have not ended."""
        self._duplicates: evpn.Duplicates | None = None
        self._detection: dict[str, list[str]] = {}
        """The commands that a switch's bgpd has for duplicates."""

    def fileno(self) -> int:
        return self._ends.fileno()

    def start(self) -> None:
        if not PROGRAMS.is_dir():
            raise TestbedError(f"routing by FRR: {PROGRAMS} does not exist", hint="apt-get install frr")
        self._start_on(self._switches)

    def forget(self, switch: Switch) -> None:
        """End the daemons of a switch that goes."""
        if switch not in self._switches:
            return
        if self._duplicates:
            self._duplicates.forget(switch)
        self._switches.remove(switch)
        for key in [key for key in self._processes if key[0] == switch.name]:
            self._unfollow(key)
            self._processes.pop(key).stop(signal.SIGKILL)
        self._remove(switch)
        del self._routes[switch.name]

    def release(self, links: Iterable[Link]) -> None:
        """Take links that go out of BGP, and return when their ends advertise no router: zebra is ended by signal 11 if
        an interface goes that does (process_rtadv of FRR 10.3)."""
        for switch in self._switches:
            routed = {port.name for port in switch.planned.routed_ports}
            ports = [end.name for link in links for end in link if end.node == switch.name and end.name in routed]
            if ports and (bgp := switch.planned.bgp):
                self._released |= {(switch.name, port) for port in ports}
                lines = [f"no neighbor {port} interface peer-group fabric" for port in ports]
                self._configure(switch, f"router bgp {bgp.asn}", *lines)
        if not self._context.scheduler.wait_quietly(lambda: not self._advertises(), START_S, pause=START_PAUSE_S):
            raise DeadlineError(f"FRR's zebra goes on to advertise a router at {self._advertises()} for {START_S:g} s")

    def _advertises(self) -> str:
        """Return the first released end that advertises a router."""
        for switch in self._switches:
            ports = [port for name, port in self._released if name == switch.name]
            shown = self.ask(switch, "zebra", "show ipv6 nd ra-interfaces").split() if ports else []
            if found := next((port for port in ports if port in shown), None):
                return f"{switch}:{found}"
        return ""

    def change(self, plan: Plan) -> None:
        """Run the daemons as another plan has it: start those that do not run, tell the others what is new to them."""
        before, self._plan = self._plan, plan
        come = [node for node in self._nodes.values() if isinstance(node, Switch) and self._lacking(node)]
        stay = [*self._switches]
        routers = [switch for switch in stay if (switch.name, "vrrpd") in self._processes]
        self._switches += [switch for switch in come if switch not in stay]
        self._routes = {switch.name: {} for switch in come} | self._routes
        self._start_on(come)
        for switch in stay:
            had, has = ([port.name for port in one.nodes[switch.name].routed_ports] for one in (before, plan))
            had = [port for port in had if (switch.name, port) not in self._released]
            lines = [f"no neighbor {port} interface peer-group fabric" for port in had if port not in has]
            lines += [f"neighbor {port} interface peer-group fabric" for port in has if port not in had]
            if lines and (bgp := plan.nodes[switch.name].bgp):
                self._configure(switch, f"router bgp {bgp.asn}", *lines)
        self._released.clear()
        self._change_virtual_routers(before, routers)
        if come or before.links != plan.links:
            self.settle()

    def settle(self) -> None:
        """Return when BGP has converged, and each virtual router has a master."""
        if any(switch.planned.bgp for switch in self._switches):
            self.converged()
        self.await_masters()

    def _change_virtual_routers(self, before: Plan, switches: Sequence[Switch]) -> None:
        changed = False
        for switch in switches:
            old, new = ([svi for svi, _ in plan.nodes[switch.name].virtual_routers] for plan in (before, self._plan))
            gone = [svi for svi in old if svi not in new]
            come = [svi for svi in new if svi not in old]
            changed |= bool(gone or come)
            for svi in gone:
                assert svi.vrrp
                self.ask(switch, "vrrpd", "configure terminal", f"interface {svi.name}", f"no vrrp {svi.vrrp.id}")
            virtual_routers.delete_devices(switch, gone)
            virtual_routers.make_devices(switch, come)
            for svi in come:
                self.ask(switch, "vrrpd", "configure terminal", *vrrp.commands(svi))
            self._begin_virtual_routers(switch, come)
        if changed:
            self.await_masters()

    def _configure(self, switch: Switch, *lines: str) -> None:
        """Give lines of a configuration to bgpd."""
        self.ask(switch, "bgpd", "configure terminal", *lines)

    def _start_on(self, switches: Sequence[Switch]) -> None:
        lacking = {switch: self._lacking(switch) for switch in switches}
        for switch, daemons in lacking.items():
            directory = self._directory(switch)
            places = [directory] if daemons == frr.daemons(switch.planned) else []
            places += [self._data_plane(switch).parent] if "bfdd" in daemons else []
            for place in places:
                shutil.rmtree(place, ignore_errors=True)  # of a lab that was killed
                ownership.claim_file(place)
                place.mkdir(parents=True)
                shutil.chown(place, USER, USER)
            for daemon, text in frr.configurations(switch.planned, switch.first_profile).items():
                (directory / f"{daemon}.conf").write_text(text)  # FRR's user may not read the run directory
                self._context.file(f"{switch.name}-{daemon}.conf").write_text(text)
            if "vrrpd" in daemons:
                virtual_routers.make_devices(switch, switch.planned.svis)
        wait = self._context.scheduler.wait_quietly
        for daemon in frr.DAEMONS:  # in an order in which none waits for one that it needs, and retries
            here = [switch for switch, daemons in lacking.items() if daemon in daemons]
            sockets = [path for switch in here for path in self._start(switch, daemon)]
            if not wait(lambda: all(path.exists() for path in sockets), START_S, pause=START_PAUSE_S):  # noqa: B023
                raise DeadlineError(f"FRR's {daemon} did not start within {START_S:g} s")
            for switch in here if daemon == "bfdd" else ():
                switch.agent.ask(switch.name, "serve_bfd", place=str(self._data_plane(switch)))
        for switch, daemons in lacking.items():
            if "mgmtd" in daemons and (commands := frr.mgmtd_commands(switch.planned)):
                self.ask(switch, "mgmtd", "configure terminal", *commands)
            if "bgpd" in daemons and switch.planned.vtep:
                self._follow_evpn(switch)
            if "vrrpd" in daemons:
                self._begin_virtual_routers(switch, switch.planned.svis)

    def _follow_evpn(self, switch: Switch) -> None:
        """Have what zebra knows in a switch's tables and in the log, and bgpd follow its profile."""
        if self._duplicates is None:
            self._duplicates = evpn.Duplicates(self._context.emit)
            self._context.scheduler.sources.append(self._duplicates)
        self._duplicates.add(switch, self._processes[switch.name, "zebra"].log)
        self._detection[switch.name] = frr.detection(switch.first_profile)
        switch.annotate = partial(evpn.annotated, switch, self.ask)
        switch.profile_changes.append(partial(self._follow_profile, switch))
        if switch.planned.multihoming:
            switch.follow_segments(self._directory(switch))

    def _follow_profile(self, switch: Switch, profile: Profile) -> None:
        wanted, bgp = frr.detection(profile), switch.planned.bgp
        if bgp and wanted != self._detection[switch.name]:
            self._configure(switch, f"router bgp {bgp.asn}", "address-family l2vpn evpn", *wanted)
            self._detection[switch.name] = wanted

    def _lacking(self, switch: Switch) -> list[str]:
        """Return the daemons that a switch needs and that do not run, in their start order."""
        return [daemon for daemon in frr.daemons(switch.planned) if (switch.name, daemon) not in self._processes]

    def _begin_virtual_routers(self, switch: Switch, svis: Sequence[Svi]) -> None:
        """Set up the devices of virtual routers, of which vrrpd has made those of backups protocol-down."""
        wait = self._context.scheduler.wait_quietly
        if not wait(lambda: virtual_routers.decided(switch, svis, self.ask), START_S, pause=START_PAUSE_S):
            raise DeadlineError(f"{switch}: FRR's vrrpd did not begin with its virtual routers within {START_S:g} s")
        virtual_routers.set_up(switch, svis)

    def vrrp(self, switch: Switch) -> list[virtual_routers.VrrpRow]:
        """Return the virtual routers of a switch as its vrrpd has them (`show vrrp json`)."""
        return virtual_routers.rows(switch, self.ask)

    def await_masters(self, within: float = START_S) -> None:
        """Return when each virtual router has a master."""
        wait = self._context.scheduler.wait_quietly
        if not wait(lambda: self._without_master() == "", within, pause=START_PAUSE_S):
            raise DeadlineError(f"{self._without_master()} has no master within {within:g} s")

    def _without_master(self) -> str:
        return virtual_routers.without_master(self._switches, self.ask)

    def _start(self, switch: Switch, daemon: str) -> list[Path]:
        """Start a daemon, and return the sockets that it has when it is ready."""
        directory = self._directory(switch)
        command = [str(PROGRAMS / daemon), "-N", switch.namespace, "-F", frr.PROFILE, "-P", "0", "--log", "stdout"]
        if daemon == "bfdd":
            command += ["--dplaneaddr", f"unix:{self._data_plane(switch)}"]
        if daemon != "mgmtd":  # which takes no file
            configured = daemon in frr.configurations(switch.planned, switch.first_profile)
            command += ["-f", str(directory / f"{daemon}.conf") if configured else os.devnull]
        process = self._processes[switch.name, daemon] = switch.launch(*command)
        Path(f"/proc/{process.pid}/timerslack_ns").write_text(str(TIMER_SLACK_NS))  # its threads inherit both
        os.sched_setscheduler(process.pid, os.SCHED_BATCH, os.sched_param(0))  # a reader does not preempt its writer
        handle = self._handles[switch.name, daemon] = os.pidfd_open(process.pid)
        self._ends.register(handle, select.EPOLLIN)
        return [directory / f"{daemon}.vty", *([self._data_plane(switch)] if daemon == "bfdd" else [])]

    def catch_up(self) -> None:
        """Do nothing: the kernel's routes come by way of the switches' agent."""

    def drain(self) -> None:
        """Report, or raise, when a daemon has ended: its switch goes on with the routes that it had."""
        if not self._ends.poll(0):
            return
        for switch, daemon in [*self._handles]:
            process = self._processes[switch, daemon]
            if (status := process.status) is None:
                continue
            how = how_it_ended(status)
            if not self._may_end():
                raise TestbedError(f"{switch}: FRR's {daemon} {how}\n{process.output[-2000:]}".rstrip())
            self._unfollow((switch, daemon))
            ended = events.PROGRAM_ENDED(command=shlex.join(process.command), status=status, log=process.log.name)
            self._context.emit(ended, switch, f"FRR's {daemon} {how}")

    def _unfollow(self, daemon: tuple[str, str]) -> None:
        if (handle := self._handles.pop(daemon, None)) is not None:
            self._ends.unregister(handle)
            os.close(handle)

    def on_route(self, t: int, switch: str, route: events.Route) -> None:
        """Record a change of a route, as the agent reports it."""
        if switch in self._routes:
            self._routes[switch][ip_network(route.to)] = tuple(route.ports)
            self._changed_ns = t

    def converged(self, within: float = START_S, *, without: Collection[str] = ()) -> float:
        """
        Return when each switch has all next hops of the shortest paths to all that others announce, and BGP and the
        sessions of BFD are up on all links. The result is the seconds from the call to the last change of a route.
        `within` in seconds.

        Links with an end that is down do not count, nor do those of `without`, ends such as ``leaf1:e3`` of links that
        are up and carry nothing. Host routes are those of the neighbours that switches have at the call.
        """
        began = time.monotonic_ns()
        ends = [find_interface(self._nodes.values(), end) for end in without]
        ends += [end for node in self._nodes.values() for end in node.interfaces.values() if not end.is_up]
        dead = {(end.node.name, end.name) for end in ends}
        autostate = {switch.name: switch.profile()["autostate"] for switch in self._switches}
        due = frr.shortest_paths(self._plan, dead, self._host_routes(), autostate)
        wait = self._context.scheduler.wait_quietly
        if not wait(lambda: self._not_converged(due, dead) == "", within):
            raise DeadlineError(f"routing did not converge within {within:g} s: {self._not_converged(due, dead)}")
        seconds = max(0, self._changed_ns - began) / 1e9
        text = f"routes are complete, the last after {seconds:.3f} s"
        self._context.emit(events.ROUTING_CONVERGED(seconds=seconds), "", text)
        return seconds

    def _not_converged(self, due: Mapping[str, frr.Routes], dead: Collection[tuple[str, str]]) -> str:
        """Describe the first thing that is not as it has to be."""
        return self._missing(due) or self._silent(dead) or evpn.missing(self._switches, self.ask, due)

    def _host_routes(self) -> dict[str, list[IPNetwork]]:
        found: dict[str, list[IPNetwork]] = {}
        for switch in self._switches:
            if switch.planned.host_routes:
                known = {**switch.arp_table(), **switch.nd_table()}
                networks = [ip_network(ip) for ip, mac in known.items() if mac]
                found[switch.name] = [network for network in networks if not network.is_link_local]
        return found

    def _missing(self, due: Mapping[str, frr.Routes]) -> str:
        """Describe the first route that differs from the expected one."""
        for switch, routes in due.items():
            has = {to: ports for to, ports in self._routes[switch].items() if ports}
            for to in [*routes, *has]:
                if set(has.get(to, ())) != set(routes.get(to, ())):
                    ports = [", ".join(table.get(to, ())) or "nothing" for table in (has, routes)]
                    return f"{switch} reaches {to} by {ports[0]}, not by {ports[1]}"
        return ""

    def _silent(self, dead: Collection[tuple[str, str]]) -> str:
        """Describe the first session that is not up, of those over links that carry something."""
        for switch in [switch for switch in self._switches if switch.planned.bgp]:
            ports = [p for p in switch.planned.routed_ports if frr.carries(switch.planned, p, dead)]
            bgp = json.loads(self.ask(switch, "bgpd", "show bgp ipv4 unicast summary json"))["peers"]
            peers = json.loads(self.ask(switch, "bfdd", "show bfd peers json"))
            bfd = {peer["interface"]: peer["status"] for peer in peers}
            for port in ports:
                if bgp[port.name]["state"] != "Established":
                    return f"BGP of {switch}:{port.name} is {bgp[port.name]['state']}"
                if (status := bfd.get(port.name, "up")) != "up":
                    return f"BFD of {switch}:{port.name} is {status}"
        return ""

    def ask(self, switch: Switch, daemon: str, *commands: str) -> str:
        """Return a daemon's answer to the last of some commands, over the socket that vtysh uses. TestbedError for one
        that it refuses."""
        try:
            return vty.ask(self._directory(switch) / f"{daemon}.vty", *commands)
        except TestbedError as error:
            raise TestbedError(f"{switch}: {error.message}") from error

    def close(self) -> None:
        """Kill all daemons at once: no reaction of the others to that is of interest."""
        for process in self._processes.values():
            process.stop(signal.SIGKILL)
        for handle in self._handles.values():
            os.close(handle)
        self._ends.close()
        if self._duplicates:
            self._context.scheduler.sources.remove(self._duplicates)
            self._duplicates.close()
        for switch in self._switches:
            self._remove(switch)

    def _remove(self, switch: Switch) -> None:
        for place in self._directory(switch), *([self._data_plane(switch).parent] if switch.planned.bgp else []):
            shutil.rmtree(place, ignore_errors=True)

    def _data_plane(self, switch: Switch) -> Path:
        """Return the place of bfdd's socket for its data plane. bfdd cuts it after 63 characters."""
        assert switch.planned.bgp
        return DATA_PLANES / str(switch.planned.bgp.asn) / "bfdd"

    def _directory(self, switch: Switch) -> Path:
        return RUN / switch.namespace
