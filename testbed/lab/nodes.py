"""What a running lab consists of: hosts, the pods on them, switches and plain bridges, each a network namespace."""

from __future__ import annotations

import errno
import json
import shlex
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from ipaddress import IPv4Address, IPv4Interface, IPv6Address, IPv6Interface, ip_address, ip_network
from pathlib import Path
from subprocess import CompletedProcess
from typing import TYPE_CHECKING, Any

from pyroute2 import IPRoute
from pyroute2.netlink.rtnl import ndmsg

from testbed.errors import InputError, TestbedError
from testbed.kernel import ipv6, netns
from testbed.kernel.carrier import carry
from testbed.lab import own_devices, processes
from testbed.lab.capture import Capture
from testbed.lab.host_routes import HostRoutes
from testbed.lab.overlay import Overlay
from testbed.lab.processes import Process
from testbed.switch import ecmp, packets
from testbed.switch.profile import check_names
from testbed.topology import Family, IPAddress, IPInterface, IPNetwork, NicModel, pod_mac

if TYPE_CHECKING:
    from testbed.lab.lab import Lab, Network
    from testbed.nic import HardwareNic

COMMAND_S = 30.0
NUD_PERMANENT = 0x80
NUD_STATES = {number: name.upper() for name, number in ndmsg.states.items()}
UNANSWERED = ("INCOMPLETE", "FAILED", "NONE")
"""States of a neighbour entry without a MAC."""
IFF_UP = 1
LOCAL_EXPERIMENTAL = b"\x88\xb5"
"""EtherType of IEEE 802, for experiments."""
FAMILIES = {4: socket.AF_INET, 6: socket.AF_INET6}
FIRST_INDEX = 2
"""A new namespace numbers its interfaces upwards from here; `lo` is 1."""


