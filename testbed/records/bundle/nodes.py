"""Transcripts of hosts and switches, and the JSON of iproute2, rdma and lldpctl in them."""

import re
from collections.abc import Callable
from ipaddress import ip_address, ip_interface
from typing import Any

from testbed.records import json_files
from testbed.records.bundle import linux_texts, port_channels, switch_texts
from testbed.records.bundle.linux_texts import UNANSWERED, VLAN
from testbed.records.bundle.model import Entry, Interface, Node, colons, short
from testbed.records.bundle.times import ahead, nanoseconds
from testbed.records.bundle.transcripts import sections

SPEED = re.compile(r"Speed: (\d+)Mb/s")
ETHTOOL = re.compile(r" {0,8}(?P<name>[^\s:][^:]{0,80}): (?P<value>\d{1,20})")
MOST_AGE_S = 10**9
OF_LINK = {
    **{f"rx_{name}": ("rx", name) for name in ("bytes", "packets", "errors", "dropped", "length_errors", "crc_errors",
                                               "frame_errors", "fifo_errors", "missed_errors", "over_errors")},
    **{f"tx_{name}": ("tx", name) for name in ("bytes", "packets", "errors", "dropped", "carrier_errors",
                                               "aborted_errors", "fifo_errors")},
}  # fmt: skip
"""Counters of `ip -s -s link`, by their names in /sys/class/net/<interface>/statistics."""
OF_HARDWARE = {
    "out_of_sequence": "out_of_seq_request",
    "packet_seq_err": "rcvd_seq_err",
    "local_ack_timeout_err": "completer_retry_err",
    "rnr_nak_retry_err": "rcvd_rnr_err",
    "req_transport_retries_exceeded": "retry_exceeded_err",
    "req_rnr_retries_exceeded": "retry_rnr_exceeded_err",
    # bnxt_re (drivers/infiniband/hw/bnxt_re/hw_counters.c)
    "to_retransmits": "completer_retry_err",
    "seq_err_naks_rcvd": "rcvd_seq_err",
    "max_retry_exceeded": "retry_exceeded_err",
    "rnr_naks_rcvd": "rcvd_rnr_err",
    "oos_drop_count": "out_of_seq_request",
    "dup_req": "duplicate_request",
    # irdma (drivers/infiniband/hw/irdma/verbs.c)
    "RetransSegs": "completer_retry_err",
    "Nak Sequence Error": "rcvd_seq_err",
    "RNR sent": "send_rnr_err",
    "RNR received": "rcvd_rnr_err",
    "cnpHandled": "rp_cnp_handled",
    "cnpIgnored": "rp_cnp_ignored",
    "cnpSent": "np_cnp_sent",
    "RxECNMrkd": "np_ecn_marked_roce_packets",
}
"""Counters of RDMA devices of mlx5 and others, by those that count the same here."""


def read(name: str, text: str, *, switch: bool) -> Node:
    """Read a transcript."""
    node = Node(name, switch)
    for command, output in sections(text):
        try:
            _take(node, command, output)
        except (ValueError, TypeError, KeyError, AttributeError, IndexError, OverflowError, RecursionError) as error:
            node.remarks.append(f"{name}: what `{command[:60]}` printed is not understood: {error}")
    for interface in node.interfaces.values():
        if interface.vlan is None and (found := VLAN.fullmatch(interface.name)):
            interface.vlan = int(found[1])
    _share_devices(node)
    _share_addresses(node)
    return node


def _share_devices(node: Node) -> None:
    """Give the bond the only RDMA device of its members: a NIC with RoCE LAG has one for all ports, and names one of
    them."""
    for bond, members in node.bonds().items():
        named = [one for one in members if one.rdma]
        if len(named) == 1 and len(members) > 1 and not (own := node.interface(bond)).rdma:
            own.rdma, named[0].rdma = named[0].rdma, ""


def _share_addresses(node: Node) -> None:
    """Give an RDMA device's interface without an address those of the only VLAN on it: their GIDs are in its table."""
    on: dict[str, list[Interface]] = {}
    for one in node.interfaces.values():
        if one.parent and one.addresses and not one.rdma:
            on.setdefault(one.parent, []).append(one)
    for name, vlans in on.items():
        if (own := node.interface(name)).rdma and not own.addresses and len(vlans) == 1:
            own.addresses, vlans[0].addresses = vlans[0].addresses, []


def _take(node: Node, command: str, output: str) -> None:
    words = command.split()
    if command == "asked at":
        node.asked = nanoseconds(output)
    elif words == ["date", "+%z"]:
        node.zone = ahead(output)
    elif words[0] == "date":
        now = nanoseconds(output)
        node.collected = now if node.collected is None else node.collected
        node.readings.append((now, {}))
    elif words[0] == "uname":
        node.system = node.system or "Linux"
    elif port_channels.take(node, command, output):
        return
    elif words[0] == "cat":
        node.system = "SONiC" if "sonic" in output.lower() else "Cumulus" if "Cumulus" in output else node.system
    elif words[:2] == ["ethtool", "-S"]:
        _counted(node, words[2], {m["name"]: int(m["value"]) for m in map(ETHTOOL.fullmatch, output.split("\n")) if m})
    elif words[0] == "ethtool" and len(words) == 2:
        if speed := SPEED.search(output):
            node.interface(words[1]).speed = int(speed[1]) * 10**6
    else:
        _taken(node, command, output)


