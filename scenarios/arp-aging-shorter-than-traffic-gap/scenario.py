"""See the docstring of ArpAgingShorterThanTrafficGap, or `testbed describe arp-aging-shorter-than-traffic-gap`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from testbed import Parameters, Run, Scenario, Variant
from testbed.faults import ArpCpuDelay
from testbed.switch.profile import Profile, profile
from testbed.workload.attributes import Attributes
from testbed.workload.verbs import connect_pair

MESSAGE = 4096
RESTART_S = 5.0
RESTARTS_AT_MOST = 20


class Settings(Parameters):
    arp_age: float = Field(240.0, gt=0, description="ARP ageing of the leaf in seconds; EOS has 14400 by default")
    refresh: Literal["none", "probe"] = Field("none", description="whether the leaf asks for an entry before it ages")
    gap: float = Field(600.0, gt=0, description="seconds without traffic, while a checkpoint is written")
    gaps: int = Field(3, ge=1, description="how many of them")
    cpu_delay: float = Field(0.5, gt=0, description="seconds by which the leaf's CPU is late with each ARP packet")
    timeout: int = Field(14, ge=1, le=31, description="the QP's ACK timeout, 4.096 us * 2^timeout")


class ArpAgingShorterThanTrafficGap(Scenario):
    """
    An ARP entry ages while a job is silent, and the first message after the gap does not survive the resolution.

    Somebody set the ARP ageing below that of MAC addresses, 240 s against 300 s: that is the textbook's cure for the
    flooding of unknown unicast. A training job writes a checkpoint, or computes, for ten minutes. RoCE sends no ARP and
    does not keep entries alive, so both hosts' entries are gone when it goes on. The switch resolves them, which is
    work for its CPU; and a CPU that is busy with something else (a routing protocol that converges, telemetry, a
    storm) takes half a second for what it does in a millisecond otherwise. A queue pair with a timeout of 14 and three
    retries gives up after 0.27 s. While traffic flows nobody feels the busy CPU; after each gap the job dies.
    Started again it dies once more, of the entry for the way back, which nothing has asked for yet; then it works.

    The lab's switch keeps the packets that wait for the answer, as Linux does. Many drop them, which costs a
    retransmission even when the CPU is idle.

    On real gear: failures at the first collective after a pause, never in the middle of one; the switch's entry is
    younger than the failure (`show ip arp` has the age), or counts glean drops; `show processes cpu` is high.

    The cures: have the switch ask before entries age, from then on they do not; ageing that is longer than any gap of
    the traffic, with MAC addresses that live longer still; and retries that outlast a resolution (NCCL's timeout of 20
    does, for a while).
    """

    title = "ARP ages in a gap of the traffic, and the first message after it dies"
    tags = ("arp", "switch", "training")
    parameters = Settings
    variants = (
        Variant("as-is", "fault", "entries live 240 s, the job is silent for 600 s"),
        Variant("refresh", "healthy", "the switch asks for an entry 30 s before its end", {"refresh": "probe"}),
        Variant("longer-age", "healthy", "entries live EOS's default of 4 hours", {"arp_age": 14400}),
        Variant("patient-qp", "healthy", "the queue pair's timeout is 20, NCCL's default", {"timeout": 20}),
    )

    def profiles(self, parameters: Settings) -> Mapping[str, Profile]:
        refresh = {"arp_refresh": "probe", "refresh_before": 30, "refresh_interval": 10}
        changed = refresh if parameters.refresh == "probe" else {}
        return {"leaf": profile("arista-eos").replace(arp_age=parameters.arp_age, **changed)}

    def run(self, run: Run, p: Settings) -> None:
        leaf, client, server = run.lab.switch("leaf"), run.lab.host("client"), run.lab.host("server")
        ip = str(server.addresses["eth1"].ip)
        attributes = Attributes(timeout=p.timeout)
        known, restarts, slowest = 0, 0, 0.0

        with run.step("the client works with the server, then the switch's CPU becomes busy"):
            run.expect("the first WRITE", run.write(client, server), "SUCCESS")
            run.inject(ArpCpuDelay(switch="leaf", delay=p.cpu_delay))
            run.expect("a WRITE while the entries live", run.write(client, server), "SUCCESS")

        statuses: list[str] = []
        for _ in range(p.gaps):
            with run.endpoint(client, "eth1") as near, run.endpoint(server, "eth1") as far:
                with run.step("the job runs"):
                    connect_pair(near, far, attributes)
                    run.expect("a WRITE before the gap", run.completed(client, near.write(MESSAGE, within=60)).ok, True)
                with run.step("it writes a checkpoint, and goes on"):
                    run.sleep(p.gap, "no RoCE traffic")
                    known += ip in leaf.arp_table()
                    done = run.completed(client, near.write(MESSAGE, within=60))
                    statuses.append(done.status)
                    slowest = max(slowest, done.elapsed_s)
            while not done.ok and restarts < RESTARTS_AT_MOST:
                restarts += 1
                run.sleep(RESTART_S, "the job is started again")
                if run.write(client, server, attributes) == "SUCCESS":
                    break

        run.lab.drain()
        asked = len(run.log.find("arp.miss", ip=ip))
        died = sum(status != "SUCCESS" for status in statuses)
        run.note(died=f"{died} of {p.gaps}", entry_after_gap=f"{known} of {p.gaps}", restarts=restarts)
        run.note(slowest_s=round(slowest, 4))
        keeps = p.refresh == "probe" or p.arp_age > p.gap
        run.expect("gaps after which the switch had the server's entry", known, p.gaps if keeps else 0)
        run.expect("gaps after which it had to resolve it", asked, 0 if keeps else p.gaps)
        if died:
            run.observe("fault", f"the first message after a gap dies {died} times of {p.gaps}")
            run.expect("it dies of unanswered retries", set(statuses), {"RETRY_EXC_ERR"})
            run.expect("before the switch has the answer", slowest, lambda seconds: seconds < p.cpu_delay)
            run.expect("the restarted job dies of the other direction, then works", restarts, 2 * p.gaps)
        else:
            run.observe("healthy", "every message arrives")
            late = slowest > p.cpu_delay
            run.expect("whether the first message after a gap waits for the resolution", late, not keeps)
