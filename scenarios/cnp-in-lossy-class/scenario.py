from typing import Literal

from testbed import Field, Host, Parameters, Run, Scenario, Variant
from testbed.faults import CnpDrop, DscpMismatch
from testbed.workload import Attributes, Streams

LOSSLESS, LOSSY, CONTROL = 3, 0, 6
CNP_DSCP = 48
WAY_THERE, WAY_BACK, FROM_RECEIVER = "leaf1:e5", "leaf2:e5", "leaf2:e1"


class Settings(Parameters):
    cnps: Literal["control", "lossy", "dropped"] = Field("control", description="the class of CNPs on the way back")
    backups: int = Field(3, ge=0, le=6, description="queue pairs that write in the lossy class on the way back")
    start: float = Field(1.2, gt=0, le=60, description="seconds in which the rates settle")
    measured: float = Field(1.5, gt=0, le=60, description="seconds that are measured")


class CnpInLossyClass(Scenario[Settings]):
    """CNPs wait behind bulk traffic on the way back and reach senders too late: DCQCN oscillates, the link idles.

    The receiver sends a CNP at the first mark. Its port maps the CNPs' DSCP to the default class, so they queue behind
    a backup on the same path, for 55 ms here: eleven of the minimum intervals between two CNPs. Until then the queue
    grows, sometimes up to a pause. When it is empty, CNPs still arrive, rates are cut for congestion that is over, and
    a third of the link stays idle. If an access list or a policer drops all CNPs, DCQCN is effectively off, and PFC
    stops the senders again and again.

    On real gear: `rp_cnp_handled` at the senders far below `np_cnp_sent` of the receivers, or rates that swing while
    both are the same; `rx_prio3_pause` though DCQCN is on everywhere; DSCP 48 in the wrong queue (`show queue
    counters`, `show qos map dscp_to_tc`); the NIC's `cnp_dscp` and `cnp_802p_prio`, which have to match the switches.
    The lab's CNPs have DSCP 48.

    The fix: CNPs in a separate class that is served first, on every hop of the way back.
    """

    tags = ("fabric", "congestion", "lossless")
    variants = (
        Variant("lossy-class", "fault", "the receiver's port takes DSCP 48 for priority 0", {"cnps": "lossy"}),
        Variant("dropped", "fault", "an access list drops CNPs", {"cnps": "dropped"}),
        Variant("control-class", "healthy", "CNPs are in the control class, before all others"),
    )

    def run(self, run: Run, p: Settings) -> None:
        nics = {node.name: node["eth1"] for node in run.lab.nodes.values() if isinstance(node, Host)}
        senders, receiver = [nics["sender1"], nics["sender2"]], nics["receiver"]
        there, back = run.lab.interface(WAY_THERE).lossless, run.lab.interface(WAY_BACK).lossless
        if p.cnps == "lossy":
            run.inject(DscpMismatch(end=FROM_RECEIVER, dscp=CNP_DSCP, priority=LOSSY))
        if p.cnps == "dropped":
            run.inject(CnpDrop(end=str(receiver)))

        def pauses() -> int:
            return sum(sender.lossless.counters()[f"rx_prio{LOSSLESS}_pause"] for sender in senders)

        flows = [(sender, receiver) for sender in senders]
        backups = [(nics["backup"], nics["store"])] * p.backups
        with (
            Streams(backups, Attributes(timeout=18), size=128 << 10) as bulk,
            Streams(flows, Attributes(timeout=18, traffic_class=26 << 2 | 2)) as streams,
        ):
            waiting = list[tuple[int, int]]()

            def look() -> None:
                for stream in bulk:
                    stream.feed()
                waiting.append((there.queue(LOSSLESS).bytes, back.queue(LOSSY).bytes))

            with run.step("two senders write one way, backups the other"):
                streams.run(p.start, look)
            with run.step(f"{p.measured:g} s are measured"):
                waiting.clear()
                before = pauses()
                rates = streams.run(p.measured, look)
                paused = pauses() - before

        queue, bulk_queue = (round(sum(lengths) / len(lengths)) for lengths in zip(*waiting, strict=True))
        delay = bulk_queue * 8 / (run.lab.interface(WAY_BACK).sends.quality.rate or 1)
        sent = receiver.lossless.counters()["np_cnp_sent"]
        handled = sum(sender.lossless.counters()["rp_cnp_handled"] for sender in senders)
        run.note(goodput_mbit=[round(rate / 1e6, 1) for rate in rates], mean_queue=queue, pause_frames=paused)
        run.note(cnps_sent=sent, cnps_handled=handled, bulk_waits_ms=round(delay * 1e3))
        in_control = back.queue(CONTROL).sent_packets
        run.note(cnps_in_control_class=in_control)
        drops = sum(port.queue(LOSSLESS).dropped_packets for port in (there, back))
        run.expect("the lossless class loses nothing", drops, 0)
        run.expect("the lossy class has a queue on the way back", delay, lambda seconds: seconds > 0.03)
        if paused > 100:
            run.observe("fault", f"{paused} pause frames in {p.measured:g} s")
            run.expect("CNPs are sent", sent, lambda count: count > 50)
            run.expect("none arrives", handled, 0)
        elif sum(rates) < 20e6:
            run.observe("fault", f"{sum(rates) / 1e6:.0f} of 25 Mbit/s are used")
            run.expect("CNPs arrive, later", handled, lambda count: count > 50)
            run.expect("none in the control class", in_control, 0)
        else:
            run.observe("healthy", f"{sum(rates) / 1e6:.0f} of 25 Mbit/s are used")
            run.expect("nobody is paused", paused, lambda frames: frames < 20)
            run.expect("CNPs have the control class", in_control, lambda count: count >= handled > 50)
