"""A stand-in for Mininet's networks and nodes: it records what a script makes, and the commands that configure it.

Source: the API of Mininet 2.3. Names are Mininet's.
"""

# ruff: noqa: N802, N803, N815

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from ipaddress import IPv4Interface, IPv4Network, ip_interface
from typing import Any, NoReturn

from testbed.errors import InputError
from testbed.topology.mininet.recording import Options, Topo

CONFIGURES = (
    *("arp", "bridge", "brctl", "echo", "ebtables", "ethtool", "ifconfig", "ifenslave", "ip", "ip6tables", "iptables"),
    *("modprobe", "nft", "route", "sysctl", "tc", "vconfig"),
)
"""The programs whose commands configure a node. Others are measurements and services of the script."""
IP_BASE = "10.0.0.0/8"


class Over(BaseException):
    """The end of what is recorded: the script asks for a prompt, or stops its network."""


class Intf:
    """An end of a link, with the link's options, or an interface of the machine, which a script gives to a node."""

    def __init__(self, name: str, node: Any = None, *_: Any, end: tuple[Options, int] | None = None, **__: Any) -> None:
        self.name, self.node = name, node
        self._info, self._side = end or ({}, 1)
        if end is None and node is not None:
            node.others.append(f"Intf({name!r}): the machine's interface {name}")

    def __str__(self) -> str:
        return self.name

    def setIP(self, ipstr: str, prefixLen: int | None = None) -> str:
        address = ipstr if "/" in ipstr else f"{ipstr}/{prefixLen or 8}"
        key = f"params{self._side}"
        self._info[key] = {**(self._info.get(key) or {}), "ip": address}
        return ""

    def setMAC(self, macstr: str) -> str:
        self._info[f"addr{self._side}"] = macstr
        return ""

    def IP(self) -> str | None:
        found = (self._info.get(f"params{self._side}") or {}).get("ip") or self.node.params.get("ip")
        return str(found).partition("/")[0] if found else None

    def MAC(self) -> Any:
        return self._info.get(f"addr{self._side}") or self.node.params.get("mac")

    def config(self, **_: Any) -> dict[str, Any]:
        return {}

    def ifconfig(self, *args: Any) -> Any:
        return self.node.cmd("ifconfig", self.name, *args)

    def rename(self, name: str) -> str:
        self._info[f"intfName{self._side}"] = self.name = name
        return name


