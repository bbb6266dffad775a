"""Bonds of hosts and port channels of switches: which interfaces are their members, and which switches are a pair."""

import re
from collections.abc import Iterable, Iterator

from testbed.records.bundle.model import Node, colons, long

LONGEST = 512
"""Characters of a line that is looked at."""
BONDING = re.compile(r"(?:sudo )?cat /proc/net/bonding/(?P<bond>[^\s/*?]{1,64})")
LACP = re.compile(r"show lacp (?:neighbors?|peer)( detail(ed)?| all-ports)?")
PAIR = re.compile(r"show mlag( detail)?|show mclag brief( \d+)?|(?:net show )?clag(?:ctl)?|show vpc( brief)?")
MODES = {
    "round-robin": "balance-rr", "active-backup": "active-backup", "(xor)": "balance-xor", "broadcast": "broadcast",
    "802.3ad": "802.3ad", "transmit load": "balance-tlb", "adaptive load": "balance-alb",
}  # fmt: skip
"""Words of /proc/net/bonding for a bond's mode."""
FIELD = re.compile(r"\s*(?P<key>[A-Za-z][A-Za-z -]{1,40}[A-Za-z])\s*: *(?P<value>\S.*?)\s*")
CHANNEL = re.compile(r"Port Channel (?P<name>Port-Channel\d{1,5})\b.*")
BUNDLED = re.compile(r"\s*(?P<port>Et[\w/.]{1,20})\s+(?:Bundled|Collecting|Distributing)\b.*")
VPC_LINK = re.compile(r"\d{1,5}\s+(?P<port>Po\d{1,5})\s+(?:up|down)\b.*")
NAME = re.compile(r"[^\s/:]{1,64}")


def take(node: Node, command: str, output: str) -> bool:
    """Take in what a command printed of bonds and pairs; return whether it is such a command."""
    lines = [line[:LONGEST].rstrip() for line in output.split("\n")]
    if found := BONDING.fullmatch(command):
        _bonding(node, found["bond"], lines)
    elif LACP.fullmatch(command):
        _lacp(node, lines)
    elif PAIR.fullmatch(command):
        _pair(node, lines)
    else:
        return False
    return True


def add(node: Node, bond: str, members: Iterable[str]) -> None:
    """Add members to a bond."""
    node.interface(bond)
    for member in members:
        node.interface(member).master = bond


def _bonding(node: Node, bond: str, lines: list[str]) -> None:
    own, member = node.interface(bond), None
    for key, value in _fields(lines):
        if key == "slave interface" and NAME.fullmatch(value):
            add(node, bond, [value])
            member = node.interface(value)
        elif key == "bonding mode":
            own.mode = next((mode for words, mode in MODES.items() if words in value), "")
        elif key == "mii status" and value in ("up", "down") and (one := member or own).carrier is None:
            one.carrier = value == "up"
        elif key == "permanent hw addr" and member:
            member.permanent = colons(value)
        elif key == "partner mac address":
            own.partner = partner(value)


def partner(text: str) -> str:
    """Return the MAC of a partner; empty for what stands for none, or is a group's."""
    mac = colons(text)
    return mac if mac.strip("0:") and not int(mac[:2], 16) & 1 else ""


def _lacp(node: Node, lines: list[str]) -> None:
    channel = ""
    for line in lines:
        if found := CHANNEL.match(line):
            channel = found["name"]
        elif channel and (found := BUNDLED.match(line)):
            add(node, channel, [long(found["port"])])


def _pair(node: Node, lines: list[str]) -> None:
    for key, value in _fields(lines):
        if key in ("peer-link", "peer link", "peer interface and ip"):
            node.peer_link = long(value.partition(".")[0].partition(" ")[0])
        elif key in ("system-id", "system mac"):
            node.pair = partner(value.partition(" ")[0])
    for found in filter(None, map(VPC_LINK.fullmatch, lines[: _status(lines)])):
        node.peer_link = long(found["port"])


def _status(lines: list[str]) -> int:
    """Return where the table of a pair's port channels begins, below that of its peer link (vPC)."""
    return next((at for at, line in enumerate(lines) if line.strip() == "vPC status"), len(lines))


def _fields(lines: list[str]) -> Iterator[tuple[str, str]]:
    for line in lines:
        if found := FIELD.fullmatch(line):
            yield found["key"].lower(), found["value"]
