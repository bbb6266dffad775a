from pathlib import Path

from testbed import Field, Parameters, Run, Scenario, Variant, owner_of
from testbed.faults import ArpCpuDelay
from testbed.workload import mpirun

PROGRAM = Path(__file__).with_name("train.py")
GRADIENTS = ["100000"] * 3
"""Bytes of each step."""
JOB_S = 120.0


class Settings(Parameters):
    delay: float = Field(8.0, gt=0, description="seconds by which the switch's CPU handles ARP late")
    timeout: float = Field(5.0, gt=0, description="UCX_UD_VERBS_TIMEOUT in seconds: ranks give up to connect then")
    readiness_gate: bool = Field(False, description="whether the worker waits until its gateway answers a ping")


class WorkerBeforeArp(Scenario[Settings]):
    """A silent worker joins a job before the switch has its ARP entry, and no rank behind the router reaches it.

    A worker only does RDMA: its gateway is a static neighbour entry, so it never sends ARP by itself. Its packets
    arrive. The answers of the ranks in the other subnet come to a leaf without an entry for the worker. The leaf sends
    an ARP request, and drops packets meanwhile. If a whole rack starts, the answer waits in the queue of the switch's
    CPU for seconds. UCX connects over UD and gives up after its timeout; NCCL's queue pairs go to RTR at once, so it
    ends with RETRY_EXC_ERR. If the same job is restarted it works, because the leaf has all entries by then.

    On real gear: the job dies in its first collective, UCX reports *unhandled timeout error* (NCCL: "transport retry
    counter exceeded") in ranks of other subnets than the worker's, never in those of its own; `show ip arp` has the
    worker as INCOMPLETE, later with an age that is less than the job's; the CPU queue for ARP or glean is full (`show
    policy-map interface control-plane`).

    The fixes: a readiness gate, an init container that pings the gateway until it answers: the answer needs the
    switch's entry. Or a longer timeout: with UCX's own 30 s the job starts late, and survives.
    """

    tags = ("training", "arp", "kubernetes")
    variants = (
        Variant("as-is", "fault", "the switch's CPU is 8 s late, ranks give up after 5 s"),
        Variant("patient", "healthy", "they give up after 30 s", {"timeout": 30.0}),
        Variant("readiness-gate", "healthy", "the worker waits until its gateway answers", {"readiness_gate": True}),
    )

    def run(self, run: Run, p: Settings) -> None:
        leaf, (n0, n1, worker) = run.lab.switch("leaf"), run.nics("n0", "n1", "n2")
        hosts, launcher = [run.lab.host(name) for name in ("n0", "n1", "n2")], run.lab.host("launcher")
        settings = {"UCX_UD_VERBS_TIMEOUT": f"{p.timeout:g}s"}
        ip = worker.address().ip

        def known() -> str:
            return owner_of(leaf.neighbour(ip), worker)

        with run.step("the other nodes are at work, the switch's CPU is busy"):
            for nic in (n0, n1):
                run.expect(f"{nic.node} reaches its gateway", nic.ping_gateway(), True)
            run.silence(worker)
            run.inject(ArpCpuDelay(switch="leaf", delay=p.delay))

        with run.step("the worker is up"):
            run.expect("the switch has", known(), "no entry")
            if p.readiness_gate:
                run.wait_for_gateway(worker)

        with run.step("the job starts"):
            began = run.now
            job = mpirun(run.lab, hosts, PROGRAM, *GRADIENTS, launcher=launcher, environment=settings)
            failure, then = job.wait(JOB_S), known()
            lasted_s = run.now - began

        run.note(job_s=round(lasted_s, 1), switch_arp=then)
        if failure is None:
            run.observe("healthy", "all ranks train to the end")
            run.expect("the switch has", then, f"{worker.node}'s MAC")
            first = job.calls(0, "Allreduce")[0].seconds
            run.note(first_allreduce_s=round(first, 1))
            late = not p.readiness_gate
            run.expect("the first Allreduce waits for the switch", first > p.delay / 2, late)
            return
        run.observe("fault", f"the job dies: {failure}")
        run.expect("UCX could not connect", failure.text, lambda text: "timeout" in text)
        run.expect("the switch has", then, "no entry")
        with run.step("the job starts again"):
            run.eventually("the switch has the worker", known, f"{worker.node}'s MAC", within=2 * p.delay)
            again = mpirun(run.lab, hosts, PROGRAM, *GRADIENTS, launcher=launcher, environment=settings, name="again")
            run.expect("the second start works", again.wait(JOB_S) is None, True)