class Node:
    """A node by name, with its parameters. `commands` configure it, `others` are the script's other ones."""

    def __init__(self, name: str, inNamespace: bool = True, **params: Any) -> None:
        self.name, self.inNamespace = name, inNamespace
        self.params: Options = params
        self.commands: list[str] = []
        self.others: list[str] = []
        self.intfs: dict[int, Intf] = {}
        self.nameToIntf: dict[str, Intf] = {}
        self.pid = 0

    def __str__(self) -> str:
        return self.name

    # What own classes override and call

    def config(self, **_params: Any) -> dict[str, Any]:
        return {}

    def configDefault(self, **params: Any) -> None:
        self.config(**{**self.params, **params})

    def terminate(self) -> None:
        pass

    def cmd(self, *args: Any, **_: Any) -> str:
        words = args[0] if len(args) == 1 and isinstance(args[0], list) else args
        text = " ".join(map(str, words)).strip()
        for line in filter(None, map(str.strip, text.splitlines())):
            program = re.sub(r"^(sudo\s+)+", "", line).split()[0].rpartition("/")[2]
            (self.commands if program in CONFIGURES else self.others).append(line)
        return ""

    cmdPrint = sendCmd = cmd

    def pexec(self, *args: Any, **_: Any) -> tuple[str, str, int]:
        self.cmd(*args)
        return "", "", 0

    def popen(self, *args: Any, **_: Any) -> NoReturn:
        self.cmd(*args)
        raise Over

    def waitOutput(self, *_: Any, **__: Any) -> str:
        return ""

    monitor = waitOutput

    def sendInt(self, *_: Any) -> None:
        pass

    # Addresses

    def defaultIntf(self) -> Intf | None:
        return self.intfs[min(self.intfs)] if self.intfs else None

    def intf(self, intf: Any = None) -> Any:
        return self.nameToIntf.get(intf) if isinstance(intf, str) else intf or self.defaultIntf()

    def intfList(self) -> list[Intf]:
        return [self.intfs[port] for port in sorted(self.intfs)]

    def intfNames(self) -> list[str]:
        return [str(intf) for intf in self.intfList()]

    def setIP(self, ip: str, prefixLen: int | None = 8, intf: Any = None, **_: Any) -> str:
        if (found := self.intf(intf)) is not None:
            return str(found.setIP(ip, prefixLen))
        self.params["ip"] = ip if "/" in ip else f"{ip}/{prefixLen}"
        return ""

    def setMAC(self, mac: str, intf: Any = None) -> str:
        if (found := self.intf(intf)) is not None:
            return str(found.setMAC(mac))
        self.params["mac"] = mac
        return ""

    def IP(self, intf: Any = None) -> str | None:
        found = self.intf(intf)
        return found.IP() if found else str(self.params.get("ip") or "").partition("/")[0]

    def MAC(self, intf: Any = None) -> str | None:
        found = self.intf(intf)
        return found.MAC() if found else self.params.get("mac")

    def setDefaultRoute(self, intf: Any = None) -> str:
        text = str(intf)
        return self.cmd(f"ip route replace default {text if ' ' in text else f'dev {text}'}")

    def setHostRoute(self, ip: str, intf: Any) -> str:
        return self.cmd(f"ip route add {ip} dev {intf}")

    def setARP(self, ip: str, mac: str) -> str:
        return self.cmd(f"arp -s {ip} {mac}")

    def start(self, *_: Any) -> None:
        pass

    def stop(self, *_: Any, **__: Any) -> None:
        pass


class Host(Node):
    pass


class CPULimitedHost(Host):
    def setCPUFrac(self, *_: Any, **__: Any) -> None:
        pass

    setCPUs = setCPUFrac


class NAT(Node):
    pass


class Switch(Node):
    @classmethod
    def setup(cls) -> None:
        pass

    def connected(self) -> bool:
        return True

    def dpctl(self, *_: Any) -> str:
        return ""

    def attach(self, *_: Any) -> None:
        pass


class OVSSwitch(Switch):
    pass


class OVSKernelSwitch(OVSSwitch):
    pass


class OVSBridge(OVSSwitch):
    pass


class UserSwitch(Switch):
    pass


class IVSSwitch(Switch):
    pass


class LinuxBridge(Switch):
    pass


class Controller(Node):
    pass


class OVSController(Controller):
    pass


class RemoteController(Controller):
    pass


class NOX(Controller):
    pass


class Ryu(Controller):
    pass


class NullController(Controller):
    pass


class DefaultController(Controller):
    pass


class Link:
    """A link of a network. One that a script makes by itself is added to the network of its nodes."""

    intf1: Any
    intf2: Any

    def __init__(self, node1: Any, node2: Any, *ports: Any, **params: Any) -> None:
        if isinstance(node1, Node):
            made = next(net for net in Mininet.made if node1.name in net.objects).addLink(
                node1, node2, *ports, **params
            )
            ends = made.intf1, made.intf2
        else:
            ends = node1, node2
        self.intf1, self.intf2 = ends


class TCLink(Link):
    pass


class TCULink(TCLink):
    pass


class OVSLink(Link):
    pass


class TCIntf(Intf):
    pass


def custom(cls: Any, **params: Any) -> Callable[..., Any]:
    return partial(cls, **params)


def cleanup(*_: Any, **__: Any) -> None:
    pass


def CLI(*_: Any, **__: Any) -> NoReturn:
    raise Over


