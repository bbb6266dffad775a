import random
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from testbed import Field, Host, Parameters, Run, Scenario, Variant
from testbed.workload import Job, torchrun

PROGRAM = Path(__file__).with_name("sums.py")
FIXED = 29500
"""torchrun's and PyTorch's default port of a job's store."""
RANDOM = range(20000, 30000)
"""KubeDL's default range."""
TIMES = 10
JOB_S = 600.0


class Settings(Parameters):
    network: Literal["host", "pod"] = Field("host", description="the network of the workers")
    ports: Literal["fixed", "random"] = Field("fixed", description="the port of each job's store")


class HostNetworkPortClash(Scenario[Settings]):
    """Two jobs have workers on one node in host network, and both want its port 29500.

    A job's first worker has a store (c10d's TCPStore) for the rendezvous of torchrun's agents and then of the ranks.
    Its port is 29500 in every example. In a pod network each pod has its own port 29500. In host network, which RDMA
    jobs often use, the port is the node's: if the scheduler puts the workers of a second job beside those of the first,
    the second store cannot listen, and its job ends with EADDRINUSE. The first job continues.

    On real gear: the second job's first worker restarts for ever (CrashLoopBackOff), its log has "The server socket has
    failed to listen on any local network address … Address already in use"; on other nodes the same job runs.

    The fixes: random ports, which the operator assigns to all workers of a job (KubeDL also writes them into the
    service of each worker); workers in a pod network with their own RDMA device; or a port declared to the scheduler
    (`hostPort`), so that the second job waits for another node.
    """

    tags = ("training", "kubernetes", "start")
    training = True
    variants = (
        Variant("as-is", "fault", "both have the default port"),
        Variant("random-ports", "healthy", "each job has a random port", {"ports": "random"}),
        Variant("pod-network", "healthy", "both have the default port, in pods", {"network": "pod"}),
    )

    def run(self, run: Run, p: Settings) -> None:
        ports = random.sample(RANDOM, 2) if p.ports == "random" else [FIXED, FIXED]
        run.note(ports=", ".join(map(str, ports)))
        with run.step("a first job trains"):
            first = start(run, p, "first", 1, ports[0])
            began = run.lab.scheduler.wait(lambda: "sum" in first.output(0) or not first.running, JOB_S, pause=0.1)
            run.expect("it trains", began and first.running, True)
        with run.step("a second job starts beside it"):
            second = start(run, p, "second", 10, ports[1])
            failure = second.wait(JOB_S)
            run.expect("the first one still runs", first.running, True)
        with run.step("the first job ends"):
            run.expect("it ends well", str(first.wait(JOB_S)), "None")
        run.expect("its sums are its own", sums(first), [["sum 2.0"] * TIMES] * 2)
        if failure is None:
            run.observe("healthy", "both jobs train")
            run.expect("the second's too", sums(second), [["sum 20.0"]] * 2)
            return
        run.observe("fault", f"the second job dies: {failure}")
        taken = re.search(r"failed to bind to \S+ \(errno: \d+ - Address already in use\)", second.log("torchrun-0"))
        run.note(store=taken[0] if taken else "listens")
        run.expect("its store cannot listen", taken is not None, True)
        run.expect("no rank of it began", sums(second), [[], []])


def start(run: Run, p: Settings, name: str, number: int, port: int) -> Job:
    nodes = [run.lab.host("node1"), run.lab.host("node2")]
    hosts: Sequence[Host] = nodes
    if p.network == "pod":
        networks = [network(node, 100 + 10 * at) for at, node in enumerate(nodes)]
        pods = zip(nodes, networks, strict=True)
        hosts = [run.lab.pods.create(node, f"{name}-{at}", [conflist]) for at, (node, conflist) in enumerate(pods)]
    times = TIMES if name == "first" else 1
    interface = "eth0" if p.network == "pod" else "mgmt0"
    return torchrun(run.lab, hosts, PROGRAM, str(number), str(times), name=name, interface=interface, port=port)


def sums(job: Job) -> list[list[str]]:
    """What each rank printed of its sums."""
    return [[line for line in job.output(rank).splitlines() if line.startswith("sum")] for rank in range(2)]


def network(node: Host, first: int) -> dict[str, Any]:
    """macvlan on the node's interface, with addresses that no other node gives."""
    subnet = node["mgmt0"].address().network
    addresses = {"subnet": str(subnet), "rangeStart": str(subnet[first]), "rangeEnd": str(subnet[first + 9])}
    plugin = {"type": "macvlan", "master": "mgmt0", "ipam": {"type": "host-local", "ranges": [[addresses]]}}
    return {"cniVersion": "1.0.0", "name": "workers", "plugins": [plugin]}
