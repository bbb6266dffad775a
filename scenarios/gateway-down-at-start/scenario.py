from testbed import Field, Parameters, Run, Scenario, Variant
from testbed.faults import SwitchCpuOutage


class Settings(Parameters):
    outage: float = Field(20.0, gt=0, description="seconds for which the switch's CPU answers no ARP")
    wait_for_gateway: float = Field(0.0, ge=0, description="seconds for which the start waits for its gateway; 0: not")
    retry_for: float = Field(0.0, ge=0, description="seconds for which the client connects again; 0: it tries once")


class GatewayDownAtStart(Scenario[Settings]):
    """A job starts while its gateway answers no ARP, and gives up at once.

    A queue pair needs the gateway's MAC when it goes to RTR, and the kernel sends ARP requests for one second. A switch
    with a busy CPU (a supervisor switchover, a warm reboot, a restart storm behind a low CoPP limit) does not answer in
    that time. Its data plane forwards all along, so hosts with an entry notice nothing.

    On real gear: modify to RTR fails with ETIMEDOUT, in NCCL "Call to ibv_modify_qp failed with error Connection timed
    out"; `ip neigh` on the host has the gateway FAILED or INCOMPLETE. Other hosts work.

    The fixes: start when the gateway answers (an init container that pings it), or retry for longer than a control
    plane is down (SONiC's warm reboot allows 25 s without ARP).
    """

    tags = ("arp", "kubernetes", "switch")
    variants = (
        Variant("as-is", "fault", "the client tries once, while the CPU is away for 20 s"),
        Variant("readiness-gate", "healthy", "it starts when its gateway answers", {"wait_for_gateway": 60}),
        Variant("retry", "healthy", "it tries again for a minute", {"retry_for": 60}),
    )

    def run(self, run: Run, p: Settings) -> None:
        client, server = run.nics("client", "server")

        with run.step("the switch's CPU goes away"):
            began = run.now
            run.inject(SwitchCpuOutage(switch="leaf"), lasting=p.outage, may_outlast_run=True)

        if p.wait_for_gateway:
            with run.step("the client waits for its gateway"):
                run.eventually("it answers", client.ping_gateway, True, within=p.wait_for_gateway)

        with run.step("the client connects"):
            statuses = run.tries(lambda: run.write(client, server), p.retry_for, pause=2)

        status, tries, after_s = statuses[-1], len(statuses), round(run.now - began, 1)
        run.note(outcome=status, tries=tries, after_s=after_s)
        if status == "SUCCESS":
            run.observe("healthy", f"the client reaches the server, at try {tries}")
            run.expect("it did when the CPU was back", after_s, lambda seconds: seconds >= p.outage)
        else:
            run.observe("fault", f"the client has no connection: {status}")
            run.expect("no MAC for its gateway", status, "ETIMEDOUT")
            run.expect("it gave up after a second", after_s, lambda seconds: 1 <= seconds < 2)
