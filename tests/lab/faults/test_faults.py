"""Every fault comes, is verified, goes, and is verified to be gone; and one that does not come is an error."""

from __future__ import annotations

from contextlib import ExitStack
from ipaddress import IPv4Address
from pathlib import Path

import pytest

from testbed.errors import TestbedError
from testbed.faults import (
    ArpCpuDelay,
    DuplicateMac,
    ExactPacket,
    Fault,
    FaultError,
    Injection,
    LinkDelay,
    LinkDown,
    LinkLoss,
    LinkMtu,
    MissingRoute,
    NicDown,
    SwitchCpuOutage,
    SwitchReboot,
    WrongGateway,
    injected,
)
from testbed.lab import Lab
from testbed.scenario.events import EventLog
from testbed.scenario.run import Run, Variant

B = IPv4Address("10.0.20.2")
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
    return lab["a"].ping(str(lab.host("b")["eth1"].address().ip), within=1)


def test_one_that_is_there_already_is_an_error(lab: Lab) -> None:
    fault = LinkLoss(end="leaf:e1", loss=3)
    with injected(lab, fault), pytest.raises(FaultError, match="it is there already"):
        Injection(lab, fault).inject()


def test_two_faults_of_a_switch_s_cpu_do_not_undo_each_other(lab: Lab) -> None:
    outage, late = SwitchCpuOutage(switch="leaf"), ArpCpuDelay(switch="leaf", delay=0.5)
    with injected(lab, outage):
        with injected(lab, late):
            assert outage.verify(lab)
        assert outage.verify(lab)
        assert not late.verify(lab)
    with injected(lab, late):
        with injected(lab, SwitchReboot(switch="leaf")):
            assert late.verify(lab)
        assert late.verify(lab)


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
@pytest.mark.parametrize(
    "fault", [MissingRoute(host="a"), WrongGateway(host="a", via="10.0.20.99"), NicDown(end="a:eth2")], ids=str
)
def test_all_next_hops_of_a_default_route_come_back(lab: Lab, fault: Fault) -> None:
    before = lab["a"].run("ip", "route", "show", "default").stdout
    assert before.count("nexthop") == 2
    with injected(lab, fault):
        assert lab["a"].run("ip", "route", "show", "default").stdout != before
    assert lab["a"].run("ip", "route", "show", "default").stdout == before


@pytest.mark.topology("""
name: dual
topology:
  nodes:
    leaf: {kind: switch, vlans: {10: [10.0.10.1/24, "2001:db8:10::1/64"], 20: [10.0.20.1/24, "2001:db8:20::1/64"]}}
    a: {kind: host}
    b: {kind: host}
  links:
    - {endpoints: ["leaf:e1", "a:eth1"], vlan: 10}
    - {endpoints: ["leaf:e2", "b:eth1"], vlan: 20}
""")
def test_addresses_and_routes_come_back_with_a_nic(lab: Lab) -> None:
    def has() -> str:
        return "".join(
            lab["a"].run("ip", family, *what.split()).stdout
            for family in ("-4", "-6")
            for what in ("-brief address show eth1", "route")
        )

    before = has()
    with injected(lab, NicDown(end="a:eth1")):
        assert has() != before
    assert sorted(has().split()) == sorted(before.split())
    for family in (4, 6):
        assert lab["a"].ping(str(lab.host("b")["eth1"].address(family).ip), within=2)


@pytest.mark.parametrize("end", ["leaf:e1", "leaf:e2"])
def test_what_is_larger_than_a_port_s_mtu_vanishes_and_the_sender_hears_nothing(lab: Lab, end: str) -> None:
    a, b, fault = lab["a"], str(B), LinkMtu(end=end, mtu=600)
    headers = 28
    with injected(lab, fault):
        assert a.run("ping", "-c1", "-W1", f"-s{600 - headers}", b)
        assert fault.hits(lab) == 0
        with pytest.raises(TestbedError, match="100% packet loss"):
            a.run("ping", "-c1", "-W1", f"-s{601 - headers}", b)
        assert fault.hits(lab) == 1


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
        port = lab["leaf"]["e2"]
        undo.callback(port.set_mtu, port.mtu)
        port.set_mtu(1000)
        raise RuntimeError("half-way")

    monkeypatch.setattr(LinkMtu, "inject", half)
    with pytest.raises(RuntimeError, match="half-way"):
        Injection(lab, LinkMtu(end="leaf:e2", mtu=600)).inject()
    assert lab["leaf"]["e2"].mtu == 1500


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
    assert lab.interface("leaf:e1").sends.verified().delay == 0.25


def run(lab: Lab, log: EventLog) -> Run:
    return Run(lab, log, Variant("v", "healthy", ""))


def test_a_story_has_a_fault_later_and_for_a_while(lab: Lab, log: EventLog) -> None:
    began = log.now
    run(lab, log).inject(LinkDown(end="leaf:e1"), after=2, lasting=3)
    lab.scheduler.sleep(10)
    at = {event["kind"]: (event["t"] - began) / 1e9 for event in log.events if event["kind"].startswith("fault.")}
    assert at == {"fault.injected": pytest.approx(2, abs=0.05), "fault.recovered": pytest.approx(5, abs=0.05)}


def test_a_fault_scheduled_after_the_run_ended_is_a_failure(lab: Lab, log: EventLog, tmp_path: Path) -> None:
    late = run(lab, log)
    late.inject(LinkDown(end="leaf:e1"), after=60)
    late.observe("healthy", "nothing happened")
    assert late.outcome(tmp_path)["failures"] == [
        "fault link-down end=leaf:e1 never came: the run ended before its time"
    ]


def test_a_twin_whose_port_is_shut_has_nowhere_to_send(lab: Lab) -> None:
    with injected(lab, DuplicateMac(host="c", of="b", switch="leaf", period=0.5)):
        lab.switch("leaf")["e3"].down()
        lab.scheduler.sleep(2)
        assert works(lab)
