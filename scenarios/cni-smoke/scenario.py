import json
from pathlib import Path
from typing import Any

from testbed import Field, Parameters, Pod, Run, Scenario, Variant
from testbed.errors import TestbedError
from testbed.workload import connected

HERE = Path(__file__).parent
MESSAGE = 8192
"""Bytes of the SEND and of the WRITE."""
KEPT = {
    "interface cni0": "cni0",
    "/24 on cni0": "its address",
    "/lock": "host-local's lock",
    "/last_reserved_ip.0": "host-local's last address",
}
"""Ends of `resources` that plugins keep of a node's last pod on purpose, and what they are."""
EXHAUSTED = "no IP addresses available in range set: 10.0.10.100-10.0.10.101"
TOO_NEW = "does not support cniVersion"


class Settings(Parameters):
    pods: int = Field(1, ge=1, description="pods on node1; node2 has one")
    cni_version: str = Field("1.0.0", description="cniVersion of the conflists")


class CniSmoke(Scenario[Settings]):
    """Pods with two networks, made by real CNI plugins, use RDMA and leave nothing.

    Each pod has eth0 on a bridge of its node for metadata, routed between the nodes, and net1 on a macvlan child of the
    node's NIC for RDMA across subnets. host-local gives the addresses, and rxe, the last plugin of the chain, the RDMA
    device. The conflists are in node1/ and node2/, as they would be in a node's /etc/cni/net.d.

    The two faults are common: an exhausted address range, and conflists in a CNI version that the installed plugins do
    not support. A refused pod also leaves nothing.
    """

    tags = ("cni", "kubernetes")
    variants = (
        Variant("healthy", "healthy", "a pod on each node, on both networks"),
        Variant("pool-exhausted", "fault", "a third pod on node1, whose range has two addresses", {"pods": 3}),
        Variant("version-too-new", "fault", "conflists of CNI 1.1.0, plugins know 1.0.0", {"cni_version": "1.1.0"}),
    )

    def run(self, run: Run, p: Settings) -> None:
        before = run.lab.resources()
        pods: list[Pod] = []
        refused = ""
        with run.step("pods start"):
            for node, name in [*(("node1", f"a{number}") for number in range(1, p.pods + 1)), ("node2", "b1")]:
                networks = [conflist(node, kind, p) for kind in ("metadata", "rdma")]
                so_far = run.lab.resources()
                try:
                    pods.append(run.lab.pods.create(run.lab.host(node), name, networks))
                except TestbedError as error:
                    refused = error.message
                    run.expect(f"nothing is left of pod {name}", left_since(run, so_far)[0], [])
                    break
        if not refused:
            self.use(run, pods[0], pods[-1])
        with run.step("the pods are checked and deleted"):
            for pod in pods:
                pod.check()
            for pod in reversed(pods):
                pod.delete()
            left, kept = left_since(run, before)
            run.note(left=", ".join(left) or "nothing", kept=", ".join(kept) or "nothing")
            run.expect("nothing is left", left, [])
        if refused:
            run.observe("fault", refused)
            reason = EXHAUSTED if p.pods > 2 else TOO_NEW
            run.expect("the pod is refused for the stated reason", refused, lambda text: reason in text)
        else:
            run.observe("healthy", "the pods speak on both networks")

    def use(self, run: Run, a: Pod, b: Pod) -> None:
        """Both networks work between two pods on different nodes."""
        with run.step("they speak on the metadata network"):
            for pod, peer in (a, b), (b, a):
                run.expect(f"{peer} answers {pod}", pod.ping(peer["eth0"].address().ip, within=1), True)
        with run.step("they speak RDMA across subnets"):
            near, far = a["net1"], b["net1"]
            run.expect("the subnets differ", near.address().network != far.address().network, True)
            with connected(near, far) as (here, there):
                received = there.post_recv(MESSAGE)
                sent = run.completed(near, here.send(MESSAGE, within=10))
                run.completed(far, there.wait(received, within=10))
                run.expect("the bytes of the SEND arrived", there.load(0, MESSAGE) == here.load(0, MESSAGE), True)
            written = run.write(near, far, size=MESSAGE)
            run.expect("the WRITE", written, "SUCCESS")
        run.note(send=sent.status, write=written)


def conflist(node: str, kind: str, p: Settings) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((HERE / node / f"{kind}.conflist").read_text())
    return {**found, "cniVersion": p.cni_version}


def left_since(run: Run, before: set[str]) -> tuple[list[str], list[str]]:
    """The resources that were not there before, and those of them that the plugins keep on purpose."""
    new = sorted(run.lab.resources() - before)
    kept = {word: [thing for thing in new if thing.endswith(end)] for end, word in KEPT.items()}
    return sorted(set(new).difference(*kept.values())), [word for word, things in kept.items() if things]
