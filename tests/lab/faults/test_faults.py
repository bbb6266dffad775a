"""Faults of labs of their own."""

import pytest

from testbed.faults import BackgroundFlow, Injection, LinkDown, injected, unfinished
from testbed.lab import Lab
from testbed.scenario.event_log import EventLog
from testbed.topology.fabrics import leaf_spine

MBIT = 1_000_000


@pytest.mark.fresh
@pytest.mark.topology("""
name: from-the-start
topology:
  nodes: {leaf: {kind: switch}, a: {kind: host}}
  links:
    - endpoints: ["leaf:e1", "a:eth1"]
  faults:
    - {fault: link-delay, end: "leaf:e1", delay: 0.25}
""")
def test_a_lab_may_be_broken_from_the_start_and_its_end_recovers_what_is_left(lab: Lab, log: EventLog) -> None:
    assert lab.interface("leaf:e1").sends.verified().delay == 0.25
    timed = Injection(lab, LinkDown(end="leaf:e1"))
    timed.inject_after(0, lasting=60)
    lab.scheduler.sleep(0.5)
    lab.close()
    [missed] = unfinished(lab)
    assert missed.startswith("fault link-down end=leaf:e1 was cut short: the run ended 59.")
    timed.judged = True
    recovered = [event["data"]["fault"] for event in log.events if event["kind"] == "fault.recovered"]
    assert recovered == ["link-down", "link-delay"]


@pytest.mark.topology(leaf_spine(leaves=2, spines=1, hosts=2, rails=2).topology())
def test_a_flow_keeps_to_the_rail_that_was_chosen(lab: Lab) -> None:
    with injected(lab, BackgroundFlow(source="host1", target="host3", interface="eth2", rate=10 * MBIT)):
        before = [lab["host3"][interface].counters()["rx_bytes"] for interface in ("eth1", "eth2")]
        lab.scheduler.sleep(1)
        rail1, rail2 = (lab["host3"][f"eth{rail}"].counters()["rx_bytes"] - before[rail - 1] for rail in (1, 2))
    assert rail2 * 8 / MBIT == pytest.approx(10, rel=0.2)
    assert rail1 < 1000
