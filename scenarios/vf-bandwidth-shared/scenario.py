import json
from pathlib import Path
from typing import Any, Literal

from testbed import Field, Host, Parameters, Pod, Run, Scenario, Variant
from testbed.errors import TestbedError
from testbed.workload import Attributes, Streams

NETWORK = Path(__file__).with_name("vf.conflist")
PORT_BPS, FRAME = 20e6, 1024 + 16 + 8 + 20 + 14
"""The port's rate, and a full packet of a WRITE: payload, BTH and ICRC, UDP, IP, Ethernet."""
MESSAGE = 16384
ATTRIBUTES = Attributes(timeout=18)
"""1 s: a packet that waits behind the neighbour's is not taken for lost."""
NO_VETH = "eth0 has no veth peer"


class Settings(Parameters):
    bound: Literal["nothing", "plugin", "limit", "share"] = Field("nothing", description="what bounds the neighbour")
    elephants: int = Field(5, ge=2, le=8, description="queue pairs of the neighbour, each as busy as it can be")
    start: float = Field(0.4, gt=0, le=10, description="seconds in which queues fill")
    measured: float = Field(0.8, gt=0, le=10, description="seconds that are measured")


class VfBandwidthShared(Scenario[Settings]):
    """Two pods have VFs of one port, and the one with more queue pairs takes most of it.

    A virtual function has its own MAC, VLAN and queues, but no bandwidth of its own: all functions of a port send over
    one wire. Waiting queue pairs share the wire, not pods, so a job with five busy queue pairs leaves a sixth to its
    neighbour with one. Nothing is lost and no error counter grows; the neighbour's job is slow, and fast again when it
    is alone.

    The CNI plugin bandwidth does not help: it shapes a veth, and a VF has none, so the pod is refused. On a NIC a
    kernel shaper would not affect RDMA anyway. Rates are scaled: 20 Mbit/s stand for 400 Gbit/s.

    On real gear: the port is at its rate (`port_xmit_data` of the physical function), the slow pod's VF far below it;
    `ip -s link show` of the PF has bytes for each VF. `devlink port function rate show` and `ip link show` (max_tx_rate
    of each VF) show no limit.

    The fixes: a limit for each VF (`ip link set PF vf N max_tx_rate`, max_tx_rate of sriov-cni), or a guaranteed share,
    with the rest available to all (`devlink port function rate … tx_share`, or min_tx_rate).
    """

    tags = ("cni", "kubernetes", "congestion")
    variants = (
        Variant("as-is", "fault", "the neighbour has five busy queue pairs, the pod one"),
        Variant("bandwidth-plugin", "fault", "the bandwidth plugin behind host-device", {"bound": "plugin"}),
        Variant("limit", "healthy", "the neighbour's VF is limited to half of the port", {"bound": "limit"}),
        Variant("share", "healthy", "each VF has half of the port for certain", {"bound": "share"}),
    )

    def run(self, run: Run, p: Settings) -> None:
        node = run.lab.host("node")
        pods: list[Pod] = []
        with run.step("two pods get a VF each"):
            for number, name in enumerate(("pod", "neighbour")):
                node.add_vf(f"eth1v{number}", "eth1")
                try:
                    pods.append(run.lab.pods.create(node, name, [network(number, p)]))
                except TestbedError as error:
                    run.note(pod="refused")
                    run.observe("fault", error.message)
                    run.expect("the plugin shapes a veth only", NO_VETH in error.message, True)
                    return
            bound(node, pods[0], pods[1], p)

        servers = run.nics("server1", "server2")
        own_pair, other_pair = [(pod["eth0"], server) for pod, server in zip(pods, servers, strict=True)]
        with (
            run.step("both write to their servers"),
            Streams([own_pair, *[other_pair] * p.elephants], ATTRIBUTES, size=MESSAGE, ahead=8) as streams,
        ):
            streams.run(p.start)
            own, *others = streams.run(p.measured)
            statuses = set(streams.statuses)

        payload = PORT_BPS * 1024 / FRAME
        share, busy = own / payload, (own + sum(others)) / payload
        run.note(pod=f"{share:.0%} of the port", neighbour=f"{sum(others) / payload:.0%}")
        run.expect("no request fails", statuses, {"SUCCESS"})
        run.expect("nothing is dropped", run.lab.interface("node:eth1").sends.counters()["dropped"], 0)
        run.expect("the port is busy", busy, lambda part: 0.85 < part < 1.1)
        if share < 0.35:
            run.observe("fault", f"the pod has {share:.0%} of the port")
        else:
            run.observe("healthy", f"the pod has {share:.0%} of the port")
            run.expect("it has its half", share, lambda part: 0.42 < part < 0.58)


def network(number: int, p: Settings) -> dict[str, Any]:
    """The conflist for a pod on the node's VF of a number."""
    found: dict[str, Any] = json.loads(NETWORK.read_text())
    found["plugins"][0]["device"] = f"eth1v{number}"
    if p.bound == "plugin":
        half = int(PORT_BPS / 2)
        found["plugins"].append({"type": "bandwidth", "egressRate": half, "egressBurst": half})
    return found


def bound(node: Host, own: Pod, neighbour: Pod, p: Settings) -> None:
    """What a NIC does for its functions, by tc. The queues hold a window of each queue pair: a drop would end it."""
    half, whole = f"{PORT_BPS / 2:.0f}bit", f"{0.95 * PORT_BPS:.0f}bit"
    if p.bound == "limit":
        neighbour.run(*f"tc qdisc add dev eth0 root tbf rate {half} burst 5kb limit 1mb".split())
    if p.bound == "share":
        lines = ["qdisc add dev eth1 root handle 1: htb", f"class add dev eth1 parent 1: classid 1:1 htb rate {whole}"]
        for number, pod in enumerate((own, neighbour), 2):
            guaranteed = f"rate {0.475 * PORT_BPS:.0f}bit ceil {whole}"
            lines.append(f"class add dev eth1 parent 1:1 classid 1:{number} htb {guaranteed}")
            match = f"protocol ip u32 match ether src {pod['eth0'].mac} flowid 1:{number}"
            lines.append(f"filter add dev eth1 parent 1: {match}")
        node.run("tc", "-b", "-", text="\n".join(lines))
