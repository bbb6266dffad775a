from typing import Any, Literal

from testbed import Field, Host, Parameters, Run, Scenario, Variant

PORT = 8080
SERVER = f"use IO::Socket::INET; $s = IO::Socket::INET->new(LocalPort => {PORT}, Listen => 5); 1 while $s->accept;"
FAILURES = 3
"""failureThreshold of a probe, Kubernetes' default."""
PERIOD = 10.0
"""periodSeconds, its default."""


class Settings(Parameters):
    plugin: Literal["macvlan", "ipvlan", "bridge"] = Field("macvlan", description="main plugin of the pod's eth0")
    veth: bool = Field(False, description="whether coordinator connects the pod with its node")


class ProbeFromNode(Scenario[Settings]):
    """A macvlan pod works for everybody but its own node, so kubelet kills it.

    The pod's only interface is a child of the node's RDMA NIC. RDMA works, and so does its server for all other
    machines. But the kernel forwards nothing between a macvlan or ipvlan child and its parent: the node itself does not
    reach the pod, its probes time out, and after three of them kubelet restarts a healthy container. Jobs restart for
    ever, or Services have no endpoint.

    On real gear: the pod's events say `Readiness probe failed: dial tcp …: i/o timeout` (or connect: no route to
    host), while `curl` from any other machine works.

    The fixes: a veth between the pod and its node with its own routes (Spiderpool's coordinator in mode underlay). Or a
    first network that the node can reach, such as a bridge, and the NIC's child as a second interface.
    """

    tags = ("cni", "kubernetes")
    variants = (
        Variant("as-is", "fault", "the pod is a macvlan child of the NIC, which its node does not reach"),
        Variant("ipvlan", "fault", "the same with ipvlan", {"plugin": "ipvlan"}),
        Variant("veth", "healthy", "coordinator adds a veth to the node", {"veth": True}),
        Variant("bridge-first", "healthy", "eth0 is on a bridge, the NIC's child is net1", {"plugin": "bridge"}),
    )

    def run(self, run: Run, p: Settings) -> None:
        node, peer = run.lab.host("node1"), run.lab.host("peer")
        with run.step("the pod starts its server"):
            pod = run.lab.pods.create(node, "worker", networks(p))
            pod.spawn("perl", "-e", SERVER)
        rdma = pod["net1"] if p.plugin == "bridge" else pod["eth0"]
        probed = pod["eth0"].address().ip
        run.expect_write("RDMA works", peer["eth1"], rdma)
        with run.step("kubelet probes it"):
            results = [probe(run, node, str(probed)) for _ in range(FAILURES)]
        others = answers(peer, str(rdma.address().ip))
        run.note(probes_from_node=f"{sum(results)} of {FAILURES}", other_machines="reach it" if others else "do not")
        run.expect("another machine reaches the server", others, True)
        if any(results):
            run.observe("healthy", "the pod is ready")
            run.expect("all probes are answered", results, [True] * FAILURES)
        else:
            run.observe("fault", "no probe is answered, kubelet restarts the pod")


def probe(run: Run, node: Host, ip: str) -> bool:
    """One of kubelet's TCP probes, timeoutSeconds: 1."""
    run.lab.scheduler.sleep(PERIOD)
    return answers(node, ip)


def answers(node: Host, ip: str) -> bool:
    done = node.run("timeout", "1", "bash", "-c", f"</dev/tcp/{ip}/{PORT}", check=False)
    return done.returncode == 0


def networks(p: Settings) -> list[dict[str, Any]]:
    """The pod's conflists."""
    pool = {"subnet": "10.0.20.0/24", "ips": ["10.0.20.100"], "gateway": "10.0.20.1"}
    child: dict[str, Any] = {"type": p.plugin, "master": "eth1", "ipam": {"type": "ippool", "pools": [pool]}}
    coordinator = {"type": "coordinator", "steps": ["veth"]}
    if p.plugin != "bridge":
        return [network("rdma", child, *[coordinator] * p.veth, {"type": "rxe"})]
    addresses = {"type": "host-local", "ranges": [[{"subnet": "10.244.1.0/24"}]]}
    first = network("pods", {"type": "bridge", "bridge": "cni0", "isGateway": True, "ipam": addresses})
    return [first, network("rdma", {**child, "type": "macvlan"}, {"type": "rxe"})]


def network(name: str, *plugins: dict[str, Any]) -> dict[str, Any]:
    return {"cniVersion": "1.0.0", "name": name, "plugins": list(plugins)}
