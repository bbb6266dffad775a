"""Captures and the kernel's log have clocks of their own; an event log says where its t = 0 is on them."""

import contextlib

import pytest

from testbed.kernel import kmsg
from testbed.kernel.kmsg import KernelLog
from testbed.lab import Lab
from testbed.scenario.event_log import EventLog

NEAR_NS = 1_000_000
RECORDS = 1500

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


def test_records_of_the_kernel_that_were_overwritten_are_counted() -> None:
    with contextlib.closing(KernelLog()) as log:
        kmsg.DEVICE.write_text("<7>first\n")
        assert [record.lost for record in log.records()] == [0]
        for number in range(RECORDS):  # the ring holds 1 MiB of them
            kmsg.DEVICE.write_text(f"<7>{number} {'x' * 900}\n")
        found = list(log.records())
        assert 0 < len(found) < RECORDS
        assert (found[0].lost, found[-1].lost) == (int(found[0].text.split()[0]), 0)


def test_a_line_of_the_kernel_and_an_event_have_one_time(lab: Lab, log: EventLog) -> None:
    kernel_ns = log.epoch()["kernel_ns"]
    assert kernel_ns is not None
    lab.scheduler.sleep(7200)
    with contextlib.closing(KernelLog()) as kernel:
        kmsg.DEVICE.write_text("<7>testbed: two hours later\n")
        log.emit("step", "", "two hours later")
        (at_us,) = [record.us for record in kernel.records() if record.text == "testbed: two hours later"]
    assert abs(at_us * 1000 - kernel_ns - log.events[-1]["t"]) < NEAR_NS
