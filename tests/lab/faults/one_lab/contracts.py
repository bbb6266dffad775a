"""The symptom that each fault must cause, and traffic that must not feel it: `make examples` makes a table of it.

A probe returns the same before the fault and after it. While the fault lasts `feels` returns `broken`, or what `broken`
holds for, and `spared` what it did before.
"""

from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from typing import Any

from probes import (
    CNP,
    address,
    advertised,
    answers,
    arrive,
    arriving,
    classes,
    delivered,
    heard,
    held_up,
    intact,
    keeps_neighbour,
    learned,
    marked,
    nic,
    numbered,
    owners,
    passes,
    pauses,
    rank_runs,
    remembered,
    roce_marks,
    stops,
    stormed,
    synchronised,
)

from testbed.faults import (
    ArpAgeing,
    ArpCapacity,
    ArpCpuDelay,
    ArpCpuLimit,
    ArpDrop,
    ArpEntryCorrupt,
    ArpFlux,
    ArpPoison,
    ArpStorm,
    BackgroundFlow,
    BufferCarving,
    CnpDrop,
    DscpMismatch,
    DuplicateIp,
    DuplicateMac,
    EcmpCollision,
    EcmpSeedShared,
    EcnOff,
    ExactPacket,
    Fault,
    FdbFlush,
    FdbWrongPort,
    HashWrong,
    HeadroomTooSmall,
    HostCrash,
    Incast,
    LacpLost,
    LinkCorrupt,
    LinkDelay,
    LinkDown,
    LinkDuplicate,
    LinkFlap,
    LinkLoss,
    LinkMtu,
    LinkRate,
    LinkReorder,
    MacAgeing,
    MacCapacity,
    MemberMoved,
    MissingRoute,
    MlagSyncLate,
    MlagSyncLost,
    NeighbourTableFull,
    NicDown,
    PauseIgnored,
    PauseNotSent,
    PauseStorm,
    ProxyArp,
    QueueTooSmall,
    RankKilled,
    SlowReceiver,
    StrictRpFilter,
    SwitchCpuOutage,
    SwitchReboot,
    VrrpLost,
    WrongGateway,
    WrongMask,
)
from testbed.lab import Lab
from testbed.topology import Family

TOPOLOGY = """
name: faults
topology:
  lossless: {dscp: 26, priority: 3}
  kinds:
    switch: {profile: cisco-nxos}
  nodes:
    leaf:
      kind: switch
      vlans:
        10: [10.0.10.1/24, "2001:db8:10::1/64"]
        20: [10.0.20.1/24, "2001:db8:20::1/64"]
        1001: 10.255.0.0/31
        1002: 10.255.0.2/31
      routes:
        - {to: 10.0.30.0/24, via: [10.255.0.1, 10.255.0.3]}
        - {to: 10.0.99.0/24, via: [10.255.0.1, 10.255.0.3]}
    far:
      kind: switch
      vlans: {30: 10.0.30.1/24, 31: , 1001: 10.255.0.1/31, 1002: 10.255.0.3/31}
      bonds: {po1: {members: [e4, e5], lacp_rate: fast}, po2: {members: [e6], mode: balance-xor}}
      routes: [{to: default, via: [10.255.0.0, 10.255.0.2]}]
    a: {kind: host}
    b: {kind: host}
    c: {kind: host}
    twin: {kind: host, rdma: false, exec: ["sysctl -w net.ipv4.conf.all.arp_ignore=1"]}
    d: {kind: host}
    m: {kind: host, bonds: {bond0: {members: [eth1, eth2], lacp_rate: fast}}}
    bridge: {kind: switch, profile_values: {ecn_min: 5000, ecn_max: 30000}}
    p: {kind: host, nic: hardware}
    q: {kind: host, nic: hardware}
    t1: &pair {kind: switch, vlans: {40: null}, mlag: {peer_link: p, system: "44:38:39:be:ef:aa"}}
    t2: *pair
    x: {kind: host, rdma: false}
  links:
    - {endpoints: ["leaf:e1", "a:eth1"], vlan: 10, lossless: false}
    - {endpoints: ["leaf:e2", "b:eth1"], vlan: 20, lossless: false}
    - {endpoints: ["leaf:e3", "c:eth1"], vlan: 20, rate: 20mbit, lossless: false}
    - {endpoints: ["leaf:e6", "twin:eth1"], vlan: 20, lossless: false}
    - {endpoints: ["leaf:e7", "twin:eth2"], vlan: 20, lossless: false}
    - {endpoints: ["leaf:e4", "far:e1"], vlan: 1001, rate: 20mbit, lossless: false}
    - {endpoints: ["leaf:e5", "far:e2"], vlan: 1002, lossless: false}
    - {endpoints: ["far:e3", "d:eth1"], vlan: 30, lossless: false}
    - {endpoints: ["far:e4", "m:eth1"], vlan: 30, lossless: false}
    - {endpoints: ["far:e5", "m:eth2"], vlan: 30, lossless: false}
    - {endpoints: ["far:e6", "m:eth3"], vlan: 31, lossless: false, rdma: false}
    - {endpoints: ["bridge:e1", "d:eth2"], lossless: false}
    - {endpoints: ["bridge:e2", "p:eth1"], rate: 20mbit}
    - {endpoints: ["bridge:e3", "q:eth1"], rate: 20mbit}
    - {endpoints: ["t1:p", "t2:p"], trunk: [40], lossless: false}
    - {endpoints: ["t1:e1", "x:eth1"], vlan: 40, lossless: false}
"""
B, B6, C, TWIN2 = IPv4Address("10.0.20.2"), IPv6Address("2001:db8:20::2"), IPv4Address("10.0.20.3"), "twin:eth2"
GATEWAY = IPv4Address("10.0.20.1")
MBIT = 1_000_000
Probe = Callable[[Lab], Any]
TEN = list(range(10))
FORTY = list(range(40))
IN_ORDER = [str(psn) for psn in TEN]
SPOKEN = {"request", "reply", "announcement"}


