"""A run directory as a machine leaves it: a switch keeps the MAC of a pod that is gone."""

import json
import struct
from collections.abc import Callable
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

from testbed.protocol import InterfaceRow

A, B, CLIENT, SVI = "06:00:00:00:00:0a", "06:00:00:00:00:0b", "02:00:02:00:00:01", "02:00:01:01:00:00"
IP, CLIENT_IP = "10.0.20.100", "10.0.10.2"
MS = 1_000_000
EPOCH_NS = 1_767_225_610_829_658_794


def raw(mac: str) -> bytes:
    return bytes.fromhex(mac.replace(":", ""))


def ethernet(dst: str, src: str, ethertype: int, payload: bytes) -> bytes:
    return raw(dst) + raw(src) + ethertype.to_bytes(2) + payload


def arp(src: str, sender: str, target: str, operation: int = 1, dst: str = "ff:ff:ff:ff:ff:ff") -> bytes:
    addresses = raw(src) + IPv4Address(sender).packed + bytes(6) + IPv4Address(target).packed
    return ethernet(dst, src, 0x0806, struct.pack("!HHBBH", 1, 0x0800, 6, 4, operation) + addresses)


def roce(dst: str, opcode: int, psn: int, extended: bytes = b"", payload: int = 0, ecn: int = 0) -> bytes:
    """From the client to IP; the RETH or AETH is `extended`."""
    bth = struct.pack("!BBHII", opcode, 0x40, 0xFFFF, 17, psn) + extended + bytes(payload + 4)
    udp = struct.pack("!HHHH", 49458, 4791, 8 + len(bth), 0) + bth
    head = struct.pack("!BBHHHBBH", 0x45, ecn, 20 + len(udp), 0, 0, 63, 17, 0)
    ip = head + IPv4Address(CLIENT_IP).packed + IPv4Address(IP).packed
    return ethernet(dst, SVI, 0x0800, ip + udp)


def pcap(*frames: tuple[int, bytes]) -> bytes:
    """Of frames with their times in virtual nanoseconds."""
    records = [struct.pack("<IIII", *divmod(EPOCH_NS + t, 10**9), len(data), len(data)) + data for t, data in frames]
    return struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 1 << 18, 1) + b"".join(records)


def row(node: str, interface: str, peer: str, mac: str, **more: Any) -> InterfaceRow:
    found: dict[str, Any] = {
        "node": node,
        "kind": "host" if interface == "eth1" else "switch",
        "interface": interface,
        "peer": peer,
        "mac": mac,
        "address": "",
        "address6": "",
        "gateway": "",
        "gateway6": "",
        "vlan": None,
        "trunk": [],
        "routed": False,
        "rdma": None,
        "profile": "",
        **more,
    }
    return found  # type: ignore[return-value]


ROWS = [
    row("leaf", "e1", "client:eth1", "02:00:01:00:00:01", vlan=10, profile="cisco-nxos"),
    row("leaf", "e2", "node1:eth1", "02:00:01:00:00:02", vlan=20, profile="cisco-nxos"),
    row("leaf", "e3", "node2:eth1", "02:00:01:00:00:03", vlan=20, profile="cisco-nxos"),
    row("leaf", "vlan20", "", SVI, address="10.0.20.1/24", vlan=20, profile="cisco-nxos"),
    row("client", "eth1", "leaf:e1", CLIENT, address=f"{CLIENT_IP}/24", rdma="client-eth1"),
    row("node1", "eth1", "leaf:e2", "02:00:03:00:00:01", address="10.0.20.2/24"),
    row("node2", "eth1", "leaf:e3", "02:00:04:00:00:01", address="10.0.20.3/24"),
]


def event(t: int, kind: str, node: str = "", text: str = "", **data: Any) -> dict[str, Any]:
    return {"t": t, "kind": kind, "node": node, "text": text or kind, "data": data}


def cni(t: int, pod: str, host: str, mac: str) -> dict[str, Any]:
    """ADD by a plugin that leaves out the MAC, which is optional in a result."""
    result = {"interfaces": [{"name": "eth0"}], "ips": [{"address": f"{IP}/24", "interface": 0}]}
    has = {"result": result, "mac": mac, "addresses": [f"{IP}/24"]}
    return event(t, "cni", pod, f"ADD {pod}", command="ADD", network="net", interface="eth0", host=host, **has)


