"""Faults that meet: on one value, one port, one route, at one moment."""

from ipaddress import IPv4Address
from pathlib import Path

import pytest

from testbed.errors import TestbedError
from testbed.faults import (
    ArpAgeing,
    ArpDrop,
    ArpStorm,
    BackgroundFlow,
    ExactPacket,
    Fault,
    FdbFlush,
    FdbWrongPort,
    Injection,
    LinkDelay,
    LinkDown,
    LinkLoss,
    MissingRoute,
    NicDown,
    SwitchCpuOutage,
    SwitchReboot,
    WrongGateway,
    WrongMask,
    injected,
)
from testbed.lab import Lab
from testbed.scenario.event_log import EventLog
from testbed.scenario.run import Run, Variant
from testbed.workload.tools import Side, perftest
from testbed.workload.traffic import Traffic

MBIT = 1_000_000
pytestmark = pytest.mark.topology("""
name: overlap
topology:
  kinds:
    switch: {profile: cisco-nxos}
  nodes:
    leaf: {kind: switch, vlans: {10: [10.0.10.1/24, "2001:db8:10::1/64"], 20: [10.0.20.1/24, "2001:db8:20::1/64"]}}
    far: {kind: switch, vlans: {20: null}}
    a:
      kind: host
      routes:
        - {to: default, via: [10.0.10.1, 10.0.20.1]}
        - {to: "::/0", via: ["2001:db8:10::1", "2001:db8:20::1"]}
    b: {kind: host}
    c: {kind: host}
  links:
    - {endpoints: ["leaf:e1", "a:eth1"], vlan: 10}
    - {endpoints: ["leaf:e2", "a:eth2"], vlan: 20}
    - {endpoints: ["leaf:e3", "b:eth1"], vlan: 20}
    - {endpoints: ["leaf:e4", "far:e1"], trunk: [20]}
    - {endpoints: ["far:e2", "c:eth1"], vlan: 20}
""")


@pytest.fixture
def run(lab: Lab, log: EventLog) -> Run:
    return Run(lab, log, Variant("v", "healthy", ""))


def ip(lab: Lab, host: str) -> IPv4Address:
    return IPv4Address(lab.host(host)["eth1"].address().ip)


def default_routes(lab: Lab, host: str) -> list[str]:
    lines = [lab[host].run("ip", f"-{family}", "route", "show", "default").stdout for family in (4, 6)]
    return sorted(word for line in lines for word in line.split())


def recover_in_turn(lab: Lab, *faults: Fault) -> None:
    """All are injected; then they are recovered in the same order."""
    injections = [Injection(lab, fault) for fault in faults]
    for injection in injections:
        injection.inject()
    for injection in injections:
        injection.recover()


def test_the_later_of_two_ages_holds_and_the_right_one_comes_back_in_any_order(lab: Lab) -> None:
    before = lab.switch("leaf").profile()["arp_age"]
    first, second = (
        Injection(lab, ArpAgeing(switch="leaf", arp_age=60)),
        Injection(lab, ArpAgeing(switch="leaf", arp_age=90)),
    )
    first.inject()
    second.inject()
    assert lab.switch("leaf").profile()["arp_age"] == 90
    first.recover()
    assert lab.switch("leaf").profile()["arp_age"] == 90
    second.recover()
    assert lab.switch("leaf").profile()["arp_age"] == before


def test_a_reboot_within_an_outage_leaves_a_switch_that_works(lab: Lab, run: Run) -> None:
    run.inject(SwitchCpuOutage(switch="leaf"), lasting=5)
    run.inject(SwitchReboot(switch="leaf"), after=2, lasting=10)
    lab.scheduler.sleep(20)
    assert lab["a"].ping(str(ip(lab, "b")), within=2)


def test_a_port_that_a_reboot_sets_up_stays_down_while_its_cable_is_pulled(lab: Lab) -> None:
    with injected(lab, LinkDown(end="leaf:e3")):
        with injected(lab, SwitchReboot(switch="leaf")):
            assert not lab["leaf"]["e1"].is_up
        assert lab["leaf"]["e1"].is_up
        assert not lab["leaf"]["e3"].is_up
    assert lab["leaf"]["e3"].is_up


