from typing import Any

from testbed import Caller, Field, Parameters, Pod, Run, Scenario, Variant, owner_of

KUBELET = Caller(attempts=3)
"""kubelet's pause, and no more attempts than are needed."""
GATEWAY = "10.0.20.1"
REST = 12.0
"""Seconds that an address rests which a refused pod had: longer than kubelet's pause."""
EVICTED_AFTER = 300.0
"""Seconds of `tolerationSeconds` for nodes that are not reachable, Kubernetes' default."""


class Settings(Parameters):
    reclaim: bool = Field(True, description="whether the addresses of pods on nodes that are not ready are taken back")
    fence: bool = Field(False, description="whether the node is switched off before its pods are replaced")
    detect: bool = Field(False, description="whether the new pod's plugin asks if somebody has the address")


class NodeCrashGhostPod(Scenario[Settings]):
    """A node looks dead but is alive: its pod continues as a ghost, and another pod gets the ghost's address.

    node1 has lost its connection to the API server: kubelet hangs, or the management network is cut. The RDMA network
    works, and so does the container. After five minutes Kubernetes evicts the pod, but node1 does not learn of it, and
    no DEL is called. The IPAM's controller releases addresses of terminating pods on nodes that are not ready, and the
    new pod on node2 gets the address. The new pod announces itself, and clients connect to it. Then the ghost's kernel
    confirms its gateway, as it does every half minute or so, and the switch has the ghost's MAC: RETRY_EXC_ERR for all
    clients.

    On real gear: `kubectl get nodes` has NotReady, and yet the node answers ping on its RDMA network. The switch logs a
    MAC that moves between the ports of the two nodes.

    The fixes: fence the node before its pods are replaced (switch it off, or its port; the taint out-of-service marks
    the node as fenced); do not release addresses on nodes that are not ready (a setting of Spiderpool); detect
    conflicts in ADD, and take the next address.
    """

    tags = ("arp", "cni", "kubernetes")
    variants = (
        Variant("as-is", "fault", "the address is taken back from a pod that still runs"),
        Variant("fenced", "healthy", "node1 is switched off first", {"fence": True}),
        Variant("not-reclaimed", "healthy", "addresses on such nodes are left alone", {"reclaim": False}),
        Variant("detected", "healthy", "the new pod's plugin finds the ghost", {"detect": True}),
    )

    def run(self, run: Run, p: Settings) -> None:
        for name in "node1", "node2":
            run.lab.host(name).add_vf("eth1v0", "eth1")
        run.lab.objects.apply(node("node1", "True"))
        with run.step("a pod serves on node1"):
            ghost = run.lab.pods.create(run.lab.host("node1"), "worker-a", [network(p)])
        if p.reclaim:
            run.lab.pods.reclaim(every=10)
        with run.step("node1 is cut off from the API server, its pod runs on"):
            run.lab.objects.apply(node("node1", "Unknown"))
            run.sleep(EVICTED_AFTER, "Kubernetes waits for the node")
            there = run.lab.objects.get("Pod", ghost.name)
            evicted = {**there["metadata"], "deletionTimestamp": "1970-01-01T00:05:00Z"}
            run.lab.objects.apply({**there, "metadata": evicted})
        if p.fence:
            with run.step("node1 is switched off"):
                ghost.lose()
        run.sleep(60, "the pod is replaced")
        with run.step("its successor starts on node2"):
            pod = run.lab.pods.create(run.lab.host("node2"), "worker-b", [network(p)], KUBELET)
        same = pod["eth0"].address().ip == ghost["eth0"].address().ip
        connection = run.connect("the client works with it", run.lab.host("client")["eth1"], pod["eth0"])
        if not p.fence:
            self.live_on(run, ghost)
        status = connection.write().status
        run.note(address="the ghost's" if same else "another", completion=status)
        run.note(
            switch_arp=owner_of(run.lab.switch("leaf").neighbour(pod["eth0"].address().ip), ghost["eth0"], pod["eth0"])
        )
        run.observe_status(status, "the client goes on")
        run.expect(
            "attempts that are refused because of the ghost",
            [ghost["eth0"].mac in event["data"]["error"] for event in run.events("pod.refused")],
            [True] * p.detect,
        )
        taken_back = run.events("ipam")
        run.expect("addresses that were taken back", len(taken_back), int(p.reclaim))

    def live_on(self, run: Run, ghost: Pod) -> None:
        with run.step("the ghost's kernel confirms its gateway"):
            run.expect("it answers", ghost.ping(GATEWAY, within=1), True)


def node(name: str, ready: str) -> dict[str, Any]:
    """A Node of Kubernetes; Ready is True, False or Unknown."""
    status = {"conditions": [{"type": "Ready", "status": ready}]}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": status}


def network(p: Settings) -> dict[str, Any]:
    """The conflist of a VF that announces itself. A pod that is refused gets the next address at its next attempt."""
    pool = {"subnet": "10.0.20.0/24", "ips": ["10.0.20.100-10.0.20.109"], "gateway": GATEWAY}
    policy = {"policy": "cool-down", "coolDown": REST} if p.detect else {}
    ipam = {"type": "ippool", "pools": [pool], **policy}
    coordinator = {"type": "coordinator", "steps": ["conflict", "announce"], "detectIPConflict": p.detect}
    plugins = [{"type": "host-device", "device": "eth1v0", "ipam": ipam}, coordinator, {"type": "rxe"}]
    return {"cniVersion": "1.0.0", "name": "vf", "plugins": plugins}
