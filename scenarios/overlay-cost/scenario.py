import json
import re
from collections.abc import Callable
from typing import Any, Literal

from testbed import Field, Host, HostInterface, Parameters, Run, Scenario, Variant
from testbed.errors import TestbedError
from testbed.workload import Side, perftest

ROUNDS, SIZE = 500, 1024
PINGS = 4 * ROUNDS
"""The time of a flood is in whole milliseconds."""
WITHIN_S = 60.0
Path = Literal["overlay", "host", "nic"]
LEAST = 1.3
"""How many times as much a packet costs on the overlay at least."""
BARE: dict[str, Path] = {"ping": "host", "latency": "nic", "write": "nic"}
"""What is measured on the overlay, and the path that it is compared with."""


class Settings(Parameters):
    path: Path = Field("overlay", description="what carries the job: the pods' overlay, the host's network or its NIC")


class OverlayCost(Scenario[Settings]):
    """A job's pods communicate over the cluster's VXLAN overlay, and each packet costs CPU time twice.

    Flannel's VXLAN backend: a pod's packet goes over a veth and a bridge to its node and is routed into a VXLAN
    interface. That wraps it in UDP (50 bytes more, so an MTU of 1450, and an RDMA MTU of 1024); the other node does the
    reverse. All of that is CPU time for each packet. A job that was given RDMA devices on the node's NIC (host network,
    or a VF) pays none of it.

    RoCE on the pod's own veth also works, through the overlay: an rxe device accepts any interface. The evidence has
    its cost, beside the cost on the NIC. Times are those of one emulated CPU that both nodes share, so they compare
    paths and do not predict hardware: there the NIC's RDMA costs no CPU time at all.

    On real gear: ksoftirqd and the CNI's interfaces are busy during an allreduce, `sar -n DEV` has the job's bytes on
    flannel.1, and NCCL logs NET/Socket instead of NET/IB.

    The fixes: the pod gets its own NIC for the job (host-device, macvlan, SR-IOV) and keeps the overlay for other
    traffic; or host network, with ports that do not clash.
    """

    tags = ("kubernetes", "training")
    variants = (
        Variant("as-is", "fault", "the job is on the overlay"),
        Variant("host-network", "healthy", "the job is in host network", {"path": "host"}),
        Variant("rdma-nic", "healthy", "the job uses the node's RDMA NIC", {"path": "nic"}),
    )

    def run(self, run: Run, p: Settings) -> None:
        nodes = [run.lab.host("node1"), run.lab.host("node2")]
        with run.step("two pods are on an overlay of VXLAN"):
            for number, (node, other) in enumerate((nodes, nodes[::-1]), 1):
                add_vxlan(node, other, number)
            pods = [run.lab.pods.create(node, f"pod{at}", [flannel(at)]) for at, node in enumerate(nodes, 1)]
        host = [node["eth1"] for node in nodes]
        pod = [one["eth0"] for one in pods]
        measures: dict[Path, Callable[[], dict[str, float]]] = {
            "overlay": lambda: {"ping": round_trips(*pod), **rdma(run, "overlay", *pod)},
            "host": lambda: {"ping": round_trips(*host)},
            "nic": lambda: rdma(run, "nic", *host),
        }
        costs, wrapped = {}, {}
        for name, measure in measures.items():
            with run.step(f"packets of {SIZE} bytes, path: {name}"):
                before = vxlan_packets(nodes[0])
                costs[name] = measure()
                wrapped[name] = vxlan_packets(nodes[0]) - before
                run.note(**{f"{name}_{key}_us": value for key, value in costs[name].items()})
        ratios = {key: round(costs["overlay"][key] / costs[bare][key], 1) for key, bare in BARE.items()}
        run.note(overlay_costs=", ".join(f"{key} {times} times" for key, times in ratios.items()))
        run.expect("a packet costs more on the overlay", min(ratios.values()), lambda times: times > LEAST)
        run.note(wrapped_packets=wrapped[p.path])
        if wrapped[p.path]:
            run.observe("fault", "the nodes' CPU wraps and routes each packet of the job")
            run.expect("each of them", wrapped[p.path], lambda packets: packets >= 2 * ROUNDS)
        else:
            run.observe("healthy", "no packet of the job passes the overlay")


def add_vxlan(node: Host, other: Host, number: int) -> None:
    """What flanneld does on a node: the interface, and the way to the other node's pods through it."""
    own, remote = (str(one["eth1"].address().ip) for one in (node, other))
    subnet, mac = f"10.244.{3 - number}.0", f"02:00:00:00:f1:0{3 - number}"
    lines = [
        f"link add flannel.1 address 02:00:00:00:f1:0{number} type vxlan id 1 local {own} dev eth1 dstport 8472",
        f"address add 10.244.{number}.0/32 dev flannel.1",
        "link set flannel.1 up",
        f"neighbour add {subnet} lladdr {mac} dev flannel.1 nud permanent",
        f"route add {subnet}/24 via {subnet} dev flannel.1 onlink",
    ]
    node.run("ip", "-batch", "-", text="\n".join(lines) + "\n")
    node.run("bridge", "fdb", "append", mac, "dev", "flannel.1", "dst", remote)
    node.sysctl("net/ipv4/ip_forward", 1)


def flannel(number: int) -> dict[str, Any]:
    """The network that flannel's plugin delegates to bridge, and an RDMA device on the pod's veth."""
    subnet, everywhere = f"10.244.{number}.0/24", "10.244.0.0/16"
    ipam = {"type": "host-local", "ranges": [[{"subnet": subnet}]], "routes": [{"dst": everywhere}]}
    bridge = {"type": "bridge", "bridge": "cni0", "isGateway": True, "mtu": 1450, "ipam": ipam}
    return {"cniVersion": "1.0.0", "name": "cbr0", "plugins": [bridge, {"type": "rxe"}]}


def round_trips(near: HostInterface, far: HostInterface) -> float:
    """Microseconds for each packet of a flood of pings, in which the CPU is never idle."""
    options = ("-f", "-n", "-c", str(PINGS), "-s", str(SIZE), "-W", "5")
    text = near.node.run("ping", *options, str(far.address().ip), within=WITHIN_S).stdout
    found = re.search(r" 0% packet loss, time (\d+)ms", text)
    assert found, text
    return round(int(found[1]) * 1000 / (2 * PINGS), 1)


def rdma(run: Run, path: Path, near: HostInterface, far: HostInterface) -> dict[str, float]:
    """The latency of a SEND, and the time of the CPU for each of many WRITEs, in microseconds."""
    found = []
    for program, figure in ("ib_send_lat", "t_avg"), ("ib_write_bw", "MsgRate"):
        directory = run.lab.file(f"{path}-{program}")
        directory.mkdir()
        options = ["-n", str(ROUNDS), "-s", str(SIZE)]
        result = perftest(program, Side.of(far), Side.of(near), directory, options=options, within=WITHIN_S)
        if not result.ok:
            raise TestbedError(f"{program} over {path}: {result.error}", where=str(directory))
        found.append(result.figures[figure])
    latency, millions = found
    return {"latency": round(latency, 1), "write": round(1 / millions, 1)}


def vxlan_packets(node: Host) -> int:
    (link,) = json.loads(node.run("ip", "-j", "-s", "link", "show", "flannel.1").stdout)
    return int(link["stats64"]["tx"]["packets"])