def test_a_reboot_forgets_the_neighbours_of_both_families(lab: Lab) -> None:
    for gateway in "10.0.20.1", "2001:db8:20::1":
        assert lab["b"].ping(gateway, within=2)
    leaf = lab.switch("leaf")
    assert str(ip(lab, "b")) in leaf.arp_table()
    with injected(lab, SwitchReboot(switch="leaf")):
        assert leaf.arp_table() == leaf.nd_table() == {}


@pytest.mark.parametrize(
    "faults",
    [
        (MissingRoute(host="a"),),
        (WrongGateway(host="a", via="10.0.20.99"),),
        (NicDown(end="a:eth2"),),
        (NicDown(end="a:eth1"), NicDown(end="a:eth2")),
        (NicDown(end="a:eth2"), NicDown(end="a:eth1")),
        (WrongGateway(host="a", via="10.0.20.99"), MissingRoute(host="a")),
        (WrongGateway(host="a", via="10.0.20.99"), NicDown(end="a:eth2")),
        (NicDown(end="a:eth2"), WrongGateway(host="a", via="10.0.10.99")),
        (MissingRoute(host="a", family=6), NicDown(end="a:eth1")),
        (NicDown(end="a:eth1"), MissingRoute(host="a", family=6)),
    ],
    ids=lambda faults: " then ".join(fault.name for fault in faults),
)
def test_a_host_has_its_default_routes_again_whatever_is_mended_first(lab: Lab, faults: tuple[Fault, ...]) -> None:
    before = default_routes(lab, "a")
    assert before.count("nexthop") == 4
    recover_in_turn(lab, *faults)
    assert default_routes(lab, "a") == before


def test_a_mask_that_a_nic_going_down_put_right_is_not_touched(lab: Lab) -> None:
    before = lab["b"].run("ip", "route").stdout
    recover_in_turn(lab, NicDown(end="c:eth1"), WrongMask(host="b", prefix=16), NicDown(end="b:eth1"))
    assert sorted(lab["b"].run("ip", "route").stdout.split()) == sorted(before.split())


def test_impairments_and_flows_that_come_at_one_moment_come_one_by_one(lab: Lab, run: Run) -> None:
    faults = (
        LinkLoss(end="a:eth1", loss=1),
        LinkDelay(end="a:eth1", delay=0.01),
        BackgroundFlow(source="b", target="c", rate=MBIT),
        BackgroundFlow(source="c", target="b", rate=MBIT),
    )
    injections = [run.inject(fault, after=1) for fault in faults]
    lab.scheduler.sleep(5)
    assert [injection.active for injection in injections] == [True] * 4
    quality = lab.interface("a:eth1").sends.verified()
    assert (quality.loss, quality.delay) == (pytest.approx(1), 0.01)
    for injection in injections:
        injection.recover()


def test_a_fault_comes_while_the_run_waits_for_an_answer_to_ping(lab: Lab, run: Run, log: EventLog) -> None:
    began = log.now
    run.inject(LinkDown(end="leaf:e3"), after=1, lasting=1)
    assert not lab["a"].ping("10.0.20.99", within=4)
    at = {event["kind"]: (event["t"] - began) / 1e9 for event in log.events if event["kind"].startswith("fault.")}
    assert at == {"fault.injected": pytest.approx(1, abs=0.05), "fault.recovered": pytest.approx(2, abs=0.05)}


def test_a_fault_comes_while_perftest_runs(lab: Lab, run: Run, log: EventLog, tmp_path: Path) -> None:
    sides = [Side.of(lab.host(name)["eth1"]) for name in ("c", "b")]
    with injected(lab, LinkDelay(end="leaf:e3", delay=0.05)):
        began = log.now
        run.inject(ArpAgeing(switch="leaf", arp_age=60), after=1, lasting=1)
        assert perftest("ib_send_lat", *sides, tmp_path, options=["-n", "80"], within=60, ready=lab.scheduler.ready).ok
    times = [log.find(f"fault.{what}", fault="arp-ageing")[-1]["t"] for what in ("injected", "recovered")]
    assert [(t - began) / 1e9 for t in times] == [pytest.approx(1, abs=0.05), pytest.approx(2, abs=0.05)]


