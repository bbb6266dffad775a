"""Automatic ECN: a switch that moves the share of packets that it marks, as Adaptive RED (2001) says."""

import pytest
from lossless_lab import ECT, pair

from testbed import Lab
from testbed.errors import InputError
from testbed.lab.port import Port
from testbed.workload import Streams

INTERVAL_S, FIRST = 0.02, 0.04
FILE = f"""
name: marking
topology:
  lossless: {{dscp: 26, priority: 3}}
  kinds: {{host: {{nic: hardware, congestion_control: none}}}}
  nodes:
    leaf:
      kind: switch
      vlans: {{10: 10.0.10.1/24}}
      profile_values:
        {{buffer: 90000, ecn_min: 1000, ecn_max: 9000, ecn_probability: {100 * FIRST:g}, ecn_control: adaptive,
          ecn_interval: {INTERVAL_S}}}
    a: {{kind: host}}
    b: {{kind: host}}
    c: {{kind: host}}
  links:
    - {{endpoints: ["leaf:e1", "a:eth1"], vlan: 10, rate: 50mbit}}
    - {{endpoints: ["leaf:e2", "b:eth1"], vlan: 10, rate: 50mbit}}
    - {{endpoints: ["leaf:e3", "c:eth1"], vlan: 10, rate: 50mbit}}
"""
pytestmark = [pytest.mark.topology(FILE), pytest.mark.fresh]


def share(port: Port) -> float:
    """Of the packets just below ecn_max, those that the port marks."""
    return port.counters()["ecn_probability_ppm:3"] / 1e6


def congested(lab: Lab) -> Streams:
    return Streams([(lab.host(name)["eth1"], lab.host("c")["eth1"]) for name in "ab"], ECT)


def test_it_marks_more_while_the_queue_is_long_and_less_when_it_is_empty(lab: Lab) -> None:
    """By 1 % at each interval, at most half; by a tenth of itself, at least 1 %."""
    out, end = lab.interface("leaf:e3").lossless, pair(lab, "a", "c", ECT)
    with congested(lab) as streams:
        streams.run(10.5 * INTERVAL_S)
        assert share(out) == pytest.approx(FIRST + 10 * 0.01, abs=0.011)
        streams.run(60 * INTERVAL_S)
        assert 0.5 < share(out) < 0.511
    lab.scheduler.wait(lambda: not out.queue(3).bytes, 5)
    before = share(out)
    lab.scheduler.sleep(20.5 * INTERVAL_S)
    assert end.write(64, within=1).ok
    assert before * 0.9**22 < share(out) < before * 0.9**19
    lab.scheduler.sleep(100 * INTERVAL_S)
    assert end.write(64, within=1).ok
    assert 0.009 < share(out) < 0.01


def test_it_leaves_a_queue_in_the_middle_alone(lab: Lab) -> None:
    """Two senders have a queue of some kilobytes when the thresholds are around it."""
    out = lab.interface("leaf:e3").lossless
    with congested(lab) as streams:
        streams.run(0.3)
        middle = out.queue(3).bytes
        lab.switch("leaf").change_profile(ecn_min=0, ecn_max=2 * middle)
        streams.run(20 * INTERVAL_S)
        assert share(out) == pytest.approx(FIRST, abs=0.0001)
        lab.switch("leaf").change_profile(ecn_max=int(1.5 * middle))
        streams.run(10 * INTERVAL_S)
        assert share(out) > FIRST + 0.05
        lab.switch("leaf").change_profile(ecn_max=3 * middle)
        streams.run(10 * INTERVAL_S)
        assert share(out) < FIRST * 0.6


def test_other_changes_of_the_profile_do_not_begin_it_again(lab: Lab) -> None:
    out = lab.interface("leaf:e3").lossless
    with congested(lab) as streams:
        streams.run(10.5 * INTERVAL_S)
        before = share(out)
        lab.switch("leaf").change_profile(pfc_watchdog=5, mac_age=200)
        streams.run(INTERVAL_S)
        assert share(out) >= before > 2 * FIRST


def test_it_marks_the_share_that_it_says(lab: Lab) -> None:
    """At a queue that stands still the share of Pmax is that of the way from Kmin to Kmax: here two thirds."""
    out = lab.interface("leaf:e3").lossless
    with congested(lab) as streams:
        streams.run(0.3)
        lab.switch("leaf").change_profile(ecn_min=0, ecn_max=int(1.5 * out.queue(3).bytes))
        streams.run(60 * INTERVAL_S)
        before = out.queue(3)
        streams.run(1.0)
        after = out.queue(3)
    sent, marked = after.sent_packets - before.sent_packets, after.marked_packets - before.marked_packets
    assert 0.5 < share(out) < 0.511
    assert marked / sent == pytest.approx(share(out) * 2 / 3, rel=0.1)


def test_without_a_way_between_the_thresholds_it_is_refused(lab: Lab) -> None:
    with pytest.raises(InputError, match="ecn_control: adaptive needs ecn_max"):
        lab.switch("leaf").change_profile(ecn_min=9000)
    lab.switch("leaf").change_profile(ecn_control="fixed", ecn_min=9000)
    assert "ecn_probability_ppm:3" not in lab.interface("leaf:e3").lossless.counters()
