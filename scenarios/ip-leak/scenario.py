from testbed import Field, Parameters, Pod, Run, Scenario, Variant, owner_of
from testbed.errors import TestbedError

NETWORKS = ["rdma.conflist"]
POOL = 3
"""Addresses in pool.yaml."""


class Settings(Parameters):
    reclaim: bool = Field(False, description="whether a controller takes addresses back whose pods are gone")
    grace: float = Field(35.0, ge=0, description="seconds that an address must be without a pod for that")
    collect: bool = Field(False, description="whether node1's runtime calls GC when it is back")
    still_runs: bool = Field(False, description="whether a pod's container still runs when the pod is deleted by force")


class IpLeak(Scenario[Settings]):
    """Pods end without DEL, their addresses are not released, and no address is left for the next pod.

    The runtime of node1 crashes with its pods, or the node is reset. Kubernetes deletes the pods, but no CNI plugin is
    called for them: IPAM keeps three addresses without a pod. The job's next pod stays in ContainerCreating, and
    kubelet retries for ever: "no address is free".

    The fixes: a controller compares addresses with pods, and releases addresses that have had no pod for a grace period
    (Spiderpool's IP GC, whereabouts' reconciler). Or the runtime calls GC for its networks, as in CNI 1.1.

    A controller that releases an address too early causes a worse fault. A pod is deleted by force (`kubectl delete
    --force`, or an operator in a hurry), and its container continues for its termination period: it writes its
    checkpoint. Without a grace period the next pod gets the address, announces itself, and the answers to the
    checkpoint go there: RETRY_EXC_ERR.

    On real gear: `kubectl get spiderippool` has no free address, and `kubectl get spiderendpoint` names pods that no
    longer exist. If two pods have one address, the switch logs a MAC move.
    """

    tags = ("arp", "cni", "kubernetes")
    variants = (
        Variant("as-is", "fault", "the pods' addresses are held for ever"),
        Variant("reclaim", "healthy", "a controller takes them back after 35 s", {"reclaim": True}),
        Variant("gc", "healthy", "node1's runtime calls GC when it is back", {"collect": True}),
        Variant(
            "too-early",
            "fault",
            "taken back at once from a container that still runs",
            {"reclaim": True, "grace": 0, "still_runs": True},
        ),
        Variant("grace", "healthy", "the same with a grace of 35 s", {"reclaim": True, "still_runs": True}),
    )

    def run(self, run: Run, p: Settings) -> None:
        run.lab.objects.apply("pool.yaml")
        node1 = run.lab.host("node1")
        with run.step("pods on node1 have all addresses of the pool"):
            pods = [run.lab.pods.create(node1, f"worker{number}", NETWORKS) for number in range(POOL)]
        if p.reclaim:
            run.lab.pods.reclaim(p.grace, every=5)
        if p.still_runs:
            self.delete_by_force(run, pods[0])
            return
        with run.step("node1's runtime crashes, no plugin is called for its pods"):
            for lost in pods:
                lost.lose()
        run.sleep(60, "kubelet is back, the job starts again")
        if p.collect:
            run.lab.pods.collect(node1, NETWORKS)
        with run.step("the job's pod starts on node2"):
            pod, refused = started(run)
        self.observe(run, pod, refused)

    def delete_by_force(self, run: Run, old: Pod) -> None:
        """A pod is deleted, its container runs on, and the next pod wants an address."""
        ip = old["eth0"].address().ip
        storage = run.connect("a pod writes to storage", old["eth0"], run.lab.host("storage")["eth1"])
        with run.step("the pod is deleted by force, its container still runs"):
            run.lab.objects.delete("Pod", old.name)
            run.sleep(20, "it prepares its checkpoint")
        with run.step("the job's pod starts on node2"):
            pod, _ = started(run)
        with run.step("the old container writes its checkpoint"):
            checkpoint = storage.write().status
        if pod is not None:
            run.expect("the new pod has the old one's address", pod["eth0"].address().ip, ip)
            known = owner_of(run.lab.switch("leaf").neighbour(ip), old["eth0"], pod["eth0"])
            run.note(checkpoint=checkpoint, switch_arp=known)
            run.observe_status(checkpoint, "the checkpoint is written")
            return
        run.expect("the checkpoint is written", checkpoint, "SUCCESS")
        with run.step("the old container ends, the job's pod starts"):
            storage.close()
            old.delete()
            next_pod, refused = started(run)
        self.observe(run, next_pod, refused)

    def observe(self, run: Run, pod: Pod | None, refused: str) -> None:
        """The job goes on if its pod is there and reaches storage."""
        if pod is not None:
            status = run.write(pod["eth0"], run.lab.host("storage")["eth1"])
            run.note(completion=status)
            run.observe_status(status, "the job's pod writes to storage")
            return
        run.expect("the pod is refused because of", refused, lambda text: "no address is free in rdma" in text)
        run.observe("fault", refused)


def started(run: Run) -> tuple[Pod | None, str]:
    """The job's next pod, or why there is none."""
    try:
        return run.lab.pods.create(run.lab.host("node2"), "worker3", NETWORKS), ""
    except TestbedError as error:
        return None, error.message
