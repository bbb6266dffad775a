"""Small run directories of jobs, made by hand, and what is said of them."""

import json
from pathlib import Path
from typing import Any

from testbed.report.diagnosis import diagnose
from testbed.report.diagnosis.rules import Diagnosis

S = 10**9
HOSTS = ["n0", "n1", "n2", "n3"]
MACS = {"n0": "02:00:00:00:00:10", "n1": "02:00:00:00:00:11", "n2": "02:00:00:00:00:12", "n3": "02:00:00:00:00:13"}
IPS = {host: f"10.0.0.{number + 1}" for number, host in enumerate(HOSTS)}
OLD = "02:00:00:00:00:99"
DIED = {"rank": 1, "host": "n1", "status": "RETRY_EXC_ERR", "failure": "transport retry counter exceeded"}
SILENT = {"rank": 1, "host": "n1", "status": "", "failure": "UD endpoint to <no debug data>: unhandled timeout error"}


def interface(node: str, kind: str, name: str, peer: str, mac: str, **more: Any) -> dict[str, Any]:
    empty = {"address": "", "address6": "", "gateway": "", "gateway6": "", "vlan": None, "trunk": [], "routed": False}
    return {"node": node, "kind": kind, "interface": name, "peer": peer, "mac": mac, "rdma": None, **empty, **more}


def topology() -> dict[str, Any]:
    """Two leaves with two hosts each, and a host `old` beside them."""
    rows = []
    for number, host in enumerate([*HOSTS, "old"]):
        leaf, port = f"leaf{number // 2 % 2 + 1}", f"e{number}"
        mac = MACS.get(host, OLD)
        rows.append(interface(leaf, "switch", port, f"{host}:eth1", f"02:00:00:01:00:0{number}"))
        address = f"{IPS.get(host, '10.0.0.9')}/24"
        rows.append(interface(host, "host", "eth1", f"{leaf}:{port}", mac, address=address, rdma=f"{host}-eth1"))
    for leaf, other in ("leaf1", "leaf2"), ("leaf2", "leaf1"):
        rows.append(interface(leaf, "switch", "up", f"{other}:up", f"02:00:00:02:00:0{leaf[-1]}"))
    return {"name": "lab", "interfaces": rows}


class Builder:
    """A variant's directory: what is added is in it when `write` was called."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.events: list[dict[str, Any]] = []
        self.counted: list[dict[str, Any]] = []
        self.calls: list[dict[str, Any]] = []
        self.topology = topology()

    def event(self, t: float, kind: str, node: str = "", text: str = "", **data: Any) -> "Builder":
        self.events.append({"t": round(t * S), "kind": kind, "node": node, "text": text, "data": data})
        return self

    def starts(self, t: float = 1.0) -> "Builder":
        devices = [f"{host}-eth1" for host in HOSTS]
        return self.event(t, "job", "", "job starts", name="job", ranks=4, hosts=HOSTS, devices=devices)

    def ends(self, t: float, *, ok: bool = False, late: bool = False, **how: Any) -> "Builder":
        return self.event(t, "job", "", "job ends", name="job", ok=ok, late=late, **how)

    def link(self, t: float, node: str, name: str, state: str) -> "Builder":
        return self.event(t, "link", node, f"{name} {state}", interface=name, state=state)

    def counters(self, t: float, **nodes: dict[str, dict[str, int]]) -> "Builder":
        self.counted.append({"t": round(t * S), "after": "something", "counters": nodes})
        return self

    def collective(self, sequence: int, *ranks: tuple[float, float | None]) -> "Builder":
        """The times at which each rank enters and leaves it; a rank without does not enter it."""
        for rank, (began, ended) in enumerate(ranks):
            self.calls.append(
                {
                    "rank": rank,
                    "host": HOSTS[rank],
                    "call": sequence,
                    "operation": "Allreduce",
                    "communicator": "0-3",
                    "sequence": sequence,
                    "bytes": 33_000,
                    "peer": None,
                    "began": round(began * S),
                    "ended": None if ended is None else round(ended * S),
                }
            )
        return self

    def group(self, t: float, took: float, *, operation: str = "a step", **how: Any) -> "Builder":
        """A collective of a group that ends at a time, `took` seconds after it began."""
        placed = {"hosts": HOSTS, "devices": [f"{host}-eth1" for host in HOSTS]}
        data = {
            "ok": True,
            "operation": operation,
            "elapsed_s": took,
            "finished_s": 4 * [took],
            "computed_s": 4 * [0.0],
            **placed,
            **how,
        }
        return self.event(t, "collective", "", f"{operation} over 4 ranks", **data)

    def sends(self, t: float, rate: int | dict[str, int], sent: dict[str, int], **others: dict[str, int]) -> "Builder":
        """Counters of all ends of links: what each has sent, by `leaf1:e0`, else 1000 bytes, and its rate in bit/s.
        `others` are counters of a device."""
        nodes: dict[str, dict[str, dict[str, int]]] = {}
        for row in self.topology["interfaces"]:
            end = f"{row['node']}:{row['interface']}"
            bits = rate if isinstance(rate, int) else rate.get(end, 8000)
            counted = {"tx_bytes": sent.get(end, 1000), "queue_rate_bps": bits}
            nodes.setdefault(row["node"], {})[row["interface"]] = counted
        for node, counted in others.items():
            nodes[node][f"{node}-eth1"] = counted
        return self.counters(t, **nodes)

    def paces(self, count: int = 10, slow: float = 0.01) -> "Builder":
        """Collectives before which rank 2 takes `slow` seconds and the others 10 ms."""
        left = 1.0
        for number in range(1, count + 1):
            enter = [left + (slow if rank == 2 else 0.01) for rank in range(4)]
            left = max(enter) + 0.002
            self.collective(number, *((began, left) for began in enter))
        return self

    def log(self, rank: int, text: str) -> "Builder":
        (self.directory / "job").mkdir(parents=True, exist_ok=True)
        (self.directory / "job" / f"rank-{rank}.log").write_text(text)
        return self

    def write(self) -> Path:
        self.directory.mkdir(parents=True, exist_ok=True)
        lines = {"events.jsonl": self.events, "counters.jsonl": self.counted}
        for name, rows in lines.items():
            ordered = sorted(rows, key=lambda row: row["t"])
            (self.directory / name).write_text("".join(json.dumps(row) + "\n" for row in ordered))
        (self.directory / "topology.json").write_text(json.dumps(self.topology))
        if self.calls:
            (self.directory / "job").mkdir(exist_ok=True)
            (self.directory / "job/flight.jsonl").write_text("".join(json.dumps(row) + "\n" for row in self.calls))
        return self.directory

    def diagnosis(self) -> Diagnosis:
        (found,) = diagnose(self.write())
        return found


def found(one: Diagnosis) -> tuple[str, list[int], str]:
    return one.finding.cause, list(one.finding.ranks), one.finding.link
