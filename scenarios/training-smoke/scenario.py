import json
from array import array
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any, Literal

from testbed import Field, Host, HostInterface, Parameters, Run, Scenario, Variant, owner_of
from testbed.workload import Failure, Job, Traffic, mpirun, torchrun

PROGRAM = Path(__file__).with_name("train.py")
GRADIENT = 4 * (64 * 128 + 128 + 128 + 1)
"""Bytes of one rank's gradient in one step: 32-bit floats."""
SAME_ORDER = {"coll_tuned_use_dynamic_rules": "1", "coll_tuned_allreduce_algorithm": "3"}
"""Recursive doubling adds ranks in an order that one process can repeat: the results are equal to the bit."""
RETRY_S = 1.1
"""Seconds from one retransmission to the next: UCX's ACK timeout, 1.07 s."""
JOB_S = 120.0
FOR_EVER = 1e6


class Settings(Parameters):
    ranks: Literal[2, 4] = Field(4, description="ranks of the job, one a node")
    steps: int = Field(14, ge=8, description="training steps")
    rate: float = Field(0.1, gt=0, description="learning rate")
    backend: Literal["mpi", "gloo"] = Field("mpi", description="mpi: RoCE; gloo: TCP over the management network")
    retry_count: int = Field(6, ge=0, le=6, description="retries of UCX's queue pairs; 7 is for ever on soft-RoCE")
    down_for: float = Field(0.0, ge=0, description="seconds for which the last node's port is down, from step 5 on")
    replaced: bool = Field(False, description="whether the last node has a dead one's address")
    readiness_gate: bool = Field(False, description="whether the job waits until its nodes reach their gateways")


class TrainingSmoke(Scenario[Settings]):
    """A training job over soft-RoCE, on a healthy network and on broken ones.

    Four nodes behind two leaves train a small model with PyTorch's DistributedDataParallel. Open MPI and UCX carry the
    gradients over RoCE; mpirun's own traffic is on a management network. The loss falls, all ranks end with the same
    parameters, and these equal, to the bit, those of a single training process. Counters prove that the gradients used
    RoCE and that no TCP was on the data network; the control does the same training over TCP.

    Then the network breaks. If a port is down for less than the retry time, it costs one slow step. If it stays down,
    the job dies with RETRY_EXC_ERR, seconds after the last retry. If a node has the address of a dead node, and the
    leaf still has the dead node's MAC, no rank can connect: the job dies in its first collective. The fix is a gate
    that starts the job when every node reaches its gateway.
    """

    tags = ("training", "arp", "link")
    training = True
    variants = (
        Variant("healthy", "healthy", "nothing is broken"),
        Variant("control-gloo", "healthy", "control: the same job over TCP", {"backend": "gloo"}),
        Variant("link-flap-short", "healthy", "a port is down for less than the retries last", {"down_for": 3.0}),
        Variant("link-down", "fault", "a port goes down and stays down", {"down_for": FOR_EVER}),
        Variant("stale-arp-at-start", "fault", "the leaf has a dead node's MAC for one rank", {"replaced": True}),
        Variant("readiness-gate", "healthy", "the job waits for the gate", {"replaced": True, "readiness_gate": True}),
    )

    def run(self, run: Run, p: Settings) -> None:
        hosts = [run.lab.host(f"n{number}") for number in range(p.ranks)]
        data, management = ([Traffic(host[name]) for host in hosts] for name in ("eth1", "mgmt0"))
        old, new = run.lab.host("old")["eth1"], hosts[-1]["eth1"]
        dead_port = run.lab.interface("leaf2:e3").capture("udp port 4791")
        if p.replaced:
            with run.step(f"{hosts[-1]} replaces a node and has its address"):
                replace(run, old, hosts[-1])
        if p.readiness_gate:
            with run.step("the gate opens when every node reaches its gateway"):
                for host in hosts:
                    run.wait_for_gateway(host["eth1"], announce=True)

        with run.step("the job trains"):
            job = start(run, hosts, p)
            down_at, done = break_port(run, job, new, p.down_for) if p.down_for else (0.0, 0)
            failure = job.wait(JOB_S)
            ended = run.now

        if failure:
            run.observe("fault", f"the job dies: {failure}")
            if p.replaced:
                known = owner_of(run.lab.switch("leaf1").neighbour(new.address().ip), old, new)
                self.expect_stale(run, job, failure, known, len(dead_port.roce(to=old.mac)))
            else:
                self.expect_died_of_retries(run, failure, p, ended - down_at)
            return
        run.observe("healthy", f"all {p.ranks} ranks train to the end")
        self.expect_trained(run, job, p)
        self.expect_carried(run, p, data, management)
        self.expect_pace(run, job, p, done)

    def expect_trained(self, run: Run, job: Job, p: Settings) -> None:
        """The loss fell, and the parameters are those of a process that trains alone."""
        losses = [[step["loss"] for step in steps(job, rank)] for rank in range(p.ranks)]
        run.note(loss=f"{losses[0][0]:.3f} to {losses[0][-1]:.3f}")
        run.expect("every rank did every step", [len(values) for values in losses], [p.steps] * p.ranks)
        run.expect("the loss fell by half", [v[-1] / v[0] for v in losses], lambda all_: max(all_) < 0.5)
        arguments = [f"--reference={p.ranks}", *schedule(p)]
        alone = Job.alone(run.lab, run.lab.host("launcher"), PROGRAM, *arguments, name="reference")
        alone.check(JOB_S)
        results = [parameters(job, str(rank)) for rank in range(p.ranks)]
        run.expect("all ranks have the same parameters", len({values.tobytes() for values in results}), 1)
        reference = parameters(alone, "reference")
        apart = max(abs(a - b) for a, b in zip(results[0], reference, strict=True))
        run.note(parameters="equal to the bit" if apart == 0 else f"equal within {apart:.0e}")
        if p.backend == "mpi":
            run.expect("they are those of one process, to the bit", results[0].tobytes() == reference.tobytes(), True)
        else:
            run.expect("they are those of one process, but for rounding", apart, lambda most: most < 1e-6)

    def expect_carried(self, run: Run, p: Settings, data: list[Traffic], management: list[Traffic]) -> None:
        """What went over which network: each rank sends its gradient log2(ranks) times a step."""
        gradients = p.steps * GRADIENT * (p.ranks.bit_length() - 1)
        counted = [traffic.bytes() for traffic in data]
        tcp = sum(count["tcp_out"] + count["tcp_in"] for count in counted)
        roce = [count["roce_out"] for count in counted]
        run.note(roce_MB=round(sum(roce) / 1e6, 1), tcp_bytes_on_data_network=tcp)
        run.expect("no TCP was on the data network", tcp, 0)
        if p.backend == "mpi":
            run.expect("every rank sent its gradients over RoCE", min(roce), lambda least: least >= gradients)
        else:
            run.expect("nothing went over RoCE", max(roce), 0)
            sent = [traffic.bytes()["tcp_out"] for traffic in management]
            run.note(tcp_MB_on_management_network=round(sum(sent) / 1e6, 1))
            run.expect("every rank sent its gradients over TCP", min(sent), lambda least: least >= p.steps * GRADIENT)

    def expect_pace(self, run: Run, job: Job, p: Settings, done: int) -> None:
        """No step is slow, but for the one in which a port was down: `done` were done then."""
        slow = [(step["step"], round(step["seconds"], 1)) for step in steps(job, 0) if step["seconds"] > 1]
        if not p.down_for:
            run.expect("no step was slow", slow, [])
            return
        run.note(slow_steps=", ".join(f"{seconds} s in step {number}" for number, seconds in slow))
        first = slow[0][0] if slow else None
        run.expect("the first ran when the port went down, or is the next", first, lambda n: n - done in (0, 1))
        run.expect("they follow each other", [number - slow[0][0] for number, _ in slow], list(range(len(slow))))
        lost = sum(seconds for _, seconds in slow)
        longest = p.down_for + 3 * RETRY_S  # one retransmission timer after the other, on each way of the exchange
        run.expect("they lost what the port was down, and some retries", lost, lambda s: p.down_for <= s <= longest)

    def expect_died_of_retries(self, run: Run, failure: Failure, p: Settings, after: float) -> None:
        last_retry = (p.retry_count + 1) * RETRY_S
        run.note(completion=failure.status, rank=failure.rank.number, died_after_s=round(after, 1))
        run.expect("it dies of unanswered retries", failure.status, "RETRY_EXC_ERR")
        run.expect("it dies when the retries are over", after, lambda s: last_retry - 1 < s < last_retry + 3)

    def expect_stale(self, run: Run, job: Job, failure: Failure, known: str, frames: int) -> None:
        run.note(switch_arp=known, frames_to_dead_mac=frames)
        run.expect("UCX could not connect", failure.text, lambda text: "timeout" in text)
        run.expect("no rank did a step", [len(steps(job, rank.number)) for rank in job.ranks], [0] * len(job.ranks))
        run.expect("the leaf still has the old node's MAC", known, "old's MAC")
        run.expect("RoCE frames went to the old node", frames, lambda count: count > 0)