@dataclass(frozen=True)
class Contract:
    """`symptom` is for people; after its recovery the network may take `heals` virtual seconds."""

    fault: Fault
    symptom: str
    feels: Probe
    broken: Any
    spared: Probe
    heals: float = 0.0

    def __str__(self) -> str:
        return str(self.fault)

    def holds_for(self, found: Any) -> bool:
        return bool(self.broken(found)) if callable(self.broken) else bool(found == self.broken)


def pings(source: str, to: str, family: Family = 4) -> Probe:
    return lambda lab: answers(lab, source, address(lab, to, family))


def comes_in_by_its_nic(lab: Lab) -> bool:
    """Whether a NIC answers a ping that the switch sends there, whichever of the host's NICs answered ARP."""
    lab.switch("leaf").clear_arp(ip=address(lab, TWIN2))
    answers(lab, "a", address(lab, TWIN2))
    lab.interface(TWIN2).announce()
    return answers(lab, "a", address(lab, TWIN2))


def frames(source: str, to: str, size: int = 60, **options: Any) -> Probe:
    """Of ten frames, unless `options` say otherwise, the numbers of those that arrive."""
    return lambda lab: numbered(lab, source, to, size=size, **options)


def both_ways(one: str, other: str, size: int) -> Probe:
    return lambda lab: [passes(lab, one, other, size), passes(lab, other, one, size)]


def resolves(asker: str, ip: IPv4Address | IPv6Address, within: float = 0.05) -> Probe:
    """The MACs that answer for an address."""
    return lambda lab: owners(lab, asker, ip, within)


def flaps(lab: Lab) -> list[bool]:
    """Whether a frame gets through at once, 1.5 s later, and another 2 s later."""
    found = [passes(lab, "b", "c")]
    for pause in 1.45, 1.95:
        lab.scheduler.sleep(pause)
        found.append(passes(lab, "b", "c"))
    return found


def spoken(source: str, at: str, family: Family = 4) -> Probe:
    return lambda lab: heard(lab, source, at, family)


def flooded(lab: Lab) -> bool:
    """Whether what is for b comes to c as well."""
    return numbered(lab, "twin", "b", at="c") != []


def resolves_anew(lab: Lab, near: str, to: str) -> list[bool]:
    """Whether a host finds the MACs of its gateway and then of a neighbour, none of which it knows."""
    lab[near].run("ip", "neigh", "flush", "dev", "eth1")
    return [answers(lab, near, GATEWAY), answers(lab, near, address(lab, to))]


