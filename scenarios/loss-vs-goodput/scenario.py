from typing import Literal

from testbed import Field, Parameters, Run, Scenario, Variant
from testbed.faults import Fault, LinkLoss, LinkReorder
from testbed.workload import Attributes, Streams

MESSAGE, AHEAD = 8 << 10, 32
"""Bytes, and how many messages are posted at a time: more than a window. Soft-RoCE acknowledges each of them."""
WINDOWS = {"near": 65, "routed": 129}
"""Packets of a queue pair that are under way."""
EARLY_S = 0.002
"""By which a packet overtakes others: five of them."""
RARE = 50
"""From one packet of so many on, timeouts are rare beside go-back-N."""
TIMEOUT = 14
"""68 ms, more than a window takes."""


class Settings(Parameters):
    receiver: Literal["near", "routed"] = Field("near", description="`routed` is behind the switch's router")
    one_of: int = Field(256, ge=20, le=1_000_000, description="one packet of so many is lost, at random")
    disorder: Literal["lost", "early"] = Field("lost", description="`early`: it overtakes others and is not lost")
    measured: float = Field(6.0, gt=0, le=600, description="seconds that are measured")


class LossVersusGoodput(Scenario[Settings]):
    """One packet of 256 is lost, and for each go-back-N resends all packets in flight: a fifth of the goodput is lost.

    The receiver takes nothing out of order. When it misses a packet, it requests all packets from there on, and the W
    packets in flight are wasted: goodput is 1 / (1 + p W) of the rate, with a loss probability p. That is 80 % with 65
    packets, soft-RoCE's window in a VLAN, and 66 % with 129, its window behind a router. A larger bandwidth-delay
    product loses more at the same p.

    Guo et al. (SIGCOMM 2016, section 4.1) dropped each 256th packet in a switch. NICs of that time restarted each
    message of 4 MB from its first packet (go-back-0), so no message was ever complete: a livelock, goodput 0, the link
    full. Soft-RoCE is go-back-N, so there is no livelock here, and losses are random. The formula leaves out one case:
    if a packet is lost twice, or the next one is lost before an acknowledgement, the queue pair waits for the timeout.

    Reordering is as bad or worse: if a packet overtakes others, the receiver misses these, requests them, and gets them
    twice. So load balancing by packet needs NICs that accept packets out of order. Goodput, with 65 packets in flight;
    `testbed matrix loss-vs-goodput --over one_of=1000,100,33,20 --over disorder=lost,early`:

                       0.1 %    1 %    3 %    5 %
        lost            92 %   59 %   30 %   13 %
        1 / (1 + p W)   94 %   61 %   34 %   24 %
        early           86 %   26 %   15 %   13 %

    In an allreduce all ranks have the goodput of that one link; what a single packet does there is in
    one-lost-packet-allreduce.

    On real gear: `out_of_sequence` at the receiver, `packet_seq_err` and sometimes `local_ack_timeout_err` at the
    sender. The sender's port is busy while the application's rate is low; FCS errors or `symbol_error` at the port
    where the packets die, from a dirty fibre for example. NICs with selective repeat lose only p.

    The fixes: find the link and clean it; one lost packet of 2000 costs 3 %. NICs with selective repeat. Fewer packets
    in flight.
    """

    tags = ("fabric",)
    variants = (
        Variant("as-is", "fault", "one packet of 256 is lost; 65 are under way"),
        Variant("routed", "fault", "one packet of 256 is lost; 129 are under way", {"receiver": "routed"}),
        Variant("reordered", "fault", "one packet of 256 overtakes others", {"disorder": "early"}),
        Variant("rare", "healthy", "one packet of 2000 is lost", {"one_of": 2_000}),
    )

    def run(self, run: Run, p: Settings) -> None:
        sender, receiver = run.nics("sender", p.receiver)
        port = receiver.peer
        assert port is not None

        def counted() -> tuple[int, int, int]:
            """Packets that were sent, that were lost, and gaps that the receiver found."""
            there = port.sends.counters()
            return there["sent"], there["lost"], receiver.rdma_counters()["out_of_seq_request"]

        attributes = Attributes(timeout=TIMEOUT, retry_cnt=6)
        with Streams([(sender, receiver)], attributes, size=MESSAGE, ahead=AHEAD) as streams:
            with run.step("without loss"):
                streams.run(0.5)
                (clean,) = streams.run(1.0)
            with (
                run.fault(disorder(p, str(port))),
                run.step(f"one packet of {p.one_of} is {p.disorder}, for {p.measured:g} s"),
            ):
                streams.run(0.2)
                before = counted()
                (lossy,) = streams.run(p.measured)
                sent, lost, gaps = (now - then for now, then in zip(counted(), before, strict=True))
            (status,) = streams.statuses

        window, share = WINDOWS[p.receiver], lossy / clean
        probability = lost / (sent + lost) if p.disorder == "lost" else 1 / p.one_of
        formula = 1 / (1 + probability * window)
        run.note(clean=round(clean / 1e6, 1), lossy=round(lossy / 1e6, 1), share=round(share, 3))
        run.note(formula=round(formula, 3), lost=f"{lost} of {sent + lost}", gaps_at_receiver=gaps)
        run.expect("without loss it has its link", clean, lambda rate: 22e6 < rate < 25e6)
        run.expect("the queue pair lives", status, "SUCCESS")
        if p.disorder == "lost":
            run.expect("packets are lost", lost, lambda packets: packets > 0)
        run.expect("the receiver finds gaps", gaps, lambda count: count > 0)
        rare = p.disorder == "lost" and p.one_of >= RARE
        run.expect("the goodput is at most what go-back-N gives (0.06)", share - formula, lambda error: error < 0.06)
        if rare:
            run.expect("and no less (0.06)", formula - share, lambda error: error < 0.06)
        if share < 0.9:
            run.observe("fault", f"{share:.0%} of the goodput, with {probability:.2%} of the packets {p.disorder}")
            run.expect("it is no livelock", share, lambda part: part > 0.1)
            if rare:
                run.expect("the port is busy all the same", sent * 1086 * 8 / p.measured, lambda rate: rate > 22e6)
        else:
            run.observe("healthy", f"{share:.1%} of the goodput, with {probability:.3%} of the packets {p.disorder}")


def disorder(p: Settings, end: str) -> Fault:
    """The fault at the port to the receiver."""
    percent = 100 / p.one_of
    return (
        LinkLoss(end=end, loss=percent)
        if p.disorder == "lost"
        else LinkReorder(end=end, reorder=percent, delay=EARLY_S)
    )
