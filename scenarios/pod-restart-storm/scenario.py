import socket
from collections import Counter
from ipaddress import ip_address
from typing import Any, Literal

from testbed import (
    Field,
    HostInterface,
    Parameters,
    Pod,
    Profile,
    ProfileName,
    Run,
    Scenario,
    Variant,
    kubelet,
    profile,
)
from testbed.workload import Attributes, Endpoint, connect_pair, open_endpoint

NODES = ("node1", "node2", "node3", "node4")
FIRST = ip_address("10.0.33.0")
"""Of the pods' addresses."""
LIMITED = 5
"""ARP packets a second: to 8 pods what SONiC's default of 600 is to 1000."""


class Settings(Parameters):
    profile: ProfileName = Field("cisco-nxos", description="ARP and FDB profile of the leaf switch")
    pods: int = Field(8, ge=4, le=1000, description="pods that restart at once")
    policy: Literal["lowest-free", "cool-down"] = Field("lowest-free", description="which address of the pool is next")
    pps: int = Field(
        600, ge=1, description="ARP packets a second that reach the leaf's CPU, with a burst of a second's"
    )
    room: float = Field(0.0, ge=0, description="entries for each pod in the leaf's ARP table; 0: the profile's own")
    announce: bool = Field(False, description="whether a pod announces itself when it is up")
    wave: int = Field(1000, ge=1, description="pods that announce themselves at once; the next ones a second later")
    timeout: int = Field(14, ge=12, le=20, description="local ACK timeout of a queue pair: 4.096 us * 2^timeout")
    retry_for: float = Field(5.0, ge=0, description="seconds for which pods that failed wait in all: 1, 2, 4 …")


class PodRestartStorm(Scenario[Settings]):
    """All pods of a rack restart at once, and the switch between them and their peers has to relearn them.

    After a power failure, an upgrade of the ToR or a crashed job all pods start at once, on other nodes than before:
    their virtual functions from host-device announce nothing, and the gateway is a static neighbour entry. When all are
    up the job begins, and all connect at the same moment to a client behind the leaf.

    With the policy lowest-free, each pod has the address of a pod that just died, and the leaf has the dead pod's MAC:
    all acknowledgements go to MACs of dead pods. Retries do not help until the entries age out. With a cool-down of
    addresses the leaf has no entry and sends requests. The answers are a storm for its CPU, and control-plane policing
    limits them. A pod with a dropped answer waits for the leaf's next request, a second later. If three requests are
    not enough for all pods, the others wait for the hold-down of unresolved addresses, on NX-OS 3 minutes. Entries of
    dead pods still fill the table, so a cool-down needs room for two generations.

    Announcements end the storm at once with any policy, if the CPU receives them: it drops those beyond the burst, and
    nobody repeats them.

    A machine starts pods one after the other; a cluster's nodes start them in parallel. So all pods begin when the last
    one is up, as in a gang-scheduled job. The default is 8 pods with a limit of 5 packets a second, in proportion to
    SONiC's default of 600 for a thousand pods. A thousand pods need `--set pods=1000 --set timeout=18`: one emulated
    CPU executes all hosts and the switch. It posts a thousand WRITEs in 3.5 s and receives 600 answers a second, so a
    queue pair has to wait for longer than 0.3 s, and a limit of 600 is never reached. `--variant announced-limited
    --set pps=200` reaches its limit.

    On real gear: `show ip arp` has addresses of running pods with MACs that are on no port, and ages from before the
    restart; drops of control-plane policing in the class with ARP grew in the first second of the restart. NCCL reports
    "transport retry counter exceeded" on other pods in each restart.

    The fixes: pods that announce themselves, in waves or with a sufficient limit; or a cool-down longer than the
    lifetime of entries, a limit for the storm of answers, and a table for dead and live pods.
    """

    tags = ("arp", "cni", "kubernetes", "switch")
    variants = (
        Variant("as-is", "fault", "each address is that of a pod that just died"),
        Variant("cool-down", "healthy", "addresses rest: the leaf asks for all", {"policy": "cool-down"}),
        Variant(
            "cool-down-limited",
            "fault",
            "the same, and 5 ARP packets a second reach the CPU",
            {"policy": "cool-down", "pps": LIMITED},
        ),
        Variant(
            "cool-down-table-full",
            "fault",
            "the same without that limit, and a table for one and a half generations",
            {"policy": "cool-down", "room": 1.5},
        ),
        Variant("announced", "healthy", "each pod announces itself", {"announce": True}),
        Variant("announced-limited", "fault", "5 a second reach the CPU", {"announce": True, "pps": LIMITED}),
        Variant("announced-in-waves", "healthy", "4 a second do so", {"announce": True, "pps": LIMITED, "wave": 4}),
    )

    def profiles(self, p: Settings) -> dict[str, Profile]:
        values: dict[str, Any] = {"arp_cap": capacity(p)} if p.room else {}
        return {"leaf": profile(p.profile).replace(arp_pps=p.pps, **values)}

    def run(self, run: Run, p: Settings) -> None:
        client = run.lab.host("client")["eth1"]
        for number in range(p.pods):
            for node in at(number), at(number + 1):
                run.lab.host(node).add_vf(f"eth1v{number}", "eth1")
        run.expect("the client's gateway answers", client.ping_gateway(), True)

        with run.step("pods are at work, the leaf knows them"):
            before = start(run, p, 0)
            for pod in before:
                ask_for_gateway(pod)
                run.lab.scheduler.sleep(1 / p.pps)
            run.expect("the leaf has all pods' MACs", stale(run, before), 0)

        with run.step("all pods restart, each on another node"):
            run.lab.pods.delete_all(before)
            pods = start(run, p, 1)
            for pod in pods:
                run.silence(pod["eth0"], pod.host["eth1"])
            if p.announce:
                announce(run, pods, p)
            again = len(addresses(before) & addresses(pods))
            wrong = stale(run, pods, unknown=False)

        with run.step("all connect at once"):
            began, tries = run.now, connect_all(run, pods, client, p)

        failed, left = (p.pods - sum(statuses["SUCCESS"] for statuses in tries[:upto]) for upto in (1, len(tries)))
        limited = bool(run.events("arp.limited", reason="arp-rate"))
        run.note(addresses_again=f"{again} of {p.pods}", stale_entries=wrong, arp_over_its_rate=limited)
        run.note(failed_at_first=f"{failed} of {p.pods}", still_failing=left, tries=len(tries))
        run.note(took_s=round(run.now - began, 1))
        text = f"{failed} of {p.pods} pods do not connect at first, {left} not in {len(tries)} tries"
        run.observe("fault" if failed else "healthy", text if failed else "all pods connect at first")
        run.expect("addresses that dead pods had", again, 0 if p.policy == "cool-down" else p.pods)
        to_cpu = min(p.pods, p.wave) if p.announce or p.policy == "cool-down" else 0
        if failed or to_cpu <= p.pps:  # more than the limit may still come too slowly to reach it: see above
            run.expect("ARP over the limit", limited, to_cpu > p.pps)
        if failed:
            run.expect("how they fail", set(tries[0]) - {"SUCCESS"}, {"RETRY_EXC_ERR"})
            full = p.pods - (capacity(p) - p.pods - 1) if p.room else 0
            run.expect("still failing: a dead pod's MAC, or no room in the table", left, wrong + full)


