from typing import Literal

from testbed import Field, Parameters, Pod, Run, Scenario, Variant
from testbed.workload import PodPrograms, Traffic

MASTER, PEER = "train-master-0", "train-worker-0"
WRITES, SIZE = 20, 65536
EVICTED_S = 345.0
"""Longer than a node is missed (40 s) and its pods are tolerated there (300 s)."""
CONNECT_S = 200.0
"""Longer than TCP tries to connect: 127 s, six retransmissions."""


class Settings(Parameters):
    found_by: Literal["service", "name", "name-and-port"] = Field(
        "service", description="how the worker finds the master: a Service with random ports, a name, or both mixed"
    )
    followed: bool = Field(False, description="whether the worker's node follows Services and names")


class FailoverStaleService(Scenario[Settings]):
    """The master of a PyTorchJob fails over to another node, and its stable address leads to the dead one.

    Pods in host network have the address of their node and a port there, so KubeDL gives the master a stable address.
    With its annotation for host network that is a Service, which kube-proxy turns into a DNAT rule on every node;
    KubeDL writes the pod's current port into it. Without, it is a name (a headless Service), which resolves to the node
    itself. The worker connects to the master by TCP under this address, exchanges queue pairs, and then writes to its
    NIC.

    n1 dies. 340 seconds later its pod counts as evicted, and somebody deletes it by force: its node cannot say that it
    has ended. KubeDL makes the pod again, on n2 and with another port. If kube-proxy (or the DNS cache) on the worker's
    node has stopped, the address still leads to n1: the worker never starts RDMA. With KubeDL's feature gate
    HostNetWithHeadlessSvc the name follows, and the port does not: it is in the environment of the worker, which n2
    refuses there.

    On real gear: `kubectl get endpointslices` has the new node, and `nft list table ip kube-proxy` (or `iptables -t
    nat -S`) on the worker's node has the old one; `getent hosts` in the worker has the old address. The RDMA network
    has no error counter for this.

    The fixes: kube-proxy works on every node, which its metric `kubeproxy_sync_proxy_rules_last_timestamp_seconds`
    shows; peers reconnect. Open connections stay with the old node, because conntrack has entries for them: their
    programs must have timeouts. With names, use fixed ports.
    """

    tags = ("training", "recovery", "kubernetes")
    variants = (
        Variant("as-is", "fault", "kube-proxy on the worker's node still leads to n1"),
        Variant("retargeted", "healthy", "it leads to n2 and the new port", {"followed": True}),
        Variant("stale-name", "fault", "the master's name still leads to n1", {"found_by": "name"}),
        Variant("name-updated", "healthy", "the name leads to n2", {"found_by": "name", "followed": True}),
        Variant(
            "name-without-port",
            "fault",
            "the name leads to n2, where the master has another port",
            {"found_by": "name-and-port", "followed": True},
        ),
    )

    def run(self, run: Run, p: Settings) -> None:
        with run.step("a worker finds its master on n1"):
            if p.found_by == "name-and-port":
                run.lab.pods.apply("headless.yml")
            manifest = "fixed.yml" if p.found_by == "name" else "random.yml"
            run.lab.pods.apply(manifest, program=PodPrograms(run.lab).start)
            first = listening(run)
            run.expect("its node", first.host.name, "n1")
            run.expect("its WRITEs arrive", meet(run), "")
        if not p.followed:
            run.lab.pods.hold_services(run.lab.host("peer"))
        with run.step("n1 dies, and its pod is deleted by force"):
            run.lab.power_off("n1")
            run.lab.scheduler.sleep(EVICTED_S)
            run.lab.pods.delete_object("Pod", MASTER)
            second = listening(run)
            run.expect("its new node", second.host.name, "n2")

        with run.step("the worker connects anew"):
            to_peer, to_master = (Traffic(run.lab.host(name)["eth1"]) for name in ("peer", "n2"))
            began, error = run.now, meet(run)
            sent, arrived = to_peer.packets(), to_master.packets()
        run.note(tried_for_s=round(run.now - began, 1), error=error or "none", roce_packets=sent["roce_out"])
        if not error:
            run.observe("healthy", "the worker finds its master on n2")
            run.expect("the WRITEs came over RoCE", arrived["roce_in"], lambda packets: packets >= WRITES)
            return
        run.observe("fault", f"the worker does not find its master: {error}")
        run.expect("it never comes to RDMA", sent["roce_out"], 0)
        reached = p.found_by == "name-and-port"
        run.expect("whether n2 refused it", arrived["tcp_out"] > 0, reached)
        run.expect("how long it tried", run.now - began, lambda s: s < 5 if reached else 120 < s < 145)


def listening(run: Run) -> Pod:
    """Return the master when it waits for its worker."""
    run.lab.scheduler.wait(lambda: MASTER in run.lab.nodes, within=60)
    master = run.lab.nodes[MASTER]
    assert isinstance(master, Pod)
    port = master.env["MASTER_PORT"]
    listens = run.lab.scheduler.wait(lambda: f":{port} " in master.run("ss", "-ltn").stdout, within=10)
    run.expect(f"the master listens on {master.host}", listens, True)
    return master


def meet(run: Run) -> str:
    """The worker exchanges queue pairs with its master over TCP and writes to it; its error, or nothing."""
    worker = run.lab.nodes[PEER]
    assert isinstance(worker, Pod)
    end = "-p", worker.env["MASTER_PORT"], worker.env["MASTER_ADDR"]
    done = worker.run(
        "ib_write_bw", "-x", "1", "-n", str(WRITES), "-s", str(SIZE), "-F", *end, within=CONNECT_S, check=False
    )
    if done.returncode == 0:
        return ""
    return (done.stderr + done.stdout).strip().splitlines()[0]
