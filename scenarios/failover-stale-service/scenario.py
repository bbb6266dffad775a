from ipaddress import IPv4Address
from typing import Literal

from testbed import Field, Host, Parameters, Process, Run, Scenario, Variant
from testbed.faults import LinkDown
from testbed.workload import Traffic

NAME = "worker-0"
SERVICE, PORT = IPv4Address("10.96.0.10"), 29500
MOVED = 31847
"""The port of the worker that was started again, where ports are random."""
WRITES, SIZE = 20, 65536
CONNECT_S = 200.0
"""Longer than TCP tries to connect: 127 s, six retransmissions."""


class Settings(Parameters):
    found_by: Literal["service", "name"] = Field("service", description="how the peer finds the worker")
    updated: bool = Field(False, description="whether the service or the name follows the worker")
    random_port: bool = Field(False, description="whether the worker that is started again has another port")


class FailoverStaleService(Scenario[Settings]):
    """A worker fails over to another node, and its stable address leads to the dead one.

    Workers in host network have the address of their node and a port there, so an operator gives each a stable address.
    One kind is a service, which kube-proxy turns into a DNAT rule on every node (KubeDL writes the worker's current
    port into it). The other is a name without a service address (a headless service), which resolves to the node
    itself. Peers connect to the worker by TCP under this address, exchange queue pairs, and then write to its NIC.

    n1 dies, the worker starts again on n2, and the address still leads to n1. The peer's handshake gets no answer for
    127 seconds: it never starts RDMA. With random ports, an updated headless name is not enough: it has no port, so the
    peer is refused at the old port.

    On real gear: `kubectl get endpointslices` lists the old node, or it is right and `nft list table ip kube-proxy` on
    the peer's node is not; `getent hosts` on the peer has the old address. The RDMA network has no error counter for
    this.

    The fixes: the operator writes the new node and port into the service after the worker has started, and peers
    reconnect. Open connections stay with the old node, because conntrack has entries for them: their programs must have
    timeouts. With names, use fixed ports.
    """

    tags = ("training", "recovery", "kubernetes")
    variants = (
        Variant("as-is", "fault", "the service still leads to n1", {"random_port": True}),
        Variant("retargeted", "healthy", "it leads to n2 and the new port", {"random_port": True, "updated": True}),
        Variant("stale-name", "fault", "the peer's headless name still leads to n1", {"found_by": "name"}),
        Variant("name-updated", "healthy", "the name leads to n2", {"found_by": "name", "updated": True}),
        Variant(
            "name-without-port",
            "fault",
            "the name leads to n2, where the worker has another port",
            {"found_by": "name", "updated": True, "random_port": True},
        ),
    )

    def run(self, run: Run, p: Settings) -> None:
        peer, n1, n2 = (run.lab.host(name) for name in ("peer", "n1", "n2"))
        service = peer.service(SERVICE, PORT)

        def lead_to(host: Host, port: int) -> None:
            ip = host["eth1"].address().ip
            if p.found_by == "service":
                service.forward(ip, port)
            else:
                run.lab.file("hosts").write_text(f"127.0.0.1 localhost\n{ip} {NAME}\n")

        with run.step("a peer finds the worker on n1"):
            first = serve(run, n1, PORT)
            lead_to(n1, PORT)
            run.expect("its WRITEs arrive", self.meet(run, p), "")
            run.expect("the worker has them", first.wait(within=10), 0)

        port = MOVED if p.random_port else PORT
        with run.step("n1 dies, and the worker starts again on n2"):
            run.inject(LinkDown(end="leaf:e2"), may_outlast_run=True)
            second = serve(run, n2, port)
            if p.updated:
                lead_to(n2, port)

        with run.step("the peer connects anew"):
            to_peer, to_worker = Traffic(peer["eth1"]), Traffic(n2["eth1"])
            began, error = run.now, self.meet(run, p)
            sent, arrived = to_peer.packets(), to_worker.packets()
        run.note(tried_for_s=round(run.now - began, 1), error=error or "none", roce_packets=sent["roce_out"])
        if p.found_by == "service":
            run.note(connections_by_service=service.connections())
        if not error:
            run.observe("healthy", "the peer finds the worker on n2")
            run.expect("the worker has its WRITEs", second.wait(within=10), 0)
            run.expect("they came over RoCE", arrived["roce_in"], lambda packets: packets >= WRITES)
            return
        run.observe("fault", f"the peer does not find the worker: {error}")
        run.expect("it never comes to RDMA", sent["roce_out"], 0)
        run.expect("the worker waits", second.running, True)
        reached = p.found_by == "name" and p.updated
        run.expect("whether n2 refused it", arrived["tcp_out"] > 0, reached)
        run.expect("how long the peer tried", run.now - began, lambda s: s < 5 if reached else 120 < s < 140)

    def meet(self, run: Run, p: Settings) -> str:
        """The peer exchanges queue pairs with the worker over TCP and writes to it; its error, or nothing."""
        host = run.lab.host("peer")
        target = str(SERVICE) if p.found_by == "service" else NAME
        command = ["ib_write_bw", *options(host, PORT), target]
        if p.found_by == "name":
            file = run.lab.file("hosts")
            command = ["unshare", "--mount", "sh", "-c", f'mount --bind {file} /etc/hosts; exec "$@"', "sh", *command]
        done = host.run(*command, within=CONNECT_S, check=False)
        if done.returncode == 0:
            return ""
        return (done.stderr + done.stdout).strip().splitlines()[0]


def serve(run: Run, host: Host, port: int) -> Process:
    """The worker, in host network: it waits at a port of its node."""
    worker = host.spawn("ib_write_bw", *options(host, port))
    listens = run.lab.scheduler.wait(lambda: f":{port} " in host.run("ss", "-ltn").stdout, within=10)
    run.expect(f"the worker listens on {host}", listens, True)
    return worker


def options(host: Host, port: int) -> list[str]:
    return ["-d", host["eth1"].device, "-x", "1", "-p", str(port), "-n", str(WRITES), "-s", str(SIZE), "-F"]
