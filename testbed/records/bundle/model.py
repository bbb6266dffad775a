"""A host or switch as what it printed has it."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass
class Interface:
    """An interface. `enabled`: nobody set it down. `vlan` is that of untagged frames, `speed` is in bits per second.
    `master` is the bond of which it is a member."""

    name: str
    mac: str = ""
    addresses: list[str] = field(default_factory=list)
    mtu: int | None = None
    enabled: bool | None = None
    carrier: bool | None = None
    vlan: int | None = None
    speed: int | None = None
    rdma: str = ""
    parent: str = ""
    """The interface that a VLAN is on."""
    master: str = ""
    mode: str = ""
    """Mode of a bond, as Linux names it."""
    partner: str = ""
    """MAC of the system at the other end of a bond, by LACP."""
    permanent: str = ""
    """Own MAC of a member: it uses that of its bond."""


@dataclass(frozen=True)
class Entry:
    """An entry of an ARP or ND table. `age_s` are the seconds since it was written, None where that is not known."""

    mac: str
    port: str
    age_s: float | None
    failed: bool = False
    """Whether the node asks, or has asked, and nobody answers."""
    permanent: bool = False
    stale: bool = False
    """Whether it is to be verified before it is used again."""


@dataclass
class Node:
    """A host or switch. Times are those of its own clock, in nanoseconds since 1970."""

    name: str
    switch: bool
    system: str = ""
    """SONiC, EOS, NX-OS, Cumulus, Linux; empty where that is not known."""
    collected: int | None = None
    zone: int = 0
    """Seconds that its logs are ahead of UTC where their lines name no zone."""
    asked: int | None = None
    """The time where it was collected, when that began."""
    interfaces: dict[str, Interface] = field(default_factory=dict)
    neighbours: dict[tuple[int, str], Entry] = field(default_factory=dict)
    """By VLAN, 0 where there is none, and IP address."""
    macs: dict[tuple[int, str], str] = field(default_factory=dict)
    """Ports by VLAN and MAC."""
    cables: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Nodes and ports at the other ends, by LLDP."""
    readings: list[tuple[int, dict[tuple[str, str], int]]] = field(default_factory=list)
    """Counters by interface or RDMA device and name, by the time of their reading."""
    stormed: list[tuple[str, str]] = field(default_factory=list)
    """Ports and priorities in which a watchdog finds a pause storm now."""
    gateways: list[str] = field(default_factory=list)
    peer_link: str = ""
    """Port or port channel to the other switch of its pair (MLAG, vPC)."""
    pair: str = ""
    """MAC that both switches of a pair have in LACPDUs."""
    remarks: list[str] = field(default_factory=list)

    def entries(self) -> Iterator[tuple[int, str, Entry]]:
        """Yield VLAN, address and entry of the tables; none of an address for which there are several MACs, which are
        those of several VRFs: an entry in a VLAN before one of a routed port."""
        of_address: dict[str, list[tuple[int, Entry]]] = {}
        for (vlan, ip), entry in self.neighbours.items():
            of_address.setdefault(ip, []).append((vlan, entry))
        for ip, found in of_address.items():
            chosen = [one for one in found if one[0]] or found
            if len({entry.mac for _, entry in chosen}) == 1:
                yield chosen[0][0], ip, chosen[0][1]

    def bonds(self) -> dict[str, list[Interface]]:
        """Return the bonds with those of their members that are known."""
        found: dict[str, list[Interface]] = {}
        for one in self.interfaces.values():
            if one.master:
                found.setdefault(one.master, []).append(one)
        return found

    def interface(self, name: str) -> Interface:
        return self.interfaces.setdefault(name, Interface(name))


SHORT = (
    (re.compile(r"(?:Et|Eth)(?=\d)"), "Ethernet"),
    (re.compile(r"(?:Po|[Pp]ort-[Cc]hannel ?)(?=\d)"), "Port-Channel"),
)
"""Short names of ports of EOS and NX-OS, and the long ones."""


def short(name: str) -> str:
    """Return a host's name without its domain; an address as it is."""
    first = name.partition(".")[0]
    return name if first.isdigit() else first


def colons(mac: str) -> str:
    """Return a MAC with colons, from any way to write it; empty for what is none."""
    digits = re.sub(r"[^0-9a-f]", "", mac.lower())
    return ":".join(digits[at : at + 2] for at in range(0, 12, 2)) if len(digits) == 12 else ""


def long(port: str) -> str:
    """Return a port by its long name: ``Ethernet1`` for Et1, ``Ethernet1/1`` for Eth1/1, ``Port-Channel1`` for Po1."""
    for begin, name in SHORT:
        if begin.match(port):
            return begin.sub(name, port, count=1)
    return port
