from contextlib import ExitStack

from testbed import Field, Host, Parameters, Run, Scenario, Variant
from testbed.faults import PauseNotSent, PauseStorm
from testbed.workload import Attributes, Streams

LOSSLESS = 3
ATTRIBUTES = Attributes(timeout=20, traffic_class=26 << 2)
"""DSCP 26, the lossless class. 4.3 s: longer than the pause, so nobody sends again because of it."""
AFTERWARDS_S = 5.0
"""Longer than that time: the last packets of a burst are missed by nobody but a sender that waits for its ACK."""
UPLINK = "leaf2:e5"
QUEUE_PAIRS = 6
"""To the NIC that hangs: soft-RoCE has 70 kB of each under way."""


class Settings(Parameters):
    refresh: bool = Field(True, description="whether leaf2 sends its pause again before its time is over")
    hang: float = Field(2.0, gt=0, le=60, description="seconds for which the NIC receives nothing")


class PauseRefreshLost(Scenario[Settings]):
    """A switch pauses its neighbour once and not again: the pause ends by itself, and a lossless class drops.

    A pause frame holds for 65535 quanta of 512 bits at most: 0.84 ms at 40 Gbit/s, 84 us at 400. A port that needs a
    longer pause sends the frame again before that. If the frames that follow are lost, because the CPU that makes them
    is busy, the link corrupts them, or the firmware forgets them, the neighbour goes on while the buffer is still full:
    the headroom was for the first stop, and is in use.

    A NIC behind leaf2 hangs for two seconds, which is rightly no storm for a watchdog of five. leaf2 fills, and pauses
    leaf1 for longer than one frame can.

    On real gear: drops in a lossless class (`show queue counters`, UC3; `show priority-group drop counters`) while the
    neighbour counts few pause frames for a long pause: `rx_prio3_pause` against `rx_prio3_pause_duration`. A pause
    that is kept up has a frame for each half of its time.

    The fixes: firmware that sends its pauses again; until then, an alert on time paused without frames. Pauses that are
    shorter than one frame's time need no second one, so a test that only bursts does not find this.
    """

    tags = ("fabric", "congestion", "lossless")
    variants = (
        Variant("as-is", "fault", "leaf2's pause frames end after the first", {"refresh": False}),
        Variant("refreshed", "healthy", "they are sent again after half of their time"),
        Variant("short", "healthy", "the pause is over before one frame's time", {"refresh": False, "hang": 0.1}),
    )

    def run(self, run: Run, p: Settings) -> None:
        nics = {node.name: node["eth1"] for node in run.lab.nodes.values() if isinstance(node, Host)}
        port, back = run.lab.interface(UPLINK).lossless, run.lab.interface("leaf1:e5").lossless
        pairs = [*[(nics["worker1"], nics["sick"])] * QUEUE_PAIRS, (nics["worker2"], nics["well"])]
        with Streams(pairs, ATTRIBUTES) as streams:
            with run.step("two workers write"):
                streams.run(0.5)
            frames = before = port.counters()[f"SAI_PORT_STAT_PFC_{LOSSLESS}_TX_PKTS"]
            with ExitStack() as faults, run.step(f"a NIC hangs for {p.hang:g} s"):
                faults.enter_context(run.fault(PauseStorm(end="sick:eth1", priority=LOSSLESS)))
                run.lab.scheduler.wait(lambda: back.paused(LOSSLESS), 1, pause=0.001)
                paused = back.paused(LOSSLESS)
                if not p.refresh:
                    faults.enter_context(run.fault(PauseNotSent(end=UPLINK)))
                streams.run(p.hang)
                frames = port.counters()[f"SAI_PORT_STAT_PFC_{LOSSLESS}_TX_PKTS"] - before
                pause_s = back.paused_ns(LOSSLESS) / 1e9
            with run.step("it receives again"):
                streams.run(AFTERWARDS_S)

        to_sick = run.lab.interface("leaf2:e1").lossless
        dropped = (
            to_sick.queue(LOSSLESS).dropped_packets + run.lab.interface("leaf2:e2").lossless.queue(3).dropped_packets
        )
        retries = sum(nic.rdma_counters()["completer_retry_err"] for nic in nics.values())
        run.note(dropped=dropped, retries=retries, pause_frames=frames, paused_s=round(pause_s, 2))
        run.expect("leaf2 pauses leaf1", paused, True)
        if dropped:
            run.observe("fault", f"{dropped} packets of a lossless class are dropped")
            run.expect("senders have to send again", retries, lambda count: count > 0)
            run.expect("hardly a pause frame told leaf1 to wait", frames, lambda count: count <= 4)
        else:
            run.observe("healthy", "nothing is dropped")
            run.expect("nothing is sent again", retries, 0)
