"""Captures and the kernel's log have clocks of their own; an event log says where its t = 0 is on them."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.executor.variant import kernel_complaints, open_kernel_log
from testbed.lab import Lab
from testbed.scenario.events import EventLog

NEAR_NS = 1_000_000

pytestmark = pytest.mark.topology("""
name: clocks
topology:
  nodes:
    leaf: {kind: switch, vlans: {10: 10.0.10.1/24}}
    a: {kind: host}
  links:
    - {endpoints: ["leaf:e1", "a:eth1"], vlan: 10}
""")


def test_an_event_and_the_packet_that_it_announces_have_one_time(lab: Lab, log: EventLog) -> None:
    capture = lab.switch("leaf")["e1"].capture("arp")
    lab.scheduler.sleep(7200)
    lab.host("a")["eth1"].announce()
    capture.stop()
    (event,) = log.find("garp")
    (frame,) = capture.frames()
    assert abs(frame.t_ns - log.epoch()["realtime_ns"] - event["t"]) < NEAR_NS


def test_a_line_of_the_kernel_and_an_event_have_one_time(lab: Lab, log: EventLog, tmp_path: Path) -> None:
    kernel_ns = log.epoch()["kernel_ns"]
    assert kernel_ns is not None
    lab.scheduler.sleep(7200)
    Path("/dev/kmsg").write_text("<7>testbed: two hours later\n")
    log.emit("step", "", "two hours later")
    kernel_complaints(open_kernel_log(), tmp_path / "kernel.log")
    (line,) = [one for one in (tmp_path / "kernel.log").read_text().splitlines() if one.endswith("two hours later")]
    at_ns = round(float(line.partition("]")[0].strip("[ ")) * 1e9)
    assert abs(at_ns - kernel_ns - log.events[-1]["t"]) < NEAR_NS