def parts_of(cls: Any) -> tuple[Any, Options]:
    """Return a class, and the parameters that `partial` and `custom` give it."""
    given: Options = {}
    while isinstance(cls, partial):
        given = {**cls.keywords, **given}
        cls = cls.func
    return cls, given


class Mininet:
    """A network as the script makes it. `recorded` has its nodes and links, `objects` the nodes by name."""

    made: list[Mininet]
    """The networks of the script; set before it is run."""

    def __init__(
        self,
        topo: Topo | None = None,
        switch: Any = OVSKernelSwitch,
        host: Any = Host,
        controller: Any = None,
        link: Any = Link,
        *_: Any,
        ipBase: str = IP_BASE,
        autoSetMacs: bool = False,
        build: bool = True,
        **__: Any,
    ) -> None:
        self.recorded, self.topo = Topo(), topo
        self.switch, self.host, self.link = switch, host, link
        self.ipBase, self.autoSetMacs = ipBase, autoSetMacs
        self.objects: dict[str, Node] = {}
        self.hosts: list[Any] = []
        self.switches: list[Any] = []
        self.controllers: list[Any] = []
        self.links: list[Link] = []
        self.notes: list[str] = []
        self.started = self._built = False
        self.made.append(self)
        if topo is not None and build:
            self.build()

    def build(self) -> None:
        if self._built:
            return
        self._built = True
        if self.topo is not None:
            self.buildFromTopo(self.topo)
        self.configHosts()

    def buildFromTopo(self, topo: Topo | None = None) -> None:
        assert topo is not None
        for name in topo.hosts():
            self.addHost(name, **topo.nodeInfo(name))
        for name in topo.switches():
            self.addSwitch(name, **{key: value for key, value in topo.nodeInfo(name).items() if key != "isSwitch"})
        for *_, info in topo.links(sort=True, withInfo=True):
            given = dict(info)
            ends = [given.pop(key) for key in ("node1", "node2", "port1", "port2")]
            self.addLink(*ends, **given)

    def configHosts(self) -> None:
        for host in self.hosts:
            host.configDefault()

    # Nodes and links

    def addHost(self, name: str, cls: Any = None, **params: Any) -> Any:
        first, number = first_address(self.ipBase), len(self.hosts)
        given = {"ip": str(IPv4Interface((first.ip + number, first.network.prefixlen)))}
        if self.autoSetMacs:
            given["mac"] = (number + 1).to_bytes(6).hex(":")
        made = self._made(name, cls or self.host, {**given, **params})
        self.recorded.addHost(name, cls=type(made))
        self.hosts.append(made)
        return made

    def addSwitch(self, name: str, cls: Any = None, **params: Any) -> Any:
        made = self._made(name, cls or self.switch, params)
        self.recorded.addSwitch(name, cls=type(made))
        self.switches.append(made)
        return made

    def addController(self, name: Any = "c0", controller: Any = None, **params: Any) -> Any:
        made = name if isinstance(name, Node) else Controller(str(name), **params)
        self.objects[made.name] = made
        self.controllers.append(made)
        return made

    def addNAT(self, name: str = "nat0", connect: Any = True, inNamespace: bool = False, **params: Any) -> Any:
        made = self.addHost(name, cls=NAT, **{key: value for key, value in params.items() if key in ("ip", "mac")})
        self.notes.append(f"{name} is a host without the Internet: a lab ends at its own links.")
        if connect and self.switches:
            self.addLink(made, self.switches[0] if connect is True else connect)
        return made

    def _made(self, name: str, cls: Any, params: Options) -> Any:
        cls, given = parts_of(cls)
        made = cls(name, **{**given, **params})
        if not isinstance(made, Node):
            raise InputError(f"{name} is made by {cls!r}, which makes no node of Mininet's")
        self.objects[name] = made
        return made

    def addLink(
        self, node1: Any, node2: Any, port1: Any = None, port2: Any = None, cls: Any = None, **params: Any
    ) -> Link:
        names = [str(node) for node in (node1, node2)]
        for node in node1, node2:
            if isinstance(node, Node) and node.name not in self.objects:  # which the script made by itself
                self.objects[node.name] = node
                self.recorded.addHost(node.name, cls=type(node))
                self.hosts.append(node)
        cls, given = parts_of(cls or self.link)
        options = {**given, **params, **({"cls": cls} if isinstance(cls, type) else {})}
        key = self.recorded.addLink(names[0], names[1], port1, port2, **options)
        info = self.recorded.linkInfo(names[0], names[1], key)
        ends = []
        for side, name in enumerate(names, start=1):
            port = info[f"port{side}"]
            intf = Intf(info.get(f"intfName{side}") or f"{name}-eth{port}", self.objects[name], end=(info, side))
            self.objects[name].intfs[port] = self.objects[name].nameToIntf[intf.name] = intf
            ends.append(intf)
        made = Link(*ends)
        self.links.append(made)
        return made

    def get(self, *names: str) -> Any:
        for name in names:
            if name not in self.objects:
                raise InputError(f"the network has no node {name}")
        found = [self.objects[name] for name in names]
        return found[0] if len(found) == 1 else found

    getNodeByName = __getitem__ = get

    def __iter__(self) -> Iterator[str]:
        return iter(self.objects)

    def __len__(self) -> int:
        return len(self.objects)

    def __contains__(self, name: object) -> bool:
        return name in self.objects

    def keys(self) -> list[str]:
        return list(self.objects)

    def values(self) -> list[Node]:
        return list(self.objects.values())

    def items(self) -> list[tuple[str, Node]]:
        return list(self.objects.items())

    def linksBetween(self, node1: Node, node2: Node) -> list[Link]:
        return [link for link in self.links if {link.intf1.node, link.intf2.node} == {node1, node2}]

    # Its life

    def start(self) -> None:
        self.build()
        self.started = True

    def stop(self) -> NoReturn:
        raise Over

    interact = run = stop

    def _measured(self, *_: Any, **__: Any) -> Any:
        return 0.0

    pingAll = ping = pingPair = pingAllFull = pingFull = pingPairFull = waitConnected = staticArp = _measured
    startTerms = stopXterms = monitor = configureControlNetwork = _measured

    def iperf(self, *_: Any, **__: Any) -> list[str]:
        return ["", ""]

    runCpuLimitTest = iperf


