"""Conversion of a network of Mininet to the text of a topology file. An option that changes the network and has no
counterpart is refused by its name; what has no effect in a lab is a comment of the text."""

import re
import shlex
from collections.abc import Callable
from ipaddress import IPv4Network, ip_interface
from typing import Any

import yaml
from pydantic import ValidationError

from testbed.documents.problems import Problems
from testbed.documents.variables import escaped
from testbed.errors import InputError
from testbed.topology.mininet.network import Mininet, first_address, in_subnet
from testbed.topology.models import split_endpoint
from testbed.topology.topology import Topology

HOSTS = {"mininet.node.Host", "mininet.node.Node", "mininet.nodelib.NAT", "testbed.mininet.RdmaHost"}
SWITCHES = {"mininet.nodelib.LinuxBridge", "testbed.mininet.KernelBridge"} | {
    f"mininet.node.{name}"
    for name in ("IVSSwitch", "OVSBridge", "OVSKernelSwitch", "OVSSwitch", "Switch", "UserSwitch")
}
LINKS = {"mininet.link.Link", "mininet.link.OVSLink", "mininet.link.TCLink", "mininet.link.TCULink"}
OPENFLOW = (
    "datapath dpctl dpid dpopts failMode inband ip listenPort opts protocols reconnectms verbose".split()  # noqa: SIM905
)
"""The options of a switch for its controller, which a lab does not have."""
EFFECTIVE = "enable_ecn", "enable_red", "ifconfig", "up"
"""The options of a link or its end that change it, and that a lab does not have. Mininet passes over unknown ones."""
NO_CONTROLLER = "Switches learn as bridges do; there is no OpenFlow controller."
PLANNED = "{}:{} has no address in Mininet; testbed plans one."
MOST_NOTED = 5
LARGEST_PORT = 250
"""Hosts on a switch, at most, whose subnet is planned: a /24 with its gateway."""


def _comment(text: str) -> str:
    return "# " + "".join(c if c.isprintable() else " " for c in text)


def _time(value: Any) -> str:
    """Return a time of tc, in microseconds without a unit."""
    found = re.fullmatch(r"([\d.]+(?:e-?\d+)?)\s*([a-z]*)", str(value).strip())
    if not found:
        return str(value)
    number, unit = round(float(found[1]), 9), {"": "us", "usec": "us", "msec": "ms", "sec": "s"}.get(found[2], found[2])
    return f"{number:f}".rstrip("0").rstrip(".") + unit


def class_name(cls: Any) -> str:
    return f"{getattr(cls, '__module__', '')}.{getattr(cls, '__name__', cls)}" if cls is not None else ""


QUALITY: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "bw": ("rate", lambda value: f"{value}mbit"),
    "delay": ("delay", _time),
    "jitter": ("jitter", _time),
    "loss": ("loss", lambda value: value),
    "max_queue_size": ("queue", lambda value: value),
}
"""The parameters of Mininet's TCLink, and the counterpart of each."""
NEEDS = {"jitter": "delay", "queue": "rate"}
"""Keys of a link that have no effect without another one."""


def convert(name: str, net: Mininet, source: str, *, stp: bool = False, routed: bool = False) -> str:
    """Return the topology file. With `stp` its bridges run spanning tree, with `routed` its switches route by FRR: a
    network with loops needs one of both. Raise InputError for what cannot be converted; planning may still refuse the
    text."""
    return _Conversion(net, source).text(name, stp=stp, routed=routed)


def can_be_planned(lab: dict[str, Any]) -> bool:
    try:
        Topology.model_validate(lab).plan()
    except (InputError, ValidationError):
        return False
    return True


