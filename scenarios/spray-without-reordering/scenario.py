from typing import Literal

from testbed import Field, HostInterface, Parameters, Run, Scenario, Variant
from testbed.workload import Attributes, Endpoint, connect_pair, link_bytes, open_endpoint

LOSSLESS, DSCP = 3, 26
SIZE = 200_000
HOSTS = 4
"""Of each leaf."""
AGAIN, MOST = 1.02, 4
"""What is no fault: so many times the packets, and so many times as long as alone, for four flows may have one path."""


class Settings(Parameters):
    balancing: Literal["ecmp", "spray", "random", "adaptive"] = Field(
        "random", description="how the leaves share the spines"
    )
    reorder: int = Field(0, ge=0, le=256, description="packets of a queue pair that a NIC holds for a missing one")
    writes: int = Field(1, ge=1, le=8, description="WRITEs of each flow, one behind the other")


class SprayWithoutReordering(Scenario[Settings]):
    """Packet spraying is switched on, and the NICs are not ready for it: nothing is lost, and most is sent again.

    Packets of a queue pair overtake each other on paths with queues of different lengths. A NIC with go-back-N takes an
    early packet for the sign of a loss: it answers with a NAK, and the sender sends everything from the missing packet
    on again, by all paths. So the fabric carries each byte several times, and every NAK is one of the queue pair's
    retries.

    On real gear: `out_of_sequence` at the receivers and `packet_seq_err` at the senders rise with every step while no
    port drops; goodput is a fraction of the links' counters. ConnectX: `mlxreg -d … --reg_name ROCE_ACCEL` shows
    whether adaptive routing (out-of-order data) is on; a queue pair needs IBV_EXP_QP_OOO_RW_DATA_PLACEMENT or the
    newer `ooo_rq`.

    The fixes: NICs that put packets in order, with room for as many as the paths differ by, or that write them where
    they belong as they come; or ECMP until all NICs can. Too little room helps little.
    """

    tags = ("fabric", "congestion", "lossless")
    variants = (
        Variant("as-is", "fault", "NICs without reordering"),
        Variant("adaptive", "fault", "the same, over the shortest queue", {"balancing": "adaptive", "writes": 4}),
        Variant("too-little", "fault", "NICs that hold two packets", {"reorder": 2}),
        Variant("reorder", "healthy", "NICs that hold 256 packets of a queue pair", {"reorder": 256}),
        Variant("ecmp", "healthy", "no spraying: a path for each flow", {"balancing": "ecmp"}),
    )

    def run(self, run: Run, p: Settings) -> None:
        pairs = [run.nics(f"host{number}", f"host{number + HOSTS}") for number in range(1, HOSTS + 1)]
        nics = [nic for pair in pairs for nic in pair]
        for nic in nics:
            nic.lossless.change(reorder=p.reorder or None)
        with run.step("four flows are connected, and their next hops resolved"):
            flows = [connected(run, *pair) for pair in pairs]
        for leaf in "leaf1", "leaf2":
            run.lab.switch(leaf).change_profile(load_balancing=p.balancing)
        before = [near.lossless.queue(LOSSLESS).sent_packets for near, _ in pairs]
        earlier = sum(near.rdma_counters()["packet_seq_err"] for near, _ in pairs)
        with run.step(f"all write {SIZE} bytes {p.writes} times, by {p.balancing}"):
            posted = [(end, end.post_write(SIZE)) for _ in range(p.writes) for end in flows]
            done = [end.wait(request, within=600) for end, request in posted]
        seconds = (max(one.t_ns for one in done) - min(one.posted_ns for one in done)) / 1e9

        needed = len(posted) * -(-SIZE // 1024)
        sent = sum(near.lossless.queue(LOSSLESS).sent_packets for near, _ in pairs) - sum(before)
        naks = sum(near.rdma_counters()["packet_seq_err"] for near, _ in pairs) - earlier
        alone = p.writes * link_bytes(SIZE) * 8 / (nics[0].sends.quality.rate or 1)
        ports = [port for node in run.lab.switches() for port in node.interfaces.values()]
        dropped = sum(port.lossless.queue(LOSSLESS).dropped_packets for port in ports)
        statuses = {one.status for one in done}
        run.note(seconds=round(seconds, 2), times_as_long=round(seconds / alone, 2), naks=naks)
        run.note(sent_packets=sent, needed_packets=needed, statuses=sorted(statuses))
        run.note(reordered=sum(far.lossless.counters().get("rx_reordered_packets", 0) for _, far in pairs))
        run.expect("no port drops a packet", dropped, 0)
        if sent > AGAIN * needed or seconds > MOST * alone or statuses != {"SUCCESS"}:
            run.observe(
                "fault", f"{sent / needed:.1f} times the packets are sent, in {seconds / alone:.1f} times the time"
            )
            run.expect("receivers ask for packets again", naks, lambda count: count > 5)
        else:
            run.observe("healthy", f"the flows take {seconds / alone:.2f} times as long as alone on their links")
            run.expect("nothing is sent again", (sent - needed, naks), (0, 0))


def connected(run: Run, near: HostInterface, far: HostInterface) -> Endpoint:
    here, there = (open_endpoint(nic, memory=1 << 18) for nic in (near, far))
    # retry_cnt 7: rxe retries for ever, or the queue pairs would end.
    connect_pair(here, there, Attributes(timeout=20, retry_cnt=7, traffic_class=DSCP << 2))
    run.expect("a first WRITE", here.write(20_000, within=10).status, "SUCCESS")
    return here