def capacity(p: Settings) -> int:
    """Of the leaf's table: the client is in it, too."""
    return round(p.room * p.pods) + 1


def at(number: int) -> str:
    """The node of a pod."""
    return NODES[number % len(NODES)]


def start(run: Run, p: Settings, generation: int) -> list[Pod]:
    """All pods, each on a VF. The next generation has each on the next node."""
    pool = {"subnet": "10.0.32.0/19", "ips": [f"{FIRST}-{FIRST + 3 * p.pods - 1}"], "gateway": "10.0.32.1"}
    ipam = {"type": "ippool", "pools": [pool], "policy": p.policy, "coolDown": 86400}
    wanted = []
    for number in range(p.pods):
        plugins = [{"type": "host-device", "device": f"eth1v{number}", "ipam": ipam}, {"type": "rxe"}]
        network = {"cniVersion": "1.0.0", "name": "vf", "plugins": plugins}
        wanted.append((run.lab.host(at(number + generation)), f"worker{number}", [network]))
    made = run.lab.pods.create_all(wanted, caller=kubelet())
    run.expect("pods that start", sum(isinstance(pod, Pod) for pod in made), p.pods)
    return [pod for pod in made if isinstance(pod, Pod)]


def ask_for_gateway(pod: Pod) -> None:
    """Sends the gateway something, for which the kernel has to ask for its MAC."""
    with pod.entered(), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        udp.sendto(b"", (str(pod.host["eth1"].gateway()), 9))  # discard (RFC 863)


def announce(run: Run, pods: list[Pod], p: Settings) -> None:
    for number, pod in enumerate(pods):
        if number and not number % p.wave:
            run.sleep(1, "the next wave")
        pod["eth0"].announce()


def addresses(pods: list[Pod]) -> set[str]:
    return {str(pod["eth0"].address().ip) for pod in pods}


def stale(run: Run, pods: list[Pod], *, unknown: bool = True) -> int:
    """Pods whose MAC the leaf has not; those whose address it does not know count if `unknown`."""
    table = run.lab.switch("leaf").arp_table()
    known = [table.get(str(pod["eth0"].address().ip)) for pod in pods]
    return sum(mac != pod["eth0"].mac and (unknown or mac is not None) for mac, pod in zip(known, pods, strict=True))


def connect_all(run: Run, pods: list[Pod], client: HostInterface, p: Settings) -> list[Counter[str]]:
    """All pods write to the client at once, and those that fail try again: the statuses of each try."""
    waited, pause, tries = 0, 1, list[Counter[str]]()
    while True:
        statuses = write_all(pods, client, Attributes(timeout=p.timeout))
        tries.append(Counter(statuses))
        pods = [pod for pod, status in zip(pods, statuses, strict=True) if status != "SUCCESS"]
        run.log.emit("storm", "", f"try {len(tries)}: {len(pods)} pods do not connect", failed=len(pods))
        if not pods or waited >= p.retry_for:
            return tries
        run.sleep(pause, "those that failed wait before they try again")
        waited, pause = waited + pause, 2 * pause


def write_all(pods: list[Pod], client: HostInterface, attributes: Attributes) -> list[str]:
    """The statuses of a WRITE of one packet of each pod, over new connections, all posted at once."""
    pairs: list[tuple[Endpoint, Endpoint]] = []
    try:
        for pod in pods:
            pairs.append((open_endpoint(pod["eth0"]), open_endpoint(client)))
            connect_pair(*pairs[-1], attributes)
        posted = [(near, near.post_write(1024)) for near, _ in pairs]
        return [near.wait(number, within=60).status for near, number in posted]
    finally:
        for near, far in pairs:
            near.close()
            far.close()
