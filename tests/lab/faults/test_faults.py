"""Every fault comes, is seen, goes, and is seen to be gone; and one that does not come is an error."""

from __future__ import annotations

import json
from contextlib import ExitStack
from ipaddress import IPv4Address
from pathlib import Path

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
    ArpPoison,
    ArpStorm,
    DuplicateIp,
    DuplicateMac,
    ExactPacket,
    Fault,
    FaultError,
    FdbFlush,
    FdbWrongPort,
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
    ProxyArp,
    StrictRpFilter,
    SwitchCpuOutage,
    SwitchReboot,
    WrongGateway,
    WrongMask,
    injected,
)
from testbed.lab import Lab
from testbed.scenario.events import EventLog
from testbed.scenario.model import Variant
from testbed.scenario.run import Run

B = IPv4Address("10.0.20.2")
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
    ExactPacket(end="leaf:e2", action="delay", number=3, delay=5e-3),
    ArpDrop(end="a:eth1"),
    ArpDrop(end="leaf:e2", operation="reply"),
    ArpDrop(end="b:eth1", announced=B),
    ArpPoison(host="c", ip=B, switch="leaf"),
    ArpStorm(host="c", pps=500),
    ArpStorm(host="c", pps=10_000),
    DuplicateIp(host="c", ip=B),
    DuplicateMac(host="c", of="b", switch="leaf"),
    DuplicateMac(host="c", of="b", switch="leaf", period=0.5),
    ProxyArp(host="c", ip=B),
    ArpEntryCorrupt(switch="leaf", ip=B),
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
    MissingRoute(host="b"),
    WrongMask(host="b", prefix=16),
    WrongMask(host="b", prefix=30),
    StrictRpFilter(host="b"),
    NeighbourTableFull(gc_thresh3=64),
]
pytestmark = pytest.mark.topology("""
name: faults
topology:
  kinds:
    switch: {profile: cisco-nxos}
  nodes:
    leaf: {kind: switch, vlans: {10: 10.0.10.1/24, 20: 10.0.20.1/24}}
    a: {kind: host}
    b: {kind: host}
    c: {kind: host}
  links:
    - {endpoints: ["leaf:e1", "a:eth1"], vlan: 10}
    - {endpoints: ["leaf:e2", "b:eth1"], vlan: 20}
    - {endpoints: ["leaf:e3", "c:eth1"], vlan: 20}
""")


def works(lab: Lab) -> bool:
    return lab["a"].ping(str(lab.host("b").addresses["eth1"].ip), within=1)


def test_every_kind_has_an_example() -> None:
    assert {type(fault) for fault in EXAMPLES} == set(KINDS.values())


@pytest.mark.parametrize("fault", EXAMPLES, ids=str)
def test_it_comes_and_goes(lab: Lab, log: EventLog, fault: Fault) -> None:
    assert works(lab)
    with injected(lab, fault):
        assert fault.seen(lab) is not None
    assert fault.seen(lab) is None
    assert lab.wait(lambda: works(lab), 10)
    kinds = [event["kind"] for event in log.events if event["kind"].startswith("fault.")]
    assert kinds == ["fault.injected", "fault.recovered"]
    json.dumps(log.events)  # as the event log is written
    with injected(lab, fault):
        pass


@pytest.mark.parametrize("fault", EXAMPLES, ids=str)
def test_one_that_does_not_come_is_an_error_and_not_a_story(lab: Lab, monkeypatch, fault: Fault) -> None:
    assert works(lab)
    monkeypatch.setattr(type(fault), "inject", lambda self, lab, undo: None)
    with pytest.raises(FaultError, match="nothing of it can be seen"), injected(lab, fault):
        raise AssertionError("the story must not go on")


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


def test_one_that_is_there_already_is_an_error(lab: Lab) -> None:
    fault = LinkLoss(end="leaf:e1", loss=3)
    with injected(lab, fault), pytest.raises(FaultError, match="it is there already"):
        Injection(lab, fault).inject()


def test_two_faults_of_a_switch_s_cpu_do_not_undo_each_other(lab: Lab) -> None:
    outage, late = SwitchCpuOutage(switch="leaf"), ArpCpuDelay(switch="leaf", delay=0.5)
    with injected(lab, outage):
        with injected(lab, late):
            assert outage.seen(lab)
        assert outage.seen(lab)
        assert not late.seen(lab)
    with injected(lab, late):
        with injected(lab, SwitchReboot(switch="leaf")):
            assert late.seen(lab)
        assert late.seen(lab)


def test_a_packet_is_held_at_a_port_where_what_comes_in_is_impaired(lab: Lab) -> None:
    """Both need the port's filters, in either order."""
    held = ExactPacket(end="leaf:e2", action="delay", number=1)
    with injected(lab, LinkLoss(end="b:eth1", loss=1)), injected(lab, held):
        assert works(lab)
    with (
        injected(lab, ExactPacket(end="leaf:e1", action="delay", number=1)),
        injected(lab, LinkDelay(end="a:eth1", delay=1e-3)),
    ):
        assert works(lab)


