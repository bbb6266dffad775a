"""What tools of Linux print for people: ip, bridge, rdma, arp, ifconfig, NVIDIA's show_gids and ibdev2netdev."""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from ipaddress import ip_address, ip_interface

from testbed.records.bundle.model import Entry, Node, colons, short
from testbed.records.bundle.port_channels import partner

VLAN = re.compile(r"(?i:vlan|vl|br\w*\.)(\d{1,4})")
MAC = r"[0-9a-fA-F]{2}(?:[:-][0-9a-fA-F]{2}){5}"
LINK = re.compile(
    r"\d{1,7}: (?P<name>[^\s@:]{1,64})(?:@(?P<parent>[^\s:]{1,64}))?: <(?P<flags>[\w,-]{0,256})>"
    r"(?:.* mtu (?P<mtu>\d{1,7}))?(?:.* master (?P<master>\S{1,64}))?.*"
)
BOND = re.compile(r"\s+bond mode (?P<mode>\S{1,16})\b(?:.* ad_partner_mac (?P<partner>\S{17}))?.*")
SLAVE = re.compile(r"\s+(?:bond|team)_slave\b(?:.* perm_hwaddr (?P<permanent>\S{17}))?.*")
ETHER = re.compile(rf"\s+(?:link/ether|ether) (?P<mac>{MAC})\b.*")
ADDRESS = re.compile(r"\s+inet6? (?P<address>[0-9a-fA-F.:]{2,45}/\d{1,3}) .*\bscope global\b.*")
ID = re.compile(r"\s+vlan protocol 802\.1Q id (?P<vlan>\d{1,4}) .*")
NEIGHBOUR = re.compile(r"(?P<ip>[0-9a-fA-F.:]{2,45}) dev (?P<dev>\S{1,64})(?: lladdr (?P<mac>\S{1,64}))?(?P<more> .*)")
UNANSWERED = {"FAILED", "INCOMPLETE"}
"""States of an entry that nobody answers."""
UPDATED = re.compile(r"\bused \d{1,12}/\d{1,12}/(?P<age>\d{1,9})\b")
ARP = re.compile(rf"(?P<ip>[0-9.]{{7,15}}) +(?:ether +(?P<mac>{MAC}) .*|\(incomplete\)) +(?P<dev>\S{{1,64}})")
BSD_ARP = re.compile(rf"\S+ \((?P<ip>[0-9.]{{7,15}})\) at (?:(?P<mac>{MAC}) |<incomplete>).* on (?P<dev>\S{{1,64}}).*")
DEFAULT = re.compile(r"default via (?P<new>[0-9a-fA-F.:]{2,45})\b|0\.0\.0\.0 +(?P<old>[0-9.]{7,15}) +0\.0\.0\.0 +UG")
FDB = re.compile(rf"(?P<mac>{MAC}) dev (?P<port>\S{{1,64}})(?P<more>.*)")
OF_VLAN = re.compile(r"\bvlan (\d{1,4})\b")
RDMA = re.compile(
    r"link (?P<device>[^\s/]{1,64})/\d{1,3} (?:.*\bstate (?P<state>[A-Z]{1,16})\b)?.*\bnetdev (?P<netdev>\S{1,64}).*"
)
NETDEV = re.compile(r"(?P<device>\S{1,64}) port \d{1,3} ==> (?P<netdev>\S{1,64}) \((?P<state>Up|Down)\)")
LLDP = re.compile(r"\s*(?P<key>Interface|SysName|PortID|PortDescr): +(?P<value>\S.*)")
GID = re.compile(
    r"(?P<device>\S{1,64})\s+\d{1,3}\s+\d{1,5}\s+\S+\s+(?:(?P<ip>[0-9.]{7,15})\s+)?v[12]\s+(?P<netdev>\S{1,64})"
)
STATISTIC = re.compile(r"link (?P<device>[^\s/]{1,64})/\d{1,3} (?P<counters>.*)")
PAIR = re.compile(r"(?P<name>[A-Za-z]\S{0,63}(?: [A-Za-z]\S{0,63}){0,2}) (?P<value>\d{1,20})(?= |$)")
HW_COUNTER = re.compile(
    r"/sys/class/infiniband/(?P<device>[^/\s]{1,64})/ports/\d{1,3}/(?:hw_)?counters/(?P<name>\w{1,64}):(?P<value>\d{1,20})"
)
IFCONFIG = re.compile(r"(?P<name>[^\s:]{1,64}): flags=\d+<(?P<flags>[\w,]{0,256})>\s+mtu (?P<mtu>\d{1,7})")
INET = re.compile(r"\s+inet (?P<ip>[0-9.]{7,15})\s+netmask (?P<mask>[0-9.]{7,15})\b.*")
OLD_IFCONFIG = re.compile(rf"(?P<name>[^\s:]{{1,64}}) +Link encap:Ethernet +HWaddr (?P<mac>{MAC})\s*")
OLD_INET = re.compile(r"\s+inet addr:(?P<ip>[0-9.]{7,15}) .*\bMask:(?P<mask>[0-9.]{7,15})\s*")
OLD_FLAGS = re.compile(r"\s+(?P<flags>[A-Z ]{2,64})\s+MTU:(?P<mtu>\d{1,7}) .*")
LONGEST = 4096