def schedule(p: Settings) -> list[str]:
    return [f"--steps={p.steps}", f"--rate={p.rate}"]


def start(run: Run, hosts: list[Host], p: Settings) -> Job:
    if p.backend == "gloo":
        return torchrun(run.lab, hosts, PROGRAM, "--backend=gloo", *schedule(p))
    environment = {"UCX_RC_VERBS_RETRY_COUNT": str(p.retry_count)}
    launcher = run.lab.host("launcher")
    return mpirun(run.lab, hosts, PROGRAM, *schedule(p), launcher=launcher, environment=environment, mca=SAME_ORDER)


def break_port(run: Run, job: Job, nic: HostInterface, seconds: float) -> tuple[float, int]:
    """Takes a NIC's switch port down when rank 0 has done five steps; returns when that was, and after how many."""
    port = nic.peer
    assert port is not None, "the topology has this link"
    begun = run.lab.scheduler.wait(lambda: len(steps(job, 0)) > 5 or not job.running, JOB_S, pause=0.05)
    run.expect("the job trains before the port goes down", begun and job.running, True)
    port.down()
    down_at, done = run.now, len(steps(job, 0))
    if seconds < FOR_EVER:
        run.sleep(seconds, "the port is down")
        port.up()
    return down_at, done


def replace(run: Run, old: HostInterface, host: Host) -> None:
    """Gives the old node's address to a host. The leaf has learned the old MAC for it; the host needs no ARP, since its
    gateway is a static neighbour entry."""
    leaf, new, gateway = run.lab.switch("leaf1"), host["eth1"], old.gateway()
    run.expect("the old node reaches its gateway", old.ping_gateway(), True)
    new.remove_address()
    new.add_address(old.remove_address())
    host.add_route(IPv4Network("0.0.0.0/0"), gateway)
    new.set_neighbour(gateway, leaf.svi_mac())
    run.expect("the leaf has the old node's MAC", leaf.neighbour(new.address().ip), old.mac)


def steps(job: Job, rank: int) -> list[dict[str, Any]]:
    """What a rank printed of its steps."""
    return [json.loads(line) for line in job.output(rank).splitlines() if line.startswith('{"step"')]


def parameters(job: Job, name: str) -> "array[float]":
    values = array("f")
    values.frombytes((job.directory / f"parameters-{name}.f32").read_bytes())
    return values