def _taken(node: Node, command: str, output: str) -> None:
    """Take in JSON, else what a tool of Linux prints for people, else the table of a switch."""
    if command.startswith(("ip ", "bridge ", "rdma ", "lldpctl ")) and output.lstrip()[:1] in ("[", "{", ""):
        if output.strip():
            _json(node, command, json_files.parsed(output))
        return
    counters = linux_texts.take(node, command, output)
    if counters is None or command.startswith("show "):
        switch_texts.take(node, command, output)
    for place in sorted({place for place, _ in counters or ()}):
        _counted(node, place, {name: value for (own, name), value in (counters or {}).items() if own == place})


def _json(node: Node, command: str, found: Any) -> None:
    for options, take in JSON.items():
        if re.fullmatch(options, command):
            if take is _lldp:
                _lldp(node, found)
            else:
                for row in found:
                    take(node, row)


def _counted(node: Node, place: str, counters: dict[str, int]) -> None:
    if not node.readings:
        raise ValueError("counters have no time: `date +%s.%N` comes before them")
    node.readings[-1][1].update({(place, OF_HARDWARE.get(name, name)): value for name, value in counters.items()})


BONDS = ("bond", "team")
"""Kinds of devices that have members: SONiC's port channels are of the second one."""


def _link(node: Node, row: Any) -> None:
    stats, name = row.get("stats64"), str(row["ifname"])
    if stats:
        _counted(node, name, {ours: int(stats[way][own]) for ours, (way, own) in OF_LINK.items() if own in stats[way]})


def _address(node: Node, row: Any) -> None:
    if row["ifname"] == "lo":
        return
    _details(node, row)
    found = [address for address in row.get("addr_info", ()) if address.get("scope") == "global"]
    one = node.interface(str(row["ifname"]))
    one.addresses = [str(ip_interface(f"{address['local']}/{int(address['prefixlen'])}")) for address in found]


def _details(node: Node, row: Any) -> None:
    if row["ifname"] == "lo":
        return
    one = node.interface(str(row["ifname"]))
    one.mac, one.mtu = colons(str(row.get("address", ""))), int(row["mtu"])
    one.permanent = colons(str(row.get("permaddr", "")))
    flags, info = row.get("flags") or [], row.get("linkinfo") or {}
    one.enabled, one.carrier = "UP" in flags, "LOWER_UP" in flags
    data, slave = info.get("info_data") or {}, info.get("info_slave_data") or {}
    if isinstance(data.get("id"), int) and info.get("info_kind") == "vlan":
        one.vlan, one.parent = data["id"], str(row.get("link", ""))
    if info.get("info_kind") == "bond":
        one.mode = str(data.get("mode", ""))
        one.partner = port_channels.partner(str((data.get("ad_info") or {}).get("partner_mac", "")))
    if row.get("master") and ("SLAVE" in flags or info.get("info_slave_kind") in BONDS):
        port_channels.add(node, str(row["master"]), [one.name])
        one.permanent = colons(str(slave.get("perm_hwaddr", ""))) or one.permanent


def _route(node: Node, row: Any) -> None:
    if row.get("dst") == "default" and row.get("gateway"):
        node.gateways.append(str(ip_address(row["gateway"])))


def _neighbour(node: Node, row: Any) -> None:
    found = VLAN.fullmatch(str(row["dev"]))
    state = row.get("state") or []
    failed = not UNANSWERED.isdisjoint(state)
    if row.get("lladdr") or failed:
        age = row.get("updated")
        age_s = float(age) if isinstance(age, int) and 0 <= age < MOST_AGE_S else None
        entry = Entry(str(row.get("lladdr", "")), "", age_s, failed, "PERMANENT" in state, "STALE" in state)
        node.neighbours[int(found[1]) if found else 0, str(ip_address(row["dst"]))] = entry


def _fdb(node: Node, row: Any) -> None:
    if row.get("state") != "permanent" and "self" not in row.get("flags", ()) and row.get("ifname"):
        node.macs[int(row.get("vlan", 0)), str(row["mac"])] = str(row["ifname"])


def _vlan(node: Node, row: Any) -> None:
    for one in row.get("vlans", ()):
        if "PVID" in one.get("flags", ()):
            node.interface(str(row["ifname"])).vlan = int(one["vlan"])


def _rdma(node: Node, row: Any) -> None:
    if row.get("netdev"):
        one = node.interface(str(row["netdev"]))
        one.rdma = str(row["ifname"])
        if one.carrier is None and row.get("state"):
            one.carrier = row["state"] != "DOWN"


def _statistic(node: Node, row: Any) -> None:
    _counted(node, str(row["ifname"]), {key: value for key, value in row.items() if isinstance(value, int)})


def _lldp(node: Node, found: Any) -> None:
    given = found["lldp"].get("interface", [])
    for each in given if isinstance(given, list) else [given]:
        for port, row in each.items():
            chassis = row.get("chassis", {})
            names = [chassis["name"]] if isinstance(chassis.get("name"), str) else list(chassis)
            name = names[0]
            ident = row.get("port", {}).get("id", {})
            other = str(ident.get("value", ""))
            if ident.get("type") == "mac" and row["port"].get("descr"):
                other = str(row["port"]["descr"])
            node.cables[str(port)] = short(str(name)), other


JSON: dict[str, Callable[[Node, Any], None]] = {
    r"ip -j( -s)* link( show)?": _link,
    r"ip -j -d link( show)?": _details,
    r"ip -j( -d)? addr(ess)?( show)?": _address,
    r"ip -j( -6)? route( show)?": _route,
    r"ip -j( -s)? neigh\w*( show)?": _neighbour,
    r"bridge -j( -s)? fdb( show)?": _fdb,
    r"bridge -j vlan( show)?": _vlan,
    r"rdma -j link( show)?": _rdma,
    r"rdma -j statistic( show( link)?)?": _statistic,
    r"lldpctl -f json": _lldp,
}
"""Commands that print JSON, and what takes a row of it."""
