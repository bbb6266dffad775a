from typing import Literal

from testbed import Field, Parameters, Run, Scenario, Variant
from testbed.workload import Attributes, CollectiveError, Group, link_bytes

WORKERS = 4
GRADIENT = 512 << 10
"""Bytes of a worker."""
LOSSLESS, LOSSLESS_DSCP = 3, 26
"""The priority of the lossless class, and its DSCP."""
ECN_CAPABLE = 2


class Settings(Parameters):
    exchange: Literal["server", "ring"] = Field("server", description="who adds up the gradients")
    dscp: int = Field(0, ge=0, le=63, description="DSCP of the traffic; 26 is in the lossless class")
    control: Literal["none", "dcqcn"] = Field("none", description="how the NICs react to congestion marks")


class IncastParameterServer(Scenario[Settings]):
    """All workers send their gradients to a parameter server at once, and its port drops data beyond its buffer.

    Each of N workers has G bytes for the server, and gets as many back: the server's link carries N G each way, in a
    burst that N links fill and one drains. In a lossy class the port drops, and queue pairs resend everything after the
    gap (go-back-N), into the same full buffer. The step takes several times as long, or a worker uses up its retries
    and fails.

    There are two problems, and each fix solves one. A lossless class ends the losses, but the server's link remains the
    bottleneck. In a ring (reduce-scatter, then allgather) each of n ranks sends the same 2 (n-1)/n G, and no port has
    two senders: no loss even in a lossy class, in one n-th of the time.

        step = 2 N G / rate              with a server
        step = 2 (n - 1) / n G / rate    with a ring

    This run compares with both; here N = 4 workers and the server are the n = 5 ranks.

    ECN with DCQCN also ends the pauses, which would affect the workers' other traffic in that class. It costs time
    here: a CNP cuts a rate at once, timers raise it step by step, and the gather ends before the rates have settled.
    Longer transfers gain from it (dcqcn-fairness). The way back, from one sender, has no congestion.

    On real gear: output discards of the server's port (lossless: its pause frames, `rx_prio3_pause` at the workers);
    `out_of_sequence` at the server, `packet_seq_err` at the workers; the server's link full and the workers' links one
    quarter full. A gather to rank 0, for metrics or a checkpoint, looks the same. Rates are scaled: 10 Mbit/s stand for
    40 Gbit/s. At this rate the one emulated CPU is idle most of the time and the formula holds to 5 %.

    The fixes: an allreduce by a ring or a tree instead of the server; the lossless class if a gather is needed, with
    DCQCN (pfc-or-irn, dcqcn-fairness); several servers that share the parameters (BytePS, PS-Lite).
    """

    tags = ("fabric", "congestion", "lossless", "training")
    variants = (
        Variant("as-is", "fault", "to a server, in a lossy class"),
        Variant("lossless", "healthy", "the same in a lossless class: no loss, five times a ring's time", {"dscp": 26}),
        Variant(
            "dcqcn",
            "healthy",
            "the same with ECN and DCQCN: hardly a pause",
            {"dscp": LOSSLESS_DSCP, "control": "dcqcn"},
        ),
        Variant("ring", "healthy", "an allreduce by a ring, in the lossy class", {"exchange": "ring"}),
    )

    def run(self, run: Run, p: Settings) -> None:
        import numpy as np

        nics = run.nics("server", *(f"worker{number}" for number in range(1, WORKERS + 1)))
        ports = [nic.peer.lossless for nic in nics if nic.peer]
        for nic in nics if p.control == "none" else ():
            nic.control_congestion("none")
        gradients = [np.full(GRADIENT, rank, np.uint8) for rank in range(len(nics))]
        attributes = Attributes(timeout=20, retry_cnt=3, traffic_class=p.dscp << 2 | ECN_CAPABLE)

        died, gathered, began = "", 0.0, run.now
        with run.step(f"a step, by a {p.exchange}"), Group(nics, attributes) as group:
            group.barrier()
            began = run.now
            try:
                if p.exchange == "ring":
                    group.allreduce(gradients)
                else:
                    gathered = group.gather(gradients).elapsed_s
                    group.scatter(np.zeros(GRADIENT * len(nics), np.uint8))
            except CollectiveError as error:
                died = f"{group.name(error.rank)} dies: {error.status}"
            seconds = run.now - began

        rate = nics[0].sends.quality.rate or 1
        n = len(nics)
        one_way = WORKERS * link_bytes(GRADIENT) * 8 / rate
        ring = 2 * (n - 1) * link_bytes(GRADIENT // n) * 8 / rate
        times = round(seconds / (ring if p.exchange == "ring" else 2 * one_way), 2)
        drops = sum(port.queue(priority).dropped_packets for port in ports for priority in range(8))
        pauses = sum(nic.lossless.counters()[f"rx_prio{LOSSLESS}_pause"] for nic in nics)
        gaps = sum(nic.rdma_counters()["out_of_seq_request"] for nic in nics)
        cnps = sum(nic.lossless.counters()["np_cnp_sent"] for nic in nics)
        run.note(step_s=round(seconds, 3), times_of_formula=times, times_of_ring=round(seconds / ring, 2))
        run.note(drops=drops, gaps=gaps, pause_frames=pauses, cnps=cnps, died=died or "nobody")
        if died or drops:
            run.observe("fault", died or f"the step takes {times} times as long as the server's link needs")
            run.expect("the switch drops", drops, lambda packets: packets > 50)
            run.expect("receivers miss packets", gaps, lambda count: count > 0)
            run.expect("nobody is told to stop", pauses, 0)
            return
        run.observe("healthy", f"the step takes {seconds / ring:.1f} times as long as a ring's bytes")
        run.expect("nothing is sent again", gaps, 0)
        if p.control == "dcqcn":
            run.note(gather_of_formula=round(gathered / one_way, 2))
            run.expect("the server's NIC sends CNPs", cnps, lambda count: count > 10)
            run.expect(
                "the gather pays for it: rates rise step by step", gathered / one_way, lambda part: 1.2 < part < 2.5
            )
            back = (seconds - gathered) / one_way
            run.expect("the way back takes what the formula says (5 %)", back, lambda part: 0.98 < part < 1.05)
        else:
            run.expect("the step takes what the formula says (5 %)", times, lambda part: 0.98 < part < 1.05)
        told = p.dscp == LOSSLESS_DSCP and p.control == "none"
        run.expect("the workers are told to stop, again and again", pauses > 50, told)