class Node:
    """A network namespace with a name. `ip` is a netlink socket in it (pyroute2's IPRoute)."""

    def __init__(self, lab: Lab, name: str) -> None:
        self.lab = lab
        self.name = name
        self.namespace = f"{lab.plan.name}-{name}"
        netns.create(self.namespace)
        with self.entered():
            try:
                self.ip = IPRoute()
                own_devices.add(self.namespace)
            except BaseException:
                netns.delete(self.namespace)
                raise
            for scope in "all", "default":
                Path(f"/proc/sys/net/ipv6/conf/{scope}/disable_ipv6").write_text("1\n")
        self.ip.link("set", index=1, state="up")
        self.env: dict[str, str] = {}
        """Environment variables of its programs, beside those of the machine."""
        self._indices = {"lo": 1}
        self._files = 0
        self._clsact: set[str] = set()
        self._captures: dict[str, int] = {}
        self._up = Overlay(lambda names: {name: self.is_up(name) for name in names}, self._set_links)
        self._undo = ExitStack()

    def __str__(self) -> str:
        return self.name

    def entered(self) -> AbstractContextManager[None]:
        """The block's sockets, devices and /proc/sys/net are those of this node."""
        return netns.entered(self.namespace)

    def next_index(self, interface: str) -> int:
        """The number the kernel gives the interface that is made next, here by `interface`'s name from now on."""
        index = FIRST_INDEX + len(self._indices) - 1
        self._indices[interface] = index
        return index

    def adopt(self, interface: str) -> None:
        """Takes in an interface that somebody else made in this namespace."""
        with self.entered():
            self._indices[interface] = socket.if_nametoindex(interface)

    @property
    def interfaces(self) -> list[str]:
        """The names of the links' ends, without `lo` and what a switch adds."""
        return [name for name in self._indices if name != "lo"]

    def index(self, interface: str) -> int:
        if interface not in self._indices:
            raise InputError(f"{self.name} has no interface {interface}", hint=f"It has: {', '.join(self._indices)}.")
        return self._indices[interface]

    def links_work(self) -> bool:
        """Whether every link can carry frames."""
        with self.entered():
            return carry(map(self.index, self.interfaces))

    def sysctl(self, path: str, value: int | str) -> None:
        """`path` below /proc/sys, for example ``net/ipv4/ip_forward``."""
        with self.entered():
            (Path("/proc/sys") / path).write_text(f"{value}\n")

    def set_link(self, interface: str, state: str) -> None:
        """`state` is ``up`` or ``down``. The other end has its new carrier when this returns."""
        self.ip.link("set", index=self.index(interface), state=state)
        self._settle(interface)
        self.lab.emit("link", self.name, f"{interface} {state}", interface=interface, state=state)

    def hold_down(self, *interfaces: str) -> Callable[[], None]:
        """Sets interfaces down until what is returned is called. One that several hold down is up after the last."""
        return self._up.change(dict.fromkeys(interfaces, False))

    def _set_links(self, up: Mapping[str, bool]) -> None:
        for interface, is_up in up.items():
            self.set_link(interface, "up" if is_up else "down")

    def _settle(self, interface: str) -> None:
        """Has the kernel carry out a change of carrier at once, by asking for each end (rtnl_getlink). Left alone it
        does so up to a second later, and until then what the other end sends fails, which ends its queue pairs."""
        self.ip.get_links(self.index(interface))
        plan = self.lab.plan.nodes.get(self.name)
        for end in plan.interfaces if plan else ():
            if end.name == interface and end.peer[0] in self.lab.nodes:
                peer = self.lab.nodes[end.peer[0]]
                peer.ip.get_links(peer.index(end.peer[1]))

    def read_sysctl(self, path: str) -> str:
        with self.entered():
            return (Path("/proc/sys") / path).read_text().strip()

    def is_up(self, interface: str) -> bool:
        """Whether it is set up, with or without a carrier."""
        return bool(self.ip.get_links(self.index(interface))[0]["flags"] & IFF_UP)

    def mtu(self, interface: str) -> int:
        mtu: int = self.ip.get_links(self.index(interface))[0].get_attr("IFLA_MTU")
        return mtu

    def set_mtu(self, interface: str, mtu: int) -> None:
        self.ip.link("set", index=self.index(interface), mtu=mtu)
        self.lab.emit("link", self.name, f"{interface} has MTU {mtu}", interface=interface, mtu=mtu)

    def add_clsact(self, interface: str) -> None:
        """Gives an interface the qdisc that holds filters for what comes in and goes out. May be repeated."""
        if interface not in self._clsact:
            self._clsact.add(interface)
            self.run("tc", "qdisc", "add", "dev", interface, "clsact")

    def run(self, *command: str, within: float = COMMAND_S, text: str = "") -> CompletedProcess[str]:
        """Runs a command to its end, with `text` as its input; a status other than 0 raises. `within` in seconds."""
        return processes.run(self.name, self.namespace, command, within, text, self.lab.ready, self.env)

    def ping(self, ip: str, *, within: float) -> bool:
        """Whether one echo request is answered; `within` in seconds."""
        command = ["ping", "-n", "-c", "1", "-W", f"{within:g}", ip]
        done = processes.run(self.name, self.namespace, command, within + COMMAND_S, ready=self.lab.ready, check=False)
        return done.returncode == 0

    def spawn(self, *command: str) -> Process:
        """Starts a program; what it writes is kept in the run directory. It is stopped with the lab at the latest."""
        self._files += 1
        log = self.lab.file(f"{self.name}-{Path(command[0]).name}-{self._files}.log")
        process = Process(self.name, self.namespace, command, log, self.lab.ready, self.env)
        self.lab.programs = [*(program for program in self.lab.programs if program.running), process]
        self.defer(process.stop)
        return process

    def execute(self, commands: Sequence[Sequence[str]]) -> None:
        """Runs the commands of the file. Daemons that they start are ended with the lab."""
        if commands:
            self.defer(lambda: processes.end_all(self.namespace))
        for command in commands:
            process = self.spawn(*command)
            status = process.wait(COMMAND_S)
            text = shlex.join(command)
            self.lab.emit("exec", self.name, f"ran {text}", command=text, status=status)
            if status:
                raise TestbedError(f"{self.name}: exec {text}: status {status}: {process.output.strip()}")

    def capture(self, interface: str, filter_: str = "") -> Capture:
        """Records an interface's frames into ``<node>-<interface>.pcap`` of the run directory, from when this returns.

        A second capture of an interface goes into ``…-2.pcap``.
        """
        number = self._captures[interface] = self._captures.get(interface, 0) + 1
        name = f"{self.name}-{interface}" + (f"-{number}" if number > 1 else "")
        capture = Capture(self.name, self.namespace, interface, filter_, self.lab.file(f"{name}.pcap"))
        self.defer(capture.stop)
        return capture

    def statistics(self, interface: str) -> dict[str, int]:
        """The kernel's counters of an interface, by their names in rtnl_link_stats64."""
        link = self.ip.get_links(self.index(interface))[0]
        return dict(link.get_attr("IFLA_STATS64"))

    def defer(self, undo: Callable[[], object]) -> None:
        """Has `undo` called when the node is taken down, before its devices go; the last one first."""
        self._undo.callback(undo)

    def release(self) -> None:
        """Stops what runs on the node."""
        self._undo.close()

    def close(self) -> None:
        self.ip.close()
        own_devices.remove(self.namespace)
        netns.delete(self.namespace)


