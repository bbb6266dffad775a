"""Every fault is felt by those that its contract names and by no others, and by nobody when it has gone; and one that
does not come, does not hold or does not go is an error."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from contracts import CONTRACTS, TOPOLOGY, B, Contract
from probes import answers, numbered

from testbed.errors import InputError
from testbed.faults import (
    ArpAgeing,
    ArpCpuDelay,
    ArpDrop,
    ArpFlux,
    ArpPoison,
    ArpStorm,
    BackgroundFlow,
    DuplicateIp,
    DuplicateMac,
    EcmpCollision,
    EcnOff,
    ExactPacket,
    Fault,
    FaultError,
    FdbFlush,
    FdbWrongPort,
    Incast,
    Injection,
    LinkDelay,
    LinkDown,
    LinkLoss,
    LinkMtu,
    NicDown,
    PauseIgnored,
    PauseStorm,
    QueueTooSmall,
    StrictRpFilter,
    SwitchCpuOutage,
    SwitchReboot,
    injected,
)
from testbed.faults import ArpEntryCorrupt as Corrupt
from testbed.lab import Lab
from testbed.protocol import Event
from testbed.scenario.event_log import EventLog
from testbed.scenario.run import Run, Variant

pytestmark = [pytest.mark.topology(TOPOLOGY), pytest.mark.keeps_tables]


@pytest.fixture(autouse=True)
def _everybody_is_known(lab: Lab) -> Iterator[None]:
    for host in "abcdpq":
        lab.host(host)["eth1"].teach()
    for host in "bc":
        assert answers(lab, host, "2001:db8:20::1")
    assert answers(lab, "a", B)
    assert answers(lab, "a", "2001:db8:20::2")
    yield
    for injection in lab.injections:
        injection.recover()


@pytest.fixture
def run(lab: Lab, log: EventLog) -> Run:
    return Run(lab, log, Variant("v", "healthy", ""))


def since(log: EventLog, number: int) -> list[Event]:
    return [event for event in log.events[number:] if event["kind"].startswith("fault.")]


@pytest.mark.parametrize("contract", CONTRACTS, ids=str)
def test_a_fault_has_its_symptom_and_no_other(lab: Lab, log: EventLog, contract: Contract) -> None:
    fault, begin = contract.fault, len(log.events)
    before, spared = contract.feels(lab), contract.spared(lab)
    assert not contract.holds_for(before)
    with injected(lab, fault):
        assert fault.verify(lab) is not None
        assert contract.holds_for(during := contract.feels(lab)), during
        assert contract.spared(lab) == spared
    assert fault.verify(lab) is None
    lab.scheduler.sleep(contract.heals)
    assert contract.feels(lab) == before
    assert contract.spared(lab) == spared
    came, went = since(log, begin)
    assert (came["kind"], went["kind"]) == ("fault.injected", "fault.recovered")
    assert ("hits" in came["data"]) == ("hits" in went["data"])
    assert went["data"].get("hits") != 0
    json.dumps(log.events[begin:])  # as the event log is written


@pytest.mark.parametrize(
    "fault",
    [
        ExactPacket(end="b:eth1", action="drop", psn=7),
        LinkLoss(end="leaf:e2", loss=3),
        LinkDelay(end="p:eth1", delay=1e-3),
        PauseIgnored(end="p:eth1"),
    ],
    ids=str,
)
def test_one_that_no_packet_met_had_no_effect(lab: Lab, log: EventLog, fault: Fault) -> None:
    begin = len(log.events)
    with injected(lab, fault):
        lab.scheduler.sleep(0.01)
    came, went = since(log, begin)
    assert came["data"]["hits"] == went["data"]["hits"] == 0
    assert came["text"].endswith(", hits 0 so far")
    assert went["text"].endswith("recovered: no effect, no packet matched it")


def test_an_entry_holds_though_its_host_speaks_and_is_gone_whoever_deletes_it(lab: Lab, log: EventLog) -> None:
    wrong, begin = FdbWrongPort(switch="leaf", host="b", port="e3"), len(log.events)
    with injected(lab, wrong):
        lab.host("b")["eth1"].teach()
        lab.scheduler.sleep(1)
        assert wrong.verify(lab)
        mac = lab.host("b")["eth1"].mac
        lab["leaf"].run("bridge", "fdb", "delete", mac, "dev", "e3", "master", "vlan", "20")
        lab.scheduler.sleep(2)
    came, lost, went = since(log, begin)
    assert [one["kind"] for one in (came, lost, went)] == ["fault.injected", "fault.lost", "fault.recovered"]
    assert "no longer held 3.0" in lost["text"]
    assert "verification found it last 3.0" in lost["text"]
    lab.injections[-1].lost = ""
    assert numbered(lab, "twin", "b") == list(range(10))


def test_a_run_reports_at_the_end_of_a_step_that_a_fault_did_not_hold(
    lab: Lab, log: EventLog, run: Run, tmp_path: Path
) -> None:
    run.inject(LinkDown(end="leaf:e3"))
    with run.step("it holds"):
        lab.scheduler.sleep(1)
    with run.step("somebody sets the port up"):
        lab["leaf"]["e3"].up()
        lab.scheduler.sleep(1)
    with run.step("it is reported once"):
        pass
    lab.injections[-1].recover()
    run.observe("healthy", "nobody felt it")
    [lost] = log.find("fault.lost")[-1:]
    assert log.find("step")[-1]["t"] >= lost["t"] > log.find("step")[-2]["t"]
    [failure] = run.outcome(tmp_path)["failures"]
    assert failure.startswith("fault link-down end=leaf:e3 no longer held 2.")
    assert "verification found it last 1.0" in failure
    lab.injections[-1].lost = ""


def test_a_later_fault_may_be_why_one_is_not_in_place(lab: Lab, log: EventLog) -> None:
    begin = len(log.events)
    with injected(lab, ArpAgeing(switch="leaf", arp_age=60)) as first:
        with injected(lab, ArpAgeing(switch="leaf", arp_age=90)):
            first.check()
        first.check()
    assert "fault.lost" not in [event["kind"] for event in since(log, begin)]


def test_one_that_does_not_come_is_an_error_and_not_a_run(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LinkLoss, "inject", lambda self, lab, undo: None)
    with pytest.raises(FaultError, match="verification does not find it"):
        Injection(lab, LinkLoss(end="leaf:e1", loss=3)).inject()


def test_one_that_does_not_go_is_an_error(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    real, kept = LinkLoss.inject, ExitStack()
    monkeypatch.setattr(LinkLoss, "inject", lambda self, lab, undo: real(self, lab, kept))
    injection = Injection(lab, LinkLoss(end="leaf:e1", loss=3))
    injection.inject()
    with pytest.raises(FaultError, match="it was recovered but is still in place"):
        injection.recover()
    kept.close()


def test_one_that_cannot_be_taken_back_is_named(lab: Lab) -> None:
    held = ExactPacket(end="leaf:e2", action="delay", number=1)
    injection = Injection(lab, held)
    injection.inject()
    [device] = [line.split(":")[1].strip() for line in links(lab) if "hold-" in line]
    lab["leaf"].run("ip", "link", "delete", device)
    with pytest.raises(FaultError, match=f"fault {held}: it cannot be recovered: .*ip link delete {device}"):
        injection.recover()
    assert not lab["leaf"].run("tc", "filter", "show", "dev", "e2", "egress").stdout
    assert held.verify(lab) is None


def links(lab: Lab) -> list[str]:
    return lab["leaf"].run("ip", "-o", "link").stdout.splitlines()


def test_rules_that_somebody_deleted_are_gone(lab: Lab, log: EventLog) -> None:
    begin = len(log.events)
    with injected(lab, ArpDrop(end="b:eth1")):
        lab["leaf"].run("nft", "delete", "table", "bridge", "testbed-faults")
    assert [one["kind"] for one in since(log, begin)] == ["fault.injected", "fault.lost", "fault.recovered"]
    lab.injections[-1].lost = ""


def test_one_that_is_there_already_is_an_error(lab: Lab) -> None:
    fault = LinkLoss(end="leaf:e1", loss=3)
    with injected(lab, fault), pytest.raises(FaultError, match="it is already in place"):
        Injection(lab, fault).inject()


def test_a_fault_half_injected_is_taken_back(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    def half(self: LinkMtu, lab: Lab, undo: ExitStack) -> None:
        port = lab["leaf"]["e2"]
        undo.callback(port.set_mtu, port.mtu)
        port.set_mtu(1000)
        raise RuntimeError("half-way")

    monkeypatch.setattr(LinkMtu, "inject", half)
    with pytest.raises(RuntimeError, match="half-way"):
        Injection(lab, LinkMtu(end="leaf:e2", mtu=600)).inject()
    assert lab["leaf"]["e2"].mtu == 1500


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (ArpAgeing(switch="a", arp_age=1), "a is not a switch"),
        (ArpStorm(host="b", interface="eth9", pps=100), "b has no interface eth9"),
        (ArpPoison(host="c", ip="10.0.20.99", switch="leaf"), "no host has the address 10.0.20.99"),
        (DuplicateIp(host="a", ip=B), "10.0.20.2 is not in the subnet 10.0.10.0/24 of a"),
        (Corrupt(switch="leaf", ip="10.0.20.99"), "leaf has no entry for 10.0.20.99"),
        (FdbWrongPort(switch="leaf", host="b", port="e1"), "the MAC is in VLAN 20, and leaf:e1 is not"),
        (FdbWrongPort(switch="leaf", host="b", port="e9"), "leaf has no interface e9"),
        (FdbFlush(switch="leaf", host="b", interface="eth9"), "b has no interface eth9"),
        (StrictRpFilter(host="b", interface="eth9"), "b has no interface eth9"),
        (DuplicateMac(host="c", of="b", of_interface="eth9", switch="leaf"), "b has no interface eth9"),
        (BackgroundFlow(source="a", target="twin", rate=1_000_000), "eth1 of twin has no RDMA device"),
        (LinkLoss(end="leaf:e9", loss=1), "no link has an end 'leaf:e9'"),
        (LinkDown(end="a:eth1"), "a:eth1 is on a host"),
        (ArpFlux(host="b"), "b does not have two interfaces in one subnet"),
        (NicDown(end="leaf:e1"), "leaf:e1 is not on a host"),
        (LinkMtu(end="a:eth1", mtu=600), "a:eth1 is on a host"),
        (QueueTooSmall(end="leaf:e2", queue=20), "leaf:e2 has no rate"),
        (Incast(target="b", senders=["a", "leaf"]), "leaf is not a host"),
        (EcmpCollision(end="leaf:e1", pairs=[["a", "b"]], rate=1_000_000), "no flow from a to b leaves leaf by e1"),
        (EcmpCollision(end="bridge:e1", pairs=[["a", "b"]], rate=1_000_000), "bridge does not route"),
        (PauseStorm(end="bridge:e2", priority=3), "bridge:e2 is not on a host"),
        (PauseStorm(end="p:eth1", priority=5), "priority 5 has no priority flow control here"),
        (EcnOff(end="leaf:e1"), "leaf:e1 is not the end of a lossless link"),
        (ExactPacket(end="a:eth1", action="delay", number=1), "only packets that a switch sends can be delayed"),
    ],
    ids=str,
)
def test_what_the_lab_does_not_have_is_named(lab: Lab, fault: Fault, message: str) -> None:
    with pytest.raises(InputError, match=message):
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
    assert lab.scheduler.wait(lambda: answers(lab, "a", B), 10)


def test_a_packet_is_held_at_a_port_where_what_comes_in_is_impaired(lab: Lab) -> None:
    """Both need the port's filters, in either order."""
    held = ExactPacket(end="leaf:e2", action="delay", number=1)
    with injected(lab, LinkDelay(end="b:eth1", delay=1e-3)), injected(lab, held):
        assert answers(lab, "a", B)
    with (
        injected(lab, ExactPacket(end="leaf:e1", action="delay", number=1)),
        injected(lab, LinkDelay(end="a:eth1", delay=1e-3)),
    ):
        assert answers(lab, "a", B)


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


