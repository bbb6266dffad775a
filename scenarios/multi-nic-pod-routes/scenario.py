import json
from collections.abc import Sequence
from typing import Any, Literal

from testbed import Field, Host, HostInterface, Parameters, Run, Scenario, Variant
from testbed.workload import Side, perftest

RAILS = (1, 2)
OUTSIDE = "10.0.30.1"
"""An address on no rail."""
BANDWIDTH, LATENCY = ("ib_write_bw", "-s", "65536", "-n", "50"), ("ib_send_lat", "-s", "64", "-n", "50")
FIGURES = "bandwidth", "latency"
FASTER = 1.3
"""How many times as fast a host may be as a pod, whose packets pass a macvlan, and a pod as a host."""


class Settings(Parameters):
    routes: Literal["subnets", "defaults", "rules"] = Field("subnets", description="what a rail has besides its subnet")
    strict: bool = Field(False, description="whether rp_filter is 1, which drops what would be answered by another NIC")


class MultiNicPodRoutes(Scenario[Settings]):
    """A pod has two VFs in different subnets, and no RDMA crosses a subnet, because the routes are those of eth0.

    Each rail is a switch, and each node has its own subnet on it. The main table of a pod with eth0 and two VFs has the
    three subnets and one default route, over eth0. Packets of a VF's queue pair have to leave by that VF, and it has no
    route to the other node's subnet. For IPv4 Linux then treats any address as a neighbour and sends an ARP request,
    which does not reach the other node: modify to RTR ends with ETIMEDOUT. A host with two NICs and a default route by
    a third has the same problem, so it is not specific to pods.

    A default route for each rail in the main table is enough for RDMA, which looks up a route over its own NIC. But all
    other traffic uses only one of the default routes: here, with the CNI plugins 1.1.1, the last one, so that traffic
    to the front network leaves by rail 2. And a strict reverse path filter drops packets that arrive at any other NIC.
    The filter affects soft-RoCE but not the RDMA of a hardware NIC; it also affects TCP over the rails (NCCL's
    bootstrap, perftest's exchange of parameters).

    Each variant measures host and pod on both rails by perftest. Figures are those of an emulated CPU: only two results
    matter, whether they work, and that a pod's are near the host's. `testbed run multi-nic-pod-routes` measured MiB/s
    of ib_write_bw and microseconds of ib_send_lat, with rules in `fixed` and without them in the others:

                         host rail 1     host rail 2     pod rail 1      pod rail 2
        as-is            ETIMEDOUT       ETIMEDOUT       ETIMEDOUT       ETIMEDOUT
        defaults-strict  RETRY_EXC_ERR   RETRY_EXC_ERR   RETRY_EXC_ERR   21.4     71
        defaults         25.0     66     24.3     66     22.1     70     22.1     70
        fixed            23.3     69     23.0     68     21.0     73     21.0     73

    On real gear: ranks of one rack work and those of another do not; NCCL ends with "Call to ibv_modify_qp failed with
    error Connection timed out", perftest with "Failed to modify QP to RTR". `ip neigh` in the pod has addresses of
    other subnets, FAILED; `ip route get ADDRESS from OWN oif net1` has no `via`; `ip rule` has three lines only. With
    a strict filter `nstat -az TcpExtIPReversePathFilter` counts.

    The fix: a rule and a table for each NIC: packets from its address use a table with its gateway (Spiderpool's
    coordinator, or the plugin sbr, after the plugin that makes the interface). eth0 keeps the default route. On hosts
    `ip rule add from ADDRESS lookup TABLE`, or netplan's routing-policy.
    """

    tags = ("cni", "kubernetes", "routing")
    variants = (
        Variant("as-is", "fault", "the rails have their subnets, without a gateway"),
        Variant(
            "defaults-strict",
            "fault",
            "each rail has a default route in the main table, rp_filter is 1",
            {"routes": "defaults", "strict": True},
        ),
        Variant("defaults", "healthy", "the same, rp_filter is 0", {"routes": "defaults"}),
        Variant(
            "fixed", "healthy", "each rail has a rule and a table, rp_filter is 1", {"routes": "rules", "strict": True}
        ),
    )

    def run(self, run: Run, p: Settings) -> None:
        nodes = [run.lab.host(name) for name in ("node1", "node2")]
        with run.step("the nodes get RDMA devices and routes"):
            for number, node in enumerate(nodes, 1):
                prepare(node, number, p)
        with run.step("a pod starts on each node"):
            networks: list[str | dict[str, Any]] = ["front.conflist", *(network(rail, p) for rail in RAILS)]
            pods = [run.lab.pods.create(node, f"pod{number}", networks) for number, node in enumerate(nodes, 1)]
            leaves = {"host": leaves_by(nodes[0]), "pod": leaves_by(pods[0])}
            run.note(to_the_front=f"host by {leaves['host']}, pod by {leaves['pod']}")

        statuses: dict[str, str] = {}
        measured: dict[str, tuple[float, float]] = {}
        for who, ends, prefix in (("host", nodes, "eth"), ("pod", pods, "net")):
            for rail in RAILS:
                name, (near, far) = f"{who} rail {rail}", (end[f"{prefix}{rail}"] for end in ends)
                with run.step(f"{name}: from node1 to node2"):
                    statuses[name] = run.write(near, far)
                    if statuses[name] == "SUCCESS":
                        measured[name] = figures(run, near, far)
                shown = "{:.1f} MiB/s, {:.0f} us".format(*measured[name]) if name in measured else statuses[name]
                run.note(**{name.replace(" ", "_"): shown})

        self.judge(run, p, statuses, leaves)
        for rail in RAILS if len(measured) == len(statuses) else ():
            of_host, of_pod = (measured[f"{who} rail {rail}"] for who in leaves)
            for what, host, pod in zip(FIGURES, of_host, of_pod, strict=True):
                apart = max(host / pod, pod / host)
                run.expect(f"rail {rail}: {what} of host and pod", apart, lambda times: times < FASTER)

    def judge(self, run: Run, p: Settings, statuses: dict[str, str], leaves: dict[str, str]) -> None:
        failed = {name: status for name, status in statuses.items() if status != "SUCCESS"}
        if failed:
            run.observe("fault", f"RDMA to the other subnet fails: {', '.join(failed)}")
        else:
            run.observe("healthy", "RDMA to the other subnet works on each rail, of hosts and of pods")
        wrong = dict.fromkeys(statuses, "ETIMEDOUT") if p.routes == "subnets" else {}
        if p.routes == "defaults" and p.strict:  # all but the NIC that the best default route is over
            best = {f"{who} rail {nic[-1]}" for who, nic in leaves.items()}
            wrong = {name: "RETRY_EXC_ERR" for name in statuses if name not in best}
        run.expect("what fails, and how", failed, wrong)
        usual = "net2" if p.routes == "defaults" else "eth0"
        run.expect("by what a pod reaches the front network", leaves["pod"], usual)