def take(node: Node, command: str, output: str) -> dict[tuple[str, str], int] | None:
    """Take in what a command printed. Return the counters in it, None for a command that is not known here."""
    for words, reader in READERS.items():
        if re.fullmatch(words, command):
            counters: dict[tuple[str, str], int] = {}
            for place, name, value in reader(node, [line[:LONGEST].rstrip() for line in output.split("\n")]) or ():
                counters[place, name] = value
            return counters
    return None


Counted = Iterator[tuple[str, str, int]]


def _addresses(node: Node, lines: list[str]) -> None:
    name = master = parent = ""
    for line in lines:
        if head := LINK.fullmatch(line):
            name, flags = head["name"], head["flags"].split(",")
            if name != "lo":
                one = node.interface(name)
                one.mtu = int(head["mtu"]) if head["mtu"] else one.mtu
                one.enabled, one.carrier = "UP" in flags, "LOWER_UP" in flags
                master, parent = head["master"] or "", head["parent"] or ""
                one.master = master if "SLAVE" in flags else one.master
        elif name in ("", "lo"):
            continue
        elif found := ETHER.fullmatch(line):
            node.interface(name).mac = colons(found["mac"])
        elif found := ADDRESS.fullmatch(line):
            _has(node, name, found["address"])
        elif found := ID.fullmatch(line):
            node.interface(name).vlan, node.interface(name).parent = int(found["vlan"]), parent
        elif found := BOND.fullmatch(line):
            node.interface(name).mode, node.interface(name).partner = found["mode"], partner(found["partner"] or "")
        elif found := SLAVE.fullmatch(line):
            node.interface(name).master, node.interface(name).permanent = master, colons(found["permanent"] or "")


def _ifconfig(node: Node, lines: list[str]) -> None:
    name = ""
    for line in lines:
        head = IFCONFIG.fullmatch(line) or OLD_IFCONFIG.fullmatch(line)
        if head:
            name = head["name"]
            if "flags" in head.groupdict():
                _flags(node, name, head["flags"].split(","), head["mtu"])
            else:
                node.interface(name).mac = colons(head["mac"])
        elif line and not line[0].isspace():
            name = ""
        elif not name or name == "lo":
            continue
        elif found := INET.fullmatch(line) or OLD_INET.fullmatch(line):
            _has(node, name, f"{found['ip']}/{found['mask']}")
        elif found := ETHER.fullmatch(line):
            node.interface(name).mac = colons(found["mac"])
        elif found := OLD_FLAGS.fullmatch(line):
            _flags(node, name, found["flags"].split(), found["mtu"])


def _flags(node: Node, name: str, flags: list[str], mtu: str) -> None:
    if name != "lo":
        one = node.interface(name)
        one.enabled, one.carrier, one.mtu = "UP" in flags, "RUNNING" in flags, int(mtu)


def _has(node: Node, name: str, address: str) -> None:
    text, own = str(ip_interface(address)), node.interface(name).addresses
    if text not in own:
        own.append(text)


def _neighbours(node: Node, lines: list[str]) -> None:
    for line in lines:
        if found := NEIGHBOUR.fullmatch(line):
            words, age = found["more"].split(), UPDATED.search(found["more"])
            entry = Entry(
                colons(found["mac"] or ""), "", float(age["age"]) if age else None,
                not UNANSWERED.isdisjoint(words), "PERMANENT" in words, "STALE" in words,
            )  # fmt: skip
            _neighbour(node, found["ip"], found["dev"], entry)


