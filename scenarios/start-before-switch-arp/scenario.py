"""See the docstring of StartBeforeSwitchArp, or `testbed describe start-before-switch-arp`."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field

from testbed import Parameters, Run, Scenario, Variant
from testbed.faults import ArpCpuDelay
from testbed.lab import Host
from testbed.switch.profile import Profile, ProfileName, profile

READY_S = 30.0


class Settings(Parameters):
    profile: ProfileName = Field("cisco-nxos", description="ARP and FDB profile of the leaf switch")
    delay: float = Field(2.0, gt=0, description="seconds by which the switch's CPU handles ARP late")
    announce: bool = Field(False, description="whether the worker announces itself when its link is up")
    starts_after: float = Field(0.0, ge=0, description="seconds from then to the worker's first connection")
    readiness_gate: bool = Field(False, description="whether the worker waits until its gateway answers a ping")


class StartBeforeSwitchArp(Scenario):
    """
    A worker starts RDMA before the switch knows its address, and its first connection dies.

    A pod is up in a moment: its gateway is a static neighbour entry, so nothing has to be asked, and its first WRITE
    leaves at once. It arrives. The acknowledgement comes back to a switch that has never heard of the worker: it asks
    for the address, the worker answers, and the switch's CPU takes the answer in when it gets to it. When a rack starts
    at once, that is seconds later; the queue pair has retried for 0.27 s and is dead. A second start works, for by then
    the switch knows everybody. With a gateway that is asked for by ARP the same delay shows earlier, as a modify to RTR
    that fails (scenario gateway-down-at-start).

    On real gear: RETRY_EXC_ERR in the first second of a job, in NCCL "transport retry counter exceeded", and never
    again after a restart; `show ip arp` has the worker with an age that is less than the job's; the CPU queue for ARP
    drops or is full (`show policy-map interface control-plane`). It follows large restarts, and the size of the VLAN.

    The cures: a readiness gate, an init container that pings the gateway until it answers, for the answer needs the
    switch's entry; or an announcement when the link comes up, long enough before RDMA starts. The second one is worth
    something only on a switch that makes an entry of a gratuitous ARP, which most do not by default (`arp gratuitous
    accept`, `arp_accept`).
    """

    title = "RDMA starts before the switch has the worker's ARP entry"
    tags = ("arp", "kubernetes", "switch")
    parameters = Settings
    variants = (
        Variant("as-is", "fault", "the worker writes at once, the switch's CPU is 2 s late"),
        Variant("readiness-gate", "healthy", "it waits until its gateway answers a ping", {"readiness_gate": True}),
        Variant(
            "announced",
            "healthy",
            "it announces itself 3 s before its first connection; Comware makes an entry of that",
            {"announce": True, "starts_after": 3, "profile": "h3c-comware7"},
        ),
        Variant(
            "announced-in-vain",
            "fault",
            "the same with NX-OS, which makes none",
            {"announce": True, "starts_after": 3},
        ),
    )

    def profiles(self, parameters: Settings) -> Mapping[str, Profile]:
        return {"leaf": profile(parameters.profile)}

    def run(self, run: Run, p: Settings) -> None:
        leaf, peer, worker = run.lab.switch("leaf"), run.lab.host("peer"), run.lab.host("worker")
        ip, mac = str(worker.addresses["eth1"].ip), worker.macs["eth1"]

        with run.step("the peer is at work, the switch's CPU is busy"):
            run.expect("the peer's gateway answers", gateway_answers(peer), True)
            run.inject(ArpCpuDelay(switch="leaf", delay=p.delay))

        with run.step("the worker starts"):
            up = run.log.now
            worker.set_neighbour("eth1", worker.gateway("eth1"), run.lab.plan.nodes["leaf"].svis[0].mac)
            if p.announce:
                worker.announce("eth1")
            if p.readiness_gate:
                run.eventually("its gateway answers", lambda: gateway_answers(worker), True, within=READY_S)
            if p.starts_after:
                run.sleep(p.starts_after, "the worker's program loads")

        with run.step("the worker connects to its peer"):
            status = run.write(worker, peer)
            known = "worker's MAC" if leaf.arp_table().get(ip) == mac else "no entry"

        run.note(completion=status, switch_arp=known)
        if status == "SUCCESS":
            run.observe("healthy", "the worker's first connection works")
            run.expect("the switch has the worker's MAC", known, "worker's MAC")
        else:
            run.observe("fault", f"the worker's first work request dies of {status}")
            run.expect("it dies of unanswered retries", status, "RETRY_EXC_ERR")
            run.expect("the switch has no entry for the worker then", known, "no entry")
            learned = run.eventually("it has one later", lambda: leaf.arp_table().get(ip), mac, within=2 * p.delay)
            run.expect("a second start works", run.write(worker, peer), "SUCCESS")
            if p.announce:
                ignored = [event["data"]["reason"] for event in run.log.find("arp.ignored", mac=mac)]
                run.expect("the switch heard the announcement", ignored, ["garp-creates-nothing"])
            if learned:
                run.note(learned_after_s=round((run.log.find("arp.learned", mac=mac)[0]["t"] - up) / 1e9, 1))


def gateway_answers(host: Host) -> bool:
    return host.ping(str(host.gateway("eth1")), within=1)