def prepare(node: Host, number: int, p: Settings) -> None:
    """Gives the rails of a node an RDMA device, a VF for its pod, and routes."""
    for rail in RAILS:
        nic, table = node[f"eth{rail}"], str(100 + rail)
        node.add_vf(f"{nic.name}v0", nic.name)
        nic.add_rdma(f"{node.name}-{nic.name}")
        default = ["ip", "route", "add", "default", "via", gateway(rail, number), "dev", nic.name]
        if p.routes == "defaults":
            node.run(*default, "metric", table)
        if p.routes == "rules":
            node.run(*default, "table", table)
            node.run("ip", "rule", "add", "from", str(nic.address().ip), "lookup", table)
    node.sysctl("net/ipv4/conf/all/rp_filter", int(p.strict))


def network(rail: int, p: Settings) -> dict[str, Any]:
    """The conflist of a rail, with a pool for each node."""
    pools = [
        {
            "name": f"rail{rail}-node{number}",
            "subnet": f"10.{rail}.{number}.0/24",
            "ips": [f"10.{rail}.{number}.100-10.{rail}.{number}.199"],
            "nodeName": [f"node{number}"],
            **({"gateway": gateway(rail, number)} if p.routes != "subnets" else {}),
        }
        for number in (1, 2)
    ]
    coordinator = {"type": "coordinator", "podRPFilter": int(p.strict), "tunePodRoutes": p.routes == "rules"}
    vf = {"type": "host-device", "device": f"eth{rail}v0", "ipam": {"type": "ippool", "pools": pools}}
    return {"cniVersion": "1.0.0", "name": f"rail{rail}", "plugins": [vf, coordinator, {"type": "rxe"}]}


def gateway(rail: int, node: int) -> str:
    return f"10.{rail}.{node}.1"


def leaves_by(host: Host) -> str:
    """The interface by which a host or a pod sends what is for no rail."""
    (route,) = json.loads(host.run("ip", "-j", "route", "get", OUTSIDE).stdout)
    return str(route["dev"])


def figures(run: Run, near: HostInterface, far: HostInterface) -> tuple[float, float]:
    """Bandwidth in MiB/s and latency in microseconds."""
    return measure(run, near, far, BANDWIDTH)["BW_average"], measure(run, near, far, LATENCY)["t_avg"]


def measure(run: Run, near: HostInterface, far: HostInterface, command: Sequence[str]) -> dict[str, float]:
    ready, sides = run.lab.scheduler.ready, (Side.of(far), Side.of(near))
    result = perftest(command[0], *sides, run.lab.directory, options=command[1:], within=10, ready=ready)
    run.expect(f"error of {command[0]}", result.error, "")
    return result.figures