def test_a_twin_whose_port_is_shut_has_nowhere_to_send(lab: Lab) -> None:
    with injected(lab, DuplicateMac(host="c", of="b", switch="leaf", period=0.5)):
        lab.switch("leaf")["e3"].down()
        lab.scheduler.sleep(2)
        assert answers(lab, "a", B)
    lab.switch("leaf")["e3"].up()


def test_the_owner_of_a_mac_is_taught_back_when_its_twin_ends(lab: Lab, log: EventLog) -> None:
    """At once, whether or not the owner has something to send in the second that verification waits."""
    with injected(lab, DuplicateMac(host="c", of="b", switch="leaf")):
        began = log.now
    assert log.now - began < 0.1e9


def test_a_run_has_a_fault_later_and_for_a_while(lab: Lab, log: EventLog, run: Run) -> None:
    began, begin = log.now, len(log.events)
    run.inject(LinkDown(end="leaf:e1"), after=2, lasting=3)
    lab.scheduler.sleep(10)
    at = {event["kind"]: (event["t"] - began) / 1e9 for event in since(log, begin)}
    assert at == {"fault.injected": pytest.approx(2, abs=0.05), "fault.recovered": pytest.approx(5, abs=0.05)}


def test_a_fault_scheduled_after_the_run_ended_is_a_failure(lab: Lab, run: Run, tmp_path: Path) -> None:
    run.inject(LinkDown(end="leaf:e1"), after=60)
    run.observe("healthy", "nothing happened")
    assert run.outcome(tmp_path)["failures"] == [
        "fault link-down end=leaf:e1 was never injected: the run ended before its time"
    ]


def test_a_fault_that_the_end_of_the_run_cuts_short_is_a_failure(lab: Lab, run: Run, tmp_path: Path) -> None:
    run.inject(LinkDown(end="leaf:e1"), lasting=60)
    lab.scheduler.sleep(1)
    run.observe("healthy", "nothing happened")
    [failure] = run.outcome(tmp_path)["failures"]
    assert failure.startswith("fault link-down end=leaf:e1 was cut short: the run ended 5")
    assert failure.endswith(" s before its 60 s were over")
