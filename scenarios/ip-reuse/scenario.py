"""See the docstring of IpReuse, or `testbed describe ip-reuse`."""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import IPv4Interface

from pydantic import Field

from testbed import Parameters, Run, Scenario, Variant
from testbed.lab import Host, Pod
from testbed.switch.profile import Profile, profile
from testbed.workload import Attributes, Completion, counters, endpoint

REUSED = IPv4Interface("10.0.20.100/24")
MESSAGE = b"gradient " * 64


class Settings(Parameters):
    profile: str = Field("cisco-nxos", description="ARP and FDB profile of the leaf switch")
    arp_age: float | None = Field(None, gt=0, description="ARP ageing of the leaf in seconds; empty: the profile's own")
    announce: bool = Field(False, description="whether pod B sends a gratuitous ARP when it starts")
    gateway_by_arp: bool = Field(False, description="whether pod B asks for its gateway by ARP; else the entry is static")
    reuse_after: float = Field(1.0, ge=0, description="seconds between the end of pod A and the start of pod B")
    readiness_gate: bool = Field(False, description="whether pod B counts as ready only when the switch's entry is right")
    retry_for: float = Field(0.0, ge=0, description="seconds for which the client tries again; 0: it tries once")
    retry_every: float = Field(300.0, gt=0, description="longest pause between tries in seconds; it starts at 10 and doubles")
    timeout: int = Field(14, ge=1, le=31, description="the QP's ACK timeout, 4.096 us * 2^timeout")
    retry_cnt: int = Field(3, ge=0, le=6, description="the QP's retries; 7 would be infinite on soft-RoCE")


class IpReuse(Scenario):
    """
    A pod gets the IP address of a deleted one, and the switch still has the old pod's MAC.

    Pod A serves RDMA on node1. It is deleted, and pod B on node2 gets its address. The leaf's ARP entry lives for
    25 minutes or four hours, whatever happens to the pod. As long as B does not speak ARP, the leaf sends every frame
    for the address to A's MAC: the port where A was drops it, or the VLAN is flooded with it. The client sees
    RETRY_EXC_ERR, or in NCCL "transport retry counter exceeded"; ping from the client fails as well.

    B does not speak ARP when its CNI gives it a static gateway entry, when its announcement is lost or sent too early,
    and when the first packet has to come from the client, as in rdma_cm. Four cures: B announces itself and the switch
    listens; the address rests until the entry is gone; B is ready only when the switch knows it; or one waits.
    """

    title = "A pod gets the IP of a deleted one, the switch keeps the old MAC"
    tags = ("arp", "kubernetes", "switch")
    parameters = Settings
    variants = (
        Variant("as-is", "fault", "pod B is silent, the switch keeps pod A's MAC"),
        Variant("garp", "healthy", "pod B announces itself with a gratuitous ARP", {"announce": True}),
        Variant(
            "garp-ignored",
            "fault",
            "pod B announces itself, the switch ignores gratuitous ARP",
            {"announce": True, "profile": "ignore-garp-strict"},
        ),
        Variant("gateway-arp", "healthy", "pod B asks for its gateway, the switch learns from that", {"gateway_by_arp": True}),
        Variant("aging", "healthy", "the client tries until the entry has aged out (1500 s)", {"retry_for": 3600}),
        Variant(
            "aging-4h",
            "healthy",
            "the same with Arista's 4 hours",
            {"retry_for": 18000, "profile": "arista-eos"},
        ),
        Variant("cool-down", "healthy", "the address is not reused before the entry has aged out", {"reuse_after": 1600}),
        Variant(
            "readiness-gate",
            "healthy",
            "pod B is ready only when the switch's entry is right",
            {"readiness_gate": True},
        ),
    )

    def profiles(self, parameters: Settings) -> Mapping[str, Profile]:
        chosen = profile(parameters.profile)
        return {"leaf": chosen.replace(arp_age=parameters.arp_age) if parameters.arp_age else chosen}

    def run(self, run: Run, p: Settings) -> None:
        lab, leaf, client = run.lab, run.lab.switch("leaf"), run.lab.host("client")
        ip = str(REUSED.ip)
        port_of = {"node1": "e2", "node2": "e3"}
        for port in port_of.values():
            leaf.capture(port)

        with run.step("pod A serves RDMA on node1"):
            a = self.start_pod(run, "pod-a", on="node1", by_arp=True)
            first = self.exchange(run, client, a, p)
            run.expect("the client reaches pod A", first.status, "SUCCESS")
            run.expect("the switch has pod A's MAC", leaf.arp_table().get(ip), a.mac)
            learned = lab_time(run, ip)

        with run.step("pod A is deleted"):
            a.delete()
            run.sleep(p.reuse_after, "the address rests")

        with run.step("pod B on node2 gets the address"):
            b = self.start_pod(run, "pod-b", on="node2", by_arp=p.gateway_by_arp)
            if p.announce:
                b.announce(b.interface)
            if p.readiness_gate:
                self.gate(run, b)

        with run.step("the client connects to the address"):
            before = counters(client, "eth1")
            tried = run.log.now
            result = self.exchange(run, client, b, p)
            tries = 1
            pause = 10.0
            while result.status != "SUCCESS" and run.log.now - tried < p.retry_for * 1e9:
                run.sleep(pause, "the client waits before it tries again")
                result = self.exchange(run, client, b, p)
                tries += 1
                pause = min(2 * pause, p.retry_every)
            after = counters(client, "eth1")

        entry = leaf.arp_table().get(ip)
        run.note(completion=result.status, arp="pod A's MAC" if entry == a.mac else "pod B's MAC" if entry == b.mac else str(entry))
        if result.status == "SUCCESS":
            run.observe("healthy", f"the client works with pod B at try {tries}")
            run.expect("the switch has pod B's MAC", entry, b.mac)
        else:
            run.observe("fault", f"the client's connection dies of {result.status}")
            retries = after["completer_retry_err"] - before["completer_retry_err"]
            run.note(retries=retries)
            run.expect("it dies of unanswered retries", result.status, "RETRY_EXC_ERR")
            run.expect("the switch still has pod A's MAC", entry, a.mac)
            run.expect("the retry counter grew by the QP's retries", retries, p.retry_cnt)


def lab_time(run: Run, ip: str) -> int:
    return run.log.find("arp.learned", ip=ip)[-1]["t"]
