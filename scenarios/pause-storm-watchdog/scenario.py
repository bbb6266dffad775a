from testbed import Field, Host, Parameters, Run, Scenario, Variant
from testbed.faults import PauseStorm
from testbed.workload import Attributes, Streams

LOSSLESS = 3
ATTRIBUTES = Attributes(timeout=19, traffic_class=26 << 2)
"""DSCP 26, the lossless class. 2.1 s: nobody gives up before the watchdog has looked."""
OUT = f"PFC_WD_QUEUE_STATS_{{}}:{LOSSLESS}".format


class Settings(Parameters):
    watchdog: float = Field(
        0.0, ge=0, le=60, description="seconds after which the sick NIC's switch finds a storm; 0: off"
    )
    storm: float = Field(2.0, gt=0, le=60, description="seconds of the storm that are measured")


class PauseStormWatchdog(Scenario[Settings]):
    """One NIC sends pause frames for ever, and unrelated flows stop.

    A NIC with a hung receive pipeline pauses its switch without end. The switch's queue to the NIC fills, so the switch
    pauses its senders, among them the other switch. That switch's uplink then stops for all traffic in that class
    (SIGCOMM 2016, section 4.3: one NIC took down a part of a data centre).

    On real gear: `rx_prio3_pause` of the port to the faulty NIC rises without end, and nothing leaves its queue; jobs
    hang everywhere, without a drop and without a link down. SONiC: `show pfcwd stats`, and in the log "PFC Watchdog
    detected PFC storm on port".

    The fix: a PFC watchdog on the ports to hosts. It drops the packets of the blocked queue until the storm is over, so
    all other traffic continues. Packets for the faulty NIC are lost. NICs also have a watchdog, which stops a NIC's
    pauses after 100 ms.
    """

    tags = ("fabric", "congestion", "lossless")
    variants = (
        Variant("as-is", "fault", "no watchdog"),
        Variant("watchdog", "healthy", "SONiC's watchdog, action drop", {"watchdog": 0.7}),
    )

    def run(self, run: Run, p: Settings) -> None:
        nics = {node.name: node["eth1"] for node in run.lab.nodes.values() if isinstance(node, Host)}
        to_sick, uplink = run.lab.interface("leaf2:e1").lossless, run.lab.interface("leaf1:e5").lossless
        if p.watchdog:
            run.lab.switch("leaf2").change_profile(pfc_watchdog=p.watchdog, pfc_watchdog_poll=p.watchdog / 2)
        pairs = [(nics["worker1"], nics["sick"]), (nics["worker2"], nics["well"]), (nics["worker3"], nics["well"])]
        with Streams(pairs, ATTRIBUTES) as streams:
            with run.step("three workers write, one of them to the NIC that will be sick"):
                _, *before = streams.run(0.5)
            with run.fault(PauseStorm(end="sick:eth1", priority=LOSSLESS)):
                with run.step("the storm has come, and the watchdog had its time"):
                    streams.run(1.0)
                with run.step(f"{p.storm:g} s of the storm are measured"):
                    sick, *during = streams.run(p.storm)
                counted, stands = to_sick.counters(), uplink.paused(LOSSLESS)
            with run.step("the storm is over"):
                streams.run(1.0)

        run.note(before=mbit(before), during=mbit(during), storms=counted[OUT("DEADLOCK_DETECTED")])
        run.note(uplink_paused_ms=round(uplink.paused_ns(LOSSLESS) / 1e6), dropped=counted[OUT("TX_DROPPED_PACKETS")])
        run.expect("before it the others have their port", sum(before), lambda rate: 40e6 < rate < 50e6)
        run.expect("nothing gets to the sick NIC", sick, 0)
        if sum(during) < 0.1 * sum(before):
            run.observe("fault", "flows to another host stand still")
            run.expect("their uplink is paused", stands, True)
            run.expect("nothing is dropped", to_sick.queue(LOSSLESS).dropped_packets, 0)
        else:
            run.observe("healthy", f"flows to another host have {sum(during) / sum(before):.0%} of their rate")
            run.expect("the watchdog found the storm once", counted[OUT("DEADLOCK_DETECTED")], 1)
            run.expect("it dropped what was for the sick NIC", counted[OUT("TX_DROPPED_PACKETS")], lambda n: n > 10)


def mbit(rates: list[float]) -> list[float]:
    return [round(rate / 1e6, 1) for rate in rates]
