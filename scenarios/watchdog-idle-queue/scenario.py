from testbed import Field, Host, Parameters, Run, Scenario, Variant
from testbed.faults import PauseStorm
from testbed.workload import Attributes, Streams

LOSSLESS = 3
ATTRIBUTES = Attributes(timeout=20, traffic_class=26 << 2)
"""DSCP 26, the lossless class. 4.3 s: nobody gives up before the watchdog has looked."""
OUT = f"PFC_WD_QUEUE_STATS_{{}}:{LOSSLESS}".format


class Settings(Parameters):
    watchdog: float = Field(
        0.0, ge=0, le=60, description="seconds after which the sick NIC's switch finds a storm; 0: off"
    )
    idle: float = Field(600, gt=1, le=86_400, description="seconds in which nobody sends to the sick NIC")


class WatchdogIdleQueue(Scenario[Settings]):
    """A NIC sends pause frames while nobody sends to it. Ten minutes later a job starts, and a fabric stands still.

    A node hangs after its job has ended: its NIC goes on pausing its switch. Nothing waits at that port, so nothing is
    slow, no queue is full, and a check that looks for full queues finds nothing. The next job has a rank on the node.
    Its first packets fill the port's queue, the leaf pauses its neighbours, and flows to other hosts stand still.

    On real gear: SONiC `show pfc counters`, `PFC3` of Port Rx rises by the same number every second (a port of
    50 Mbit/s: 3, one of 400 Gbit/s: 24000) at a port without traffic; `rx_prio3_pause` of that port's other end is 0.

    The fix: a watchdog that counts the pause frames which go on coming, whether packets wait or not. SONiC's detector
    for Broadcom does (orchagent/pfc_detect_broadcom.lua): the storm is found while the queue is idle, and the job's
    packets to the sick node are dropped from the first one on. An alert on the rate of received pause frames at ports
    without traffic finds the node before its next job.
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
        with Streams(pairs, ATTRIBUTES) as streams, run.fault(PauseStorm(end="sick:eth1", priority=LOSSLESS)):
            with run.step(f"the NIC pauses for {p.idle:g} s, and nobody sends"):
                run.lab.scheduler.sleep(p.idle)
                idle = to_sick.counters()
                found_idle = idle[OUT("DEADLOCK_DETECTED")]
            with run.step("three workers write, one of them to the sick NIC"):
                streams.run(1.0)
                sick, *others = streams.run(2.0)
            counted, stands = to_sick.counters(), uplink.paused(LOSSLESS)

        quantum = 512 / (nics["sick"].sends.quality.rate or 1)
        frames = idle[f"SAI_PORT_STAT_PFC_{LOSSLESS}_RX_PKTS"]
        paused = idle[f"SAI_PORT_STAT_PFC_{LOSSLESS}_RX_PAUSE_DURATION_US"] / 1e6
        run.note(pause_frames=frames, frames_per_s=round(frames / p.idle, 2), paused_s=round(paused, 1))
        run.note(mbit=[round(rate / 1e6, 1) for rate in others], storms_while_idle=found_idle)
        run.expect(
            "pause frames go on, one after half of the time of the last", frames * 0xFFFF * quantum / 2 / p.idle, near_1
        )
        run.expect("nothing is dropped meanwhile", idle[OUT("TX_DROPPED_PACKETS")], 0)
        run.expect("nothing gets to the sick NIC", sick, 0)
        if sum(others) < 4e6:
            run.observe("fault", "flows to another host stand still")
            run.expect("their uplink is paused", stands, True)
            run.expect("the port was paused all the time", paused / p.idle, near_1)
            run.expect("nobody found a storm", counted[OUT("DEADLOCK_DETECTED")], 0)
        else:
            run.observe("healthy", f"flows to another host have {sum(others) / 1e6:.0f} Mbit/s")
            run.expect("the watchdog found the storm while the queue was idle", found_idle, 1)
            run.expect("it drops what is for the sick NIC", counted[OUT("TX_DROPPED_PACKETS")], lambda n: n > 10)


def near_1(part: float) -> bool:
    return 0.99 < part < 1.01
