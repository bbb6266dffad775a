"""The differences between a lab's plan and that of its edited file: what goes, what comes, what stays and changes."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields
from ipaddress import IPv6Interface
from typing import Any, Literal

from testbed.errors import InputError
from testbed.topology.kinds import KINDS
from testbed.topology.plan import Interface, Node, Plan, Quality

Link = tuple[Interface, Interface]
Fault = tuple[str, Mapping[str, Any]]
What = Literal["node", "link", "fault"]
How = Literal["new", "gone", "anew", "changed"]

BIRTH: Mapping[str, str] = {
    "kind": "it has another kind",
    "nic": "'nic'",
    "congestion_control": "'congestion_control'",
    "congestion_values": "'congestion_values'",
    "reorder": "'reorder'",
    "ipv6": "IPv6 of all its interfaces",
    "stp": "'stp'",
    "host_routes": "'host_routes'",
    "container": "its container",
    "dummies": "its dummy interfaces",
    "bgp": "BGP",
    "bonds": "its bonds",
    "ecmp_seed": "'ecmp_seed'",
    "vtep": "'vnis'",
    "l3vni": "'l3vni'",
    "multihoming": "the Ethernet segments of the lab",
    "mlag": "'mlag'",
}
"""What a node has from its begin, by the field of its plan: another value makes it anew."""
REWIRED = "master", "mac", "rdma", "nic", "hardware", "routed", "lossless", "pfc", "qos"
"""What the end of a link has from its begin: another value makes the link anew."""
LIVING = "mtu", "address", "address6", "vlan", "trunk", "sends"
"""What changes at the end of a link that stays."""


@dataclass
class Changes:
    """What turns a lab into its edited file. Nodes of `anew` go and come back; with them go and come their links."""

    nodes_gone: list[Node] = field(default_factory=list)
    nodes_new: list[Node] = field(default_factory=list)
    anew: dict[str, str] = field(default_factory=dict)
    """The reasons by node."""
    links_gone: list[Link] = field(default_factory=list)
    links_new: list[Link] = field(default_factory=list)
    rewired: dict[str, str] = field(default_factory=dict)
    """The reasons by link, see `named`."""
    ends: list[tuple[Interface, Interface]] = field(default_factory=list)
    """Ends before and now, whose link stays."""
    nodes: list[tuple[Node, Node]] = field(default_factory=list)
    """Nodes before and now, which stay."""
    faults_gone: list[Fault] = field(default_factory=list)
    faults_new: list[Fault] = field(default_factory=list)

    def rows(self) -> list[tuple[What, str, How, str]]:
        """Return them for people: what, its name, how it changes, and the details."""
        found: list[tuple[What, str, How, str]] = []
        gone, come = {named(link) for link in self.links_gone}, {named(link) for link in self.links_new}
        found += [("node", node.name, "gone", "") for node in self.nodes_gone if node.name not in self.anew]
        found += [("node", name, "anew", why) for name, why in self.anew.items()]
        found += [("node", node.name, "new", "") for node in self.nodes_new if node.name not in self.anew]
        found += [("node", now.name, "changed", _details(before, now, NODE)) for before, now in self.nodes]
        found += [("link", name, "gone", "") for name in map(named, self.links_gone) if name not in come]
        for name in map(named, self.links_new):
            again = name in gone
            found.append(("link", name, "anew" if again else "new", self.rewired.get(name, "")))
        found += self._ends()
        for faults, how in ((self.faults_gone, "gone"), (self.faults_new, "new")):
            for name, given in faults:
                found.append(("fault", name, how, " ".join(f"{key}={value}" for key, value in given.items())))  # type: ignore[arg-type]
        return found

    def _ends(self) -> list[tuple[What, str, How, str]]:
        """Return the ends that change; a link whose ends change alike is one."""
        found: dict[str, tuple[str, str]] = {}
        for before, now in self.ends:
            end, text = f"{now.node}:{now.name}", _details(before, now, LIVING)
            other = ":".join(now.peer)
            if found.get(other, ("", ""))[1] == text:
                found[other] = " – ".join(sorted((end, other))), text
            else:
                found[end] = end, text
        return [("link", name, "changed", text) for name, text in found.values()]


NODE = "routes", "exec", "env", "sysctls", "profile", "profile_values", "svis"
"""What changes of a node that stays."""


def named(link: Link) -> str:
    return " – ".join(sorted(f"{end.node}:{end.name}" for end in link))


def between(lab: Plan, wanted: Plan, edited: Collection[str] = ()) -> Changes:
    """Return what turns a lab into another plan of the same name; `edited` are nodes whose files have changed.
    InputError for what a lab has for its whole life."""
    _check_whole(lab, wanted)
    changes = Changes()
    for name, now in wanted.nodes.items():
        before = lab.nodes.get(name)
        if before is None:
            changes.nodes_new.append(now)
        elif why := _reason(before, now) or ("a file that it mounts was edited" if name in edited else ""):
            changes.anew[name] = why
        elif any(getattr(before, key) != getattr(now, key) for key in NODE):
            changes.nodes.append((before, now))
    _join(changes, wanted)
    changes.nodes_gone = [node for name, node in lab.nodes.items() if name not in wanted.nodes or name in changes.anew]
    changes.nodes_new = [node for name, node in wanted.nodes.items() if name not in lab.nodes or name in changes.anew]
    _compare_links(lab, wanted, changes)
    changes.faults_gone = [fault for fault in lab.faults if fault not in wanted.faults]
    changes.faults_new = [fault for fault in wanted.faults if fault not in lab.faults]
    if lab.lossless:
        _check_lossless(lab, changes)
    return changes


def _check_whole(lab: Plan, wanted: Plan) -> None:
    """Raise InputError for another value of what is the whole lab's."""
    again = f"`testbed down {lab.name}`, then `testbed up` the file."
    if wanted.name != lab.name:
        raise InputError(f"the file is of the lab {wanted.name}, not of {lab.name}", hint="--lab NAME names the lab.")
    for what, before, now in (
        ("'rdma_mode'", lab.rdma_mode, wanted.rdma_mode),
        ("'lossless'", lab.lossless, wanted.lossless),
        ("'routing'", _routed(lab), _routed(wanted)),
    ):
        if before != now:
            raise InputError(f"{what} of a lab cannot change while it lives", hint=again)


