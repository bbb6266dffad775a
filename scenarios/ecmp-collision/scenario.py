from typing import Literal

from testbed import Field, HostInterface, Parameters, Run, Scenario, Variant
from testbed.workload import Attributes, Endpoint, connect_pair, open_endpoint

PAIRS = (("host1", "host3"), ("host2", "host4"))
UPLINKS = {"e3": "spine1", "e4": "spine2"}
"""Of leaf1."""
LABELS = range(1, 65)
"""Flow labels to choose from."""
ELEPHANT, MESSAGE = 256 << 10, 32 << 10
FRAME = 1024 + 16 + 8 + 20 + 14
"""A full packet of a WRITE: payload, BTH and ICRC, UDP, IP, Ethernet."""


class Settings(Parameters):
    flow_labels: Literal["one-uplink", "an-uplink-each", "from-qp-numbers"] = Field(
        "one-uplink", description="how the queue pairs' flow labels, and so their UDP source ports, come about"
    )
    qps: int = Field(1, ge=1, le=16, description="queue pairs that share the bytes of a flow")


class EcmpCollision(Scenario[Settings]):
    """Two elephant flows collide on one uplink of a fabric that has room for both.

    A job has few flows, and each is large: a queue pair to each neighbour of a ring. ECMP hashes addresses and ports.
    With as many flows as uplinks, usually one uplink gets two flows, each at half its rate, and another uplink gets
    none. No port reports an error or a drop: the job is slow until a restart with other queue pair numbers.

    On real gear: `show interface counters rate` of the leaf's uplinks, one full and one idle; their queues and ECN
    marks; the NIC's UDP source ports, put into the switch's hash calculator (`show load-balance`, `bcmcmd`), name the
    uplink. Rates are scaled: 20 Mbit/s stand for 400 Gbit/s.

    The fixes: several queue pairs for each connection (NCCL_IB_QPS_PER_CONNECTION=8 and NCCL_IB_SPLIT_DATA_ON_QPS=1),
    so that a collision of all is unlikely, but not impossible. Or chosen flow labels. Or switches that balance by load
    or by packet; this needs NICs that tolerate reordering.
    """

    tags = ("fabric", "congestion")
    variants = (
        Variant("as-is", "fault", "the source ports of both flows hash to one uplink"),
        Variant("other-labels", "healthy", "flow labels that take an uplink each", {"flow_labels": "an-uplink-each"}),
        Variant(
            "more-qps", "healthy", "eight QPs a flow, labels by number", {"flow_labels": "from-qp-numbers", "qps": 8}
        ),
    )

    def run(self, run: Run, p: Settings) -> None:
        leaf, pairs = run.lab.switch("leaf1"), [run.nics(*pair) for pair in PAIRS]

        def sent() -> dict[str, int]:
            return {port: leaf[port].counters()["tx_bytes"] for port in UPLINKS}

        with run.step("two flows are connected"):
            flows = [self.connect(run, p, pair, uplink) for pair, uplink in zip(pairs, UPLINKS, strict=True)]
            paths: list[tuple[int, str]] = []
            for (source, target), ends in zip(pairs, flows, strict=True):
                ports = [end.connection.sport for end in ends if end.connection]
                paths += zip(ports, leaf.uplinks(source.address().ip, target.address().ip, ports), strict=True)

        with run.step("both write at once"):
            before = sent()
            seconds = self.write(run, p, flows)
            passed = {port: after - before[port] for port, after in sent().items()}
        dropped = sum(leaf[port].sends.counters()["dropped"] for port in UPLINKS)

        alone = ELEPHANT / 1024 * FRAME * 8 / (leaf["e3"].sends.quality.rate or 1)
        slowdown = round(max(seconds) / alone, 2)
        shares = {spine: round(100 * passed[port] / sum(passed.values())) for port, spine in UPLINKS.items()}
        by = {spine: [str(sport) for sport, taken in paths if taken == port] for port, spine in UPLINKS.items()}
        run.note(slowdown=slowdown, seconds=", ".join(f"{value:.2f}" for value in seconds))
        run.note(source_ports="; ".join(f"by {spine} {', '.join(sports) or 'none'}" for spine, sports in by.items()))
        run.note(**{f"{spine}_percent": share for spine, share in shares.items()})
        run.expect("a fabric that drops nothing", dropped, 0)
        if slowdown < 1.7:
            run.observe("healthy", f"the flows take {slowdown} times as long as alone")
            run.expect("both uplinks carry their part", min(shares.values()), lambda share: share >= 20)
        else:
            run.observe("fault", f"the flows take {slowdown} times as long as alone")
            run.expect("all source ports hash to one uplink", len({port for _, port in paths}), 1)
            run.expect("that uplink carries all", shares[UPLINKS[paths[0][1]]], lambda share: share >= 99)
            run.expect("each flow gets half", min(seconds) / alone, lambda times: 1.8 < times < 2.3)

    def connect(self, run: Run, p: Settings, pair: list[HostInterface], own: str) -> list[Endpoint]:
        """The sending ends of a flow's queue pairs; `own` is the uplink for an uplink each."""
        (source, target), label = pair, 0
        if p.flow_labels != "from-qp-numbers":
            sports = [Attributes(flow_label=label).source_port for label in LABELS]
            taken = run.lab.switch("leaf1").uplinks(source.address().ip, target.address().ip, sports)
            label = LABELS[taken.index(own if p.flow_labels == "an-uplink-each" else "e3")]
        ends = []
        for _ in range(p.qps):
            near, far = open_endpoint(source, memory=MESSAGE), open_endpoint(target, memory=MESSAGE)
            # NCCL's timeout: packets wait for longer in the queue of a slow uplink than the 68 ms of 14.
            connect_pair(near, far, Attributes(flow_label=label, timeout=20))
            run.expect("a first WRITE", near.write(1024, within=5).status, "SUCCESS")
            ends.append(near)
        return ends

    def write(self, run: Run, p: Settings, flows: list[list[Endpoint]]) -> list[float]:
        """Writes from all at once. Returns the seconds until each flow's bytes were acknowledged."""
        each = range(ELEPHANT // MESSAGE // p.qps)
        posted = [[(end, end.post_write(MESSAGE)) for end in ends for _ in each] for ends in flows]

        def done() -> bool:
            """Asks all of them, so that each completion gets its own time."""
            return not [request for requests in posted for end, request in requests if not end.done(request)]

        run.lab.scheduler.wait(done, 60, pause=0.002)
        seconds = []
        for (source, _), requests in zip(PAIRS, posted, strict=True):
            ends = [end.wait(request, within=0) for end, request in requests]
            run.expect("its WRITEs arrive", run.completed(run.lab.host(source)["eth1"], ends[-1]).status, "SUCCESS")
            seconds.append((max(end.t_ns for end in ends) - min(end.posted_ns for end in ends)) / 1e9)
        return seconds
