import time
from typing import Literal

from testbed import Field, HostInterface, Parameters, Run, Scenario, Variant
from testbed.faults import BackgroundFlow
from testbed.workload import connected

MESSAGE, MESSAGES = 8192, 64
NIC_BPS, UPLINK_BPS = 20e6, 5e6
LOAD = BackgroundFlow(source="node1", target="store2", rate=4_000_000)
"""A job of leaf1 that writes to storage, too."""
SLOW = 2.0
"""Times the time that the slowest link of an empty fabric needs: more than this is what users notice."""


class Settings(Parameters):
    job: Literal["ring", "checkpoint"] = Field("ring", description="two ranks that talk, or one that writes to storage")
    by: Literal["default", "fabric"] = Field("default", description="what the scheduler knows of the fabric")


class PlacementIgnoresFabric(Scenario[Settings]):
    """kube-scheduler puts two ranks on two leaves, and a writer below the fullest uplink: it sees nodes, not links.

    It takes the node with the fewest pods, of those that fit. A pod of another tenant is on node 1, so a job of two
    ranks gets node 2 and node 3, which are on different leaves: what the ranks send each other goes by an uplink, which
    has a quarter of a NIC's rate. And a pod that writes checkpoints gets node 1, whose leaf sends to the same storage
    already.

        ring-by-topology     Kueue's annotation asks for one leaf for all pods of the job. The labels of
                             leaves and spines are what the cabling says, as topograph writes them
        checkpoint-by-load   a TASPolicy leaves nodes out whose leaf sends more than 300 kB/s to the
                             spine, as the switches' ports count it

    Times are multiples of what the slowest link on the way needs when it is empty.

    On real gear: `kubectl get pods -o wide` and `kubectl get nodes -L network.topology.nvidia.com/leaf` show the ranks'
    leaves; counters of uplinks grow in a job that would fit below one leaf; `kubectl describe workload` has Kueue's
    topologyAssignment.

    The fixes: topology-aware scheduling (Kueue, Volcano, Slurm's topology/block) with labels from the cabling, and
    telemetry of links as a metric that the scheduler filters by.
    """

    tags = ("kubernetes", "scheduling")
    variants = (
        Variant("ring", "fault", "two ranks on two leaves, by the fewest pods"),
        Variant("ring-by-topology", "healthy", "one leaf for all ranks (Kueue)", {"by": "fabric"}),
        Variant("checkpoint", "fault", "a writer below a full uplink, by the fewest pods", {"job": "checkpoint"}),
        Variant(
            "checkpoint-by-load",
            "healthy",
            "nodes below a full uplink are left out (TASPolicy)",
            {"job": "checkpoint", "by": "fabric"},
        ),
    )

    def run(self, run: Run, p: Settings) -> None:
        lab = run.lab
        lab.pods.apply("cluster.yaml")
        if p.job == "checkpoint":
            with run.step("another job writes to storage"):
                run.inject(LOAD)
                lab.scheduler.sleep(40)
        with run.step("the scheduler places the job"):
            done = lab.pods.apply(f"{p.job}-{p.by}.yaml")
        run.expect("who waits", done.waiting, {})
        pods = [pod for pod in done.pods if pod.name.startswith(p.job)]
        names = [pod.host.name for pod in pods]
        ends = [pod["eth1"] for pod in pods]
        with run.step("it sends"):
            took = seconds(ends[0], ends[1] if p.job == "ring" else lab.host("store1")["eth1"])
        bits = MESSAGE * MESSAGES * 8
        times = took / (bits / (NIC_BPS if p.job == "ring" else UPLINK_BPS))
        run.note(nodes=names, times=round(times, 1))
        if times > SLOW:
            run.observe("fault", f"it is on {', '.join(names)}, and takes {times:.1f} times as long as it could")
        else:
            run.observe("healthy", f"it is on {', '.join(names)}, and takes {times:.1f} times what the links need")
        placed = {
            ("ring", "default"): ["node2", "node3"],
            ("ring", "fabric"): ["node1", "node2"],
            ("checkpoint", "default"): ["node1"],
            ("checkpoint", "fabric"): ["node3"],
        }
        run.expect("the nodes", names, placed[p.job, p.by])


def seconds(here: HostInterface, there: HostInterface) -> float:
    """Return the seconds that messages need from one NIC to another."""
    with connected(here, there) as (sender, _):
        began = time.monotonic()
        for _ in range(MESSAGES):
            assert sender.write(MESSAGE, within=60).ok
        return time.monotonic() - began