def _routed(plan: Plan) -> bool:
    return any(node.bgp for node in plan.nodes.values())


def _reason(before: Node, now: Node) -> str:
    """Return why a node has to be made anew; empty if it has not."""
    for key, why in BIRTH.items():
        if getattr(before, key) != getattr(now, key):
            return why if key == "kind" else f"{why} changed"
    if now.container and before.env != now.env:
        return "'env' of its container changed"
    if lost := dict(before.sysctls).keys() - dict(now.sysctls).keys():
        return f"sysctl {min(lost).replace('/', '.')} is not given any more"
    macs, new_macs = ({svi.mac for svi in node.svis} for node in (before, now))
    if macs and new_macs and macs != new_macs:
        return "'svi_mac' changed"
    if _fixed(before) != _fixed(now):
        return "IPv6, proxy ARP or the VNI of its SVIs changed"
    return ""


def _fixed(node: Node) -> dict[int, tuple[IPv6Interface | None, bool, int]]:
    """Return what the agent has of SVIs from its begin, by VLAN."""
    fixed = {svi.vlan: (svi.address6, svi.proxy_arp, svi.vni) for svi in node.svis}
    return {vlan: values for vlan, values in fixed.items() if any(values)}


def _join(changes: Changes, wanted: Plan) -> None:
    """A container in the network of another node is made anew with it."""
    for name, node in wanted.nodes.items():
        shared = node.container.network if node.container else ""
        if shared in changes.anew and name not in changes.anew:
            changes.anew[name] = f"it is in the network of {shared}"
            changes.nodes = [pair for pair in changes.nodes if pair[1].name != name]


def _compare_links(lab: Plan, wanted: Plan, changes: Changes) -> None:
    before, now = ({_ends(link): link for link in plan.links} for plan in (lab, wanted))
    moved = {node.name for node in (*changes.nodes_gone, *changes.nodes_new)}
    for ends, link in now.items():
        old = before.get(ends)
        pairs = [(_end(old, end), end) for end in link] if old else []
        why = [key for key in REWIRED for one, other in pairs if getattr(one, key) != getattr(other, key)]
        if old is None or why or any(end.node in moved for end in link):
            if old:
                changes.links_gone.append(old)
                changes.rewired[named(link)] = f"{', '.join(dict.fromkeys(why))} changed" if why else ""
            changes.links_new.append(link)
        else:
            changes.ends += [(one, other) for one, other in pairs if differs(one, other)]
    changes.links_gone += [link for ends, link in before.items() if ends not in now]


def differs(before: Interface, now: Interface) -> bool:
    return any(getattr(before, key) != getattr(now, key) for key in LIVING)


def _ends(link: Link) -> frozenset[tuple[str, str]]:
    return frozenset((end.node, end.name) for end in link)


def _end(link: Link, like: Interface) -> Interface:
    return next(end for end in link if (end.node, end.name) == (like.node, like.name))


def _check_lossless(lab: Plan, changes: Changes) -> None:
    """Raise InputError for links that come or go at switches with lossless ports: all share one buffer, whose sizes
    follow from the number of ports."""
    for link in (*changes.links_gone, *changes.links_new):
        for end in link:
            node = lab.nodes.get(end.node)
            if end.lossless or (node and KINDS[node.kind].has_vlans and any(port.lossless for port in node.interfaces)):
                hint = f"`testbed down {lab.name}`, then `testbed up` the file."
                wrong = f"the link {named(link)} cannot change in a lab that lives: its ports share a lossless buffer"
                raise InputError(wrong, hint=hint)


def _details(before: Node | Interface, now: Node | Interface, keys: Collection[str]) -> str:
    """Return the fields that differ, with their values."""
    found = []
    for key in keys:
        old, new = getattr(before, key), getattr(now, key)
        if old == new:
            continue
        if isinstance(old, Quality) and isinstance(new, Quality):
            parts = [one.name for one in fields(old) if getattr(old, one.name) != getattr(new, one.name)]
            found += [f"{part} {_word(getattr(old, part))} → {_word(getattr(new, part))}" for part in parts]
        elif isinstance(old, tuple) and key != "trunk":
            found.append(key.replace("_", " "))
        else:
            found.append(f"{key} {_word(old)} → {_word(new)}")
    return ", ".join(found)


def _word(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(map(str, value)) or "none"
    return "none" if value in (None, "") else str(value)
