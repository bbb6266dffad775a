from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

from testbed import Field, Host, HostInterface, Parameters, Pod, Run, Scenario, Variant, owner_of
from testbed.workload import mpirun

PROGRAM = Path(__file__).with_name("train.py")
GRADIENTS = ["100000"] * 3
"""Bytes of each step."""
JOB_S = 120.0


class Settings(Parameters):
    announce: bool = Field(False, description="whether the new pod announces itself by a gratuitous ARP")
    reuse_after: float = Field(1.0, ge=0, description="seconds between the end of the old pod and the start of the new")
    readiness_gate: bool = Field(False, description="whether the new pod is ready when its gateway answers a ping")


class TrainingOnReusedIp(Scenario[Settings]):
    """A worker of a training job comes back with the IP of a deleted pod, and the job cannot connect.

    A pod with a rank is rescheduled: the old one ends on node1, the new one starts on node2, on another VF, and the
    IPAM gives it the same address. host-device announces nothing, and the pod's gateway is a static neighbour entry. So
    the leaf keeps the old MAC, for 25 minutes or four hours, and forwards the other ranks' packets to a port without
    that MAC. The launcher reaches all pods over their management network, so the job starts and looks alive; UCX tries
    its wire-up for 30 s in the first collective and gives up. If the job is restarted at once, it fails again.

    On real gear: UCX's *unhandled timeout error* (NCCL: "transport retry counter exceeded", or a watchdog's timeout in
    the first all-reduce), always with this one rank, and only from other subnets; `show ip arp` for its address has the
    MAC of the deleted pod, with an age from before the new one; `arping -U` from inside the pod ends it.

    The fixes: the CNI announces the address (a gratuitous ARP, on a switch that accepts it); the IPAM has a cool-down
    longer than the gateway's ageing; or a readiness gate pings the gateway and announces the pod until the gateway
    answers, before the job gets the pod. `ip-reuse` shows the same without a job, for each CNI plugin and switch.
    """

    tags = ("training", "arp", "cni", "kubernetes")
    variants = (
        Variant("as-is", "fault", "the new pod is silent, the switch keeps the old one's MAC"),
        Variant("announced", "healthy", "it announces itself once it is up", {"announce": True}),
        Variant("cool-down", "healthy", "the address rests until the entry has aged out", {"reuse_after": 1600.0}),
        Variant("readiness-gate", "healthy", "it waits until its gateway answers", {"readiness_gate": True}),
    )

    def run(self, run: Run, p: Settings) -> None:
        leaf, nodes = run.lab.switch("leaf"), [run.lab.host(f"node{number}") for number in range(3)]
        dead_port = leaf["e1"].capture("udp port 4791")
        for node in nodes:
            node.add_vf("eth1v0", "eth1")
        with run.step("two workers are up"):
            first, old = (start_pod(run, name, node) for name, node in zip(("worker0", "old"), nodes[:2], strict=True))
            gateway = old.host["eth1"].gateway()
            run.expect("the switch reaches the worker on node1", old.ping(gateway, within=1), True)
            run.expect("the switch has its MAC", leaf.neighbour(old["net1"].address().ip), old["net1"].mac)
            run.expect("worker0 reaches its gateway", first.ping(first.host["eth1"].gateway(), within=1), True)

        with run.step("the worker on node1 is deleted, and one on node2 gets its address"):
            old_nic = old["net1"]
            ip = old_nic.address().ip
            old.delete()
            run.sleep(p.reuse_after, "the address rests")
            new = start_pod(run, "worker1", nodes[2])
            nic = new["net1"]
            run.expect("it has the address", nic.address().ip, ip)
            run.silence(nic, new.host["eth1"])
            if p.announce:
                nic.announce()
            if p.readiness_gate:
                run.wait_for_gateway(nic, gateway, announce=True)

        with run.step("the job starts"):
            job = mpirun(run.lab, [first, new], PROGRAM, *GRADIENTS, launcher=run.lab.host("launcher"), data="net1")
            failure = job.wait(JOB_S)

        known, frames = owner_of(leaf.neighbour(ip), old_nic, nic), len(dead_port.roce(to=old_nic.mac))
        done = [len([call for call in job.calls(rank, "Allreduce") if call.ended]) for rank in range(2)]
        run.note(switch_arp=known, frames_to_dead_mac=frames, steps_done=done)
        if failure is None:
            run.observe("healthy", "both ranks train to the end")
            run.expect("the switch has", known, "worker1's MAC")
            run.expect("every rank did every step", done, [len(GRADIENTS)] * 2)
            run.expect("no frame went to the old pod", frames, 0)
            return
        run.observe("fault", f"the job dies: {failure}")
        run.expect("UCX could not connect", failure.text, lambda text: "timeout" in text)
        run.expect("the switch has", known, "old's MAC")
        run.expect("frames went to the old pod", frames, lambda count: count > 0)
        run.expect("no rank did a step", done, [0, 0])


def start_pod(run: Run, name: str, node: Host) -> Pod:
    """A pod with the management network on eth0, and a virtual function with an RDMA device on net1."""
    nic, management = node["eth1"], node["mgmt0"]
    host, pods = management.address().ip, nic.address().network
    metadata = {"type": "macvlan", "master": "mgmt0", "ipam": one_address(management, host + 100)}
    ipam = {**one_address(nic, pods[100]), "routes": [{"dst": "0.0.0.0/0"}]}
    data = {"type": "host-device", "device": "eth1v0", "ipam": ipam}
    return run.lab.pods.create(node, name, [network("metadata", metadata), network("rdma", data, {"type": "rxe"})])


def network(name: str, *plugins: dict[str, Any]) -> dict[str, Any]:
    return {"cniVersion": "1.0.0", "name": name, "plugins": plugins}


def one_address(nic: HostInterface, ip: IPv4Address) -> dict[str, Any]:
    """A range of host-local with this one address, in the subnet of a node's NIC."""
    only = {"subnet": str(nic.address().network), "rangeStart": str(ip), "rangeEnd": str(ip)}
    if nic.name == "eth1":
        only["gateway"] = str(nic.gateway())
    return {"type": "host-local", "ranges": [[only]]}