class Host(Node):
    """A machine with RoCE interfaces.

    `nic` is how its network card behaves, `rdma` the device on each interface that has one, `addresses` each
    interface's IPv4 address, `addresses6` its IPv6 address, where it has them.
    """

    def __init__(self, lab: Lab, name: str, nic: NicModel) -> None:
        super().__init__(lab, name)
        self.nic = nic
        self.rdma: dict[str, str] = {}
        self.addresses: dict[str, IPv4Interface] = {}
        self.addresses6: dict[str, IPv6Interface] = {}
        self.macs: dict[str, str] = {}
        self.cards: dict[str, HardwareNic] = {}
        """Interfaces with a hardware NIC; empty on a host whose `nic` is rxe."""
        self.routes = HostRoutes(self)

    def enable_ipv6(self) -> None:
        """Has IPv6 on the interfaces that come, whether or not they have a planned address."""
        with self.entered():
            ipv6.enable_node()

    def set_sysctls(self, sysctls: Iterable[tuple[str, str]]) -> None:
        """Paths below /proc/sys and their values. InputError for one that the node does not have or take."""
        for path, value in sysctls:
            try:
                self.sysctl(path, value)
            except OSError as error:
                reasons = {
                    errno.ENOENT: "a node has none of this name",
                    errno.EACCES: "it is the machine's, not a node's",
                    errno.EPERM: "it is the machine's, not a node's",
                }
                reason = reasons.get(error.errno or 0, error.strerror)
                raise InputError(f"{self.name}: sysctl {path.replace('/', '.')} = {value}: {reason}") from None

    def pod(self, name: str, networks: Sequence[Network]) -> Pod:
        """A pod on this host, attached to `networks` in their order: its interfaces are eth0, net1, net2, …

        A network is a conflist: a file beside the scenario or the test, or a dict. docs/cni.md tells what happens.
        """
        return self.lab.make_pod(self, name, networks)

    def add_vf(self, name: str, parent: str) -> None:
        """A virtual function of the card behind `parent`, as far as the network sees: another MAC on the same port.

        It is a macvlan child, which the plugin host-device can give to a pod.
        """
        mac = pod_mac(self.lab.plan.name, f"{self.name}/{name}")
        self.ip.link("add", ifname=name, kind="macvlan", link=self.index(parent), macvlan_mode="bridge", address=mac)

    def set_mac(self, interface: str, mac: str) -> None:
        """Gives an interface another MAC. InputError if it has an RDMA device: a change breaks its queue pairs for
        good, so `Lab.add_rdma` comes after this."""
        if interface in self.rdma:
            raise InputError(
                f"{interface} of {self.name} has an RDMA device, which does not survive another MAC",
                hint="Give the host `rdma: false`, and the device with `lab.add_rdma` when it has its MAC.",
            )
        self.ip.link("set", index=self.index(interface), address=mac)
        self.macs[interface] = mac
        self.lab.emit("link", self.name, f"{interface} has MAC {mac}", interface=interface, mac=mac)

    def address(self, interface: str, family: Family = 4) -> IPInterface:
        """The interface's address of a family; InputError if it has none."""
        known: dict[str, IPv4Interface] | dict[str, IPv6Interface] = self.addresses if family == 4 else self.addresses6
        if interface not in known:
            raise InputError(f"{interface} of {self.name} has no IPv{family} address")
        return known[interface]

    def mac(self, interface: str) -> str:
        """The interface's MAC; InputError if there is no such interface."""
        self.index(interface)
        return self.macs[interface]

    def gateway(self, interface: str, family: Family = 4) -> IPAddress:
        """The planned gateway of the interface's subnet; InputError if there is none. A pod's is not planned."""
        plan = self.lab.plan.nodes.get(self.name)
        found = plan.interface(interface) if plan else None
        gateway = (found.gateway if family == 4 else found.gateway6) if found else None
        if gateway is None:
            raise InputError(f"{interface} of {self.name} has no IPv{family} gateway")
        return gateway

    def add_address(self, interface: str, address: IPInterface) -> None:
        if isinstance(address, IPv6Interface):
            with self.entered():
                ipv6.enable(self.ip, interface, self.macs[interface])
            ipv6.add_address(self.ip, self.index(interface), address)
            self.addresses6[interface] = address
            return
        self.ip.addr(
            "add",
            index=self.index(interface),
            address=str(address.ip),
            prefixlen=address.network.prefixlen,
            broadcast=str(address.network.broadcast_address),
        )
        self.addresses[interface] = address

    def remove_address(self, interface: str, family: Family = 4) -> IPInterface:
        """Takes the interface's address of a family away and returns it."""
        address = self.address(interface, family)
        self.ip.addr(
            "delete", index=self.index(interface), address=str(address.ip), prefixlen=address.network.prefixlen
        )
        (self.addresses if family == 4 else self.addresses6).pop(interface)
        return address

    def add_route(self, destination: IPNetwork, *via: IPAddress) -> None:
        """Several next hops are of equal cost: each flow takes one of them."""
        if len(via) > 1:
            for path, value in ecmp.sysctls(self.name).items():
                self.sysctl(f"net/{path}", value)
        family = FAMILIES[destination.version]
        self.ip.route("add", family=family, dst=str(destination), multipath=ecmp.next_hops(via))

    def take_down(self, interface: str) -> Callable[[], None]:
        """Sets a NIC down, which takes its IPv6 address and its routes away. What is returned brings it all back."""
        self.routes.go(interface)
        release = self.hold_down(interface)

        def bring_back() -> None:
            release()
            if self.is_up(interface):
                if interface in self.addresses6:
                    self.add_address(interface, self.addresses6[interface])
                self.routes.come_back()

        return bring_back

    def set_neighbour(self, interface: str, ip: IPAddress, mac: str) -> None:
        """A static neighbour entry, as ``ip neigh replace … nud permanent``."""
        self.ip.neigh("replace", dst=str(ip), lladdr=mac, ifindex=self.index(interface), state=NUD_PERMANENT)

    def neighbour(self, interface: str, ip: IPAddress) -> str | None:
        """The MAC this host has for `ip`, None if it has none."""
        entry = self._neighbour(interface, ip)
        mac: str | None = entry.get_attr("NDA_LLADDR") if entry else None
        return mac

    def neighbour_state(self, interface: str, ip: IPAddress) -> str | None:
        """The entry's state as ``ip neigh`` shows it, such as STALE; None if there is no entry."""
        entry = self._neighbour(interface, ip)
        return NUD_STATES[entry["state"]] if entry else None

    def _neighbour(self, interface: str, ip: IPAddress) -> Any:
        entries = self.ip.get_neighbours(family=FAMILIES[ip.version], ifindex=self.index(interface))
        return next((entry for entry in entries if entry.get_attr("NDA_DST") == str(ip)), None)

    def unreached(self, interface: str, ip: IPAddress) -> str:
        """Why packets from `interface` do not get to `ip`, as the kernel sees it now: no route, or a next hop that does
        not answer. Nothing if it knows of no obstacle."""
        source = (self.addresses if ip.version == 4 else self.addresses6).get(interface)
        command = ["ip", "-j", f"-{ip.version}", "route", "get", str(ip), "oif", interface]
        command += ["from", str(source.ip)] if source else []
        found = processes.run(
            self.name, self.namespace, command, COMMAND_S, ready=self.lab.ready, env=self.env, check=False
        )
        routes = json.loads(found.stdout) if found.returncode == 0 and found.stdout.strip() else []
        if not routes or routes[0].get("type", "unicast") != "unicast":
            return f"no route to {ip}"
        gateway = routes[0].get("gateway")
        if gateway is None and not self._routes_by(interface, ip):
            return f"no route to {ip}"  # of IPv4 the kernel takes any address for a neighbour, asked for one interface
        hop = ip_address(gateway) if gateway else ip
        entry = self._neighbour(interface, hop)
        if entry is None or NUD_STATES[entry["state"]] in UNANSWERED:
            return f"no answer from {hop} on {interface}"
        return ""

    def _routes_by(self, interface: str, ip: IPAddress) -> bool:
        """Whether a route over an interface leads to an address."""
        for route in self.routes.shown(ip.version):
            over = [hop.get("dev") for hop in route.get("nexthops", [route])]
            if interface in over and (route["dst"] == "default" or ip in ip_network(route["dst"])):
                return True
        return False

    def announce(self, interface: str, family: Family = 4) -> None:
        """Broadcasts a gratuitous ARP request for the interface's address, as ``arping -U`` does; for an IPv6 address
        multicasts an unsolicited neighbour advertisement."""
        mac, ip = self.macs[interface], self.address(interface, family).ip
        self.send(interface, packets.gratuitous(mac, ip))
        kind = "garp" if family == 4 else "na"
        self.lab.emit(kind, self.name, f"announces {ip} at {mac}", interface=interface, ip=str(ip), mac=mac)

    def send(self, interface: str, frame: bytes) -> None:
        """Puts an Ethernet frame on the wire, whatever is in it; ``bytes(packet)`` of a scapy packet is one."""
        with self.entered(), socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as wire:
            wire.bind((interface, 0))
            wire.send(frame)

    def teach(self, interface: str, mac: str = "") -> None:
        """Broadcasts a frame that no protocol takes, from the interface's MAC or another: bridges learn where it is.
        Over a link that is down nothing goes: a switch may have disabled the port."""
        source = bytes.fromhex((mac or self.macs[interface]).replace(":", ""))
        try:
            self.send(interface, b"\xff" * 6 + source + LOCAL_EXPERIMENTAL + bytes(46))
        except OSError as error:
            if error.errno not in (errno.ENOBUFS, errno.ENETDOWN):  # without a carrier; set down
                raise


