from ipaddress import IPv4Address
from typing import Literal

from testbed import Field, Parameters, Run, Scenario, Variant, owner_of
from testbed.faults import ProxyArp

WORKER = IPv4Address("10.0.10.101")
"""The second address of the pool, the worker's."""


class Settings(Parameters):
    network: Literal["vf", "macvlan"] = Field("vf", description="the pods' network, by its conflist's name")
    proxy: bool = Field(True, description="whether proxy_arp is on at the gateway")


class ProxyArpInPodSubnet(Scenario[Settings]):
    """A gateway answers ARP for a pod that is not up yet, and the requesting pod keeps the gateway's MAC.

    The gateway of a rack, or a node with a stale route to a pod, has proxy_arp on towards the pods' subnet: it answers
    for each address to which it has a route over another interface. A running worker answers sooner, and its peer keeps
    the first answer. But a launcher waits for its workers, and resolves a worker's address before the pod exists. Only
    the gateway answers. The worker starts, on a VF, and is silent (host-device announces nothing), so the launcher's
    entry does not change, and its queue pair starts with the gateway's MAC. A moment later the worker sends an ARP
    request to the launcher, and this corrects the entry. A hardware NIC keeps the first MAC of its queue pair, and the
    job dies although the tables are right. Its second start works.

    On real gear: before the job `ip neigh` in the launcher's pod has one MAC for several workers, that of a router;
    `arping` for an unused address gets an answer. The machine with that MAC has `sysctl net.ipv4.conf.all.proxy_arp`
    set, and a route to the address. A CNI's check for address conflicts finds every address taken
    (ovn-kubernetes#5497).

    The fixes: disable proxy_arp if the pods are neighbours; then the launcher has no entry until the worker is up. A
    plugin that announces the pod (macvlan) corrects the entry, if the announcement arrives, and before a NIC has
    started a queue pair. `proxy-arp-false-answer` is the same failure with a switch as the requester.
    """

    tags = ("arp", "cni", "kubernetes")
    variants = (
        Variant("as-is", "fault", "the gateway answers before the worker is up; the worker, on a VF, is silent"),
        Variant("announced", "healthy", "the worker is on a macvlan, which announces it", {"network": "macvlan"}),
        Variant("fixed", "healthy", "proxy ARP is off", {"proxy": False}),
    )

    def run(self, run: Run, p: Settings) -> None:
        (gateway,), nodes = run.nics("gateway"), [run.lab.host("node1"), run.lab.host("node2")]
        if p.network == "vf":
            for node in nodes:
                node.add_vf("eth1v0", "eth1")
        if p.proxy:
            run.inject(ProxyArp(host="gateway", ip=WORKER))
        port = run.lab.switch("leaf")["e1"]
        replies = port.capture(f"arp[6:2] = 2 and arp src host {WORKER}")
        packets = port.capture("udp port 4791")

        with run.step("the launcher starts and asks for the worker"):
            launcher = run.lab.pods.create(nodes[0], "launcher", [f"{p.network}.conflist"])["eth0"]
            run.expect("nobody answers ping", launcher.node.ping(WORKER, within=2), False)
            early = owner_of(launcher.neighbour(WORKER), gateway)
            run.expect("the launcher has", early, "gateway's MAC" if p.proxy else "no entry")

        with run.step("the worker starts"):
            run.sleep(5, "its image is pulled")
            worker = run.lab.pods.create(nodes[1], "worker", [f"{p.network}.conflist"])["eth0"]
            run.expect("it has the address", worker.address().ip, WORKER)

        with run.step("the launcher writes to it"):
            before = owner_of(launcher.neighbour(WORKER), worker, gateway)
            status = run.write(launcher, worker)

        false, astray = len(list(replies.frames())), len(packets.roce(to=gateway.mac))
        run.note(completion=status, launcher_had=before, false_answers=false, frames_to_gateway=astray)
        run.expect("the gateway answers for the worker", false > 0, p.proxy)
        reached = run.observe_status(status, "the launcher reaches the worker", who="the launcher")
        run.expect("its packets go to the gateway", astray > 0, not reached)
        if not reached:
            run.expect("the launcher had", before, "gateway's MAC")
            after = owner_of(launcher.neighbour(WORKER), worker, gateway)
            run.expect("since the worker asked for the launcher it has", after, "worker's MAC")
            run.expect("a new connection works", run.write(launcher, worker), "SUCCESS")
