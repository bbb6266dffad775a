"""Every fault comes, is verified, goes, and is verified to be gone; and one that does not come is an error.

All of them in one lab, which each leaves as it was.
"""

from __future__ import annotations

import json
from contextlib import ExitStack
from ipaddress import IPv4Address, IPv6Address

import pytest

from testbed.errors import InputError
from testbed.faults import (
    KINDS,
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
    EcnOff,
    ExactPacket,
    Fault,
    FaultError,
    FdbFlush,
    FdbWrongPort,
    HeadroomTooSmall,
    Incast,
    Injection,
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
    MissingRoute,
    NeighbourTableFull,
    NicDown,
    PauseIgnored,
    PauseNotSent,
    PauseStorm,
    ProxyArp,
    QueueTooSmall,
    SlowReceiver,
    StrictRpFilter,
    SwitchCpuOutage,
    SwitchReboot,
    WrongGateway,
    WrongMask,
    injected,
)
from testbed.lab import Lab
from testbed.scenario.events import EventLog

B, B6 = IPv4Address("10.0.20.2"), IPv6Address("2001:db8:20::2")
EXAMPLES: list[Fault] = [
    LinkDown(end="leaf:e1"),
    LinkFlap(end="leaf:e1", down=1, up=2),
    LinkLoss(end="leaf:e1", loss=3),
    LinkLoss(end="a:eth1", loss=20, loss_burst=5),
    LinkDelay(end="a:eth1", delay=2e-3, jitter=1e-3),
    LinkRate(end="leaf:e2", rate=100_000_000, queue=64),
    LinkDuplicate(end="leaf:e2", duplicate=1),
    LinkReorder(end="leaf:e2", reorder=25, delay=1e-3),
    LinkCorrupt(end="b:eth1", corrupt=5),
    LinkMtu(end="leaf:e2", mtu=600),
    NicDown(end="b:eth1"),
    ExactPacket(end="a:eth1", action="drop", psn=7),
    ExactPacket(end="a:eth1", action="corrupt", opcode="WRITE_ONLY", dest_qp=17),
    ExactPacket(end="leaf:e2", action="mark-ce", number=3),
    ExactPacket(end="leaf:e2", action="mark-ce", number=3, family=6),
    ExactPacket(end="leaf:e2", action="delay", number=3, delay=5e-3),
    ArpDrop(end="a:eth1"),
    ArpDrop(end="leaf:e2", operation="reply"),
    ArpDrop(end="leaf:e2", operation="reply", family=6),
    ArpDrop(end="b:eth1", announced=B6, family=6),
    ArpDrop(end="b:eth1", announced=B),
    ArpPoison(host="c", ip=B, switch="leaf"),
    ArpPoison(host="c", ip=B6, switch="leaf"),
    ArpStorm(host="c", pps=500),
    ArpStorm(host="c", pps=1_000),
    ArpStorm(host="c", pps=500, family=6),
    DuplicateIp(host="c", ip=B),
    DuplicateIp(host="c", ip=B6),
    DuplicateMac(host="c", of="b", switch="leaf"),
    DuplicateMac(host="c", of="b", switch="leaf", period=0.5),
    ProxyArp(host="c", ip=B),
    ArpEntryCorrupt(switch="leaf", ip=B),
    ArpEntryCorrupt(switch="leaf", ip=B6),
    ArpAgeing(switch="leaf", arp_age=60),
    ArpCapacity(switch="leaf", arp_cap=4),
    ArpCpuLimit(switch="leaf", arp_pps=20),
    ArpCpuDelay(switch="leaf", delay=0.5),
    SwitchCpuOutage(switch="leaf"),
    SwitchReboot(switch="leaf"),
    FdbFlush(switch="leaf", host="b"),
    FdbWrongPort(switch="leaf", host="b", port="e3"),
    MacAgeing(switch="leaf", mac_age=60),
    MacCapacity(switch="leaf", mac_cap=2),
    WrongGateway(host="b", via="10.0.20.99"),
    WrongGateway(host="b", via="2001:db8:20::99"),
    MissingRoute(host="b"),
    MissingRoute(host="b", family=6),
    WrongMask(host="b", prefix=16),
    WrongMask(host="b", prefix=30),
    ArpFlux(host="twin"),
    StrictRpFilter(host="b"),
    NeighbourTableFull(gc_thresh3=64),
    QueueTooSmall(end="leaf:e4", queue=20),
    BackgroundFlow(source="c", target="b", rate=5_000_000),
    BackgroundFlow(source="a", target="b", rate=500_000, size=4096, flow_label=77),
    BackgroundFlow(source="c", target="b", rate=5_000_000, family=6),
    Incast(target="b", senders=["a", "c"]),
    EcmpCollision(end="leaf:e4", pairs=[["a", "d"], ["b", "d"]], rate=2_000_000),
    EcmpCollision(end="leaf:e5", pairs=[["a", "d"], ["b", "d"]], rate=2_000_000),
    PauseStorm(end="p:eth1", priority=3),
    PauseIgnored(end="p:eth1"),
    PauseNotSent(end="bridge:e2"),
    DscpMismatch(end="bridge:e2", dscp=26, priority=0),
    HeadroomTooSmall(end="bridge:e2", headroom=100),
    EcnOff(end="bridge:e2"),
    SlowReceiver(end="p:eth1", rate=1_000_000),
    CnpDrop(end="p:eth1"),
    BufferCarving(switch="bridge", buffer=100_000, pfc_alpha=0.125),
]
TOPOLOGY = """
name: faults
topology:
  lossless: {dscp: 26, priority: 3}
  kinds:
    switch: {profile: cisco-nxos}
  nodes:
    leaf:
      kind: switch
      vlans: {10: 10.0.10.1/24, 20: [10.0.20.1/24, "2001:db8:20::1/64"], 1001: 10.255.0.0/31, 1002: 10.255.0.2/31}
      routes: [{to: 10.0.30.0/24, via: [10.255.0.1, 10.255.0.3]}]
    far:
      kind: switch
      vlans: {30: 10.0.30.1/24, 1001: 10.255.0.1/31, 1002: 10.255.0.3/31}
      routes: [{to: default, via: [10.255.0.0, 10.255.0.2]}]
    a: {kind: host}
    b: {kind: host}
    c: {kind: host}
    twin: {kind: host, rdma: false, exec: ["sysctl -w net.ipv4.conf.all.arp_ignore=1"]}
    d: {kind: host}
    bridge: {kind: switch, profile_values: {ecn_min: 5000, ecn_max: 30000}}
    p: {kind: host, nic: hardware}
    q: {kind: host, nic: hardware}
  links:
    - {endpoints: ["leaf:e1", "a:eth1"], vlan: 10, lossless: false}
    - {endpoints: ["leaf:e2", "b:eth1"], vlan: 20, lossless: false}
    - {endpoints: ["leaf:e3", "c:eth1"], vlan: 20, lossless: false}
    - {endpoints: ["leaf:e6", "twin:eth1"], vlan: 20, lossless: false}
    - {endpoints: ["leaf:e7", "twin:eth2"], vlan: 20, lossless: false}
    - {endpoints: ["leaf:e4", "far:e1"], vlan: 1001, rate: 20mbit, lossless: false}
    - {endpoints: ["leaf:e5", "far:e2"], vlan: 1002, lossless: false}
    - {endpoints: ["far:e3", "d:eth1"], vlan: 30, lossless: false}
    - {endpoints: ["bridge:e1", "d:eth2"], lossless: false}
    - {endpoints: ["bridge:e2", "p:eth1"], rate: 20mbit}
    - {endpoints: ["bridge:e3", "q:eth1"], rate: 20mbit}
"""


