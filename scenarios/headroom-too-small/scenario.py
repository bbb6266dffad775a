from testbed import Field, Host, Parameters, Run, Scenario, Variant
from testbed.faults import HeadroomTooSmall
from testbed.workload import Attributes, Streams

OUT = "leaf:e5"
"""To the receiver."""
IN = [f"leaf:e{number}" for number in range(1, 5)]
"""From the senders."""
LOSSLESS = 3
ATTRIBUTES = Attributes(timeout=18, retry_cnt=3, traffic_class=26 << 2)


class Settings(Parameters):
    headroom: int = Field(32_000, ge=0, le=100_000, description="bytes of each priority group's headroom")
    measured: float = Field(2.0, gt=0, le=60, description="seconds that are measured")


class HeadroomIsTooSmall(Scenario[Settings]):
    """The lossless class drops: pause frames come too late for the data on the cable.

    After a switch has paused its peer, more data still arrives: the data on the cable while the pause frame goes there
    and the last packet comes back (25 kB here: 2 ms each way at 50 Mbit/s), the frame that the peer is sending, and the
    frame before the pause frame. A headroom for a short cable is too small for that.

    On real gear: drops in a lossless class (`show interfaces counters`: RX_DRP; SAI's PG drop counters), the headroom's
    watermark at its limit (`show headroom-pool watermark`), `out_of_sequence` at the receiver; more of it on long
    cables, at high rates and large MTUs. Soft-RoCE answers with go-back-N.

    The fix: headroom of twice the cable's delay times the rate, two frames, and the peer's reaction time
    (`pg_profile_lookup.ini` by speed and cable length on SONiC).
    """

    tags = ("fabric", "congestion", "lossless")
    variants = (
        Variant("as-is", "fault", "headroom for a cable without length: two frames and a half", {"headroom": 4_000}),
        Variant("enough", "healthy", "headroom for the cable, and two frames"),
    )

    def run(self, run: Run, p: Settings) -> None:
        *senders, receiver = (node["eth1"] for node in run.lab.nodes.values() if isinstance(node, Host))
        for end in IN:
            if p.headroom != run.lab.interface(end).lossless.settings()["headroom"]:
                run.inject(HeadroomTooSmall(end=end, headroom=p.headroom))
        with Streams([(sender, receiver) for sender in senders], ATTRIBUTES) as streams:
            with run.step(f"four senders write for {p.measured:g} s"):
                rates = streams.run(p.measured)
            statuses = streams.statuses

        drops = run.lab.interface(OUT).lossless.queue(LOSSLESS).dropped_packets
        watermark = max(run.lab.interface(end).lossless.group(LOSSLESS).most_headroom for end in IN)
        dead = sum(status != "SUCCESS" for status in statuses)
        run.note(mbit_per_s=round(sum(rates) / 1e6, 1), drops=drops, headroom_used=watermark, dead=f"{dead} of 4")
        run.note(gaps_at_receiver=receiver.rdma_counters()["out_of_seq_request"])
        if drops:
            run.observe("fault", f"{drops} packets of the lossless class are dropped")
            run.expect("the headroom is full", watermark, lambda used: p.headroom - 1_200 < used <= p.headroom)
        else:
            run.observe("healthy", "nothing is dropped")
            run.expect("the headroom was used", watermark, lambda used: 4_000 < used < p.headroom)
            run.expect("the receiver's port is busy", sum(rates), lambda rate: 40e6 < rate < 50e6)
