"""Tables that switches print: EOS' and NX-OS' by the templates of ntc-templates, SONiC's and Cumulus' by columns."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from ipaddress import ip_address
from zoneinfo import ZoneInfo

from testbed.records.bundle import linux_texts, port_channels
from testbed.records.bundle.model import Entry, Node, colons, long, short
from testbed.records.bundle.times import ZONES, time_of

SYSTEMS = {"arista_eos": "EOS", "cisco_nxos": "NX-OS"}
COMMANDS = {
    r"show (ip )?arp\b.*": "show ip arp",
    r"show mac address-table\b.*": "show mac address-table",
    r"show lldp neighbors": "show lldp neighbors",
    r"show (port-channel|etherchannel) (summary|dense)": "show port-channel summary",
}
"""Commands, as people shorten and lengthen them, and those that templates have."""
COLUMNS = {
    r"show arp": ("address", "macaddress", "iface", "vlan"),
    r"show ndp": ("address", "macaddress", "iface", "vlan", "status"),
    r"show mac": ("vlan", "macaddress", "port"),
    r"show pfcwd stats?|pfcwd show stats": ("queue", "status"),
    r"show lldp table": ("localport", "remotedevice", "remoteportid", "remoteportdescr"),
    r"show interfaces? portchannel": ("teamdev", "ports"),
    r"net show lldp": ("localport", "remotehost", "remoteport"),
}
"""Commands of SONiC and Cumulus that print columns, and those that are read."""
AS_EOS = re.compile(r"Hardware Addr|MAC Address")
"""The head of a table of EOS or NX-OS; old versions of SONiC print that of arp(8)."""
MEMBER = re.compile(r"((?:Et|Eth|Ethernet)\d[\w/.]{0,20})")
"""A member of a port channel, without the letters of its state."""
RULER = re.compile(r"^ *-{2,}(?: {1,9}-{2,})+ *$", re.MULTILINE)
AGE = re.compile(r"(?:(?P<days>\d+)d)?(?:(?P<h>\d+):)?(?P<m>\d+):(?P<s>\d+)(?:\.\d+)?")
VLAN = re.compile(r"(?i:vlan|vl)?(\d{1,4})")
NOBODY = ("", "-", "n/a", "cpu", "router", "sup-eth1(r)", "vpc", "not learned")
OF_VRF = re.compile(r"vrf (?!all\b|default\b)\S+")
"""A table of another VRF: its addresses may not be those of ranks."""
MANAGEMENT = re.compile(r"(?i)vrf (?:mgmt|management|oob)")
ZONE = re.compile(r"Timezone: ([\w/+-]{1,64})|\d\d:\d\d:\d\d(?:\.\d+)? ([A-Za-z]\w{1,9}) (?:\d{4}|[A-Z][a-z]{2} )")
"""The zone of a clock: EOS' line, or the word after the time."""
BEFORE_YEAR = re.compile(r"(\d\d:\d\d:\d\d) [A-Za-z]\w{1,9}(?= \d{4})")
TWELVE = re.compile(r"[A-Z][a-z]{2} (\d\d) ([A-Z][a-z]{2}) (\d{4}) (\d\d)(:\d\d:\d\d) ([AP]M) (\w+)")
"""SONiC's `show clock`, with hours from 1 to 12."""
LONGEST = 512
"""Characters of a line that is looked at."""


def take(node: Node, command: str, output: str) -> None:
    """Take in what a command of a switch printed; nothing of another command."""
    if found := OF_VRF.search(command):
        if not MANAGEMENT.match(found[0]):
            node.remarks.append(f"{node.name}: `{command[:60]}` is left out: whose VRF that is is not known")
        return
    output = "\n".join(line[:LONGEST] for line in output.split("\n"))
    if command == "show clock":
        _clock(node, output)
    if command == "show arp" and not RULER.search(output) and not AS_EOS.search(output):
        node.system = node.system or "SONiC"
        for tool in "ip neigh", "arp":
            linux_texts.take(node, tool, output)
        return
    for words, columns in COLUMNS.items():
        if re.fullmatch(words, command) and RULER.search(output):
            node.system = node.system or ("Cumulus" if words.startswith("net") else "SONiC")
            for row in _by_columns(output, columns):
                _row(node, row)
            return
    for words, template in COMMANDS.items():
        if re.fullmatch(words, command):
            _table(node, command, template, output)


def _clock(node: Node, output: str) -> None:
    text = TWELVE.sub(_of_24, " ".join(output.split()))
    named = ZONE.search(text)
    zone = _zone(named[1] or named[2], text) if named else None
    if zone is None:
        node.remarks.append(f"{node.name}: the time zone of its clock is not known: {output.strip()[:60]}")
    else:
        node.zone, node.collected = zone, time_of(BEFORE_YEAR.sub(r"\1", text), 0, zone)


def _of_24(found: re.Match[str]) -> str:
    day, month, year, hour, rest, half, zone = found.groups()
    return f"{month} {day} {int(hour) % 12 + 12 * (half == 'PM'):02}{rest} {zone} {year}"


