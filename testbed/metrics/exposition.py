"""What a lab measures as families of metrics."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any, Literal

import yaml
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from testbed.protocol.live import LinkRow, Measured, NodeRow

KINDS = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily}


@dataclass(frozen=True)
class Family:
    """An entry of families.yml."""

    name: str
    kind: Literal["counter", "gauge"]
    labels: Mapping[str, str]
    """The name of each label's value, by its own."""
    help: str
    of: str = ""
    counter: str = ""
    factor: float = 1


@functools.cache
def known() -> tuple[Family, ...]:
    found: dict[str, Any] = yaml.safe_load(resources.files(__package__).joinpath("families.yml").read_text())
    return tuple(Family(**{**row, "labels": found["labels"][row["labels"]]}) for row in found["families"])


@functools.cache
def made_of(of: str, counter: str) -> list[tuple[Family, dict[str, str]]]:
    """The families that a counter is in, with what its name says beside: `priority`."""
    rows = (row for row in known() if row.counter and row.of == of)
    return [(row, match.groupdict()) for row in rows if (match := re.fullmatch(row.counter, counter))]


class Families:
    """The families that have a value, in the order in which they came."""

    def __init__(self) -> None:
        self._found: dict[str, CounterMetricFamily | GaugeMetricFamily] = {}
        self._named = {row.name: row for row in known()}

    def count(self, of: str, counters: Mapping[str, int], values: Mapping[str, str]) -> None:
        """Adds the counters of an interface or RDMA device."""
        for counter, value in counters.items():
            for family, names in made_of(of, counter):
                self._add(family, value * family.factor, {**values, **names}, names)

    def add(self, name: str, value: float, **values: str) -> None:
        self._add(self._named[name], value, values, {})

    def _add(self, family: Family, value: float, values: Mapping[str, str], names: Mapping[str, str]) -> None:
        name = family.name.format(**names)
        own = {"priority": names["priority"]} if "priority" in names else {}
        labels = {label: values[of] for label, of in family.labels.items()} | own
        if name not in self._found:
            self._found[name] = KINDS[family.kind](name, family.help, labels=list(labels))
        self._found[name].add_metric(list(labels.values()), value)

    def __iter__(self) -> Iterator[Metric]:
        return iter(self._found.values())


def families(measured: Measured) -> Families:
    found = Families()
    found.add("testbed_time_seconds", measured["now_s"])
    found.add("testbed_unread", len(measured["missing"]))
    for fault in measured["faults"]:
        found.add("testbed_fault_active", 1, number=str(fault["number"]), fault=fault["fault"])
    for node in measured["nodes"]:
        for interface in node["interfaces"]:
            _interface(found, node, interface, measured["counters"].get(node["name"], {}))
    for switch, rows in measured["tables"].items():
        for table in "arp", "nd", "fdb":
            found.add("testbed_table_entries", sum(row["table"] == table for row in rows), node=switch, table=table)
        for row in rows:
            if row["mac"]:
                name = "testbed_fdb_info" if row["table"] == "fdb" else "testbed_neighbour_info"
                place = {"node": switch, "table": row["table"], "vlan": str(row["vlan"])}
                found.add(name, 1, **place, ip=row["ip"], mac=row["mac"], port=row["port"])
    return found


def _interface(found: Families, node: NodeRow, row: LinkRow, counters: Mapping[str, Any]) -> None:
    is_pod = "host" in node
    name = row["interface"].partition(":")[2]
    values = {
        "node": node.get("host", node["name"]), "pod": node["name"] if is_pod else "",
        "namespace": node.get("namespace", ""), "interface": name, "device": row["rdma"] or "", "port": "1",
    }  # fmt: skip
    found.add("node_network_up", int(row["up"]), **values)
    for address in row["addresses"]:
        found.add("testbed_address_info", 1, **values, ip=address.partition("/")[0], mac=row["mac"])
    found.count("interfaces", counters.get("interfaces", {}).get(name, {}), values)
    if row["rdma"]:
        found.count("rdma", counters.get("rdma", {}).get(row["rdma"], {}), values)


class LabCollector(Collector):
    """Has a lab measured each time that it is scraped."""

    def __init__(self, measure: Callable[[], Measured]) -> None:
        self._measure = measure

    def collect(self) -> Iterator[Metric]:
        return iter(families(self._measure()))
