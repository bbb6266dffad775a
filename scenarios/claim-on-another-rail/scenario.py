from collections.abc import Mapping
from typing import Any, Literal

from testbed import Field, HostInterface, Parameters, Pod, Run, Scenario, Variant
from testbed.workload import connected

MESSAGE, MESSAGES = 1 << 16, 32
SENT = MESSAGE * MESSAGES
ROOT = "resource.kubernetes.io/pcieRoot"
RAIL = "fabric.example.com/rail"


class Settings(Parameters):
    claim: Literal["loose", "pcie", "rail"] = Field(
        "loose", description="what the claim says of the NIC beside the GPU"
    )


class ClaimOnAnotherRail(Scenario[Settings]):
    """A claim gives one rank the other rail's NIC: nothing fails, and its traffic takes the spine.

    Two ranks of a job have a GPU and a NIC each, by claims of devices (DRA). The nodes have two GPUs and two NICs: the
    first of each on one PCIe root and on rail 1, the second ones on another root and on rail 2. On node 1 a pod that
    came before has the first NIC. kube-scheduler takes the first devices that satisfy a claim:

        loose   a GPU and a NIC, and no more: on node 1 the first GPU with the second NIC. What the GPU
                sends crosses the CPU, and then it is on rail 2, and its peer on rail 1
        pcie    both of one PCIe root: on node 1 the second of each. The GPU is beside its NIC, and the
                traffic still crosses from rail to rail: no node knows of the other's choice
        rail    both of one root, and the NIC of rail 1: node 1 has none left, and the rank goes to node 3

    A write succeeds in all of them. What differs is who forwards it: a leaf, or two leaves and the spine, which has
    less bandwidth than a rail, and that of all jobs that cross.

    PCIe roots, GPUs and rails are declared in this lab by ResourceSlices; NICs are what the kernel has, and DraNet's
    rules move them into the pods (docs/kubernetes.md, Devices by claims).

    On real gear: `kubectl get resourceclaim -o yaml` names the device of each rank, `kubectl get resourceslice -o yaml`
    its root; NCCL_DEBUG=INFO prints NET/IB with the NIC, and `nvidia-smi topo -m` says SYS between it and the GPU. The
    counters of spines grow in a job that should not leave its rail.

    The fixes: `matchAttribute: resource.kubernetes.io/pcieRoot` for the way from GPU to NIC, and a selector by rail for
    the way through the fabric; or claims of all NICs of a node, as jobs of whole nodes have them.
    """

    tags = ("kubernetes", "dra", "rails")
    variants = (
        Variant("loose", "fault", "a GPU and any NIC: another PCIe root, and another rail"),
        Variant(
            "pcie",
            "fault",
            "the NIC of the GPU's PCIe root, which is on another rail than the peer's",
            {"claim": "pcie"},
        ),
        Variant("rail", "healthy", "that NIC, if it is on rail 1: the rank goes to another node", {"claim": "rail"}),
    )

    def run(self, run: Run, p: Settings) -> None:
        lab = run.lab
        with run.step("a pod has a NIC of node 1"):
            lab.pods.apply("cluster.yaml")
        with run.step("a job of two ranks starts"):
            done = lab.pods.apply(f"{p.claim}.yaml")
            ranks = [pod for pod in done.pods if pod.name.startswith("train-")]
        run.expect("who waits", done.waiting, {})
        nics = [next(end for end in pod.interfaces.values() if end.rdma) for pod in ranks]
        given = [devices(run, pod) for pod in ranks]
        uplinks = [lab.switch(rail)["e9"] for rail in ("rail1", "rail2")]
        before = [end.counters()["tx_bytes"] for end in uplinks]
        with run.step("rank 0 writes to rank 1"):
            statuses = write(*nics)
        crossed = [
            now - then for now, then in zip((end.counters()["tx_bytes"] for end in uplinks), before, strict=True)
        ]
        run.expect("what the ranks see", statuses, {"SUCCESS"})
        apart = [one for one in given if one["gpu"][ROOT] != one["nic"][ROOT]]
        rails = [one["nic"][RAIL] for one in given]
        run.note(nodes=[pod.host.name for pod in ranks], rails=rails, sent=SENT, uplinks=crossed)
        passed = max(crossed) > SENT
        run.expect("the spine's part", passed, rails[0] != rails[1])
        if passed or apart:
            where = "crosses the CPU, then " if apart else ""
            run.observe(
                "fault",
                f"rank 0 is on rail {rails[0]}, rank 1 on rail {rails[1]}: what it sends {where}takes the spine",
            )
        else:
            run.observe("healthy", f"both ranks are on rail {rails[0]}, and the spine forwards nothing")
        run.expect("GPUs that are not beside their NIC", len(apart), int(p.claim == "loose"))
        run.expect("the nodes", [pod.host.name for pod in ranks], ["node2", "node3" if p.claim == "rail" else "node1"])


def write(here: HostInterface, there: HostInterface) -> set[str]:
    """Return the statuses of messages from one NIC to another."""
    with connected(here, there) as (sender, _):
        return {sender.write(MESSAGE, within=5).status for _ in range(MESSAGES)}


def devices(run: Run, pod: Pod) -> dict[str, Mapping[str, Any]]:
    """Return the attributes of the devices that a pod's claim was given, by its requests."""
    slices = [one["spec"] for one in run.lab.objects.list("ResourceSlice") if one["spec"]["nodeName"] == pod.host.name]
    known: dict[tuple[str, str], dict[str, Any]] = {}
    for spec in slices:
        for device in spec["devices"]:
            values = {key: next(iter(value.values())) for key, value in device["attributes"].items()}
            known.setdefault((spec["driver"], device["name"]), {}).update(values)
    (claim,) = [
        one
        for one in run.lab.objects.list("ResourceClaim")
        if pod.name in [user["name"] for user in one["status"]["reservedFor"]]
    ]
    results = claim["status"]["allocation"]["devices"]["results"]
    return {one["request"]: known[one["driver"], one["device"]] for one in results}
