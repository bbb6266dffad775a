"""See the docstring of IpReuse, or `testbed describe ip-reuse`."""

from __future__ import annotations

import time
from collections.abc import Mapping
from ipaddress import IPv4Address
from typing import Literal

from pydantic import Field

from testbed import Parameters, Run, Scenario, Variant
from testbed.lab import Host, Pod, Switch
from testbed.lab.capture import Capture
from testbed.switch.profile import Profile, ProfileName, profile
from testbed.workload.attributes import Attributes
from testbed.workload.counters import counters
from testbed.workload.verbs import Completion, connect_pair

ADDRESS = IPv4Address("10.0.20.100")
"""The only one that the conflists have, on each node."""
ETH0 = "eth0"
ANNOUNCEMENTS = {"vf": (0, 0), "macvlan": (1, 1), "bridge": (1, 0)}
"""ARP packets that a starting pod sends, and those of them that reach the switch, by its network. Measured."""
MESSAGE = 4096
"""Bytes of the RDMA WRITE, four packets."""
FIRST_PAUSE_S = 10.0
READY_S = 30.0


class Settings(Parameters):
    profile: ProfileName = Field("cisco-nxos", description="ARP and FDB profile of the leaf switch")
    arp_age: float | None = Field(None, gt=0, description="ARP ageing of the leaf in seconds; empty: the profile's own")
    network: Literal["vf", "macvlan", "bridge"] = Field(
        "vf", description="the pods' network: vf.conflist, macvlan.conflist or bridge.conflist"
    )
    announce: bool = Field(False, description="whether pod B is announced by a gratuitous ARP once it is up")
    gateway_by_arp: bool = Field(
        False, description="whether pod B asks for its gateway by ARP; else the entry is static"
    )
    reuse_after: float = Field(1.0, ge=0, description="seconds between the end of pod A and the start of pod B")
    readiness_gate: bool = Field(
        False, description="whether pod B counts as ready only when the switch's entry is right"
    )
    retry_for: float = Field(0.0, ge=0, description="seconds for which the client tries again; 0: it tries once")
    retry_every: float = Field(
        300.0, gt=0, description="longest pause between tries in seconds; it starts at 10 and doubles"
    )
    timeout: int = Field(14, ge=1, le=31, description="the QP's ACK timeout, 4.096 us * 2^timeout")
    retry_cnt: int = Field(3, ge=0, le=6, description="the QP's retries; 7 would be infinite on soft-RoCE")


