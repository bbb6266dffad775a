"""Measurements of a lab as families of metrics."""

import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib import resources
from typing import Any, Literal

import yaml
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from testbed.protocol.job_states import JobState
from testbed.protocol.live import LinkRow, Measured, NodeRow, TableRow
from testbed.records import counter_names
from testbed.records.counter_names import Counter

KINDS = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily}
FACTORS = {"microseconds": 1e-6}
OF_RDMA = ("rdma_", "node_infiniband_")
"""Prefixes of the names of counters of RDMA devices."""


@dataclass(frozen=True)
class Family:
    name: str
    kind: Literal["counter", "gauge"]
    labels: Mapping[str, str]
    """The name of each label's value, by label."""
    help: str
    factor: float = 1


@functools.cache
def _file() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(resources.files(__package__).joinpath("families.yml").read_text())
    return found


@functools.cache
def _named() -> dict[str, Family]:
    found = {row["name"]: Family(**row) for row in _file()["families"]}
    for counter in counter_names.known():
        found |= {name: _of_counter(name, counter) for name in counter.metrics}
    return found


def known() -> Iterable[Family]:
    """Return the families of families.yml and of the known counters."""
    return _named().values()


def _of_counter(name: str, counter: Counter) -> Family:
    labels = next(labels for begin, labels in _file()["counters"].items() if name.startswith(begin))
    own = {"priority": "priority"} if "<priority>" in counter.name else {}
    kind: Literal["counter", "gauge"] = "gauge" if counter.meaning in ("level", "peak") else "counter"
    return Family(name, kind, labels | own, counter.text, FACTORS.get(counter.unit, 1))


@functools.lru_cache(100_000)
def made_of(name: str, *, rdma: bool) -> list[tuple[Family, dict[str, str]]]:
    """Return the families of a counter, each with the parts of its name: `priority`. An unknown counter of an RDMA
    device is in a family of its own name."""
    counter = counter_names.find(name)
    found = [_named()[metric] for metric in counter.metrics if not rdma or metric.startswith(OF_RDMA)]
    if rdma and not found and re.fullmatch("[a-z0-9_]+", name):
        found = [_of_counter(f"rdma_{name}", replace(counter, text="Counter of this name in the RDMA device."))]
    match = counter.pattern.fullmatch(name)
    return [(family, match.groupdict() if match else {}) for family in found]


class Families:
    """Families with a value, in the order of their first values."""

    def __init__(self) -> None:
        self._found: dict[str, CounterMetricFamily | GaugeMetricFamily] = {}

    def count(self, counted: Mapping[str, int], values: Mapping[str, str], *, rdma: bool = False) -> None:
        """Add the counters of an interface or RDMA device."""
        for name, value in counted.items():
            for family, parts in made_of(name, rdma=rdma):
                self._add(family, value * family.factor, {**values, **parts})

    def add(self, name: str, value: float, **values: str) -> None:
        self._add(_named()[name], value, values)

    def _add(self, family: Family, value: float, values: Mapping[str, str]) -> None:
        labels = {label: values[of] for label, of in family.labels.items()}
        if family.name not in self._found:
            self._found[family.name] = KINDS[family.kind](family.name, family.help, labels=list(labels))
        self._found[family.name].add_metric(list(labels.values()), float(value))

    def __iter__(self) -> Iterator[Metric]:
        return iter(self._found.values())


def families(measured: Measured) -> Families:
    found = Families()
    found.add("testbed_time_seconds", measured["now_s"])
    found.add("testbed_unread", len(measured["missing"]))
    for fault in measured["faults"]:
        found.add("testbed_fault_active", 1, number=str(fault["number"]), fault=fault["fault"])
    hosts = {node["name"]: node.get("host", "") for node in measured["nodes"]}
    for job in measured["jobs"]:
        _job(found, job, hosts)
    for node in measured["nodes"]:
        for interface in node["interfaces"]:
            _interface(found, node, interface, measured["counters"].get(node["name"], {}))
    for switch, rows in measured["tables"].items():
        for table in "arp", "nd", "fdb":
            found.add("testbed_table_entries", sum(row["table"] == table for row in rows), node=switch, table=table)
        for row in rows:
            if row["table"] == "vrrp":
                place = {"node": switch, "vlan": str(row["vlan"]), "ip": row["ip"], "mac": row["mac"]}
                found.add("testbed_vrrp_master", row["state"] == "master", **place)
            elif row["table"] == "mlag":
                _pair(found, switch, row)
            elif row["mac"]:
                name = "testbed_fdb_info" if row["table"] == "fdb" else "testbed_neighbour_info"
                place = {"node": switch, "table": row["table"], "vlan": str(row["vlan"])}
                found.add(name, 1, **place, ip=row["ip"], mac=row["mac"], port=row["port"])
    return found


def _job(found: Families, job: JobState, hosts: Mapping[str, str]) -> None:
    """Add a job and its ranks. `hosts` has the host of each pod."""
    name = job["name"]
    found.add("testbed_job_running", job["ok"] is None, job=name)
    found.add("testbed_job_failed", job["ok"] is False, job=name)
    found.add("testbed_job_stalled", job["stalled"], job=name)
    found.add("testbed_job_steps", job["steps"], job=name)
    if job["step_s"]:
        found.add("testbed_job_step_seconds", max(job["step_s"]), job=name)
    for rank, (node, device) in enumerate(zip(job["hosts"], job["devices"], strict=False)):
        host = hosts.get(node, "")
        values = {"job": name, "rank": str(rank), "node": host or node, "pod": node if host else "", "device": device}
        found.add("testbed_rank_info", 1, **values)
        if rank < len(job["step_s"]):
            found.add("testbed_rank_step_seconds", job["step_s"][rank], **values)


def _pair(found: Families, switch: str, row: TableRow) -> None:
    """Add what a row of a pair of switches (MLAG) says: of the peer link, or of a port channel."""
    if row["state"] in ("active", "standby", "alone"):
        found.add("testbed_mlag_peer_heard", row["state"] != "alone", node=switch, port=row["port"])
        found.add("testbed_mlag_active", row["state"] == "active", node=switch, port=row["port"])
    else:
        found.add("testbed_mlag_up", row["state"] in ("both", "here"), node=switch, port=row["port"], side="here")
        found.add("testbed_mlag_up", row["state"] in ("both", "there"), node=switch, port=row["port"], side="there")


def _interface(found: Families, node: NodeRow, row: LinkRow, counted: Mapping[str, Any]) -> None:
    is_pod = "host" in node
    name = row["interface"].partition(":")[2]
    values = {
        "node": node.get("host", node["name"]),
        "pod": node["name"] if is_pod else "",
        "namespace": node.get("namespace", ""),
        "interface": name,
        "device": row["rdma"] or "",
        "port": "1",
    }
    works = row["up"] and row["carrier"] and not row["gone"]
    found.add("node_network_up", works, **values)
    if row["peer"]:
        found.add("testbed_link_up", works, **values, peer=row["peer"])
    for address in row["addresses"]:
        found.add("testbed_address_info", 1, **values, ip=address.partition("/")[0], mac=row["mac"])
    found.count(counted.get("interfaces", {}).get(name, {}), values)
    if row["rdma"]:
        found.count(counted.get("rdma", {}).get(row["rdma"], {}), values, rdma=True)


class LabCollector(Collector):
    """Collector that measures a lab at each scrape."""

    def __init__(self, measure: Callable[[], Measured]) -> None:
        self._measure = measure

    def collect(self) -> Iterator[Metric]:
        return iter(families(self._measure()))