class Pod(Host):
    """A pod on a host: a namespace of its own, with the interfaces that its networks gave it, `eth0` first."""

    def __init__(self, host: Host, name: str) -> None:
        super().__init__(host.lab, name, host.nic)
        self.host = host

    def check(self) -> None:
        """Has the networks' plugins look whether the pod is as they made it (CNI's CHECK); raises what they miss."""
        self.lab.networks.check(self)

    def delete(self) -> None:
        """Ends the pod as a container runtime does: its processes, its networks, its namespace. A second time does
        nothing."""
        if self.lab.nodes.get(self.name) is not self:
            return
        self.lab.delete(self)
        self.lab.emit("pod", self.name, f"deleted from {self.host.name}", host=self.host.name)


class Switch(Node):
    """A switch: a VLAN-aware bridge with SVIs in the kernel, its ARP and ND in the lab's agent."""

    def __init__(self, lab: Lab, name: str) -> None:
        super().__init__(lab, name)
        self._values = Overlay(lambda _: lab.agent.profile(name), lambda values: lab.agent.set(name, **values))
        self._cpu = Overlay(lambda _: lab.agent.cpu(name), lambda values: lab.agent.set_cpu(name, **values))

    def change_profile(self, **values: Any) -> Callable[[], None]:
        """Gives its profile other values, beside other changes. What is returned takes this change back. InputError for
        a name or a value that is none."""
        check_names(values)
        return self._values.change(values)

    def change_cpu(self, **values: Any) -> Callable[[], None]:
        """The same of how its CPU handles ARP: see `Agent.set_cpu`."""
        return self._cpu.change(values)

    def clear_arp(self, vlan: int | None = None, ip: IPv4Address | None = None) -> None:
        """Forgets ARP entries: all, or those of a VLAN, of an address. As `sonic-clear arp`, `clear ip arp`."""
        self.lab.agent.clear_arp(self.name, vlan, ip)

    def clear_nd(self, vlan: int | None = None, ip: IPv6Address | None = None) -> None:
        """The same of IPv6 neighbours."""
        self.lab.agent.clear_nd(self.name, vlan, ip)

    def clear_fdb(self, vlan: int | None = None, mac: str | None = None) -> None:
        """Forgets learned MACs: all, or those of a VLAN, one MAC. Static entries stay."""
        self.lab.agent.clear_fdb(self.name, vlan, mac)

    def profile(self) -> dict[str, Any]:
        """The values of its profile as they are now, by their names (`testbed profile describe`)."""
        return self.lab.agent.profile(self.name)

    def arp_table(self) -> dict[str, str]:
        """IP to MAC, as the control plane has it."""
        return {entry["ip"]: entry["mac"] for entry in self.tables()["arp"]}

    def nd_table(self) -> dict[str, str]:
        """The same of IPv6."""
        return {entry["ip"]: entry["mac"] for entry in self.tables()["nd"]}

    def neighbour(self, ip: IPAddress) -> str | None:
        """The MAC that the control plane has for an address of either family, None if it has none."""
        return (self.arp_table() if ip.version == 4 else self.nd_table()).get(str(ip))

    def uplinks(self, source: IPAddress, target: IPAddress, source_ports: Sequence[int]) -> list[str]:
        """The port by which RoCE packets from one address to another leave, for each UDP source port. The kernel is
        asked, which hashes as it does for packets; the packets come from where `source` is attached."""
        plan = self.lab.plan.nodes[self.name]
        here = [svi.name for svi in plan.svis if any(source in address.network for address in svi.addresses)]
        here += [svi.name for svi in plan.svis if svi.addresses] + [port.name for port in plan.routed_ports]
        if not here:
            raise InputError(f"{self.name} routes nothing: it has no SVI with an address and no routed port")
        flow = f"route get {target} from {source} iif {here[0]} ipproto udp dport 4791"
        lines = "".join(f"{flow} sport {port}\n" for port in source_ports)
        answers = self.run("ip", "-j", "-batch", "-", text=lines).stdout.splitlines()
        devices = [route["dev"] for line in answers if line for route in json.loads(line)]
        ports = {svi.name: port.name for svi in plan.svis for port in plan.interfaces if port.vlan == svi.vlan}
        return [ports.get(device, device) for device in devices]  # a routed port is the device itself

    def fdb_table(self) -> dict[str, str]:
        """MAC to port, as the bridge learned it."""
        return {entry["mac"]: entry["port"] for entry in self.tables()["fdb"]}

    def tables(self) -> dict[str, list[dict[str, Any]]]:
        """The ARP, ND and FDB tables in full, see testbed.switch.control."""
        return self.lab.agent.tables(self.name)


class Bridge(Node):
    """A plain learning bridge."""

    def join(self, interfaces: list[str]) -> None:
        index = self.next_index("br0")
        self.ip.link("add", ifname="br0", kind="bridge", index=index, br_mcast_snooping=0)
        self.ip.link("set", index=index, state="up")
        for interface in interfaces:
            self.ip.link("set", index=self.index(interface), master=index)