class IpReuse(Scenario):
    """
    A pod gets the IP address of a deleted one, and the switch still has the old pod's MAC.

    Pod A serves RDMA on node1. It is deleted, and pod B on node2 gets its address. The leaf's ARP entry lives for
    25 minutes or four hours, whatever happens to the pod. As long as B does not speak ARP, the leaf sends every frame
    for the address to A's MAC: the port where A was drops it, or the VLAN is flooded with it. The client sees
    RETRY_EXC_ERR, or in NCCL "transport retry counter exceeded"; ping from the client fails as well.

    The pods get their interface and address from the CNI reference plugins (Debian's 1.1.1), their RDMA device from
    ours. Whether B speaks ARP is a matter of the plugin. host-device, which hands out virtual functions, announces
    nothing. macvlan sets arp_notify, and the kernel announces the address when the link comes up. bridge does so too,
    but the announcement leaves the pod before the port of the bridge forwards, and is lost. After that B is silent when
    it has a static gateway entry, as some CNIs install, or when the first packet has to come from the client, as in
    rdma_cm.

    On real gear: `show ip arp` for the address has the deleted pod's MAC, with an age from before pod B; `show mac
    address-table address` has nothing for that MAC, or its node's port; `arping -U` from inside pod B ends it.

    The cures: B announces itself and the switch listens; the address rests until the entry is gone; B is ready only
    when the switch knows it; or one waits.
    """

    title = "A pod gets the IP of a deleted one, the switch keeps the old MAC"
    tags = ("arp", "kubernetes", "switch")
    parameters = Settings
    variants = (
        Variant("as-is", "fault", "pod B, on a VF by host-device, is silent; the switch keeps pod A's MAC"),
        Variant("arp-notify", "healthy", "macvlan has the kernel announce pod B", {"network": "macvlan"}),
        Variant(
            "garp-too-early",
            "fault",
            "bridge has it announced, too: before its port forwards, so it is lost",
            {"network": "bridge"},
        ),
        Variant("garp", "healthy", "a gratuitous ARP is sent for pod B once it is up", {"announce": True}),
        Variant(
            "garp-ignored",
            "fault",
            "the same, but the switch ignores gratuitous ARP",
            {"announce": True, "profile": "ignore-garp-strict"},
        ),
        Variant(
            "gateway-arp",
            "healthy",
            "pod B asks for its gateway, the switch learns from that",
            {"gateway_by_arp": True},
        ),
        Variant("aging", "healthy", "the client tries until the entry has aged out (1500 s)", {"retry_for": 3600}),
        Variant(
            "aging-4h",
            "healthy",
            "the same with Arista's 4 hours",
            {"retry_for": 18000, "profile": "arista-eos"},
        ),
        Variant(
            "cool-down", "healthy", "the address is not reused before the entry has aged out", {"reuse_after": 1600}
        ),
        Variant(
            "readiness-gate",
            "healthy",
            "pod B is ready only when the switch's entry is right",
            {"readiness_gate": True},
        ),
    )

    compared = "aging-4h"

    def profiles(self, parameters: Settings) -> Mapping[str, Profile]:
        chosen = profile(parameters.profile)
        return {"leaf": chosen.replace(arp_age=parameters.arp_age) if parameters.arp_age else chosen}

    def run(self, run: Run, p: Settings) -> None:
        leaf, client = run.lab.switch("leaf"), run.lab.host("client")
        attributes = Attributes(timeout=p.timeout, retry_cnt=p.retry_cnt)
        captures = {port: leaf.capture(port, "udp port 4791 or arp") for port in ("e2", "e3")}

        for node in "node1", "node2":
            prepare(run.lab.host(node), p.network)

        with run.step("pod A on node1 serves RDMA at the address"):
            a = start_pod(run, "pod-a", "node1", p, static_gateway=False)
            first = write(run, client, a, attributes)
            run.expect("the client reaches pod A", first.status, "SUCCESS")
            run.expect("the switch has pod A's MAC", entry(leaf), mac(a))

        with run.step("pod A is deleted"):
            a.delete()
            run.sleep(p.reuse_after, "the address rests")

        with run.step("pod B on node2 gets the address"):
            starts = time.time_ns()
            b = start_pod(run, "pod-b", "node2", p, static_gateway=not p.gateway_by_arp)
            sent, started = b.statistics(ETH0)["tx_packets"], time.time_ns()
            if p.announce:
                b.announce(ETH0)
            if p.readiness_gate:
                wait_until_ready(run, b)

        with run.step("the client connects to the address"):
            since = time.time_ns()
            before = counters(client.rdma["eth1"], client.namespace)
            result, tries = connect_until(run, client, b, attributes, p)
            after = counters(client.rdma["eth1"], client.namespace)

        for capture in captures.values():
            capture.stop()
        arrived = sum(frame.src == mac(b) and starts <= frame.t_ns <= started for frame in captures["e3"].frames())
        run.expect("packets of the starting pod, and on the wire", (sent, arrived), ANNOUNCEMENTS[p.network])
        to_dead_mac = {port: frames_to(mac(a), capture, since) for port, capture in captures.items()}
        known = {mac(a): "pod A's MAC", mac(b): "pod B's MAC"}.get(entry(leaf) or "", "no entry")
        announced = "yes" if arrived else "too early" if sent else "no"
        run.note(completion=result.status, switch_arp=known, announced_by_plugin=announced)
        if result.status == "SUCCESS":
            run.observe("healthy", f"the client reaches pod B, at try {tries}")
            run.expect("the switch has pod B's MAC", entry(leaf), mac(b))
            if p.retry_for:
                self.expect_ageing(run, a, p, tries)
        else:
            run.observe("fault", f"the client's work request dies of {result.status}")
            retries = after["completer_retry_err"] - before["completer_retry_err"]
            where = ", ".join(f"{count} on {port}" for port, count in to_dead_mac.items() if count)
            run.note(retries=retries, frames_to_dead_mac=where)
            run.expect("it dies of unanswered retries", result.status, "RETRY_EXC_ERR")
            run.expect("the switch still has pod A's MAC", entry(leaf), mac(a))
            if p.announce:
                run.lab.drain()
                ignored = [event["data"]["reason"] for event in run.log.find("arp.ignored", mac=mac(b))]
                run.expect("the switch heard the announcement", ignored, ["garp-changes-nothing"])
            run.expect("the client's NIC retried as often as it may", retries, p.retry_cnt)
            run.expect("its frames went to pod A's MAC", sum(to_dead_mac.values()), lambda frames: frames > 0)

    def expect_ageing(self, run: Run, a: Pod, p: Settings, tries: int) -> None:
        """The client worked when the entry had aged out, to the second, and not before."""
        confirmed = max(e["t"] for kind in ("arp.learned", "arp.confirmed") for e in run.log.find(kind, mac=mac(a)))
        aged = [e["t"] for e in run.log.find("arp.aged", mac=mac(a))]
        if not run.expect("the switch's entry aged out once", len(aged), 1):
            return
        life_s = (aged[0] - confirmed) / 1e9
        profile_s = self.profiles(p)["leaf"].arp_lifetime
        run.note(tries=tries, aged_after_s=round(life_s))
        run.expect("it did so when its profile says", life_s, lambda s: abs(s - profile_s) < 0.1)
        results = [(e["t"], e["data"]["status"]) for e in run.log.find("completion")][-tries:]
        early = [status for t, status in results if t < aged[0]]
        late = [status for t, status in results if t > aged[0]]
        run.expect("no try worked before that", early, ["RETRY_EXC_ERR"] * (tries - 1))
        run.expect("the first try after that worked", late, ["SUCCESS"])


