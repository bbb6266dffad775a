import time
from typing import Literal

from testbed import Field, Host, HostInterface, Parameters, Pod, ProfileName, Run, Scenario, Variant, owner_of
from testbed.workload import Attributes

ANNOUNCEMENTS = {"vf": (0, 0), "macvlan": (1, 1), "bridge": (1, 0)}
"""ARP packets that a starting pod sends, and those of them that reach the switch, by its network. Measured."""


class Settings(Parameters):
    profile: ProfileName = Field("cisco-nxos", description="ARP and FDB profile of the leaf switch")
    arp_age: float | None = Field(None, gt=0, description="ARP ageing of the leaf in seconds; empty: the profile's own")
    network: Literal["vf", "macvlan", "bridge"] = Field("vf", description="the pods' network, by its conflist's name")
    announce: bool = Field(False, description="whether pod B is announced by a gratuitous ARP once it is up")
    gateway_by_arp: bool = Field(False, description="whether pod B asks for its gateway by ARP; else it has an entry")
    reuse_after: float = Field(1.0, ge=0, description="seconds between the end of pod A and the start of pod B")
    readiness_gate: bool = Field(False, description="whether pod B is ready only when the switch's entry is right")
    retry_for: float = Field(0.0, ge=0, description="seconds for which the client tries again; 0: it tries once")
    retry_every: float = Field(300.0, gt=0, description="longest pause between tries in seconds, doubled from 10 on")
    timeout: int = Field(14, ge=1, le=31, description="the QP's ACK timeout, 4.096 us * 2^timeout")
    retry_cnt: int = Field(3, ge=0, le=6, description="the QP's retries; 7 would be infinite on soft-RoCE")


