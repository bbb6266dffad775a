"""See the docstring of EcmpCollision, or `testbed describe ecmp-collision`."""

from __future__ import annotations

import time
from typing import Literal

from pydantic import Field

from testbed import Parameters, Run, Scenario, Variant
from testbed.faults.congestion import labels
from testbed.workload.attributes import Attributes
from testbed.workload.verbs import Endpoint, connect_pair

PAIRS = (("host1", "host3"), ("host2", "host4"))
UPLINKS = {"e3": "spine1", "e4": "spine2"}
"""Of leaf1."""
ELEPHANT, MESSAGE = 256 << 10, 32 << 10
TIMEOUT = 20
"""As NCCL has it: packets wait for longer in the queue of a slow uplink than the 68 ms of 14."""
FRAME = 1024 + 16 + 8 + 20 + 14
"""A full packet of a WRITE: payload, BTH and ICRC, UDP, IP, Ethernet."""


class Settings(Parameters):
    flow_labels: Literal["one-uplink", "an-uplink-each", "from-qp-numbers"] = Field(
        "one-uplink", description="how the queue pairs' flow labels, and so their UDP source ports, come about"
    )
    qps: int = Field(1, ge=1, le=16, description="queue pairs that share the bytes of a flow")


class EcmpCollision(Scenario):
    """
    Two elephant flows hash to one uplink of a fabric that has room for both; each gets half of what it paid for.

    A job has few flows, and each is large: a queue pair to each neighbour of a ring. ECMP hashes addresses and ports;
    with as many flows as uplinks some uplink gets two and another none more often than not. No port reports an error,
    nothing is dropped, every link by itself is fine: the job is slow, until it is started again with other queue pair
    numbers.

    On real gear: `show interface counters rate` of the leaf's uplinks, one full and one idle; their queues and ECN
    marks; the NIC's UDP source ports, put into the switch's hash calculator (`show load-balance`, `bcmcmd`), name the
    uplink. Rates are scaled: 20 Mbit/s stand for 400 Gbit/s.

    The cures: more entropy, with several queue pairs for each connection (NCCL_IB_QPS_PER_CONNECTION=8 and
    NCCL_IB_SPLIT_DATA_ON_QPS=1), which makes a collision of all unlikely and not impossible; or flow labels that are
    chosen; or switches that balance by load or by packet, which needs NICs that bear reordering.
    """

    title = "Elephant flows collide on one uplink"
    tags = ("fabric", "congestion")
    parameters = Settings
    variants = (
        Variant("as-is", "fault", "the source ports of both flows hash to one uplink"),
        Variant("other-labels", "healthy", "flow labels that take an uplink each", {"flow_labels": "an-uplink-each"}),
        Variant(
            "more-qps",
            "healthy",
            "eight queue pairs a flow, with the source ports that follow from their numbers",
            {"flow_labels": "from-qp-numbers", "qps": 8},
        ),
    )

    def run(self, run: Run, p: Settings) -> None:
        leaf = run.lab.switch("leaf1")
        rate = run.lab.direction("leaf1:e3").quality.rate or 0
        with run.step("two flows are connected"):
            flows = [self.connect(run, p, number) for number in range(len(PAIRS))]
            paths = self.paths(run, flows)

        with run.step("both write at once"):
            before = {port: leaf.statistics(port)["tx_bytes"] for port in UPLINKS}
            seconds = self.write(run, p, flows)
            passed = {port: leaf.statistics(port)["tx_bytes"] - before[port] for port in UPLINKS}
        dropped = sum(run.lab.direction(f"leaf1:{port}").counters()["dropped"] for port in UPLINKS)

        alone = ELEPHANT / 1024 * FRAME * 8 / rate
        slowdown = round(max(seconds) / alone, 2)
        shares = {spine: round(100 * passed[port] / sum(passed.values())) for port, spine in UPLINKS.items()}
        run.note(
            slowdown=slowdown,
            seconds=", ".join(f"{value:.2f}" for value in seconds),
            source_ports="; ".join(
                f"by {spine} " + (", ".join(str(sport) for sport, taken in paths if taken == port) or "none")
                for port, spine in UPLINKS.items()
            ),
            **{f"{spine}_percent": share for spine, share in shares.items()},
        )
        run.expect("a fabric that drops nothing", dropped, 0)
        if slowdown < 1.7:
            run.observe("healthy", f"the flows take {slowdown} times as long as alone")
            run.expect("both uplinks carry their part", min(shares.values()), lambda share: share >= 20)
        else:
            run.observe("fault", f"the flows take {slowdown} times as long as alone")
            run.expect("all source ports hash to one uplink", len({port for _, port in paths}), 1)
            run.expect("that uplink carries all", shares[UPLINKS[paths[0][1]]], lambda share: share >= 99)
            run.expect("each flow gets half", min(seconds) / alone, lambda times: 1.8 < times < 2.3)

    def connect(self, run: Run, p: Settings, number: int) -> list[Endpoint]:
        """The sending ends of a flow's queue pairs."""
        source, target = (run.lab.host(name) for name in PAIRS[number])
        label = 0
        if p.flow_labels != "from-qp-numbers":
            uplink = "e3" if p.flow_labels == "one-uplink" else list(UPLINKS)[number]
            label = next(labels(run.lab.switch("leaf1"), uplink, source.address("eth1").ip, target.address("eth1").ip))
        ends = []
        for _ in range(p.qps):
            near, far = (run.endpoint(host, "eth1", memory=MESSAGE) for host in (source, target))
            connect_pair(near, far, Attributes(flow_label=label, timeout=TIMEOUT))
            run.expect("a first WRITE", near.write(1024, within=5).status, "SUCCESS")
            ends.append(near)
        return ends

    def paths(self, run: Run, flows: list[list[Endpoint]]) -> list[tuple[int, str]]:
        """Each queue pair's UDP source port, and the uplink that the leaf's hash gives it."""
        found: list[tuple[int, str]] = []
        for (_, target), ends in zip(PAIRS, flows, strict=True):
            ports = [near.connection.sport for near in ends if near.connection]
            there = run.lab.host(target).addresses["eth1"].ip
            found += zip(ports, run.lab.switch("leaf1").uplinks(ends[0].address.ip, there, ports), strict=True)
        return found

    def write(self, run: Run, p: Settings, flows: list[list[Endpoint]]) -> list[float]:
        """Seconds until each flow's bytes were acknowledged."""
        began, ended = time.monotonic(), [0.0] * len(flows)
        posted = [
            [(near, near.post_write(MESSAGE)) for near in ends for _ in range(ELEPHANT // MESSAGE // p.qps)]
            for ends in flows
        ]

        def done() -> bool:
            for number, requests in enumerate(posted):
                if not ended[number] and all(near.done(request) for near, request in requests):
                    ended[number] = time.monotonic() - began
            return all(ended)

        run.lab.wait(done, 60, pause=0.002)
        for (source, _), requests in zip(PAIRS, posted, strict=True):
            last = [near.wait(request, within=0) for near, request in requests][-1]
            run.expect("its WRITEs arrive", run.completed(run.lab.host(source), last).status, "SUCCESS")
        return ended