class _Conversion:
    def __init__(self, net: Mininet, source: str) -> None:
        self.net, self.topo = net, net.recorded
        self.source = source
        self.problems = Problems(None, source)
        self.notes = [NO_CONTROLLER, *net.notes]
        self.first = first_address(net.ipBase)
        self.addresses: dict[tuple[str, int], str] = {}
        self.macs: dict[tuple[str, int], str] = {}

    def text(self, name: str, *, stp: bool, routed: bool) -> str:
        nodes = {host.name: self._host(host.name) for host in self.net.hosts}
        nodes |= {switch.name: self._switch(switch.name) for switch in self.net.switches}
        links = [self._link(dict(info)) for *_, info in self.topo.links(withInfo=True)]
        self.problems.stop()
        rest: dict[str, Any] = {}
        if routed:
            rest["routing"] = "frr"
            self._route(nodes, links)
        elif stp:
            for switch in self.net.switches:
                nodes[switch.name]["stp"] = True
        elif loop := self._loop(nodes):
            hint = "Say what breaks it: `--stp` makes bridges with spanning tree, `--routing frr` switches that route."
            raise InputError(f"the network has a loop of switches, at {loop}", where=self.source, hint=hint)
        label = re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-")[:63] or "mininet"
        lab: dict[str, Any] = {
            "name": label,
            "topology": {**rest, "nodes": nodes, **({"links": links} if links else {})},
        }
        if not (routed or can_be_planned(lab)):  # as hosts of containerlab's files they have any addresses
            free = {name: {**node, "kind": "linux"} if node["kind"] == "host" else node for name, node in nodes.items()}
            other = {**lab, "topology": {**lab["topology"], "nodes": free}}
            if can_be_planned(other):
                self.notes.append(
                    "The addresses are no plan of subnets, so hosts are of kind linux: they have these only."
                )
                lab = other
        head = map(_comment, [f"The Mininet topology {name} of {self.source}.", *self.notes])
        return "\n".join([*head, yaml.safe_dump(lab, sort_keys=False, default_flow_style=None, width=120)])

    def _refuse(self, what: str, key: str, value: Any) -> None:
        self.problems.add((), f"{what}: {key}={value!r} has no counterpart in a lab")

    def _text(self, what: str, options: dict[str, Any], key: str) -> str | None:
        """Remove an option that is a text, or missing, and return it."""
        value = options.pop(key, None)
        if value and not isinstance(value, str):
            self._refuse(what, key, value)
            return None
        return value or None

    # Hosts

    def _host(self, name: str) -> dict[str, Any]:
        what, made = f"host {name}", self.net.objects[name]
        options, kind = dict(made.params), class_name(type(made))
        if kind == "mininet.node.CPULimitedHost":
            self.notes.append(f"{name}: a lab does not limit the CPU of a host.")
        elif kind and kind not in HOSTS:
            self.notes.append(f"{name} is of the class {kind.rpartition('.')[2]}: its commands are in 'exec'.")
        if made.inNamespace is not True:
            self.notes.append(f"{what} has a namespace of its own.")
        ip, mac, route = (self._text(what, options, key) for key in ("ip", "mac", "defaultRoute"))
        first = (name, min(self.topo.ports.get(name, {0: None})))
        if ip:
            self.addresses[first] = ip if "/" in ip else f"{ip}/{self.first.network.prefixlen}"
        if mac:
            self.macs[first] = mac
        self.notes += [f"{what}: {key}={value!r} has no effect." for key, value in options.items()]
        definition: dict[str, Any] = {"kind": "host"}
        commands = list(made.commands)
        if route:
            found = re.fullmatch(r"(?:dev \S+ )?via (\S+)", route)
            if found and in_subnet(found[1], self.addresses.get(first, "")):
                definition["routes"] = [{"to": "default", "via": found[1]}]
            else:
                commands.insert(0, f"ip route replace default {route}")
        if commands:
            definition["exec"] = [self._command(name, command) for command in commands]
        self.notes += [f"{name}: not run: {command}" for command in made.others[:MOST_NOTED]]
        if more := len(made.others) - MOST_NOTED:
            self.notes += [f"{name}: {more} more commands are not run"] * (more > 0)
        return definition

    def _command(self, node: str, command: str) -> str:
        """Return a command of a shell for `exec`, with the names that interfaces have in the lab."""
        text = escaped(re.sub(rf"\b{re.escape(node)}-(?=[A-Za-z])", "", command))
        return text if re.fullmatch(r"[\w\s./:=,@+-]+", text) else shlex.join(["bash", "-c", text])

    # Switches

    def _switch(self, name: str) -> dict[str, Any]:
        options, kind = dict(self.net.objects[name].params), class_name(type(self.net.objects[name]))
        if kind and kind not in SWITCHES:
            self.notes.append(f"{name} is of the class {kind.rpartition('.')[2]}, and a bridge here.")
        stp = options.pop("stp", False)
        for key, value in options.items():
            if key in OPENFLOW:
                self.notes.append(f"{name}: {key}={value!r} is for a controller and has no effect.")
            elif key != "batch":  # which Mininet sets itself
                self.notes.append(f"{name}: {key}={value!r} has no effect.")
        if self.net.objects[name].commands or self.net.objects[name].others:
            self.notes.append(f"{name}: the commands of a switch are not run.")
        return {"kind": "bridge", **({"stp": True} if stp else {})}

    def _loop(self, nodes: dict[str, dict[str, Any]]) -> str:
        """Return a link between switches that closes a loop, empty without one."""
        above: dict[str, str] = {}

        def root(name: str) -> str:
            while name in above:
                name = above[name]
            return name

        for one, other in self.topo.links():
            ends = [nodes[name] for name in (one, other)]
            if any(end["kind"] == "host" or end.get("stp") for end in ends):
                continue
            if root(one) == root(other):
                return f"{one}-{other}"
            above[root(one)] = root(other)
        return ""

    def _route(self, nodes: dict[str, dict[str, Any]], links: list[dict[str, Any]]) -> None:
        """Make switches that route to each other: the hosts of each have a subnet of their own, with its gateway."""
        hosted: dict[str, list[dict[str, Any]]] = {switch.name: [] for switch in self.net.switches}
        for link in links:
            ends = link["endpoints"] = [split_endpoint(end) for end in link["endpoints"]]
            for end, peer in zip(ends, reversed(ends), strict=True):
                if peer["node"] in hosted and end["node"] not in hosted:
                    hosted[peer["node"]].append(end)
        taken: list[IPv4Network] = []
        for number, (switch, ends) in enumerate(hosted.items(), start=1):
            nodes[switch]["kind"] = "switch"
            nodes[switch].pop("stp", None)
            if not ends:
                continue
            subnet = self._subnet_of(ends, taken)
            if subnet is None:
                if len(ends) > LARGEST_PORT:
                    wrong = f"{switch} has {len(ends)} hosts; {LARGEST_PORT} at most, unless the script gives addresses"
                    raise InputError(wrong, where=self.source)
                subnet = IPv4Network((int(self.first.network.network_address) + (number << 8), 24))
                self.notes.append(f"The hosts of {switch} have addresses of {subnet}, their own subnet.")
                for host, end in enumerate(ends, start=1):
                    end["ipv4"] = f"{subnet[host]}/24"
                    nodes[end["node"]].pop("routes", None)
            taken.append(subnet)
            used = {str(ip_interface(end["ipv4"]).ip) for end in ends}
            given = {route["via"] for end in ends for route in nodes[end["node"]].get("routes", ())} - used
            free = (str(address) for address in reversed(list(subnet.hosts())) if str(address) not in used)
            gateway = next((via for via in sorted(given) if in_subnet(via, str(subnet))), None) or next(free)
            nodes[switch]["vlans"] = {1: f"{gateway}/{subnet.prefixlen}"}

    def _subnet_of(self, ends: list[dict[str, Any]], taken: list[IPv4Network]) -> IPv4Network | None:
        """Return the subnet that the script gives the hosts of a switch, if it is theirs alone."""
        found = {ip_interface(end["ipv4"]).network for end in ends if end.get("ipv4")}
        if len(found) != 1 or any("ipv4" not in end for end in ends):
            return None
        (subnet,) = found
        if subnet.overlaps(self.first.network) or any(subnet.overlaps(other) for other in taken):
            return None
        return IPv4Network(subnet) if subnet.prefixlen >= 16 else None  # its hosts are listed

    # Links

    def _link(self, options: dict[str, Any]) -> dict[str, Any]:
        names = [options.pop("node1"), options.pop("node2")]
        ports = [options.pop("port1"), options.pop("port2")]
        what = f"link {names[0]}-{names[1]}"
        kind = class_name(options.pop("cls", None))
        if kind and kind not in LINKS:
            self.notes.append(f"{what} is of the class {kind.rpartition('.')[2]}, of which its parameters count.")
        ends = [self._end(what, options, side, names[side], ports[side]) for side in range(2)]
        return {"endpoints": ends, **self._quality(what, options)}

    def _quality(self, what: str, options: dict[str, Any]) -> dict[str, Any]:
        """Return what options of a link, or of an end of it, are in a lab."""
        found: dict[str, Any] = {}
        for key, value in options.items():
            name = key.rpartition("[")[2].strip("]'")
            changes = name in EFFECTIVE and value not in (None, name == "up")
            if changes or (name in QUALITY and not isinstance(value, str | int | float | None)):
                self._refuse(what, key, value)
            elif name in QUALITY and value not in (None, 0, 0.0, "0", "0ms"):
                ours, translate = QUALITY[name]
                found[ours] = translate(value)
        for key, needed in NEEDS.items():
            if key in found and needed not in found:
                self.notes.append(f"{what}: {key}: {found.pop(key)} has no effect without {needed}.")
        return found

    def _end(self, what: str, options: dict[str, Any], side: int, node: str, port: int) -> str | dict[str, Any]:
        number = side + 1
        interface = (self._text(what, options, f"intfName{number}") or f"eth{port}").removeprefix(f"{node}-")
        mac = self._text(what, options, f"addr{number}") or self.macs.get((node, port))
        options.pop(f"cls{number}", None)
        given = options.pop(f"params{number}", None) or {}
        own = {f"params{number}[{key!r}]": value for key, value in given.items()} if isinstance(given, dict) else {}
        if not isinstance(given, dict):
            self._refuse(what, f"params{number}", given)
        ip = self._text(what, own, f"params{number}['ip']") or self.addresses.get((node, port))
        quality = self._quality(what, own)
        if self.topo.isSwitch(node):
            ip = None
        elif not ip:
            self.notes.append(PLANNED.format(node, interface))
        if mac or ip or quality:
            family = "ipv6" if ip and ":" in ip else "ipv4"
            extras = {key: value for key, value in (("mac", mac), (family, ip)) if value}
            return {"node": node, "interface": interface, **extras, **quality}
        return f"{node}:{interface}"
