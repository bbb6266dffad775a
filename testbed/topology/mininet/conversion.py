"""Conversion of a `Topo` to the text of a topology file. An option without a counterpart is refused by its name."""

import re
from collections.abc import Callable
from ipaddress import IPv4Address
from typing import Any

import yaml

from testbed.documents.problems import Problems
from testbed.topology.mininet.recording import Topo

HOSTS = {"mininet.node.Host", "mininet.node.Node", "testbed.mininet.RdmaHost"}
SWITCHES = {"mininet.nodelib.LinuxBridge", "testbed.mininet.KernelBridge"} | {
    f"mininet.node.{name}" for name in ("OVSBridge", "OVSKernelSwitch", "OVSSwitch", "Switch", "UserSwitch")
}
LINKS = {"mininet.link.Link", "mininet.link.OVSLink", "mininet.link.TCLink"}
OPENFLOW = {"datapath", "dpid", "failMode", "listenPort", "protocols"}
"""The options of a switch for its controller, which a lab does not have."""
NO_CONTROLLER = "Switches learn as bridges do; there is no OpenFlow controller."
PLANNED = "{}:{} has no address in Mininet; testbed plans one."
FIRST_ADDRESS = IPv4Address("10.0.0.1")
PREFIX = 8
"""The prefix length of Mininet's `ipBase`: hosts are numbered in it in the order of their names."""


def _comment(text: str) -> str:
    return "# " + "".join(c if c.isprintable() else " " for c in text)


def _time(value: Any) -> str:
    """Return a time of tc, in microseconds without a unit."""
    text = str(value)
    return text if text[-1:].isalpha() else f"{text}us"


QUALITY: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "bw": ("rate", lambda value: f"{value}mbit"),
    "delay": ("delay", _time),
    "jitter": ("jitter", _time),
    "loss": ("loss", lambda value: value),
    "max_queue_size": ("queue", lambda value: value),
}
"""The parameters of Mininet's TCLink, and the counterpart of each."""


def convert(name: str, topo: Topo, source: str) -> str:
    """Return the topology file. Raise InputError for what cannot be converted; planning may still refuse the text."""
    return _Conversion(topo, source).text(name)


class _Conversion:
    def __init__(self, topo: Topo, source: str) -> None:
        self.topo = topo
        self.source = source
        self.problems = Problems(None, source)
        self.notes = [NO_CONTROLLER]
        self.addresses: dict[tuple[str, int], str] = {}
        self.macs: dict[tuple[str, int], str] = {}

    def text(self, name: str) -> str:
        nodes = {host: self._host(host, f"{FIRST_ADDRESS + i}/{PREFIX}") for i, host in enumerate(self.topo.hosts())}
        nodes |= {switch: self._switch(switch) for switch in self.topo.switches()}
        links = [self._link(dict(info)) for *_, info in self.topo.links(sort=True, withInfo=True)]
        self.problems.stop()
        label = re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-")[:63] or "mininet"
        lab = {"name": label, "topology": {"nodes": nodes, **({"links": links} if links else {})}}
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

    def _check_class(self, what: str, options: dict[str, Any], known: set[str]) -> None:
        cls = options.pop("cls", None)
        name = f"{getattr(cls, '__module__', '')}.{getattr(cls, '__name__', cls)}"
        if cls is not None and name not in known:
            self._refuse(what, "cls", name)

    def _host(self, name: str, planned: str) -> dict[str, Any]:
        what, options = f"host {name}", dict(self.topo.nodeInfo(name))
        self._check_class(what, options, HOSTS)
        options.setdefault("ip", planned)
        ip, mac, route = (self._text(what, options, key) for key in ("ip", "mac", "defaultRoute"))
        first = (name, min(self.topo.ports.get(name, {0: None})))
        if ip:
            self.addresses[first] = ip if "/" in ip else f"{ip}/{PREFIX}"
        if mac:
            self.macs[first] = mac
        if options.get("inNamespace") is True:
            del options["inNamespace"]
        for key, value in options.items():
            self._refuse(what, key, value)
        definition: dict[str, Any] = {"kind": "host"}
        if route:
            if found := re.fullmatch(r"(?:dev \S+ )?via (\S+)", route):
                definition["routes"] = [{"to": "default", "via": found[1]}]
            else:
                self._refuse(what, "defaultRoute", route)
        return definition

    def _switch(self, name: str) -> dict[str, Any]:
        what, options = f"switch {name}", dict(self.topo.nodeInfo(name))
        del options["isSwitch"]
        self._check_class(what, options, SWITCHES)
        for key, value in options.items():
            if key in OPENFLOW:
                self.notes.append(f"{name}: {key}={value!r} is for a controller and has no effect.")
            elif not (key == "batch" and value):  # which Mininet sets itself
                self._refuse(what, key, value)
        return {"kind": "bridge"}

    def _link(self, options: dict[str, Any]) -> dict[str, Any]:
        names = [options.pop("node1"), options.pop("node2")]
        ports = [options.pop("port1"), options.pop("port2")]
        what = f"link {names[0]}-{names[1]}"
        self._check_class(what, options, LINKS)
        ends = [self._end(what, options, side, names[side], ports[side]) for side in range(2)]
        link: dict[str, Any] = {"endpoints": ends}
        if options.get("use_htb") is True:  # as TCLink shapes the rate anyway
            del options["use_htb"]
        for key, value in options.items():
            if key not in QUALITY or not isinstance(value, str | int | float | None):
                self._refuse(what, key, value)
            elif value is not None:
                ours, translate = QUALITY[key]
                link[ours] = translate(value)
        return link

    def _end(self, what: str, options: dict[str, Any], side: int, node: str, port: int) -> str | dict[str, Any]:
        number = side + 1
        interface = (self._text(what, options, f"intfName{number}") or f"eth{port}").removeprefix(f"{node}-")
        mac = self._text(what, options, f"addr{number}") or self.macs.get((node, port))
        given = options.pop(f"params{number}", None) or {}
        own = {f"params{number}[{key!r}]": value for key, value in given.items()} if isinstance(given, dict) else {}
        if not isinstance(given, dict):
            self._refuse(what, f"params{number}", given)
        ip = self._text(what, own, f"params{number}['ip']") or self.addresses.get((node, port))
        for key, value in own.items():
            self._refuse(what, key, value)
        if not (ip or self.topo.isSwitch(node)):
            self.notes.append(PLANNED.format(node, interface))
        if mac or ip:
            extras = {"mac": mac, "ipv4": ip}
            return {"node": node, "interface": interface, **{key: value for key, value in extras.items() if value}}
        return f"{node}:{interface}"
