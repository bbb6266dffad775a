from testbed import Field, Host, Parameters, Port, Run, Scenario, Variant
from testbed.workload import Attributes, Streams

OUT = "leaf:e5"
"""To the receiver."""
MESSAGE, MESSAGES = 64 << 10, 4
FRAME = 1024 + 16 + 8 + 20 + 14
"""A full packet of a WRITE: payload, BTH and ICRC, UDP, IP, Ethernet."""
LOSSLESS = 3
"""The priority of DSCP 26."""


class Settings(Parameters):
    dscp: int = Field(26, ge=0, le=63, description="DSCP of the traffic; 26 is in the lossless class")
    retry_cnt: int = Field(3, ge=0, le=6, description="the QP's retries; 7 would be infinite on soft-RoCE")


class PfcIncast(Scenario[Settings]):
    """Many senders, one receiver: priority flow control loses nothing, a lossy class loses most packets.

    The switch has one buffer for all ports. In the lossless class it counts the bytes that came in by each port. If
    these exceed the port's share (alpha times the free buffer), the switch sends a pause frame (802.1Qbb, XOFF) to the
    port's peer, and has headroom for the data that still arrives. Below the share it sends XON. Nothing is dropped, and
    the receiver's port is busy all the time. In a lossy class the same packets are dropped at the queue's share, and
    go-back-N resends most of them.

    On real gear: `rx_prio3_pause` and `tx_prio3_pause` of NICs (`ethtool -S`), `show pfc counters` on SONiC, the
    watermarks of priority groups and headroom (`show priority-group watermark`); in a lossy class output discards, and
    `out_of_sequence` at the receiver. Rates are scaled, bytes are not: 50 Mbit/s stand for 40 Gbit/s in slow motion.

    The fix: give the traffic the class's DSCP (`traffic_class` of a queue pair, `NCCL_IB_TC`), and have every switch on
    the path trust it. Traffic without the DSCP is in the lossy class, and everything else looks right.
    """

    tags = ("fabric", "congestion", "lossless")
    variants = (
        Variant("lossy", "fault", "DSCP 0 is in no lossless class", {"dscp": 0}),
        Variant("lossless", "healthy", "DSCP 26 is in the lossless class: pauses, and no drop"),
    )

    def run(self, run: Run, p: Settings) -> None:
        *senders, receiver = (node["eth1"] for node in run.lab.nodes.values() if isinstance(node, Host))
        out = run.lab.interface(OUT).lossless
        inward = [run.lab.interface(f"leaf:e{number}").lossless for number in range(1, 5)]

        attributes = Attributes(timeout=18, retry_cnt=p.retry_cnt, traffic_class=p.dscp << 2)
        with (
            Streams([(sender, receiver) for sender in senders], attributes, size=MESSAGE) as streams,
            run.step(f"each writes {MESSAGES * MESSAGE >> 10} KB"),
        ):
            began = run.now
            ended = zip(senders, streams.write(MESSAGES), strict=True)
            statuses = [run.completed(sender, completion).status for sender, completion in ended]
            seconds = run.now - began

        alone = len(senders) * MESSAGES * MESSAGE / 1024 * FRAME * 8 / (run.lab.interface(OUT).sends.quality.rate or 1)
        slowdown = round(seconds / alone, 2)
        dead = [status for status in statuses if status != "SUCCESS"]
        drops = self.drops([out, *inward])
        pauses = sum(sender.lossless.counters()[f"rx_prio{LOSSLESS}_pause"] for sender in senders)
        headroom = max(port.group(LOSSLESS).most_headroom for port in inward)
        run.note(slowdown=slowdown, dead=f"{len(dead)} of {len(statuses)}", drops=drops, pause_frames=pauses)
        run.note(headroom_used=headroom, queue=max(out.queue(priority).most_bytes for priority in range(8)))
        if dead or slowdown > 1.5:
            run.observe("fault", f"{slowdown} times what the port's rate takes; {len(dead)} of {len(statuses)} die")
            run.expect("the switch drops", drops, lambda packets: packets > 100)
            run.expect("nobody is told to stop", pauses, 0)
        else:
            run.observe("healthy", f"all arrive, in {slowdown} times what the port's rate takes")
            run.expect("nothing is dropped", drops, 0)
            run.expect("the senders are told to stop", pauses, lambda frames: frames > 10)
            run.expect("what still came found headroom", headroom, lambda bytes_: 0 < bytes_ <= 10_000)
            run.expect("nothing is sent again", receiver.rdma_counters()["out_of_seq_request"], 0)
            run.expect("the port is as fast as it can be", slowdown, lambda times: 0.9 < times < 1.2)
        run.expect("no port has lost count", all(port.adds_up() for port in [out, *inward]), True)

    def drops(self, ports: list[Port]) -> int:
        return sum(port.queue(priority).dropped_packets for port in ports for priority in range(8))
