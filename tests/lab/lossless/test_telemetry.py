"""HPCC: queue pairs by the telemetry of their packets' paths, on one switch and over several."""

import re

import pytest
from lossless_lab import ECT, icrc_holds, incast, pair

from testbed import Lab
from testbed.workload import Streams

FILE = """
name: telemetry
topology:
  lossless: {dscp: 26, priority: 3}
  kinds:
    host: {nic: hardware, congestion_control: hpcc, congestion_values: {base_rtt_us: 5}}
    switch: {profile_values: {buffer: 300000, pfc_headroom: 10000}}
  nodes:
    spine: {kind: switch, vlans: {10: 10.0.10.1/24}}
    leaf: {kind: switch, vlans: {10: null}}
    a: {kind: host}
    b: {kind: host}
    c: {kind: host}
  links:
    - {endpoints: ["leaf:e1", "a:eth1"], vlan: 10, rate: 100mbit}
    - {endpoints: ["leaf:e2", "b:eth1"], vlan: 10, rate: 100mbit}
    - {endpoints: ["leaf:up", "spine:e1"], vlan: 10, rate: 200mbit}
    - {endpoints: ["spine:e2", "c:eth1"], vlan: 10, rate: 50mbit}
"""
ECHO = 0xC0
pytestmark = [pytest.mark.topology(FILE), pytest.mark.fresh]


def test_the_queue_of_an_incast_is_near_zero_and_its_link_in_use(lab: Lab) -> None:
    nics = [lab.host(name)["eth1"] for name in "abc"]
    out, found = lab.interface("spine:e2").lossless, {}

    def rate_and_queue() -> tuple[float, float]:
        queues: list[int] = []
        with Streams([(nic, nics[2]) for nic in nics[:2]], ECT, ahead=8) as streams:
            streams.run(1.0)
            rates = streams.run(0.5, lambda: queues.append(out.queue(3).bytes))
        return sum(rates), sum(queues) / len(queues)

    for control in "none", "hpcc":
        for nic in nics:
            nic.control_congestion(control, **({"base_rtt_us": 5} if control == "hpcc" else {}))
        found[control] = rate_and_queue()
    assert found["none"][1] > 50_000
    assert found["hpcc"][1] < 3_000
    assert 0.9 < found["hpcc"][0] / found["none"][0] < 0.97  # eta is 95 %


def test_each_packet_has_its_echo_and_nobody_else_has_one(lab: Lab) -> None:
    capture, other = (lab.interface(f"{name}:eth1").capture("udp port 4791") for name in "ab")
    assert pair(lab, "a", "c", ECT).write(50_000, within=5).ok
    lab.host("b")["eth1"].control_congestion("none")
    assert pair(lab, "b", "c", ECT).write(50_000, within=5).ok
    echoes = [frame.data for frame in capture.frames() if frame.data[42] == ECHO]
    assert len(echoes) == -(-50_000 // 1024)
    assert all(icrc_holds(data) and len(data) == 74 and data[15] >> 2 == 48 for data in echoes)
    psns = [int.from_bytes(data[51:54]) for data in echoes]
    assert psns == list(range(psns[0], psns[0] + len(psns)))
    assert ECHO not in {frame.data[42] for frame in other.frames()}
    [(_, _, rate)] = lab.interface("a:eth1").lossless.rates()
    assert rate > 0


def test_a_queue_pair_may_come_under_it_later(lab: Lab) -> None:
    nics = [lab.host(name)["eth1"] for name in "ac"]
    for nic in nics:
        nic.control_congestion("none")
    end = pair(lab, "a", "c", ECT)
    plain = end.write(200_000, within=5).elapsed_s
    for nic in nics:
        nic.control_congestion("hpcc", base_rtt_us=5)
    assert end.write(200_000, within=5).elapsed_s < 1.3 * plain


def test_lost_echoes_hold_no_queue_pair_back_for_ever(lab: Lab) -> None:
    """All of them are lost on their way, and nothing else."""
    end = pair(lab, "a", "c", ECT)
    assert end.write(10_000, within=5).ok
    rule = f"udp dport 4791 @th,64,8 {ECHO:#x} counter drop"
    table = f"table bridge echoes {{ chain forward {{ type filter hook forward priority 0; {rule}; }}; }}"
    lab["leaf"].run("nft", "-f", "-", text=table)
    assert end.write(60_000, within=30).ok
    lost = re.findall(r"counter packets (\d+)", lab["leaf"].run("nft", "list", "table", "bridge", "echoes").stdout)
    assert int(lost[0]) == 59  # a packet has 1024 bytes
    lab["leaf"].run("nft", "delete", "table", "bridge", "echoes")
    assert incast(lab, ECT, 60_000) == ["SUCCESS", "SUCCESS"]