def _arp(node: Node, lines: list[str]) -> None:
    for line in lines:
        if found := ARP.fullmatch(line) or BSD_ARP.fullmatch(line):
            _neighbour(node, found["ip"], found["dev"], Entry(colons(found["mac"] or ""), "", None, not found["mac"]))


def _neighbour(node: Node, ip: str, dev: str, entry: Entry) -> None:
    if entry.mac or entry.failed:
        vlan = VLAN.fullmatch(dev)
        of_port = entry if vlan or not node.switch else replace(entry, port=dev)
        node.neighbours[int(vlan[1]) if vlan else 0, str(ip_address(ip))] = of_port


def _routes(node: Node, lines: list[str]) -> None:
    for line in lines:
        if found := DEFAULT.match(line):
            node.gateways.append(str(ip_address(found["new"] or found["old"])))


def _fdb(node: Node, lines: list[str]) -> None:
    for line in lines:
        found = FDB.fullmatch(line)
        if found and not {"permanent", "self"} & {*found["more"].split()}:
            vlan = OF_VLAN.search(found["more"])
            node.macs[int(vlan[1]) if vlan else 0, colons(found["mac"])] = found["port"]


def _rdma(node: Node, lines: list[str]) -> None:
    for line in lines:
        if found := RDMA.fullmatch(line.strip()) or NETDEV.fullmatch(line.strip()):
            one = node.interface(found["netdev"])
            one.rdma = found["device"]
            if one.carrier is None and found["state"]:
                one.carrier = found["state"].upper() != "DOWN"


def _lldp(node: Node, lines: list[str]) -> None:
    port, found = "", dict[str, str]()
    for line in [*lines, "Interface: ,"]:
        if not (word := LLDP.fullmatch(line)):
            continue
        if word["key"] == "Interface":
            if port and found.get("SysName"):
                kind, _, ident = found.get("PortID", "").partition(" ")
                node.cables[port] = short(found["SysName"]), found.get("PortDescr", ident) if kind == "mac" else ident
            port, found = word["value"].partition(",")[0], {}
        else:
            found[word["key"]] = word["value"].strip()


def _gids(node: Node, lines: list[str]) -> None:
    for line in lines:
        if found := GID.fullmatch(line.strip()):
            one = node.interface(found["netdev"])
            one.rdma = one.rdma or found["device"]
            if found["ip"] and not any(address.startswith(f"{found['ip']}/") for address in one.addresses):
                _has(node, found["netdev"], f"{found['ip']}/32")


def _statistics(node: Node, lines: list[str]) -> Counted:
    for line in lines:
        if found := STATISTIC.fullmatch(line.strip()):
            yield from ((found["device"], one["name"], int(one["value"])) for one in PAIR.finditer(found["counters"]))


def _hw_counters(node: Node, lines: list[str]) -> Counted:
    for line in lines:
        if found := HW_COUNTER.fullmatch(line.strip()):
            yield found["device"], found["name"], int(found["value"])


READERS: dict[str, Callable[[Node, list[str]], Counted | None]] = {
    r"ip( -\w+)* (a|ad|addr|address|l|li|link)( .*)?": _addresses,
    r"ifconfig( .*)?": _ifconfig,
    r"ip( -\w+)* (n|ne|neigh|neighbor|neighbour)( .*)?|show ndp": _neighbours,
    r"arp( .*)?": _arp,
    r"ip( -\w+)* (r|ro|route)( .*)?|route( .*)?": _routes,
    r"bridge( -\w+)* (f|fdb)( .*)?": _fdb,
    r"rdma( -\w+)* (link|l)( .*)?|ibdev2netdev( .*)?": _rdma,
    r"lldpc(tl|li)( .*)?|show lldp neighbors?( .*)?": _lldp,
    r"(\S*/)?show_gids( .*)?": _gids,
    r"rdma( -\w+)* (statistic|stat|s)( .*)?": _statistics,
    r"grep .*counters/?.*": _hw_counters,
}
"""Commands, as people shorten and lengthen them, and what reads their lines."""