def prepare(node: Host, network: str) -> None:
    """What an administrator did before there were pods: virtual functions, or a bridge with the card in it."""
    if network == "vf":
        node.add_vf("eth1v0", "eth1")
    if network == "bridge":
        node.run("ip", "link", "add", "br0", "type", "bridge")
        node.run("ip", "link", "set", "eth1", "master", "br0")
        node.run("ip", "link", "set", "br0", "up")


def start_pod(run: Run, name: str, node: str, p: Settings, *, static_gateway: bool) -> Pod:
    """A pod with the address; with a static gateway entry it has no reason to speak ARP."""
    pod = run.lab.host(node).pod(name, [f"{p.network}.conflist"])
    if static_gateway:
        pod.set_neighbour(ETH0, pod.host.gateway("eth1"), run.lab.plan.nodes["leaf"].svis[0].mac)
    return pod


def mac(pod: Pod) -> str:
    return pod.macs[ETH0]


def write(run: Run, client: Host, pod: Pod, attributes: Attributes) -> Completion:
    """A new connection from the client to the pod, one RDMA WRITE over it; checks that the bytes arrived."""
    with run.endpoint(client, "eth1") as near, run.endpoint(pod, ETH0) as far:
        connect_pair(near, far, attributes)
        result = run.completed(client, near.write(MESSAGE, within=60))
        if result.ok:
            run.expect("the bytes arrived", far.load(0, MESSAGE) == near.load(0, MESSAGE), True)
        return result


def connect_until(run: Run, client: Host, pod: Pod, attributes: Attributes, p: Settings) -> tuple[Completion, int]:
    """Tries, and tries again with a growing pause as a restarting container does; the last result and the tries."""
    started = run.log.now
    tries, pause = 0, FIRST_PAUSE_S
    while True:
        result = write(run, client, pod, attributes)
        tries += 1
        if result.ok or run.log.now - started >= p.retry_for * 1e9:
            return result, tries
        run.sleep(pause, "the client waits before it tries again")
        pause = min(2 * pause, p.retry_every)


def wait_until_ready(run: Run, pod: Pod) -> None:
    """The readiness gate: the pod is ready when its gateway's answer reaches it; until then it announces itself.

    An answer to ping is sent to the MAC in the switch's ARP entry, so it comes back exactly if the entry is right.
    """
    gateway = str(pod.host.gateway("eth1"))

    def answered() -> bool:
        if pod.ping(gateway, within=1.0):
            return True
        pod.announce(ETH0)
        return False

    run.expect("the first ping of the gateway gets no answer", answered(), False)
    run.eventually("the gate opens", answered, True, within=READY_S)


def entry(leaf: Switch) -> str | None:
    """The MAC that the switch has for the address."""
    return leaf.arp_table().get(str(ADDRESS))


def frames_to(mac: str, capture: Capture, since: int) -> int:
    """RoCE frames to a MAC on a captured port; `since` in ns of CLOCK_REALTIME."""
    return sum(frame.roce and frame.dst == mac and frame.t_ns > since for frame in capture.frames())
