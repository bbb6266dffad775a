from ipaddress import IPv4Address
from typing import Any, Literal, get_args

from testbed import Caller, Field, Host, IPAddress, Parameters, Pod, Run, Scenario, Variant
from testbed.faults import ArpDrop

KUBELET = Caller(attempts=3)
"""kubelet's pause, and no more attempts than are needed."""
SLOW_MS = 150
"""The owner's delay; the window of a Spiderpool probe is 100 ms."""
Method = Literal["no", "spiderpool", "rfc5227"]
METHODS: tuple[Method, ...] = get_args(Method)
FREE = IPv4Address("10.0.20.100")
"""Nobody has it, nor the next ones."""
TIMED = 5
"""Pods whose ADD is timed with each method."""


class Settings(Parameters):
    detect: Method = Field("no", description="how a duplicate address is looked for")
    slow_owner: bool = Field(False, description="whether the owner answers ARP late, as a busy machine does")
    probe_lost: bool = Field(False, description="whether the network loses the first probe")
    at_once: bool = Field(False, description="whether two pods start at once with one address; else storage has it")
    cost: bool = Field(False, description="whether pods with free addresses start, with each method, and ADD is timed")


class CoordinatorConflict(Scenario[Settings]):
    """A pod gets an address that is in use, and the method of the probe decides whether that is detected.

    Nobody excluded the storage's address from the pool. A pod gets it, on a VF, and announces it: the switch sends the
    storage's packets to the pod, and all clients of the storage get RETRY_EXC_ERR.

    The fix: the CNI plugin probes before it announces (Spiderpool's enableIPConflictDetection) and refuses the pod, and
    kubelet's next attempt gets the next address. That needs a pool with `policy: round-robin`, as here: `lowest-free`
    assigns the address that the refused pod released, so each attempt is refused. Spiderpool probes once and waits for
    100 ms. It misses an owner that answers after 150 ms, and an owner if the network loses the probe. It also misses
    two pods that start at the same moment, because a probe is not an answer: IPAM gave one address to two nodes
    (whereabouts #110). RFC 5227 probes three times at random intervals, and treats the probe of another host as a
    conflict. A probe also delays each pod with a free address: 0.1 s, or 4 to 7 s.

    On real gear: kubelet's event is `pod's interface … with an conflicting ip … is located at` and the owner's MAC.
    Without detection the switch logs a duplicate address, or a MAC that moves; `arping -D` from another host of the
    subnet has two answers.
    """

    tags = ("arp", "cni", "kubernetes")
    variants = (
        Variant("as-is", "fault", "nobody asks: the pod takes the storage's address"),
        Variant("spiderpool", "healthy", "one probe: refused, the next attempt has another", {"detect": "spiderpool"}),
        Variant(
            "slow-owner",
            "fault",
            "the storage answers after 150 ms, the probe waits for 100",
            {"detect": "spiderpool", "slow_owner": True},
        ),
        Variant("slow-owner-rfc5227", "healthy", "three probes, 4 to 7 s", {"detect": "rfc5227", "slow_owner": True}),
        Variant(
            "probe-lost",
            "fault",
            "the network loses the one probe, so nobody answers",
            {"detect": "spiderpool", "probe_lost": True},
        ),
        Variant(
            "probe-lost-rfc5227", "healthy", "the second probe is answered", {"detect": "rfc5227", "probe_lost": True}
        ),
        Variant("at-once", "fault", "two pods probe at the same moment", {"detect": "spiderpool", "at_once": True}),
        Variant("at-once-rfc5227", "healthy", "each hears the other's probe", {"detect": "rfc5227", "at_once": True}),
        Variant("cost", "healthy", "how long ADD takes with each method if the address is free", {"cost": True}),
    )

    def run(self, run: Run, p: Settings) -> None:
        for name in "node1", "node2":
            run.lab.host(name).add_vf("eth1v0", "eth1")
        if p.cost:
            self.time_adds(run)
        elif p.at_once:
            self.start_two(run, p)
        else:
            self.start_one(run, p)

    def start_one(self, run: Run, p: Settings) -> None:
        """A pod is to start, and the first address of the pool is the storage's."""
        storage = run.lab.host("storage")["eth1"]
        taken = storage.address().ip
        connection = run.connect("the client works with storage", run.lab.host("client")["eth1"], storage)
        if p.slow_owner:
            delay_arp(run.lab.host("storage"))
        if p.probe_lost:
            lose_one_probe(run)
        with run.step("a pod starts"):
            pod = run.lab.pods.create(run.lab.host("node1"), "worker", [network(p.detect, taken)], KUBELET)
        refused = [event["data"]["error"] for event in run.events("pod.refused")]
        got = pod["eth0"].address().ip
        status = connection.write().status
        known = run.lab.switch("leaf").neighbour(taken)
        run.note(pod=got, refused=len(refused), storage=status, switch_has="storage" if known == storage.mac else "pod")
        reached = run.observe_status(status, "storage works, and the pod has an address of its own")
        run.expect("the pod has the storage's address", got == taken, not reached)
        if reached:
            run.expect("the first attempt names the owner", storage.mac in refused[0] if refused else False, True)

    def start_two(self, run: Run, p: Settings) -> None:
        """Two nodes, whose IPAMs know nothing of each other, give one address at the same moment."""
        client = run.lab.host("client")["eth1"]
        with run.step("a pod starts on each node"):
            names = ("node1", "node2")
            made = run.lab.pods.create_all(
                [(run.lab.host(name), f"of-{name}", [network_at_once(p.detect)]) for name in names]
            )
        pods = [pod for pod in made if isinstance(pod, Pod)]
        run.note(started=len(pods), refused=len(made) - len(pods))
        if not pods:
            with run.step("kubelet tries again, one pod after the other"):
                pods = [run.lab.pods.create(run.lab.host("node1"), "of-node1", [network_at_once(p.detect)])]
        connections = [run.connect(f"the client works with {pod.name}", client, pod["eth0"]) for pod in pods]
        statuses = [connection.write().status for connection in connections]
        run.note(completions=", ".join(statuses))
        run.observe_status(statuses[0], "who was connected first goes on")
        run.expect("two pods have one address", len(pods) == 2, statuses[0] != "SUCCESS")

    def time_adds(self, run: Run) -> None:
        """Pods one after the other; nobody has their addresses."""
        took: dict[str, float] = {}
        for method in METHODS:
            conflist = network(method, FREE)
            with run.step(f"pods start, detection: {method}"):
                for number in range(TIMED):
                    run.lab.pods.create(run.lab.host("node1"), f"{method}-{number}", [conflist]).delete()
            adds = sorted(event["data"]["took_s"] for event in run.events("cni", command="ADD")[-TIMED:])
            took[method] = adds[TIMED // 2]
            run.note(**{method: f"{adds[0]:.2f} to {adds[-1]:.2f} s"})
        run.observe("healthy", "every pod starts")
        run.expect("Spiderpool's probe costs its 0.1 s", took["spiderpool"] - took["no"], lambda s: 0.095 <= s < 0.2)
        run.expect("RFC 5227's cost 4 to 7 s", took["rfc5227"] - took["no"], lambda s: 4 <= s < 7.2)


def network(detect: Method, first: IPAddress) -> dict[str, Any]:
    """The conflist of a pool that begins with `first`."""
    pool = {"subnet": "10.0.20.0/24", "ips": [f"{first}-{first + 9}"], "gateway": "10.0.20.1"}
    return vf({"type": "ippool", "pools": [pool], "policy": "round-robin"}, detect)


def network_at_once(detect: Method) -> dict[str, Any]:
    """The conflist of a pool that each node has for itself."""
    given = {"subnet": "10.0.20.0/24", "rangeStart": "10.0.20.100", "rangeEnd": "10.0.20.100", "gateway": "10.0.20.1"}
    return vf({"type": "host-local", "ranges": [[given]], "routes": [{"dst": "0.0.0.0/0"}]}, detect)


def vf(ipam: dict[str, Any], detect: Method) -> dict[str, Any]:
    coordinator = {
        "type": "coordinator",
        "steps": ["conflict", "announce"],
        "detectIPConflict": False if detect == "no" else detect,
    }
    plugins = [{"type": "host-device", "device": "eth1v0", "ipam": ipam}, coordinator, {"type": "rxe"}]
    return {"cniVersion": "1.0.0", "name": "vf", "plugins": plugins}


def delay_arp(owner: Host) -> None:
    """Its ARP answers come late, and nothing else."""
    owner.run(
        "tc",
        "-b",
        "-",
        text="qdisc add dev eth1 root handle 1: prio\n"
        f"qdisc add dev eth1 parent 1:3 netem delay {SLOW_MS}ms\n"
        "filter add dev eth1 parent 1: protocol arp u32 match u32 0 0 flowid 1:3\n",
    )


def lose_one_probe(run: Run) -> None:
    """The next ARP request of node1 is lost at the switch. Its pod's probes are seconds apart."""
    fault = ArpDrop(end="node1:eth1", operation="request")
    loss = run.inject(fault)

    def look() -> None:
        if lost := fault.hits(run.lab):
            stop()
            loss.recover()
            run.expect("one probe is lost", lost, 1)

    stop = run.lab.scheduler.every(0.01, look)