@pytest.mark.topology("""
name: two-gateways
topology:
  nodes:
    leaf: {kind: switch, vlans: {10: 10.0.10.1/24, 20: 10.0.20.1/24}}
    a: {kind: host, routes: [{to: default, via: [10.0.10.1, 10.0.20.1]}]}
  links:
    - {endpoints: ["leaf:e1", "a:eth1"], vlan: 10}
    - {endpoints: ["leaf:e2", "a:eth2"], vlan: 20}
""")
@pytest.mark.parametrize("fault", [MissingRoute(host="a"), WrongGateway(host="a", via="10.0.20.99")], ids=str)
def test_all_next_hops_of_a_default_route_come_back(lab: Lab, fault: Fault) -> None:
    before = lab["a"].run("ip", "route", "show", "default").stdout
    assert before.count("nexthop") == 2
    with injected(lab, fault):
        assert lab["a"].run("ip", "route", "show", "default").stdout != before
    assert lab["a"].run("ip", "route", "show", "default").stdout == before


def test_the_end_of_a_lab_recovers_what_is_left(lab: Lab, log: EventLog) -> None:
    for fault in (LinkDown(end="leaf:e1"), LinkDelay(end="leaf:e2", delay=1)):
        Injection(lab, fault).inject()
    lab.close()
    assert [event["data"]["fault"] for event in log.events if event["kind"] == "fault.recovered"] == [
        "link-delay",
        "link-down",
    ]


def test_a_fault_half_injected_is_taken_back(lab: Lab, monkeypatch) -> None:
    def half(self: LinkMtu, lab: Lab, undo: ExitStack) -> None:
        leaf = lab["leaf"]
        undo.callback(leaf.set_mtu, "e2", leaf.mtu("e2"))
        leaf.set_mtu("e2", 600)
        raise RuntimeError("half-way")

    monkeypatch.setattr(LinkMtu, "inject", half)
    with pytest.raises(RuntimeError, match="half-way"):
        Injection(lab, LinkMtu(end="leaf:e2", mtu=600)).inject()
    assert lab["leaf"].mtu("e2") == 1500


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (ArpAgeing(switch="a", arp_age=1), "a is no switch"),
        (ArpStorm(host="b", interface="eth9", pps=100), "b has no interface eth9"),
        (ArpPoison(host="c", ip="10.0.20.99", switch="leaf"), "no host has the address 10.0.20.99"),
        (DuplicateIp(host="a", ip=B), "10.0.20.2 is not in a's subnet 10.0.10.0/24"),
        (ArpEntryCorrupt(switch="leaf", ip="10.0.20.99"), "leaf has no entry for 10.0.20.99"),
        (LinkLoss(end="leaf:e9", loss=1), "no link has an end 'leaf:e9'"),
        (LinkDown(end="a:eth1"), "a:eth1 is a host's end"),
        (NicDown(end="leaf:e1"), "leaf:e1 is no host's end"),
        (LinkMtu(end="a:eth1", mtu=600), "a:eth1 is a host's end"),
        (ExactPacket(end="a:eth1", action="delay", number=1), "only what a switch sends can be delayed"),
    ],
    ids=str,
)
def test_what_the_lab_does_not_have_is_named(lab: Lab, fault: Fault, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Injection(lab, fault).inject()
    assert works(lab)


@pytest.mark.topology("""
name: from-the-start
topology:
  nodes: {leaf: {kind: switch}, a: {kind: host}}
  links:
    - endpoints: ["leaf:e1", "a:eth1"]
  faults:
    - {fault: link-delay, end: "leaf:e1", delay: 0.25}
""")
def test_a_lab_may_be_broken_from_the_start(lab: Lab) -> None:
    assert lab.direction("leaf:e1").seen().delay == 0.25


def run(lab: Lab, log: EventLog) -> Run:
    return Run(lab, log, Variant("v", "healthy", ""))


def test_a_story_has_a_fault_later_and_for_a_while(lab: Lab, log: EventLog) -> None:
    began = log.now
    run(lab, log).inject(LinkDown(end="leaf:e1"), after=2, lasting=3)
    lab.sleep(10)
    at = {event["kind"]: (event["t"] - began) / 1e9 for event in log.events if event["kind"].startswith("fault.")}
    assert at == {"fault.injected": pytest.approx(2, abs=0.05), "fault.recovered": pytest.approx(5, abs=0.05)}


def test_a_fault_that_comes_too_late_is_no_story(lab: Lab, log: EventLog, tmp_path: Path) -> None:
    story = run(lab, log)
    story.inject(LinkDown(end="leaf:e1"), after=60)
    story.observe("healthy", "nothing happened")
    assert story.outcome(tmp_path)["failures"] == [
        "fault link-down end=leaf:e1 never came: the story ended before its time"
    ]