def test_a_fault_that_is_recovered_before_its_time_does_not_come(lab: Lab, run: Run) -> None:
    injection = run.inject(LinkDown(end="leaf:e3"), after=1)
    injection.recover()
    lab.scheduler.sleep(2)
    assert lab["leaf"]["e3"].is_up
    assert injection.unfinished.startswith("was never injected")
    injection.judged = True


def test_arp_is_dropped_on_a_trunk(lab: Lab) -> None:
    fault = ArpDrop(end="leaf:e4")
    lab["b"].run("ip", "neigh", "flush", "dev", "eth1")
    with injected(lab, fault):
        assert not lab["b"].ping(str(ip(lab, "c")), within=1)
        assert fault.hits(lab) > 0
    assert lab["b"].ping(str(ip(lab, "c")), within=2)


def test_a_static_mac_entry_outlives_a_flush(lab: Lab) -> None:
    assert lab["a"].ping(str(ip(lab, "b")), within=2)
    wrong = FdbWrongPort(switch="leaf", host="b", port="e2")
    with injected(lab, wrong):
        lab.switch("leaf").clear_fdb()
        assert wrong.verify(lab)
    assert lab["a"].ping(str(ip(lab, "b")), within=2)


def test_a_flushed_mac_is_back_even_over_a_slow_link(lab: Lab) -> None:
    lab["b"].ping(str(ip(lab, "c")), within=2)
    with injected(lab, LinkDelay(end="b:eth1", delay=0.01)), injected(lab, FdbFlush(switch="leaf", host="b")):
        pass


def test_two_packets_are_held_at_one_port(lab: Lab) -> None:
    faults = [ExactPacket(end="leaf:e3", action="delay", number=1, delay=delay) for delay in (0.01, 0.02)]
    recover_in_turn(lab, *faults)


@pytest.mark.fresh
def test_a_storm_is_told_from_other_traffic(lab: Lab) -> None:
    flow = BackgroundFlow(source="b", target="c", rate=5 * MBIT)
    with injected(lab, flow), injected(lab, ArpStorm(host="b", pps=150)) as storm:
        verified = storm.fault.verify(lab)
        assert verified
        assert 100 <= verified["pps"] <= 200


def test_two_that_count_the_traffic_of_an_interface_count_apart(lab: Lab) -> None:
    flow = BackgroundFlow(source="b", target="c", rate=MBIT)
    first = Traffic(lab.host("b")["eth1"])
    with injected(lab, flow):
        pass
    before = first.bytes()["roce_out"]
    second = Traffic(lab.host("b")["eth1"])
    assert (before > 0, second.bytes()["roce_out"]) == (True, 0)
    with injected(lab, flow):
        pass
    assert second.bytes()["roce_out"] == first.bytes()["roce_out"] - before > 0


def test_a_change_of_a_link_that_is_refused_leaves_the_link_as_it_was(lab: Lab) -> None:
    with injected(lab, LinkLoss(end="leaf:e3", loss=1)):
        with pytest.raises(TestbedError, match="loss"):
            lab.interface("leaf:e3").sends.change(rate=MBIT, loss=150)
        assert lab.interface("leaf:e3").sends.verified().loss == pytest.approx(1)
    assert lab["a"].ping(str(ip(lab, "b")), within=2)


def test_a_capture_that_ended_by_itself_is_an_error(lab: Lab, tmp_path: Path) -> None:
    capture = lab["leaf"]["e3"].capture()
    capture._process.send(9)
    capture._process.wait(5)
    with pytest.raises(TestbedError, match="ended too early with status -9"):
        capture.stop()
