from typing import Literal

from testbed import Field, Parameters, Profile, Run, Scenario, Variant, profile
from testbed.faults import ArpCpuDelay
from testbed.workload import Attributes, Completion

RESTART_S, GIVE_UP_S = 5.0, 100.0
"""A job that died is started again after so long, and not any more when it has not worked for so long."""


class Settings(Parameters):
    arp_age: float = Field(240.0, gt=0, description="ARP ageing of the leaf in seconds; EOS has 14400 by default")
    refresh: Literal["none", "probe"] = Field("none", description="whether the leaf asks for an entry before it ages")
    gap: float = Field(600.0, gt=0, description="seconds without traffic, while a checkpoint is written")
    gaps: int = Field(3, ge=1, description="how many of them")
    cpu_delay: float = Field(0.5, gt=0, description="seconds by which the leaf's CPU is late with each ARP packet")
    timeout: int = Field(14, ge=1, le=31, description="the QP's ACK timeout, 4.096 us * 2^timeout")


class ArpAgingShorterThanTrafficGap(Scenario[Settings]):
    """An ARP entry ages while a job is silent, and the first message after the gap dies.

    Somebody set the ARP ageing to 240 s, below the 300 s of MAC addresses: the textbook's remedy against the flooding
    of unknown unicast. A training job computes, or writes a checkpoint, for ten minutes. RoCE sends no ARP and keeps no
    entries alive, so the switch must resolve both hosts when the job goes on. A busy CPU (a converging routing
    protocol, telemetry, a storm) needs half a second instead of a millisecond; a queue pair with a timeout of 14 and
    three retries gives up after 0.27 s. While traffic flows, nobody notices the busy CPU. A restarted job dies once
    more, because nobody has yet requested the entry for the way back; then it works.

    The lab's switch keeps the packets that wait for the answer, as Linux does. Many switches drop them, and this costs
    a retransmission even when the CPU is idle.

    On real gear: failures at the first collective after a pause, never in the middle of one. The switch's entry is
    younger than the failure (`show ip arp` has the age), or glean drops are counted; `show processes cpu` is high.

    The fixes: have the switch refresh entries before they age. Or set an ARP ageing longer than any gap of the traffic,
    and a still longer MAC ageing. Or retries that outlast a resolution (NCCL's timeout of 20 does, for a while).
    """

    tags = ("arp", "switch", "training")
    variants = (
        Variant("as-is", "fault", "entries live 240 s, the job is silent for 600 s"),
        Variant("refresh", "healthy", "the switch asks for an entry 30 s before its end", {"refresh": "probe"}),
        Variant("longer-age", "healthy", "entries live EOS's default of 4 hours", {"arp_age": 14400}),
        Variant("patient-qp", "healthy", "the queue pair's timeout is 20, NCCL's default", {"timeout": 20}),
    )

    def profiles(self, p: Settings) -> dict[str, Profile]:
        refresh = {"arp_refresh": "probe", "refresh_before": 30, "refresh_interval": 10}
        changed = refresh if p.refresh == "probe" else {}
        return {"leaf": profile("arista-eos").replace(arp_age=p.arp_age, **changed)}

    def run(self, run: Run, p: Settings) -> None:
        leaf, (client, server) = run.lab.switch("leaf"), run.nics("client", "server")
        ip, attributes = server.address().ip, Attributes(timeout=p.timeout)
        known, restarts = 0, 0
        ends: list[Completion] = []

        run.expect_write("the client works with the server, then the switch's CPU becomes busy", client, server)
        run.inject(ArpCpuDelay(switch="leaf", delay=p.cpu_delay))
        run.expect("a WRITE while the entries live", run.write(client, server), "SUCCESS")

        for _ in range(p.gaps):
            job = run.connect("the job runs", client, server, attributes)
            with run.step("it writes a checkpoint, and goes on"):
                run.sleep(p.gap, "no RoCE traffic")
                known += leaf.neighbour(ip) is not None
                ends.append(job.write())
            job.close()
            if not ends[-1].ok:
                run.sleep(RESTART_S, "the job is started again")
                restarts += len(run.tries(lambda: run.write(client, server, attributes), GIVE_UP_S, RESTART_S))

        asked = len(run.events("arp.miss", ip=ip))
        dead = [end.status for end in ends if not end.ok]
        slowest = max(end.elapsed_s for end in ends)
        run.note(died=f"{len(dead)} of {p.gaps}", entry_after_gap=f"{known} of {p.gaps}", restarts=restarts)
        run.note(slowest_s=round(slowest, 4))
        keeps = p.refresh == "probe" or p.arp_age > p.gap
        run.expect("gaps after which the switch had the server's entry", known, p.gaps if keeps else 0)
        run.expect("gaps after which it had to resolve it", asked, 0 if keeps else p.gaps)
        if dead:
            run.observe("fault", f"the first message after a gap dies {len(dead)} times of {p.gaps}")
            run.expect("it dies of unanswered retries", set(dead), {"RETRY_EXC_ERR"})
            run.expect("before the switch has the answer", slowest, lambda seconds: seconds < p.cpu_delay)
            run.expect("the restarted job dies of the other direction, then works", restarts, 2 * p.gaps)
        else:
            run.observe("healthy", "every message arrives")
            late = slowest > p.cpu_delay
            run.expect("whether the first message after a gap waits for the resolution", late, not keeps)
