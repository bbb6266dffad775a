from typing import Literal

from testbed import Field, Parameters, Run, Scenario, Variant
from testbed.faults import LinkLoss
from testbed.workload import Attributes, Endpoint, connect_pair, open_endpoint

LOSSLESS = 3
CYCLE = ("t0:p2", "la:p1", "t1:p4", "lb:p0")
"""Each of these waits for the next one, and the last for the first."""
UPLINKS = {"t0": ("p2", "p3"), "t1": ("p3", "p4")}
PURPLE, BLUE = ("s1", "s3"), ("s4", "s2")
"""The flows of the paper to the hosts that are dead, by its colours."""
BLACK = (("s1", "s5"), ("s6", "s5"), ("s4", "s5"))
"""The incast."""
MESSAGE, MESSAGES, SENDERS = 200_000, 3, 3
"""Bytes of a WRITE, how many each queue pair posts, and how many queue pairs each flow has."""
ATTRIBUTES = Attributes(timeout=19, retry_cnt=6, traffic_class=26 << 2)
"""Each sends what is not acknowledged again every 68 ms, for half a second."""


class Settings(Parameters):
    dead: bool = Field(True, description="whether two hosts are dead")
    flood_uplinks: bool = Field(True, description="whether the racks' switches flood to their uplinks, too")
    unknown: Literal["flood", "drop"] = Field(
        "flood", description="what is done with lossless packets for an unknown MAC"
    )
    mac_age: float = Field(
        300, gt=0, description="seconds after which a switch forgets a MAC; ARP entries live for 4 h"
    )
    watchdog: float = Field(0, ge=0, description="seconds after which switches find a storm; 0: off")


class PfcDeadlock(Scenario[Settings]):
    """Dead hosts, flooding and pause frames: four switches wait for each other, for ever.

    A dead host stays in its switch's ARP table for hours, and in its MAC table for minutes. Then packets for it are
    flooded to all ports, also to the uplinks, and the next switch drops them. In a lossless class they wait at a paused
    uplink. If they came from the other uplink, this closes a cycle: T0 waits for La, La for T1, T1 for Lb, Lb for T0.
    Nothing moves any more, even after all senders stop (SIGCOMM 2016, section 4.2).

    On real gear: all lossless traffic of two racks stops; `rx_prio3_pause` rises on both ends of the uplinks, queues
    are full and send nothing; restarting hosts does not help.

    The fixes: drop lossless packets with an ARP entry but no MAC entry (the paper's choice); a MAC age above ARP's; a
    PFC watchdog, which breaks the cycle at the cost of the packets that it drops. And no flooding in a lossless class.
    """

    tags = ("fabric", "lossless", "tables")
    variants = (
        Variant("as-is", "fault", "two dead hosts, MACs aged out, flooding to the uplinks"),
        Variant("drop", "healthy", "lossless packets for an unknown MAC are dropped", {"unknown": "drop"}),
        Variant("mac-age", "healthy", "MACs live longer than ARP entries", {"mac_age": 20_000}),
        Variant("watchdog", "healthy", "a PFC watchdog in all switches", {"watchdog": 1.7}),
        Variant("hosts-alive", "healthy", "nobody is dead", {"dead": False}),
        Variant("no-flood-to-uplinks", "healthy", "flooding stays in the rack", {"flood_uplinks": False}),
    )
    limit_s = 3600

    def run(self, run: Run, p: Settings) -> None:
        for name, ports in UPLINKS.items():
            switch = run.lab.switch(name)
            switch.change_profile(mac_age=p.mac_age, lossless_unknown_unicast=p.unknown)
            for port in ports if p.flood_uplinks else ():
                switch.run("bridge", "vlan", "add", "vid", "10", "dev", port)
        if p.watchdog:
            for each in run.lab.switches():
                each.change_profile(pfc_watchdog=p.watchdog, pfc_watchdog_poll=p.watchdog / 2)

        with run.step("queue pairs are connected, and all MACs are known"):
            flows = [(pair, self.connect(run, *pair)) for pair in (PURPLE, BLUE, *BLACK) for _ in range(SENDERS)]
        for host, cable in ("s3", "t1:p0"), ("s2", "t0:p1"):
            for silent in (cable, f"{host}:eth1") if p.dead else ():
                run.inject(LinkLoss(end=silent, loss=100))
        run.sleep(310, "MACs that are silent for 300 s age out; the links of dead hosts stay up")
        for number in range(1, 7):
            run.lab.host(f"s{number}")["eth1"].teach()  # the dead ones are not heard

        with run.step("all flows send at once"):
            for _, end in flows:
                for _ in range(MESSAGES):
                    end.post_write(MESSAGE)
            run.lab.scheduler.sleep(5)
        moved = self.sent(run)
        with run.step("a minute later, with nobody sending"):
            run.lab.scheduler.sleep(60)
        moved = {end: self.sent(run)[end] - moved[end] for end in CYCLE}
        stuck = {end: run.lab.interface(end).lossless.queue(LOSSLESS).bytes for end in CYCLE}
        paused = [end for end in CYCLE if run.lab.interface(end).lossless.paused(LOSSLESS)]
        storms = sum(
            port.lossless.counters()[f"PFC_WD_QUEUE_STATS_DEADLOCK_DETECTED:{LOSSLESS}"]
            for switch in run.lab.switches()
            for port in switch.interfaces.values()
        )
        run.note(stuck_bytes=list(stuck.values()), moved=list(moved.values()), storms=storms)
        if all(stuck.values()) and not any(moved.values()):
            run.observe("fault", "four ports wait for each other; nothing moves any more")
            run.expect("all of them are paused", paused, list(CYCLE))
        else:
            run.observe("healthy", "the queues are empty")
            run.expect("nothing is left in the cycle", sum(stuck.values()), 0)
            run.expect("storms are found by a watchdog alone", storms > 0, p.watchdog > 0)
        reached = run.lab["s1"].ping(run.lab.host("s5")["eth1"].address().ip, within=2)
        run.expect("another class gets through", reached, True)

    def connect(self, run: Run, near: str, far: str) -> Endpoint:
        """A queue pair that ends with the lab: one whose packets stand still cannot be destroyed."""
        here, there = (open_endpoint(run.lab.host(name)["eth1"], memory=MESSAGE) for name in (near, far))
        connect_pair(here, there, ATTRIBUTES)
        return here

    def sent(self, run: Run) -> dict[str, int]:
        return {end: run.lab.interface(end).lossless.queue(LOSSLESS).sent_packets for end in CYCLE}