class IpReuse(Scenario[Settings]):
    """A pod gets the IP of a deleted one, and the switch keeps the old MAC.

    Pod A serves RDMA on node1. It is deleted, and pod B on node2 gets its address. The leaf's ARP entry lives for 25
    minutes or four hours, whatever happens to the pod. As long as B sends no ARP, the leaf sends every frame for the
    address to A's MAC: A's old port drops it, or the leaf floods it in the VLAN. The client gets RETRY_EXC_ERR, or in
    NCCL "transport retry counter exceeded"; ping from the client fails as well.

    The pods get their interface and address from the CNI reference plugins (Debian's 1.1.1), their RDMA device from
    ours. The plugin decides whether B sends ARP. host-device, which assigns virtual functions, announces nothing.
    macvlan sets arp_notify, and the kernel announces the address when the link comes up. bridge does so too, but the
    announcement leaves the pod before the bridge's port forwards, and is lost. After that B is silent if it has a
    static gateway entry, as some CNIs install, or if the first packet has to come from the client, as in rdma_cm.

    On real gear: `show ip arp` for the address has the deleted pod's MAC, with an age from before pod B. `show mac
    address-table address` has nothing for that MAC, or its node's port. `arping -U` from inside pod B ends the outage.

    The fixes: B announces itself and the switch accepts it; the address is not reused until the entry is gone; B is
    ready only when the switch has its entry; or waiting.
    """

    tags = ("arp", "kubernetes", "switch")
    profile_values = ("arp_age",)
    compared = "aging-4h"
    variants = (
        Variant("as-is", "fault", "pod B, on a VF by host-device, is silent; the switch keeps pod A's MAC"),
        Variant("arp-notify", "healthy", "macvlan has the kernel announce pod B", {"network": "macvlan"}),
        Variant("garp-too-early", "fault", "bridge does so before its port forwards: lost", {"network": "bridge"}),
        Variant("garp", "healthy", "a gratuitous ARP is sent for pod B once it is up", {"announce": True}),
        Variant("garp-ignored", "fault", "the switch ignores it", {"announce": True, "profile": "ignore-garp-strict"}),
        Variant("gateway-arp", "healthy", "the switch learns from pod B's ARP request", {"gateway_by_arp": True}),
        Variant("aging", "healthy", "the client tries until the entry has aged out", {"retry_for": 3600}),
        Variant("aging-4h", "healthy", "the same with Arista's 4 hours", {"retry_for": 18000, "profile": "arista-eos"}),
        Variant("cool-down", "healthy", "the address rests until the entry has aged out", {"reuse_after": 1600}),
        Variant("readiness-gate", "healthy", "pod B waits until the switch's entry is right", {"readiness_gate": True}),
    )

    def run(self, run: Run, p: Settings) -> None:
        leaf, client = run.lab.switch("leaf"), run.lab.host("client")["eth1"]
        attributes = Attributes(timeout=p.timeout, retry_cnt=p.retry_cnt)
        captures = {port: leaf[port].capture("udp port 4791 or arp") for port in ("e2", "e3")}
        for name in "node1", "node2":
            prepare(run.lab.host(name), p.network)

        with run.step("pod A on node1 serves RDMA at the address"):
            pod_a = start_pod(run, "pod-a", "node1", p, static_gateway=False)
            a = pod_a["eth0"]
            ip = a.address().ip
            run.expect("the client reaches pod A", run.write(client, a, attributes), "SUCCESS")
            run.expect("the switch has pod A's MAC", leaf.neighbour(ip), a.mac)

        with run.step("pod A is deleted"):
            pod_a.delete()
            run.sleep(p.reuse_after, "the address rests")

        with run.step("pod B on node2 gets the address"):
            starts = time.time_ns()
            pod_b = start_pod(run, "pod-b", "node2", p, static_gateway=not p.gateway_by_arp)
            b = pod_b["eth0"]
            sent, started = b.counters()["tx_packets"], time.time_ns()
            run.expect("it has pod A's address", b.address().ip, ip)
            if p.announce:
                b.announce()
            if p.readiness_gate:
                # An answer to ping is sent to the MAC in the switch's ARP entry: it comes back if the entry is right.
                gateway = pod_b.host["eth1"].gateway()
                run.expect("the first ping of the gateway gets no answer", pod_b.ping(gateway, within=1), False)
                run.wait_for_gateway(b, gateway, announce=True)

        with run.step("the client connects to the address"):
            since, before = time.time_ns(), client.rdma_counters()["completer_retry_err"]
            statuses = run.tries(lambda: run.write(client, b, attributes), p.retry_for, 10, p.retry_every)
            retries = client.rdma_counters()["completer_retry_err"] - before

        arrived = sum(frame.src == b.mac and starts <= frame.t_ns <= started for frame in captures["e3"].frames())
        run.expect("packets of the starting pod, and on the wire", (sent, arrived), ANNOUNCEMENTS[p.network])
        to_dead_mac = {port: sum(f.t_ns > since for f in c.roce(to=a.mac)) for port, c in captures.items()}
        known = owner_of(leaf.neighbour(ip), a, b)
        announced = "yes" if arrived else "too early" if sent else "no"
        run.note(completion=statuses[-1], switch_arp=known, announced_by_plugin=announced)
        reached = run.observe_status(statuses[-1], f"the client reaches pod B, at try {len(statuses)}")
        run.expect("the switch has the MAC of", known, "pod-b's MAC" if reached else "pod-a's MAC")
        if reached:
            if p.retry_for:
                self.expect_ageing(run, a, p, len(statuses))
            return
        where = ", ".join(f"{count} on {port}" for port, count in to_dead_mac.items() if count)
        run.note(retries=retries, frames_to_dead_mac=where)
        if p.announce:
            ignored = [event["data"]["reason"] for event in run.events("arp.ignored", mac=b.mac)]
            run.expect("the switch heard the announcement", ignored, ["garp-changes-nothing"])
        run.expect("the client's NIC retried as often as it may", retries, p.retry_cnt)
        run.expect("its frames went to pod A's MAC", sum(to_dead_mac.values()), lambda frames: frames > 0)

    def expect_ageing(self, run: Run, a: HostInterface, p: Settings, tries: int) -> None:
        """Expects that the client worked when the entry had aged out, to the second, and not before."""
        confirmed = [event["t"] for kind in ("arp.learned", "arp.confirmed") for event in run.events(kind, mac=a.mac)]
        aged = [event["t"] for event in run.events("arp.aged", mac=a.mac)]
        if not run.expect("the switch's entry aged out once", len(aged), 1):
            return
        life_s, profile_s = (aged[0] - max(confirmed)) / 1e9, self.profiles(p)["leaf"].arp_lifetime
        run.note(tries=tries, aged_after_s=round(life_s))
        run.expect("it did so when its profile says", life_s, lambda s: abs(s - profile_s) < 0.1)
        ends = [(event["t"], event["data"]["status"]) for event in run.events("completion")][-tries:]
        early = [status for t, status in ends if t < aged[0]]
        late = [status for t, status in ends if t > aged[0]]
        run.expect("no try worked before that", early, ["RETRY_EXC_ERR"] * (tries - 1))
        run.expect("the first try after that worked", late, ["SUCCESS"])


def prepare(node: Host, network: str) -> None:
    """Does what an administrator did before there were pods: a virtual function, or a bridge with the NIC in it."""
    if network == "vf":
        node.add_vf("eth1v0", "eth1")
    if network == "bridge":
        node.run("ip", "-b", "-", text="link add br0 type bridge\nlink set eth1 master br0\nlink set br0 up\n")


def start_pod(run: Run, name: str, node: str, p: Settings, *, static_gateway: bool) -> Pod:
    """A pod with the address; with a static gateway entry it has no reason to speak ARP."""
    pod = run.lab.pods.create(run.lab.host(node), name, [f"{p.network}.conflist"])
    if static_gateway:
        run.silence(pod["eth0"], pod.host["eth1"])
    return pod
