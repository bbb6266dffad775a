from testbed import Field, Parameters, ProfileName, Run, Scenario, Variant, owner_of
from testbed.faults import ArpCpuDelay

ANNOUNCED = {"announce": True, "starts_after": 3}
COMWARE = {**ANNOUNCED, "profile": "h3c-comware7"}


class Settings(Parameters):
    profile: ProfileName = Field("cisco-nxos", description="ARP and FDB profile of the leaf switch")
    delay: float = Field(2.0, gt=0, description="seconds by which the switch's CPU handles ARP late")
    announce: bool = Field(False, description="whether the worker announces itself when its link is up")
    starts_after: float = Field(0.0, ge=0, description="seconds from then to the worker's first connection")
    readiness_gate: bool = Field(False, description="whether the worker waits until its gateway answers a ping")


class StartBeforeSwitchArp(Scenario[Settings]):
    """A worker starts RDMA before the switch has its ARP entry, and its first connection dies.

    A pod is up in a moment. Its gateway is a static neighbour entry, so its first WRITE leaves at once, and arrives.
    The acknowledgement comes back to a switch without an entry for the worker. The switch sends a request, the worker
    answers, and the switch's CPU processes the answer when it has time. If a whole rack starts at once, that is seconds
    later; the queue pair has retried for 0.27 s and is dead. A second start works, because the switch has all entries
    by then. If the worker resolves its gateway by ARP, the same delay appears earlier, as a failed modify to RTR
    (scenario gateway-down-at-start).

    On real gear: RETRY_EXC_ERR in the first second of a job, in NCCL "transport retry counter exceeded", and never
    again after a restart; `show ip arp` has the worker with an age that is less than the job's; the CPU queue for ARP
    drops or is full (`show policy-map interface control-plane`). It follows large restarts, and the size of the VLAN.

    The fixes: a readiness gate, an init container that pings the gateway until it answers, because the answer needs the
    switch's entry; or an announcement when the link comes up, long enough before RDMA starts, on a switch that creates
    an entry from a gratuitous ARP. Most do not by default (`arp gratuitous accept`, `arp_accept`).
    """

    tags = ("arp", "kubernetes", "switch")
    variants = (
        Variant("as-is", "fault", "the worker writes at once, the switch's CPU is 2 s late"),
        Variant("readiness-gate", "healthy", "it waits until its gateway answers a ping", {"readiness_gate": True}),
        Variant("announced", "healthy", "it announces itself 3 s before; Comware makes an entry of that", COMWARE),
        Variant("announced-in-vain", "fault", "the same; NX-OS makes none", ANNOUNCED),
    )

    def run(self, run: Run, p: Settings) -> None:
        leaf, (peer, worker) = run.lab.switch("leaf"), run.nics("peer", "worker")
        ip = worker.address().ip

        def known() -> str:
            return owner_of(leaf.neighbour(ip), worker)

        with run.step("the peer is at work, the switch's CPU is busy"):
            run.expect("the peer's gateway answers", peer.ping_gateway(), True)
            run.inject(ArpCpuDelay(switch="leaf", delay=p.delay))

        with run.step("the worker starts"):
            up = run.now
            run.silence(worker)
            if p.announce:
                worker.announce()
            if p.readiness_gate:
                run.wait_for_gateway(worker)
            if p.starts_after:
                run.sleep(p.starts_after, "the worker's program loads")

        with run.step("the worker connects to its peer"):
            status, then = run.write(worker, peer), known()

        run.note(completion=status, switch_arp=then)
        reached = run.observe_status(status, "the worker's first connection works", who="the worker")
        run.expect("the switch has", then, "worker's MAC" if reached else "no entry")
        if not reached:
            run.eventually("later it has", known, "worker's MAC", within=2 * p.delay)
            run.expect("a second start works", run.write(worker, peer), "SUCCESS")
            if p.announce:
                ignored = [event["data"]["reason"] for event in run.events("arp.ignored", mac=worker.mac)]
                run.expect("the switch heard the announcement", ignored, ["garp-creates-nothing"])
            for event in run.events("arp.learned", mac=worker.mac)[:1]:
                run.note(learned_after_s=round(event["t"] / 1e9 - up, 1))