def _zone(name: str, text: str) -> int | None:
    """Return the seconds that a zone is ahead of UTC, at a time; None where that is not known."""
    if name in ZONES:
        return 3600 * ZONES[name]
    t = time_of(BEFORE_YEAR.sub(r"\1", text), 0)
    try:
        offset = ZoneInfo(name).utcoffset(datetime.fromtimestamp((t or 0) // 10**9, UTC).replace(tzinfo=None))
    except (ValueError, OSError, KeyError):
        return None
    return round(offset.total_seconds()) if offset is not None else None


def _table(node: Node, command: str, template: str, output: str) -> None:
    for platform, system in SYSTEMS.items():
        if rows := _by_template(platform, template, output):
            node.system = system
            for row in rows:
                _row(node, row)
            return
    if re.search(r"MAC|Hardware|Neighbor|Po\d", output):
        node.remarks.append(f"{node.name}: what `{command[:60]}` printed is of no system that is known here")


def _by_template(platform: str, command: str, output: str) -> list[dict[str, str]]:
    """Return the rows of an output, their columns as those of SONiC; none if a template does not fit."""
    from ntc_templates.parse import parse_output  # takes a while
    from textfsm import TextFSMError

    try:
        rows = parse_output(platform, command, output)
    except TextFSMError:
        return []
    return [_named(row) for row in rows]


NAMES = {
    "ip_address": "address",
    "mac_address": "macaddress",
    "interface": "iface",
    "vlan_id": "vlan",
    "destination_port": "port",
    "ports": "port",
    "age": "age",
    "vrf": "vrf",
    "neighbor_name": "remotedevice",
    "neighbor_interface": "remoteportid",
    "local_interface": "localport",
    "bundle_name": "teamdev",
    "member_interface": "ports",
}


def _named(row: dict[str, object]) -> dict[str, str]:
    texts = {key: ", ".join(map(str, value)) if isinstance(value, list) else str(value) for key, value in row.items()}
    return {NAMES[key]: value for key, value in texts.items() if key in NAMES}


def _by_columns(output: str, wanted: tuple[str, ...]) -> Iterator[dict[str, str]]:
    """Yield the rows under a line of dashes, by the names above it without blanks."""
    lines = output.split("\n")
    at = next(number for number, line in enumerate(lines) if RULER.search(line))
    spans = [match.span() for match in re.finditer(r"-{2,}", lines[at])]
    heads = ["".join(_cell(lines[at - 1], spans, number).lower().split()) for number in range(len(spans))]
    for line in lines[at + 1 :]:
        if not line.strip() or line.startswith("Total"):
            break
        cells = [_cell(line, spans, number) for number in range(len(spans))]
        yield {name: cell for name, cell in zip(heads, cells, strict=True) if name in wanted}


def _cell(line: str, spans: list[tuple[int, int]], number: int) -> str:
    """Return a cell, to the beginning of the next one: the last is as long as it is."""
    end = spans[number + 1][0] if number + 1 < len(spans) else len(line)
    return line[spans[number][0] : end].strip()


def _row(node: Node, row: dict[str, str]) -> None:
    mac, ports = colons(row.get("macaddress", "")), _ports(row.get("iface", "") or row.get("port", ""))
    svi = next((port for port in ports if port.lower().startswith("vlan")), "")
    found = VLAN.fullmatch(row.get("vlan", "") or svi)
    vlan, port = int(found[1]) if found else 0, next((port for port in ports if port != svi), "")
    if "queue" in row:
        port, _, priority = row["queue"].rpartition(":")
        if port and row.get("status") == "stormed":
            node.stormed.append((long(port), priority))
    elif "teamdev" in row:
        port_channels.add(node, long(row["teamdev"]), map(long, MEMBER.findall(row.get("ports", ""))))
    elif "localport" in row:
        other = row.get("remoteportid") or row.get("remoteport", "")
        if colons(other) and row.get("remoteportdescr"):
            other = row["remoteportdescr"]
        device = row.get("remotedevice") or row.get("remotehost", "")
        node.cables[long(row["localport"])] = short(device), long(other)
    elif "address" in row:
        if row.get("vrf", "") not in ("", "default"):
            return
        node.neighbours[vlan, str(ip_address(row["address"]))] = Entry(mac, port, age(row.get("age", "")), not mac)
        if svi:
            node.interface(svi).vlan = vlan
    elif mac and port:
        node.macs[vlan, mac] = port
        node.interface(port).vlan = vlan or None


def _ports(text: str) -> list[str]:
    return [long(part.strip()) for part in text.split(",") if part.strip().lower() not in NOBODY]


def age(text: str) -> float | None:
    """Return an age such as 00:03:12 in seconds; None for what is none."""
    found = AGE.fullmatch(text.removesuffix(" ago"))
    if not found:
        return None
    days, hours, minutes, seconds = (int(found[name] or 0) for name in ("days", "h", "m", "s"))
    return float(86400 * days + 3600 * hours + 60 * minutes + seconds)
