"""The lossless links of a lab: BPF programs on their ports, the buffers of the switches, and the pauses as events."""

import functools
import itertools
import os
import time
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from testbed.kernel.lossless.ports import Ports
from testbed.lab.context import Context
from testbed.lab.host_interface import HostInterface
from testbed.lab.interface import Interface
from testbed.lab.node import Node
from testbed.lab.nodes.host_node import Host
from testbed.lab.nodes.switch_node import Switch
from testbed.lab.port import Port
from testbed.lab.slow_motion import Watched, scale_warnings, timeout_warnings, watchdog_warnings
from testbed.protocol import events
from testbed.switch.buffer import balancing_values, buffer_of, miss_values, pool_values, port_values
from testbed.switch.profile import Profile
from testbed.topology import Interface as InterfacePlan
from testbed.topology import Lossless, Plan, Reordering

SORTER_IFB = 100_000
"""Added to a NIC's index: the number of the ifb that puts its packets in order."""
LOG = "bpf.log"
"""The log of a kernel that rejects the programs, in the run directory."""


class End(NamedTuple):
    node: Node[Any]
    interface: Interface
    plan: InterfacePlan


class LosslessNetwork:
    """The lossless links, as a source of the scheduler that reports pauses."""

    def __init__(self, context: Context, plan: Plan, lossless: Lossless, nodes: Mapping[str, Node[Any]]) -> None:
        self._context = context
        self._lossless = lossless
        self._ends: dict[int, End] = {}
        """The ports of switches with a lossless one, and the NICs behind lossless links, by their numbers."""
        self._switches: list[Node[Any]] = []
        for node_plan in plan.nodes.values():
            node = nodes[node_plan.name]
            planned = [one for one in node_plan.interfaces if one.lossless]
            if planned and isinstance(node, Switch):
                self._switches.append(node)
                planned = list(node_plan.interfaces)
            for one in planned:
                self._ends[len(self._ends) + 1] = End(node, node[one.name], one)
        nics = [end for end in self._ends.values() if end.node.plan and end.node.plan.reorder]
        self._sorters = itertools.count(len(self._ends) + 1)
        self._ports = Ports(len(self._ends) + len(nics), len(self._switches), self._note)
        self._never = os.eventfd(0)
        self._attach()
        context.scheduler.sources.append(self)

    def _note(self, text: str) -> None:
        self._context.file(LOG).write_text(text)

    def _attach(self) -> None:
        self._ports.follow()
        self._ports.show_counters()
        numbers = {node.name: number for number, node in enumerate(self._switches, 1)}
        circulating: set[str] = set()
        for number, (node, interface, plan) in self._ends.items():
            switches = node in self._switches
            port = Port(self._ports, number, self._lossless, plan, switch=switches)
            owner = self._switches.index(node) if switches else 0
            pfc = self._lossless.priorities if _speaks_pfc(node, plan) else ()
            pauses = {"sends_pause": pfc, "honours_pause": pfc}
            port.begin(owner, interface.index, numbers.get(plan.peer[0], 0), pauses)
            with node.entered():
                if node.name not in circulating:
                    circulating.add(node.name)
                    self._ports.circulate(node.kernel)
                if plan.lossless:
                    interface.port = port
                    self._ports.attach(number, node.kernel, interface.index)
                    interface.sends.apply()
                else:
                    self._ports.classify(number, node.kernel, interface.index)
            if isinstance(interface, HostInterface) and node.plan:
                interface.control_congestion(node.plan.congestion_control, **dict(node.plan.congestion_values))
                if node.plan.reorder:
                    self._sort(interface, node.plan.reorder)
        scales = {
            node.name: algorithm.scale
            for node, interface, _ in self._ends.values()
            if isinstance(interface, HostInterface) and (algorithm := interface.lossless.algorithm)
        }
        self._warn(scale_warnings(scales))
        for switch in self._switches:
            assert isinstance(switch, Switch)
            assert switch.plan
            self._ports.begin_pool(self._switches.index(switch), [svi.mac for svi in switch.plan.svis])
            switch.profile_changes.append(functools.partial(self._configure, switch))
            self._configure(switch, switch.first_profile)

    def _sort(self, interface: HostInterface, reorder: Reordering) -> None:
        sorter = next(self._sorters)
        with interface.node.entered():
            name = f"ifb{SORTER_IFB + interface.index}"
            interface.lossless.sort(sorter, self._ports.sort(sorter, interface.node.kernel, name), reorder)

    def _configure(self, switch: Switch, profile: Profile) -> None:
        """Apply a profile to a switch. InputError, and nothing is changed, for sizes that cannot work."""
        ends = [end for end in self._ends.values() if end.node is switch]
        buffer = buffer_of(switch.name, profile, self._lossless, len(ends), max(end.plan.mtu for end in ends))
        shared, classes = pool_values(profile, buffer, self._lossless)
        profiles = [profile.replace(**dict(end.plan.qos.values)) for end in ends]
        values = {"size": shared, **miss_values(profile), **balancing_values(profile, self._lossless)}
        self._ports.set_pool(self._switches.index(switch), values, classes)
        watched = []
        for (_, interface, _), own in zip(ends, profiles, strict=True):
            if interface.port:
                interface.port.configure(port_values(own, buffer, self._lossless))
                if rate := interface.port.link()[0]:
                    watched.append(Watched(str(interface), rate, own.pfc_watchdog, own.pfc_watchdog_poll))
        self._warn(watchdog_warnings(watched))

    def _warn(self, texts: Iterable[str]) -> None:
        known = self._context.scheduler.programs.warnings
        known += [text for text in texts if text not in known]

    def buffered(self, switch: Switch) -> int:
        """Return the bytes of a switch's shared buffer that are in use now."""
        return int(self._ports.pools[self._switches.index(switch)].used)

    # A source of the scheduler

    def fileno(self) -> int:
        return self._never

    def catch_up(self) -> None:
        """End the pauses after which nothing came for a while, and look at the queue pairs that have connected."""
        self._ports.end_episodes(time.monotonic_ns())
        ports = (end.interface.port for end in self._ends.values())
        self._warn(timeout_warnings(found for port in ports if port and (found := port.hasty())))

    def drain(self) -> None:
        episodes, lost = self._ports.episodes()
        if lost:
            self._context.emit(events.LOST(records=lost), "", f"{lost} pauses ended and were overwritten unread")
        for episode in episodes:
            interface, lasted = self._ends[episode.port].interface, episode.to_ns - episode.from_ns
            text = f"{interface.name} is paused in priority {episode.priority}, for {lasted / 1e6:.3f} ms"
            pause = events.PFC_PAUSED(
                interface=interface.name, priority=episode.priority, lasted_ns=lasted, frames=episode.frames
            )
            interface.emit(pause, text, at_ns=episode.from_ns)

    def close(self) -> None:
        self._ports.end_episodes(time.monotonic_ns(), all_=True)
        self.drain()
        self._context.scheduler.sources.remove(self)
        self._ports.close()
        os.close(self._never)


def _speaks_pfc(node: Node[Any], plan: InterfacePlan) -> bool:
    if plan.pfc is not None:
        return plan.pfc
    return plan.lossless and (not isinstance(node, Host) or node.nic == "hardware")