def asked_directly(lab: Lab) -> bool:
    """Whether b asks for the MAC of the twin's second NIC, which is in its subnet, and not for its gateway's."""
    lab["b"].run("ip", "neigh", "flush", "dev", "eth1")
    answers(lab, "b", address(lab, TWIN2))
    return nic(lab, "b").neighbour(address(lab, TWIN2)) is not None


def delivered_requests(lab: Lab, port: str) -> int:
    """How many multicast frames a switch sends by a port in a tenth of a second, as the host there hears them."""
    name = {"leaf:e1": "a", "leaf:e2": "b"}[port]
    return sum(1 for data in delivered(lab, [], nic(lab, name), 0.1) if data[:2] == b"\x33\x33")


def carrying(lab: Lab) -> list[str]:
    """The members of m's bond that carry traffic, once LACP had the time to see that a partner is silent: three seconds
    until its state is expired, three more until it is defaulted, which the partner is told."""
    lab.scheduler.sleep(10)
    bond = lab["m"]["bond0"]
    return [link.name for link in lab["m"].now().links.values() if link.master == bond.index and link.active]


SIXTEEN_FLOWS = """\
import socket, sys
for port in range(50001, 50017):
    with socket.socket(type=socket.SOCK_DGRAM) as flow:
        flow.bind(("", port))
        flow.sendto(b"x", (sys.argv[1], 4791))
"""
"""From ports that are given: of ports that the kernel draws, all but two may take one member."""


def spreads(lab: Lab) -> int:
    """The number of members by which a switch sends 16 flows between two hosts."""
    bond, d = nic(lab, "m:bond0"), nic(lab, "d")
    before = [lab["far"][name].counters()["tx_packets"] for name in ("e4", "e5")]
    d.node.run("python3", "-c", SIXTEEN_FLOWS, str(bond.address().ip))
    after = [lab["far"][name].counters()["tx_packets"] for name in ("e4", "e5")]
    return sum(now - then >= 3 for now, then in zip(after, before, strict=True))


def chosen_alike(lab: Lab) -> int:
    """Of 32 flows those for which two switches choose the same one of two next hops."""
    flows = [(address(lab, "a"), "10.0.99.1", port) for port in range(50000, 50032)]
    near, far = (lab.switch(name).egress_ports(flows) for name in ("leaf", "far"))
    return sum({"e4": "e1", "e5": "e2"}[one] == other for one, other in zip(near, far, strict=True))


