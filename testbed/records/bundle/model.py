"""A host or switch as what it printed has it."""

import re
from dataclasses import dataclass, field


@dataclass
class Interface:
    """An interface. `enabled`: nobody set it down. `vlan` is that of untagged frames, `speed` is in bits per second."""

    name: str
    mac: str = ""
    addresses: list[str] = field(default_factory=list)
    mtu: int | None = None
    enabled: bool | None = None
    carrier: bool | None = None
    master: str = ""
    vlan: int | None = None
    speed: int | None = None
    rdma: str = ""


@dataclass(frozen=True)
class Entry:
    """An entry of an ARP or ND table. `age_s` are the seconds since it was written, None where that is not known."""

    mac: str
    port: str
    age_s: float | None
    failed: bool = False
    permanent: bool = False


@dataclass
class Node:
    """A host or switch. Times are those of its own clock, in nanoseconds since 1970."""

    name: str
    switch: bool
    system: str = ""
    """SONiC, EOS, NX-OS, Cumulus, Linux; empty where that is not known."""
    collected: int | None = None
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
    gateways: list[str] = field(default_factory=list)
    gids: dict[str, list[str]] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)

    def interface(self, name: str) -> Interface:
        return self.interfaces.setdefault(name, Interface(name))


def short(name: str) -> str:
    """Return a host's name without its domain."""
    return name.partition(".")[0]


def colons(mac: str) -> str:
    """Return a MAC with colons, from any way to write it; empty for what is none."""
    digits = re.sub(r"[^0-9a-f]", "", mac.lower())
    return ":".join(digits[at : at + 2] for at in range(0, 12, 2)) if len(digits) == 12 else ""