EVENTS = [
    event(1 * MS, "step", text="pod A serves"),
    cni(10 * MS, "pod-a", "node1", A),
    event(11 * MS, "pod", "pod-a", "created on node1", host="node1"),
    event(20 * MS, "fdb.learned", "leaf", f"FDB {A} is on e2", vlan=20, mac=A, port="e2"),
    event(21 * MS, "arp.learned", "leaf", f"ARP {IP} is at {A}", vlan=20, ip=IP, mac=A, port="e2", reason="request"),
    event(30 * MS, "cni", "pod-a", "DEL", command="DEL", network="net", interface="eth0", host="node1", result=None),
    event(31 * MS, "pod", "pod-a", "deleted from node1", host="node1"),
    event(40 * MS, "step", text="pod B gets the address"),
    cni(100 * MS, "pod-b", "node2", B),
    event(101 * MS, "pod", "pod-b", "created on node2", host="node2"),
    event(
        400 * MS,
        "completion",
        "client",
        "RDMA_WRITE ends with RETRY_EXC_ERR",
        opcode="RDMA_WRITE",
        status="RETRY_EXC_ERR",
        elapsed_s=0.25,
    ),
    event(410 * MS, "observed", text="the WRITE dies", observed="fault"),
    event(420 * MS, "verdict", text="as expected", failures=[]),
]
RETH = struct.pack("!QII", 0x1000, 0x35F, 4096)
FRAMES = (
    (20 * MS, arp(A, IP, "10.0.20.1")),
    (150 * MS, roce(A, 0x06, 100, RETH, 1024)),
    (151 * MS, roce(A, 0x08, 101, payload=1024)),
    (217 * MS, roce(A, 0x06, 100, RETH, 1024)),
    (218 * MS, roce(A, 0x08, 101, payload=1024)),
)


COUNTED = (
    {"t": 0, "after": "the lab came up", "counters": {"client": {"eth1": {"rx_packets": 1, "tx_bytes": 60}}}},
    {"t": 40 * MS, "after": "pod A serves", "counters": {"client": {"eth1": {"tx_bytes": 4000}}}},
    {
        "t": 415 * MS,
        "after": "pod B gets the address",
        "counters": {"client": {"eth1": {"rx_packets": 7}, "client-eth1": {"retry_exceeded_err": 1, "sent_pkts": 9}}},
    },
    {"t": 416 * MS, "after": "the end", "counters": {}},
)
"""The lines of counters.jsonl."""


def make_run(
    directory: Path, events: list[dict[str, Any]] = EVENTS, change: Callable[[dict[str, Any]], None] = lambda _: None
) -> Path:
    """A run of the scenario `tiny` with the variant `as-is`; `change` may change result.json."""
    part = directory / "as-is"
    part.mkdir(parents=True)
    (part / "events.jsonl").write_text("".join(json.dumps(one) + "\n" for one in events))
    (part / "topology.json").write_text(json.dumps({"name": "tiny", "interfaces": ROWS}))
    (part / "leaf-e2.pcap").write_bytes(pcap(*FRAMES))
    counters = {"interfaces": {"eth1": {"rx_packets": 7}}, "rdma": {"client-eth1": {"retry_exceeded_err": 1}}}
    (part / "counters.json").write_text(json.dumps({"client": counters}))
    (part / "counters.jsonl").write_text("".join(json.dumps(line) + "\n" for line in COUNTED))
    result = {
        "scenario": "tiny",
        "title": "A switch keeps a MAC",
        "text": "On real gear: `show ip arp`.",
        "seed": 1,
        "verdict": "as-expected",
        "clock": "virtual",
        "machine": "vm",
        "image": "ef" * 32,
        "trace": "ab" * 32,
        "variants": [
            {
                "name": "as-is",
                "expected": "fault",
                "observed": "fault",
                "failures": [],
                "trace": "cd" * 32,
                "evidence": {"completion": "RETRY_EXC_ERR"},
                "settings": {},
                "virtual_s": 0.43,
                "wall_s": 2.0,
                "epoch": {"realtime_ns": EPOCH_NS, "monotonic_ns": 1, "kernel_ns": 1},
                "text": "pod B is silent",
            }
        ],
    }
    change(result)
    (directory / "result.json").write_text(json.dumps(result))
    return directory
