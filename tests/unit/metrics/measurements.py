"""Measurements of a small lab: a leaf with two hosts, and a pod on the second one."""

import copy
from typing import Any

from testbed.metrics.exposition import families
from testbed.protocol.live import Measured

LEAF, H1, H2, POD = "leaf", "h1", "h2", "pod-a"
SENT = {"sent_pkts": 0, "sent_bytes": 0, "completer_retry_err": 0, "retry_exceeded_err": 0, "rcvd_seq_err": 0}
NIC = {"np_cnp_sent": 0, "rx_prio3_pause": 0, "rx_prio3_pause_duration": 0}
PORT = {
    "SAI_QUEUE_STAT_PACKETS:3": 0,
    "SAI_QUEUE_STAT_CURR_OCCUPANCY_BYTES:3": 0,
    "SAI_PORT_STAT_PFC_3_RX_PKTS": 0,
    "SAI_PORT_STAT_PFC_3_RX_PAUSE_DURATION_US": 0,
    "SAI_PORT_STAT_PFC_3_TX_PKTS": 0,
    "SAI_QUEUE_STAT_DROPPED_PACKETS:0": 0,
    "SAI_QUEUE_STAT_DROPPED_PACKETS:3": 0,
    "PFC_WD_QUEUE_STATS_DEADLOCK_DETECTED:3": 0,
    "queue_dropped": 0,
}


def interface(end: str, mac: str, address: str = "", rdma: str | None = None) -> Any:
    return {
        "interface": end,
        "peer": "",
        "up": True,
        "carrier": True,
        "gone": False,
        "unusable": {},
        "mac": mac,
        "mtu": 1500,
        "quality": {},
        "rdma": rdma,
        "addresses": [f"{address}/24"] if address else [],
    }


def node(name: str, kind: str, *interfaces: Any, **more: str) -> Any:
    return {"name": name, "kind": kind, "interfaces": [*interfaces], "programs": 0, **more}


def entry(table: str, mac: str, port: str, ip: str = "") -> Any:
    age = None if table == "fdb" else 1.0
    row = {"table": table, "vlan": 10, "ip": ip, "mac": mac, "port": port, "state": "resolved"}
    return {**row, "age_s": age, "data_plane": ""}


LAB: Measured = {
    "name": "small",
    "now_s": 1.5,
    "nodes": [
        node(LEAF, "switch", interface("leaf:e1", "02:01"), interface("leaf:e2", "02:02"), profile="sonic"),
        node(H1, "host", interface("h1:eth1", "02:11", "10.0.0.1", "h1-eth1")),
        node(H2, "host", interface("h2:eth1", "02:12", "10.0.0.2")),
        node(POD, "pod", interface("pod-a:eth0", "02:13", "10.0.0.3", "pod-a"), host=H2, namespace="ai"),
    ],
    "faults": [{"number": 2, "fault": "link-loss", "parameters": {}, "since_s": 1.0, "lost": False}],
    "counters": {
        LEAF: {"interfaces": {"e1": {"rx_bytes": 0, **PORT}, "e2": {"rx_bytes": 0}}, "rdma": {}},
        H1: {"interfaces": {"eth1": {"tx_bytes": 0, **NIC}}, "rdma": {"h1-eth1": dict(SENT)}},
        H2: {"interfaces": {"eth1": {}}, "rdma": {}},
        POD: {"interfaces": {"eth0": {}}, "rdma": {"pod-a": {"sent_pkts": 0, "out_of_sequence": 0}}},
    },
    "tables": {
        LEAF: [
            entry("arp", "02:11", "e1", "10.0.0.1"),
            entry("arp", "02:13", "e2", "10.0.0.3"),
            entry("fdb", "02:11", "e1"),
            entry("fdb", "02:13", "e2"),
        ]
    },
    "jobs": [
        {
            "name": "job",
            "hosts": [H1, POD],
            "devices": ["h1-eth1", "pod-a"],
            "ok": None,
            "stalled": False,
            "steps": 2,
            "step_s": [0.2, 0.2],
        }
    ],
    "missing": [],
}


def lab() -> Measured:
    """One that a test may change."""
    return copy.deepcopy(LAB)


def samples(measured: Measured) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """The values by name and labels."""
    found = [sample for family in families(measured) for sample in family.samples]
    values = {(sample.name, tuple(sorted(sample.labels.items()))): sample.value for sample in found}
    assert len(values) == len(found), "no series is there twice"
    return values


def value(measured: Measured, name: str, **labels: str) -> float:
    """That of the one series with this name and at least these labels."""
    (found,) = (
        value
        for (own, pairs), value in samples(measured).items()
        if own == name and labels.items() <= dict(pairs).items()
    )
    return found
