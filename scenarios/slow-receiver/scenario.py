from typing import Literal

from testbed import Field, Host, Parameters, Run, Scenario, Variant
from testbed.faults import SlowReceiver
from testbed.workload import Attributes, Streams

LOSSLESS = 3
"""The priority of DSCP 26; DSCP 34 is priority 4, lossless too."""
ECT = 2


class Settings(Parameters):
    rate: int = Field(10_000_000, ge=1_000_000, le=50_000_000, description="bits per second that the slow NIC takes in")
    dscp: Literal[26, 34] = Field(
        26, description="DSCP of the flow to the other NIC; 26 is the class of all the others"
    )
    control: Literal["dcqcn", "none"] = Field("none", description="how the NICs react to congestion marks")
    watchdog: float = Field(
        0.0, ge=0, le=60, description="seconds of the PFC watchdog of the slow NIC's switch; 0: off"
    )
    start: float = Field(0.5, gt=0, le=60, description="seconds in which the rates settle")
    measured: float = Field(1.2, gt=0, le=60, description="seconds that are measured")


class SlowReceiverPausesTheFabric(Scenario[Settings]):
    """A NIC receives slowly and pauses its switch, and a flow to another NIC becomes slow too.

    No port is short of capacity. If a NIC has to fetch translations from the host's memory, or its PCIe link is busy,
    its receive buffer fills and it sends pause frames. Packets for it wait in the switch, which then pauses the uplink,
    and all traffic of that class stops there, for any receiver (the slow-receiver symptom of Guo et al., SIGCOMM 2016,
    section 4.4). Each pause lasts some milliseconds, and packets flow in between: a PFC watchdog looks for a queue that
    sends nothing at all, so it detects no storm.

    The queue of the paused port marks packets, and DCQCN slows the senders of the slow NIC, so the uplink is paused
    rarely. That is not enough: at each pause a queue grows at the uplink, and its marks hit all flows in it. The
    unrelated flow also gets CNPs. Here its rate falls to a third, and seconds later it is still below half.

    On real gear: `tx_prio3_pause` rises at one NIC while its port is far from full, `rx_prio3_pause` at NICs that do
    not talk to it; `rx_discards_phy` and `outbound_pci_stalled_wr` of the slow one; pause frames on the uplink (`show
    pfc counters`), no storm in `show pfcwd stats`. Rates are scaled, 50 Mbit/s stand for 40 Gbit/s; soft-RoCE itself is
    not slow; the lab makes its NIC send pauses as a slow NIC would.

    The fixes: fix the receiver (large pages, PCIe settings, memory). Until then a separate lossless class for traffic
    that must not be affected: here DSCP 34 in priority 4.
    """

    tags = ("fabric", "congestion", "lossless")
    variants = (
        Variant("as-is", "fault", "all flows in one class; a PFC watchdog is on", {"watchdog": 0.7}),
        Variant("dcqcn", "fault", "the NICs run DCQCN", {"control": "dcqcn"}),
        Variant("own-class", "healthy", "the other flow has a lossless class of its own", {"dscp": 34}),
    )

    def run(self, run: Run, p: Settings) -> None:
        nics = {node.name: node["eth1"] for node in run.lab.nodes.values() if isinstance(node, Host)}
        to_slow, uplink = run.lab.interface("leaf2:e1").lossless, run.lab.interface("leaf1:e5").lossless
        for nic in nics.values() if p.control == "none" else ():
            nic.control_congestion("none")
        if p.watchdog:
            run.lab.switch("leaf2").change_profile(pfc_watchdog=p.watchdog, pfc_watchdog_poll=p.watchdog / 2)

        def pauses() -> list[int]:
            """Frames that the slow NIC sent, and that came over the uplink."""
            slow = nics["slow"].lossless.counters()[f"tx_prio{LOSSLESS}_pause"]
            return [slow, uplink.counters()[f"SAI_PORT_STAT_PFC_{LOSSLESS}_RX_PKTS"]]

        with (
            Streams([(nics["worker1"], nics["slow"])] * 2, attributes(26)) as to_the_slow,
            Streams([(nics["worker2"], nics["well"])], attributes(p.dscp)) as innocent,
        ):

            def feed() -> None:
                for stream in to_the_slow:
                    stream.feed()

            with run.step("two workers write, each to a NIC of its own"):
                innocent.run(p.start / 2, feed)
                (before,) = innocent.run(p.start, feed)
                at_first = pauses()
            with run.fault(SlowReceiver(end="slow:eth1", rate=p.rate)):
                with run.step("one of these NICs takes in slowly"):
                    innocent.run(p.start, feed)
                with run.step(f"{p.measured:g} s are measured"):
                    began, done = pauses(), sum(stream.done_bytes for stream in to_the_slow)
                    (during,) = innocent.run(p.measured, feed)
                    slow = (sum(stream.done_bytes for stream in to_the_slow) - done) * 8 / p.measured
                    from_slow, on_uplink = (now - then for now, then in zip(pauses(), began, strict=True))

        share, storms = during / before, to_slow.counters()[f"PFC_WD_QUEUE_STATS_DEADLOCK_DETECTED:{LOSSLESS}"]
        run.note(before=mbit(before), during=mbit(during), to_slow=mbit(slow), storms=storms)
        run.note(slow_pauses=from_slow, uplink_paused=on_uplink, uplink_marks=uplink.queue(LOSSLESS).marked_packets)
        cnps = nics["worker2"].lossless.counters()["rp_cnp_handled"]
        run.note(cnps_to_worker2=cnps)
        run.expect("while the NIC is well nobody pauses", at_first, [0, 0])
        run.expect("and the other flow has its link", before, lambda rate: 40e6 < rate < 50e6)
        run.expect("the slow NIC gets what it takes in", slow, lambda rate: 0.5 * p.rate < rate <= 1.05 * p.rate)
        run.expect("it pauses its switch again and again", from_slow, lambda frames: frames > 50)
        run.expect("nothing is dropped", [port.queue(LOSSLESS).dropped_packets for port in (to_slow, uplink)], [0, 0])
        if share < 0.7:
            run.observe("fault", f"the flow to a NIC that is well has {share:.0%} of its rate")
            if p.control == "none":
                run.expect("the common uplink is paused", on_uplink, lambda frames: frames > 100)
            else:
                run.expect("it gets CNPs for the queue at the uplink", cnps, lambda count: count > 3)
            if p.watchdog:
                run.expect("the watchdog finds no storm", storms, 0)
        else:
            run.observe("healthy", f"the flow to a NIC that is well has {share:.0%} of its rate")
            run.expect("the class of the others is paused all the same", on_uplink, lambda frames: frames > 50)


def attributes(dscp: int) -> Attributes:
    return Attributes(timeout=18, traffic_class=dscp << 2 | ECT)


def mbit(rate: float) -> float:
    return round(rate / 1e6, 1)