RDMA_ENDS = ("b:eth1", "twin:eth1")
CONTRACTS = [
    # Links
    Contract(
        LinkDown(end="leaf:e2"),
        "nothing passes, in both directions",
        both_ways("b", "c", 60),
        [False, False],
        frames("c", "twin"),
        1,
    ),
    Contract(
        LinkFlap(end="leaf:e2", down=1, up=2),
        "nothing passes for a while, again and again",
        flaps,
        [False, True, False],
        frames("c", "twin"),
        1,
    ),
    Contract(
        LacpLost(end="far:e4"),
        "a member is out of its bond, with its carrier up",
        carrying,
        ["eth2"],
        pings("d", "m:bond0"),
        6,
    ),
    Contract(
        MemberMoved(end="far:e4", to="po2"),
        "a member is out of its bond, with its carrier up",
        carrying,
        ["eth2"],
        pings("a", "d"),
        6,
    ),
    Contract(HashWrong(end="far:po1", hash="layer2"), "all flows take one member", spreads, 1, pings("d", "m:bond0")),
    Contract(
        EcmpSeedShared(switch="far", like="leaf"),
        "flows that one switch sent by one path take one path at the next one, too",
        chosen_alike,
        32,
        pings("a", "d"),
    ),
    Contract(
        LinkLoss(end="leaf:e2", loss=100), "packets are lost in one direction", frames("c", "b"), [], frames("b", "c")
    ),
    Contract(
        LinkLoss(end="b:eth1", loss=50, loss_burst=5),
        "packets are lost in one direction",
        frames("b", "c", count=50),
        lambda found: 5 < len(found) < 45,
        frames("c", "b"),
    ),
    Contract(
        LinkDelay(end="b:eth1", delay=0.1),
        "packets are late in one direction",
        frames("b", "c"),
        [],
        frames("c", "b"),
        1,
    ),
    Contract(
        LinkDelay(end="leaf:e2", delay=0.01, jitter=0.005),
        "packets are late in one direction",
        frames("c", "b", within=0.004),
        lambda found: len(found) < 5,
        frames("b", "c"),
        1,
    ),
    Contract(
        LinkRate(end="leaf:e2", rate=100_000, queue=64),
        "packets wait, then the queue overflows",
        frames("c", "b", size=1400),
        lambda found: len(found) < 5,
        frames("b", "c", size=1400),
        2,
    ),
    Contract(
        QueueTooSmall(end="leaf:e3", queue=3),
        "of a burst all but the first packets are lost",
        frames("b", "c", size=1400),
        lambda found: 1 < len(found) < 9,
        frames("c", "b", size=1400),
    ),
    Contract(
        LinkDuplicate(end="leaf:e2", duplicate=100),
        "packets arrive twice in one direction",
        frames("c", "b"),
        sorted([*TEN, *TEN]),
        frames("b", "c"),
    ),
    Contract(
        LinkReorder(end="leaf:e2", reorder=50, delay=1e-2),
        "packets overtake others in one direction",
        frames("c", "b", count=40),  # of ten, one draw in a hundred is in order
        lambda found: found != FORTY and sorted(found) == FORTY,
        frames("b", "c"),
    ),
    Contract(
        LinkCorrupt(end="b:eth1", corrupt=100),
        "packets arrive with a wrong bit",
        lambda lab: intact(lab, "b", "c"),
        False,
        lambda lab: intact(lab, "c", "b"),
    ),
    Contract(
        LinkMtu(end="leaf:e2", mtu=600),
        "large packets vanish in both directions, small ones pass",
        both_ways("b", "c", 615),
        [False, False],
        both_ways("b", "c", 614),
    ),
    Contract(NicDown(end="b:eth1"), "a host has no network", pings("b", "c"), False, pings("c", "twin"), 5),
    # Exact packets
    Contract(
        ExactPacket(end="b:eth1", action="drop", psn=7),
        "chosen RoCE packets are lost, late, marked or damaged",
        lambda lab: roce_marks(lab, "b", "c"),
        [one for one in IN_ORDER if one != "7"],
        lambda lab: roce_marks(lab, "c", "b"),
    ),
    Contract(
        ExactPacket(end="leaf:e2", action="drop", number=3, dest_qp=18),
        "",
        lambda lab: roce_marks(lab, "c", "b"),
        [one for one in IN_ORDER if one != "7"],
        lambda lab: roce_marks(lab, "b", "c"),
    ),
    Contract(
        ExactPacket(end="b:eth1", action="corrupt", opcode="WRITE_ONLY", dest_qp=17),
        "",
        lambda lab: roce_marks(lab, "b", "c"),
        [one + " damaged" if one in ("0", "2", "4") else one for one in IN_ORDER],
        lambda lab: roce_marks(lab, "c", "b"),
    ),
    Contract(
        ExactPacket(end="leaf:e2", action="mark-ce", number=3),
        "",
        lambda lab: roce_marks(lab, "c", "b"),
        [one + " CE" if one == "2" else one for one in IN_ORDER],
        lambda lab: roce_marks(lab, "c", "b", 6),
    ),
    Contract(
        ExactPacket(end="leaf:e2", action="mark-ce", number=3, family=6),
        "",
        lambda lab: roce_marks(lab, "c", "b", 6),
        [one + " CE" if one == "2" else one for one in IN_ORDER],
        lambda lab: roce_marks(lab, "c", "b"),
    ),
    Contract(
        ExactPacket(end="leaf:e2", action="delay", number=3, delay=1e-2),
        "",
        lambda lab: roce_marks(lab, "c", "b"),
        [*(one for one in IN_ORDER if one != "2"), "2"],
        lambda lab: roce_marks(lab, "b", "c"),
    ),
    # ARP and ND
    Contract(
        ArpDrop(end="b:eth1"),
        "ARP of one end of a link does not arrive",
        spoken("b", "c"),
        set(),
        lambda lab: [heard(lab, "c", "b"), heard(lab, "b", "c", 6)],
    ),
    Contract(ArpDrop(end="leaf:e2", operation="request"), "", spoken("c", "b"), {"reply"}, spoken("c", "b", 6)),
    Contract(ArpDrop(end="leaf:e2", operation="reply"), "", spoken("c", "b"), SPOKEN - {"reply"}, spoken("c", "b", 6)),
    Contract(
        ArpDrop(end="leaf:e2", operation="request", family=6),
        "",
        spoken("c", "b", 6),
        SPOKEN - {"request"},
        spoken("c", "b"),
    ),
    Contract(
        ArpDrop(end="leaf:e2", operation="reply", family=6), "", spoken("c", "b", 6), {"request"}, spoken("c", "b")
    ),
    Contract(ArpDrop(end="b:eth1", announced=B), "", spoken("b", "c"), SPOKEN - {"announcement"}, spoken("c", "b")),
    Contract(
        ArpDrop(end="b:eth1", announced=B6, family=6),
        "",
        spoken("b", "c", 6),
        SPOKEN - {"announcement"},
        spoken("b", "c"),
    ),
    Contract(
        VrrpLost(end="b:eth1"),
        "VRRP advertisements of one end of a link do not arrive",
        lambda lab: advertised(lab, "b", "c"),
        False,
        lambda lab: [advertised(lab, "c", "b"), advertised(lab, "b", "c", 6), heard(lab, "b", "c")],
    ),
    Contract(
        VrrpLost(end="leaf:e2", family=6),
        "",
        lambda lab: advertised(lab, "c", "b", 6),
        False,
        lambda lab: [advertised(lab, "c", "b"), advertised(lab, "b", "c", 6)],
    ),
    Contract(
        MlagSyncLost(switch="t1"),
        "a switch of a pair does not know what the other one has learned",
        synchronised,
        False,
        pings("a", "d"),
        2,
    ),
    Contract(
        MlagSyncLate(switch="t1", delay=5),
        "a switch of a pair learns late what the other one has learned",
        synchronised,
        False,
        pings("a", "d"),
        6,
    ),
    Contract(
        ArpPoison(host="c", ip=B, switch="leaf"),
        "packets for an address go to another host",
        pings("a", "b"),
        False,
        pings("a", "c"),
        5,
    ),
    Contract(ArpPoison(host="c", ip=B6, switch="leaf"), "", pings("a", "b", 6), False, pings("a", "c", 6), 5),
    Contract(
        ArpStorm(host="c", pps=500),
        "all hosts of a subnet, and its switches' CPUs, hear requests",
        lambda lab: stormed(lab, "c", "b"),
        True,
        lambda lab: stormed(lab, "c", "a"),
    ),
    Contract(
        ArpStorm(host="c", pps=1000, family=6),
        "",
        lambda lab: delivered_requests(lab, "leaf:e2") > 50,
        True,
        lambda lab: delivered_requests(lab, "leaf:e1") > 50,
    ),
    Contract(
        DuplicateIp(host="c", ip=B),
        "two hosts answer for an address",
        resolves("twin", B),
        lambda found: len(found) == 2,
        resolves("twin", GATEWAY),
    ),
    Contract(
        DuplicateIp(host="c", ip=B6), "", resolves("twin", B6), lambda found: len(found) == 2, resolves("twin", B)
    ),
    Contract(
        DuplicateMac(host="c", of="b", switch="leaf"),
        "frames for a host go to another port",
        frames("twin", "b"),
        [],
        frames("twin", "c"),
    ),
    Contract(
        DuplicateMac(host="c", of="b", switch="leaf", period=0.5), "", frames("twin", "b"), [], frames("twin", "c")
    ),
    Contract(
        ProxyArp(host="c", ip=B),
        "another host answers for an address",
        resolves("twin", B, 1.5),
        lambda found: len(found) == 2,
        resolves("twin", GATEWAY),
    ),
    # Switches
    Contract(
        ArpEntryCorrupt(switch="leaf", ip=B),
        "routed packets for an address are lost, and the switch's table is right",
        pings("a", "b"),
        False,
        lambda lab: [answers(lab, "a", C), lab.switch("leaf").neighbour(B)],
    ),
    Contract(
        ArpEntryCorrupt(switch="leaf", ip=B6),
        "",
        pings("a", "b", 6),
        False,
        lambda lab: [answers(lab, "a", C), lab.switch("leaf").neighbour(B6)],
    ),
    Contract(
        ArpAgeing(switch="leaf", arp_age=60),
        "the switch forgets who is silent before it should",
        lambda lab: keeps_neighbour(lab, 90),
        False,
        lambda lab: learned(lab, 90),
    ),
    Contract(
        ArpCapacity(switch="leaf", arp_cap=4),
        "new neighbours are not in the switch's table",
        remembered,
        lambda found: found < 8,
        learned,
    ),
    Contract(
        ArpCpuLimit(switch="leaf", arp_pps=3),
        "of a burst of ARP packets some are not handled",
        remembered,
        lambda found: found < 8,
        lambda lab: heard(lab, "c", "b"),
        2,
    ),
    Contract(
        ArpCpuDelay(switch="leaf", delay=0.5),
        "the switch answers ARP late",
        resolves("twin", GATEWAY, 0.3),
        set(),
        lambda lab: [owners(lab, "twin", B), passes(lab, "b", "c")],
        1,
    ),
    Contract(
        SwitchCpuOutage(switch="leaf"),
        "the switch does not answer ARP; it forwards",
        resolves("twin", GATEWAY),
        set(),
        lambda lab: [owners(lab, "twin", B), passes(lab, "b", "c"), answers(lab, "a", B)],
    ),
    Contract(
        SwitchReboot(switch="leaf"),
        "nothing passes, and the tables are lost",
        pings("b", "c"),
        False,
        lambda lab: passes(lab, "p", "q"),
        10,
    ),
    Contract(SwitchReboot(switch="leaf", warm=True), "", resolves("twin", GATEWAY), set(), frames("b", "c")),
    Contract(
        FdbFlush(switch="leaf", host="b"),
        "frames for a silent host are flooded",
        flooded,
        True,
        lambda lab: numbered(lab, "twin", "c", at="b"),
    ),
    Contract(
        FdbWrongPort(switch="leaf", host="b", port="e3"),
        "frames for a host are lost, whatever it sends",
        lambda lab: [passes(lab, "b", "c"), passes(lab, "twin", "b")],
        [True, False],
        frames("twin", "c"),
    ),
    Contract(
        MacAgeing(switch="leaf", mac_age=60),
        "frames for a host that is silent are flooded early",
        lambda lab: learned(lab, 90),
        0,
        lambda lab: keeps_neighbour(lab, 90),
    ),
    Contract(
        MacCapacity(switch="leaf", mac_cap=2),
        "frames for hosts that the table has no room for are flooded",
        learned,
        lambda found: found < 8,
        remembered,
    ),
    # Hosts
    Contract(
        HostCrash(host="c"),
        "a host answers no more, and what ran on it is gone",
        lambda lab: answers(lab, "b", C),
        False,
        pings("a", "b"),
        5,
    ),
    Contract(
        RankKilled(rank=3),
        "a rank of a job is gone, the others are not",
        lambda lab: rank_runs(lab, "b", 3),
        False,
        lambda lab: rank_runs(lab, "c", 33),
    ),
    Contract(
        WrongGateway(host="b", via="10.0.20.99"),
        "other subnets are not reached, one's own is",
        pings("b", "a"),
        False,
        pings("b", "c"),
    ),
    Contract(WrongGateway(host="b", via="2001:db8:20::99"), "", pings("b", "a", 6), False, pings("b", "a")),
    Contract(
        MissingRoute(host="b"),
        "other subnets are not reached, one's own is",
        pings("b", "a"),
        False,
        pings("b", "a", 6),
    ),
    Contract(MissingRoute(host="b", family=6), "", pings("b", "a", 6), False, pings("b", "a")),
    Contract(
        WrongMask(host="b", prefix=16),
        "a host asks for whom its gateway leads to, or the reverse",
        pings("b", "a"),
        False,
        pings("b", "c"),
    ),
    Contract(WrongMask(host="b", prefix=30), "", asked_directly, False, pings("b", "a"), 5),
    Contract(
        ArpFlux(host="twin"),
        "both NICs of a host answer for either address",
        lambda lab: owners(lab, "b", address(lab, "twin")),
        lambda found: len(found) == 2,
        resolves("b", C),
    ),
    Contract(
        StrictRpFilter(host="twin", interface="eth2"),
        "what comes in by a NIC that does not lead back is dropped",
        comes_in_by_its_nic,
        False,
        pings("a", "twin"),
    ),
    Contract(
        NeighbourTableFull(gc_thresh3=1),
        "hosts find the MAC of nobody new",
        lambda lab: resolves_anew(lab, "b", "c"),
        lambda found: not all(found),
        frames("b", "c"),
        30,
    ),
    # Traffic
    Contract(
        BackgroundFlow(source="c", target="b", rate=5 * MBIT),
        "the path of the flow is loaded",
        lambda lab: arriving(lab, RDMA_ENDS, 0.5),
        [True, False],
        pings("a", "twin"),
        5,
    ),
    Contract(
        BackgroundFlow(source="a", target="b", rate=500_000, size=4096, flow_label=77),
        "",
        lambda lab: arriving(lab, RDMA_ENDS, 0.5),
        [True, False],
        pings("a", "twin"),
        5,
    ),
    Contract(
        BackgroundFlow(source="c", target="b", rate=5 * MBIT, family=6),
        "",
        lambda lab: arriving(lab, RDMA_ENDS, 0.5),
        [True, False],
        pings("a", "twin"),
        5,
    ),
    Contract(
        Incast(target="b", senders=["a", "c"]),
        "a receiver's port has bursts of all senders",
        lambda lab: arriving(lab, ["leaf:e1", "leaf:e3", "b:eth1"], 0.5),
        [True, True, True],
        lambda lab: arriving(lab, ["twin:eth1"], 0.5),
        5,
    ),
    Contract(
        EcmpCollision(end="leaf:e4", pairs=[["a", "d"], ["b", "d"]], rate=2 * MBIT),
        "one of several uplinks is loaded, the others idle",
        lambda lab: arriving(lab, ["far:e1", "far:e2"], 0.5),
        [True, False],
        pings("b", "c"),
        5,
    ),
    Contract(
        EcmpCollision(end="leaf:e5", pairs=[["a", "d"], ["b", "d"]], rate=2 * MBIT),
        "",
        lambda lab: arriving(lab, ["far:e1", "far:e2"], 0.5),
        [False, True],
        pings("b", "c"),
        5,
    ),
    # Lossless links
    Contract(
        PauseStorm(end="p:eth1", priority=3),
        "a priority stands still towards the NIC, others do not",
        lambda lab: arrive(lab, "q", "p"),
        0,
        lambda lab: arrive(lab, "q", "p", 0),
        2,
    ),
    Contract(
        PauseIgnored(end="p:eth1"),
        "a port sends on when it is paused",
        lambda lab: stops(lab, "p", "e2", "q"),
        False,
        lambda lab: stops(lab, "q", "e3", "p"),
    ),
    Contract(
        PauseNotSent(end="bridge:e2"),
        "a full buffer pauses nobody and drops",
        lambda lab: held_up(lab, "p", "q", "e2")[:2],
        (False, False),
        lambda lab: held_up(lab, "q", "p", "e3")[:2],
    ),
    Contract(
        DscpMismatch(end="bridge:e2", dscp=26, priority=0),
        "packets of a DSCP are in another class from there on",
        lambda lab: classes(lab, "p", "q", "e3"),
        [0],
        lambda lab: classes(lab, "q", "p", "e2"),
    ),
    Contract(
        HeadroomTooSmall(end="bridge:e2", headroom=100),
        "packets are lost though the peer is paused",
        lambda lab: held_up(lab, "p", "q", "e2")[:2],
        (True, False),
        lambda lab: held_up(lab, "q", "p", "e3")[:2],
    ),
    Contract(
        EcnOff(end="bridge:e2"),
        "packets that wait are not marked",
        lambda lab: marked(lab, "d:eth2", "p"),
        False,
        lambda lab: marked(lab, "d:eth2", "q"),
    ),
    Contract(
        SlowReceiver(end="p:eth1", rate=MBIT),
        "the NIC pauses its switch",
        lambda lab: pauses(lab, "p", "d:eth2"),
        True,
        lambda lab: pauses(lab, "q", "d:eth2"),
        2,
    ),
    Contract(
        CnpDrop(end="p:eth1"),
        "CNPs do not arrive",
        lambda lab: arrive(lab, "p", "q", opcode=CNP),
        0,
        lambda lab: [arrive(lab, "p", "q"), arrive(lab, "q", "p", opcode=CNP)],
    ),
    Contract(
        BufferCarving(switch="bridge", buffer=150_000, pfc_alpha=0.125),
        "the switch pauses its peers early",
        lambda lab: held_up(lab, "p", "q", "e2")[2],
        lambda kib: kib < 50,
        lambda lab: arrive(lab, "q", "p"),
    ),
]
