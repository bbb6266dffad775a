"""A baseline that works through a runbook: links, MTUs, addresses, the tables of switches, routes, filters, processes,
then a pingmesh. It mends the first thing that is wrong, and names it."""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from ipaddress import ip_address, ip_network
from typing import Any

from testbed.cli.mcp.changing_tools import announce
from testbed.cli.mcp.lab_calls import LabCalls
from testbed.cli.mcp.program_tools import exec_
from testbed.protocol import live
from testbed.protocol.live import IncidentAnswer, LinkRow, NodeRow

SINCE = re.compile(r"\bsince (\d\d:\d\d:\d\d)")
DROPS = re.compile(r"\bdrop$", re.MULTILINE)
PROBES, LOST = 4, 2
Mend = Callable[[], object]


@dataclass(frozen=True)
class Finding:
    cause: str
    place: str
    mend: Mend


class Runbook:
    """What it looks at, each a generator of findings."""

    def __init__(self, lab: LabCalls) -> None:
        self._lab = lab
        self._nodes: list[NodeRow] = lab.ask(live.Inspect())["nodes"]
        self._hosts = [node for node in self._nodes if node["kind"] == "host"]
        self._switches = [node for node in self._nodes if node["kind"] == "switch"]

    def findings(self) -> Iterator[Finding]:
        for look in (
            self._links, self._mtus, self._addresses, self._tables, self._neighbours, self._routes, self._filters,
            self._processes, self._probes,
        ):  # fmt: skip
            yield from look()

    def _run(self, node: str, line: str) -> str:
        return exec_(self._lab, node, line)["stdout"]

    def _rows(self, node: str, line: str) -> list[dict[str, Any]]:
        try:
            found = json.loads(self._run(node, line) or "[]")
        except ValueError:
            return []
        return [row for row in found if isinstance(row, dict)] if isinstance(found, list) else []

    def _typed(self, node: str, line: str) -> Mend:
        return lambda: self._run(node, line)

    @property
    def _ends(self) -> list[tuple[NodeRow, LinkRow]]:
        return [(node, end) for node in self._nodes for end in node["interfaces"]]

    def _links(self) -> Iterator[Finding]:
        for node, end in self._ends:
            if not end["up"] and not end["gone"]:
                gateway = end["addresses"] and node["kind"] == "switch"
                cause = "no-route" if gateway else "link-down"
                up = self._typed(node["name"], f"ip link set {name(end)} up")
                yield Finding(cause, node["name"] if gateway else end["interface"], up)

    def _mtus(self) -> Iterator[Finding]:
        mtus = {end["interface"]: end["mtu"] for _, end in self._ends if end["peer"]}
        usual = Counter(mtus.values()).most_common(1)[0][0]
        rdma = {end["interface"] for _, end in self._ends if end["rdma"]}
        switches = {node["name"] for node in self._switches}
        narrow = [end for end, mtu in mtus.items() if mtu < usual and (end in rdma or end.split(":")[0] in switches)]

        def widen() -> None:
            for end in narrow:
                node, interface = end.split(":")
                self._run(node, f"ip link set {interface} mtu {usual}")

        if narrow:
            yield Finding("mtu-mismatch", narrow[0], widen)

    def _addresses(self) -> Iterator[Finding]:
        owners: defaultdict[str, list[tuple[NodeRow, LinkRow]]] = defaultdict(list)
        for node, end in self._ends:
            for address in end["addresses"]:
                owners[address].append((node, end))
        for address, found in owners.items():
            if len(found) > 1 and all(node["kind"] != "switch" for node, _ in found):
                node, end = max(found, key=lambda one: len(one[1]["addresses"]))
                true = next(other["interface"] for _, other in found if other is not end)

                delete = f"ip address del {address} dev {name(end)}"
                yield Finding("duplicate-ip", true, partial(self._separate, node["name"], delete, true))

    def _separate(self, node: str, delete: str, true: str) -> None:
        self._run(node, delete)
        announce(self._lab, true)

    def _macs(self) -> dict[str, tuple[str, str]]:
        """Return the MAC and the interface of each address of a host."""
        hosts = ((end, address) for node, end in self._ends if node["kind"] != "switch" for address in end["addresses"])
        return {address.partition("/")[0]: (end["mac"], end["interface"]) for end, address in hosts}

    def _tables(self) -> Iterator[Finding]:
        macs = self._macs()
        for switch in self._switches:
            for row in self._lab.ask(live.Tables(switch=switch["name"])):
                mac, interface = macs.get(row["ip"], ("", ""))
                if row["table"] == "arp" and mac and row["mac"] and row["mac"] != mac:
                    yield Finding("stale-neighbour", interface, partial(announce, self._lab, interface))

    def _neighbours(self) -> Iterator[Finding]:
        macs = self._macs()
        for host in self._hosts:
            for row in self._rows(host["name"], "ip -j neigh"):
                mac, _ = macs.get(str(row.get("dst")), ("", ""))
                if mac and row.get("lladdr") not in (None, mac):
                    forget = self._typed(host["name"], f"ip neigh del {row['dst']} dev {row['dev']}")
                    yield Finding("stale-neighbour", host["name"], forget)

    def _routes(self) -> Iterator[Finding]:
        gateways = {a.partition("/")[0] for n in self._switches for end in n["interfaces"] for a in end["addresses"]}
        usual: Counter[str] = Counter()
        wrong: list[tuple[str, str]] = []
        for host in self._hosts:
            addresses = [a for end in host["interfaces"] if end["rdma"] for a in end["addresses"]]
            found = [row for row in self._rows(host["name"], "ip -j route") if row.get("dst") == "default"]
            good = [row for row in found if row.get("gateway") in gateways]
            usual.update(str(row["gateway"]) for row in good)
            if addresses and not good:
                wrong.append((host["name"], addresses[0].rpartition(".")[0]))
        for host_name, network in wrong:
            gateway = next((one for one in usual if one.rpartition(".")[0] == network), "")
            set_route = self._typed(host_name, f"ip route replace default via {gateway} dev eth1")
            yield Finding("no-route", host_name, set_route)
        macs = self._macs()
        for node in self._switches:
            for row in self._rows(node["name"], "ip -j route show table all"):
                network = str(row.get("dst", ""))
                if row.get("type") in ("blackhole", "unreachable", "prohibit") and self._has_hosts(network, macs):
                    drop = self._typed(node["name"], f"ip route del {row['type']} {network}")
                    yield Finding("no-route", node["name"], drop)

    @staticmethod
    def _has_hosts(network: str, macs: dict[str, tuple[str, str]]) -> bool:
        try:
            found = ip_network(network)
        except ValueError:
            return False
        return any(ip_address(address) in found for address in macs)

    def _filters(self) -> Iterator[Finding]:
        for host in self._hosts:
            rules = self._run(host["name"], "nft list ruleset")
            for table in (one.partition(" {")[0] for one in re.split(r"(?m)^table ", rules) if DROPS.search(one)):
                delete = self._typed(host["name"], f"nft delete table {table}")
                yield Finding("firewall", host["name"], delete)

    def _processes(self) -> Iterator[Finding]:
        for host in self._hosts:
            stopped = self._run(host["name"], "pgrep --ns $$ --nslist net -r T").split()
            if stopped:
                go_on = self._typed(host["name"], f"kill -CONT {' '.join(stopped)}")
                yield Finding("rank-hangs", host["name"], go_on)

    def _probes(self) -> Iterator[Finding]:
        [mesh] = self._lab.ask(live.Probe(protocols=["rdma"], count=PROBES))
        for lost in sorted(mesh["lost_at"], key=lambda one: -one["count"]):
            if lost["end"] and lost["count"] >= LOST:
                node, _, port = lost["end"].partition(":")
                yield Finding("lossy-link", lost["end"], self._typed(node, f"ip link set {port} down"))


def name(end: LinkRow) -> str:
    return end["interface"].partition(":")[2]


def answer(lab: LabCalls, ticket: str, seed: int) -> IncidentAnswer:
    since = SINCE.search(ticket)
    found = next(Runbook(lab).findings(), None)
    if found is None:
        return IncidentAnswer(since=since[1] if since else "")
    found.mend()
    return IncidentAnswer(causes=[found.cause], places=[found.place], since=since[1] if since else "")