class MininetWithControlNet(Mininet):
    pass


MODULES: Mapping[str, tuple[str, ...]] = {
    "mininet.net": ("Mininet", "MininetWithControlNet"),
    "mininet.cli": ("CLI",),
    "mininet.clean": ("cleanup",),
    "mininet.util": ("custom",),
    "mininet.link": ("Link", "TCLink", "TCULink", "OVSLink", "Intf", "TCIntf"),
    "mininet.nodelib": ("LinuxBridge", "NAT"),
    "mininet.node": (
        *("Node", "Host", "CPULimitedHost", "Switch", "OVSSwitch", "OVSKernelSwitch", "OVSBridge", "UserSwitch"),
        *("IVSSwitch", "Controller", "OVSController", "RemoteController", "NOX", "Ryu", "NullController"),
        "DefaultController",
    ),
}
"""The names of this module in the modules of Mininet."""
for _module, _names in MODULES.items():
    for _name in _names:
        with contextlib.suppress(AttributeError):
            globals()[_name].__module__ = _module


def first_address(base: str) -> IPv4Interface:
    """Return the address of the first host of a network, with the length of its prefix."""
    network = IPv4Network(base, strict=False)
    return IPv4Interface((network.network_address + 1, network.prefixlen))


def in_subnet(address: str, owner: str) -> bool:
    """Return whether an address is in the subnet of another one, which has its prefix length."""
    try:
        return ip_interface(address).ip in ip_interface(owner).network
    except ValueError:
        return False