def works(lab: Lab) -> bool:
    """The switch knows b by both of its addresses then."""
    lab.host("b").ping("2001:db8:20::1", within=1)
    return lab["a"].ping(str(B), within=1)


def test_every_kind_has_an_example() -> None:
    assert {type(fault) for fault in EXAMPLES} == set(KINDS.values())


@pytest.mark.parametrize("fault", EXAMPLES, ids=str)
def test_it_comes_and_goes(lab: Lab, log: EventLog, fault: Fault) -> None:
    assert works(lab)
    before = len(log.events)
    with injected(lab, fault):
        assert fault.verify(lab) is not None
    assert fault.verify(lab) is None
    assert lab.scheduler.wait(lambda: works(lab), 10)
    kinds = [event["kind"] for event in log.events[before:] if event["kind"].startswith("fault.")]
    assert kinds == ["fault.injected", "fault.recovered"]
    json.dumps(log.events)  # as the event log is written
    with injected(lab, fault):
        pass


@pytest.mark.parametrize("fault", EXAMPLES, ids=str)
def test_one_that_does_not_come_is_an_error_and_not_a_story(lab: Lab, monkeypatch, fault: Fault) -> None:
    assert works(lab)
    monkeypatch.setattr(type(fault), "inject", lambda self, lab, undo: None)
    with pytest.raises(FaultError, match="verification finds nothing of it"), injected(lab, fault):
        raise AssertionError("the run must not go on")


