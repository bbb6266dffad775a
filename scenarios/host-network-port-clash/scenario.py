import re
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from string import Template
from typing import Any, Literal

from testbed import Field, Parameters, Run, Scenario, Variant
from testbed.workload import PodJob, pod_job

HERE = Path(__file__).parent
TIMES = 10
JOB_S = 600.0


class Settings(Parameters):
    job: Literal["fixed", "random", "pods"] = Field(
        "fixed", description="the manifest of the jobs, fixed.yml and so on"
    )


class HostNetworkPortClash(Scenario[Settings]):
    """Two PyTorchJobs have masters on one node in host network, and torchrun of both wants its port 29500.

    A job's master has a store (c10d's TCPStore) for the rendezvous of torchrun's agents and then of the ranks. Its port
    is 29500 if torchrun is told no other one. In a pod network each pod has its own port 29500. In host network, which
    RDMA jobs often use, the port is the node's. The scheduler knows only the ports that pods declare. These jobs
    declare 23457 and 23466, so it puts both masters on one node: the second store cannot listen, and the second job
    fails with EADDRINUSE. The first job continues.

    On real gear: the second master's log has "The server socket has failed to listen on any local network address …
    Address already in use"; with `restartPolicy: OnFailure` it restarts for ever (CrashLoopBackOff). On other nodes the
    same job runs.

    The fixes: KubeDL's annotation `kubedl.io/network-mode: host`, by which each pod gets a random port of its node,
    declared to the scheduler, and the master's Service leads to it (torchrun needs `--master-port=$(MASTER_PORT)`); or
    pods with a network and an RDMA device of their own.
    """

    tags = ("training", "kubernetes", "start")
    training = True
    variants = (
        Variant("as-is", "fault", "torchrun of both takes 29500"),
        Variant("random-ports", "healthy", "KubeDL gives each pod a random port", {"job": "random"}),
        Variant("pod-network", "healthy", "both take 29500, in pods", {"job": "pods"}),
    )

    def run(self, run: Run, p: Settings) -> None:
        with run.step("a first job trains"):
            first = start(run, p, "first", 1, TIMES)
            began = run.lab.scheduler.wait(lambda: "sum" in first.output(0) or not first.running, JOB_S, pause=0.1)
            run.expect("it trains", began and first.running, True)
        with run.step("a second job starts beside it"):
            second = start(run, p, "second", 10, 1)
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
        taken = re.search(
            r"failed to bind to \S+ \(errno: \d+ - Address already in use\)", second.log("second-master-0")
        )
        run.note(store=taken[0] if taken else "listens")
        run.expect("its store cannot listen", taken is not None, True)
        run.expect("no rank of it began", sums(second), [[], []])


def start(run: Run, p: Settings, name: str, number: int, times: int) -> PodJob:
    """Apply the job's manifest under a name of its own."""
    given = {"NAME": name, "NUMBER": str(number), "TIMES": str(times), "PORT": str(23456 + number)}
    manifest = run.lab.file(f"{name}.yml")
    manifest.write_text(Template((HERE / f"{p.job}.yml").read_text()).safe_substitute(given))
    networks = [network(run.lab.host("node1")["mgmt0"].address().network)] if p.job == "pods" else []
    return pod_job(run.lab, manifest.absolute(), name=name, networks=networks, beside=HERE)


def sums(job: PodJob) -> list[list[str]]:
    """What each rank printed of its sums."""
    return [[line for line in job.output(rank).splitlines() if line.startswith("sum")] for rank in range(2)]


def network(subnet: IPv4Network | IPv6Network) -> dict[str, Any]:
    """macvlan on the nodes' interfaces, with addresses that no node has."""
    pool = {"name": "workers", "subnet": str(subnet), "ips": [f"{subnet[100]}-{subnet[109]}"]}
    plugin = {"type": "macvlan", "master": "mgmt0", "ipam": {"type": "ippool", "pools": [pool]}}
    return {"cniVersion": "1.0.0", "name": "workers", "plugins": [plugin]}