@pytest.mark.parametrize("fault", EXAMPLES, ids=str)
def test_one_that_does_not_go_is_an_error(lab: Lab, monkeypatch, fault: Fault) -> None:
    assert works(lab)
    real, kept = type(fault).inject, ExitStack()
    monkeypatch.setattr(type(fault), "inject", lambda self, lab, undo: real(self, lab, kept))
    injection = Injection(lab, fault)
    injection.inject()
    with pytest.raises(FaultError, match="it was taken back and is still there"):
        injection.recover()
    kept.close()


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (ArpAgeing(switch="a", arp_age=1), "a is no switch"),
        (ArpStorm(host="b", interface="eth9", pps=100), "b has no interface eth9"),
        (ArpPoison(host="c", ip="10.0.20.99", switch="leaf"), "no host has the address 10.0.20.99"),
        (DuplicateIp(host="a", ip=B), "10.0.20.2 is not in a's subnet 10.0.10.0/24"),
        (ArpEntryCorrupt(switch="leaf", ip="10.0.20.99"), "leaf has no entry for 10.0.20.99"),
        (FdbWrongPort(switch="leaf", host="b", port="e1"), "leaf:e1 is not in VLAN 20"),
        (FdbWrongPort(switch="leaf", host="b", port="e9"), "leaf has no interface e9"),
        (FdbFlush(switch="leaf", host="b", interface="eth9"), "b has no interface eth9"),
        (StrictRpFilter(host="b", interface="eth9"), "b has no interface eth9"),
        (DuplicateMac(host="c", of="b", of_interface="eth9", switch="leaf"), "b has no interface eth9"),
        (BackgroundFlow(source="a", target="twin", rate=1_000_000), "eth1 of twin has no RDMA device"),
        (LinkLoss(end="leaf:e9", loss=1), "no link has an end 'leaf:e9'"),
        (LinkDown(end="a:eth1"), "a:eth1 is a host's end"),
        (ArpFlux(host="b"), "b has no two interfaces in one subnet"),
        (NicDown(end="leaf:e1"), "leaf:e1 is no host's end"),
        (LinkMtu(end="a:eth1", mtu=600), "a:eth1 is a host's end"),
        (QueueTooSmall(end="leaf:e2", queue=20), "leaf:e2 has no rate"),
        (Incast(target="b", senders=["a", "leaf"]), "leaf is no host"),
        (EcmpCollision(end="leaf:e1", pairs=[["a", "b"]], rate=1_000_000), "no flow from a to b leaves leaf by e1"),
        (EcmpCollision(end="bridge:e1", pairs=[["a", "b"]], rate=1_000_000), "bridge routes nothing"),
        (PauseStorm(end="bridge:e2", priority=3), "bridge:e2 is no host's end"),
        (PauseStorm(end="p:eth1", priority=5), "priority 5 has no priority flow control here"),
        (EcnOff(end="leaf:e1"), "leaf:e1 is not the end of a lossless link"),
        (ExactPacket(end="a:eth1", action="delay", number=1), "only what a switch sends can be delayed"),
    ],
    ids=str,
)
def test_what_the_lab_does_not_have_is_named(lab: Lab, fault: Fault, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Injection(lab, fault).inject()
    assert works(lab)
