"""Lossless classes on all kinds of networks: IPv6, READs, trunks, tags, FRR's routed ports."""

import pytest
from lossless_lab import CNP_DSCP, ECT, LOSSLESS, cnps_of, icrc_holds, incast, pair

from testbed import Lab
from testbed.errors import InputError
from testbed.topology.plan import CongestionControl
from testbed.workload import Attributes, Streams

MARKS = "ecn_min: 5000, ecn_max: 30000, ecn_probability: 50"
ONE_SWITCH = f"""
name: one
topology:
  lossless: {{dscp: 26, priority: 3}}
  kinds:
    host: {{nic: hardware, congestion_values: {{scale: 100, additive_bps: 1e6}}}}
    switch: {{profile_values: {{buffer: 150000, pfc_headroom: 10000, {MARKS}}}}}
  nodes:
    leaf: {{kind: switch, vlans: {{10: [10.0.10.1/24, "2001:db8:10::1/64"]}}}}
    a: {{kind: host}}
    b: {{kind: host}}
    c: {{kind: host}}
  links:
    - {{endpoints: ["leaf:e1", "a:eth1"], vlan: 10, rate: 100mbit}}
    - {{endpoints: ["leaf:e2", "b:eth1"], vlan: 10, rate: 100mbit}}
    - {{endpoints: ["leaf:e3", "c:eth1"], vlan: 10, rate: 100mbit}}
"""
TRUNK = """
name: trunk
topology:
  lossless: {dscp: 26, priority: 3}
  kinds:
    host: {nic: hardware, congestion_control: none}
    switch: {profile_values: {buffer: 150000, pfc_headroom: 10000}}
  nodes:
    leaf: {kind: switch, vlans: {10: 10.0.10.1/24, 20: 10.0.20.1/24}}
    far: {kind: switch, vlans: {10: , 20: }}
    a: {kind: host}
    b: {kind: host}
    c: {kind: host}
  links:
    - {endpoints: ["leaf:e1", "a:eth1"], vlan: 10, rate: 100mbit}
    - {endpoints: ["leaf:e2", "b:eth1"], vlan: 20, rate: 100mbit}
    - {endpoints: ["leaf:up", "far:up"], trunk: [10, 20], rate: 100mbit}
    - {endpoints: ["far:e1", "c:eth1"], vlan: 10, rate: 50mbit}
"""
FRR = """
name: frr
topology:
  routing: frr
  lossless: {dscp: 26, priority: 3}
  kinds:
    host: {nic: hardware, congestion_control: none}
    switch: {profile_values: {buffer: 150000, pfc_headroom: 10000}}
  nodes:
    spine: {kind: switch}
    leaf1: {kind: switch, vlans: {10: 10.1.1.1/24}}
    leaf2: {kind: switch, vlans: {10: 10.1.2.1/24}}
    a: {kind: host}
    b: {kind: host}
    c: {kind: host}
  links:
    - {endpoints: ["leaf1:e1", "a:eth1"], vlan: 10, rate: 100mbit}
    - {endpoints: ["leaf1:e2", "b:eth1"], vlan: 10, rate: 100mbit}
    - {endpoints: ["leaf1:up", "spine:e1"], rate: 100mbit}
    - {endpoints: ["leaf2:up", "spine:e2"], rate: 100mbit}
    - {endpoints: ["leaf2:e1", "c:eth1"], vlan: 10, rate: 50mbit}
"""
TAGS = """
name: tags
topology:
  lossless: {pcp: 4, priority: 3}
  kinds:
    host: {nic: hardware, congestion_control: none}
    switch: {profile_values: {buffer: 150000, pfc_headroom: 10000}}
  nodes:
    leaf: {kind: switch, vlans: {10: 10.0.10.1/24, 20: }}
    a: {kind: host}
    c: {kind: host}
  links:
    - {endpoints: ["leaf:e1", "a:eth1"], vlan: 20, trunk: [10], rate: 100mbit}
    - {endpoints: ["leaf:e2", "c:eth1"], vlan: 20, trunk: [10], rate: 20mbit}
"""


def nic(lab: Lab, host: str) -> dict[str, int]:
    return lab.interface(f"{host}:eth1").lossless.counters()


def sent_and_dropped(lab: Lab, end: str, priority: int = 3) -> tuple[int, int]:
    queue = lab.interface(end).lossless.queue(priority)
    return queue.sent_packets, queue.dropped_packets


@pytest.mark.topology(ONE_SWITCH)
def test_cnps_of_ipv6_hold_their_checks_and_slow_the_sender_down(lab: Lab) -> None:
    capture = lab.interface("a:eth1").capture("ip6")
    assert incast(lab, ECT, 250_000, family=6) == ["SUCCESS", "SUCCESS"]
    cnps = cnps_of(capture, 6)
    assert nic(lab, "c")["np_cnp_sent"] == nic(lab, "a")["rp_cnp_handled"] + nic(lab, "b")["rp_cnp_handled"]
    assert len(cnps) == nic(lab, "a")["rp_cnp_handled"] > 0
    assert all(icrc_holds(data) for data in cnps)
    assert {int.from_bytes(data[14:16]) >> 6 & 63 for data in cnps} == {CNP_DSCP}
    [(_, _, rate)] = lab.interface("a:eth1").lossless.rates()
    assert 0 < rate < 100_000_000


@pytest.mark.fresh
@pytest.mark.topology(ONE_SWITCH)
def test_a_receiver_counts_its_cnps_by_queue_pair_address_or_port(lab: Lab) -> None:
    """Two queue pairs of a and one of b, in a time in which each may have one CNP."""

    def cnps(per: str) -> int:
        for name in "a", "b", "c":
            lab.host(name)["eth1"].control_congestion("dcqcn", scale=100, cnp_us=1e5, cnp_per=per)
        before = nic(lab, "c")["np_cnp_sent"]
        ends = [pair(lab, name, "c", ECT) for name in ("a", "a", "b")]
        posted = [(end, end.post_write(60_000)) for end in ends]
        assert {end.wait(request, within=60).status for end, request in posted} == {"SUCCESS"}
        return nic(lab, "c")["np_cnp_sent"] - before

    assert [cnps(per) for per in ("qp", "address", "port")] == [3, 2, 1]


@pytest.mark.fresh
@pytest.mark.topology(ONE_SWITCH)
def test_responses_to_reads_are_paced(lab: Lab) -> None:
    """c reads from a and b: the data is in responses, and the responders are slowed down."""
    ends = [pair(lab, "c", name, ECT) for name in ("a", "b")]
    posted = [(end, end.post_read(250_000)) for end in ends]
    assert [end.wait(request, within=60).status for end, request in posted] == ["SUCCESS", "SUCCESS"]
    assert nic(lab, "a")["rp_cnp_handled"] > 0
    [(_, _, rate)] = lab.interface("a:eth1").lossless.rates()
    assert 0 < rate < 100_000_000
    assert sent_and_dropped(lab, "leaf:e3")[1] == 0


@pytest.mark.topology(ONE_SWITCH.replace(MARKS, "ecn_max: 0"))
def test_timely_keeps_the_queue_short_by_round_trips_alone(lab: Lab) -> None:
    hosts = [lab.host(name)["eth1"] for name in ("a", "b", "c")]
    out = lab.interface("leaf:e3").lossless

    def mean_queue(control: CongestionControl, **values: float) -> tuple[float, float]:
        """Bytes over the second half of a second, and the sum of the rates in bit/s."""
        for nic in hosts:
            nic.control_congestion(control, **values)
        seen: list[int] = []
        with Streams([(hosts[0], hosts[2]), (hosts[1], hosts[2])], ECT) as streams:
            streams.run(0.5)
            rates = streams.run(0.5, lambda: seen.append(out.queue(3).bytes))
        return sum(seen) / len(seen), sum(rates)

    full, rate = mean_queue("none")
    short, slower = mean_queue("timely", scale=20)
    assert short < full / 3
    assert slower > rate * 0.6  # the price of a round trip below T_low
    assert nic(lab, "a")["rp_cnp_handled"] + nic(lab, "c")["np_cnp_sent"] == 0
    assert all(0 < rate <= 100_000_000 for nic in hosts[:2] for _, _, rate in nic.lossless.rates()[-1:])
    hosts[0].control_congestion("none")
    assert {rate for _, _, rate in hosts[0].lossless.rates()} == {0}


@pytest.mark.topology(TRUNK)
def test_a_class_goes_over_a_trunk_by_its_dscp(lab: Lab) -> None:
    """From b the packets change their VLAN on the way."""
    assert incast(lab, LOSSLESS) == ["SUCCESS", "SUCCESS"]
    for end in "leaf:up", "far:e1":
        sent, dropped = sent_and_dropped(lab, end)
        assert (sent > 380, dropped) == (True, 0)
    assert lab.interface("leaf:up").lossless.counters()["SAI_PORT_STAT_PFC_3_RX_PKTS"] > 0
    assert nic(lab, "a")["rx_prio3_pause"] > 0
    assert nic(lab, "b")["rx_prio3_pause"] > 0


@pytest.mark.topology(FRR)
def test_routed_ports_of_frr_carry_a_class(lab: Lab) -> None:
    assert incast(lab, LOSSLESS) == ["SUCCESS", "SUCCESS"]
    for end in "leaf1:up", "spine:e2", "leaf2:e1":
        sent, dropped = sent_and_dropped(lab, end)
        assert (sent > 380, dropped) == (True, 0)
    assert lab.interface("spine:e2").lossless.counters()["SAI_PORT_STAT_PFC_3_RX_PKTS"] > 0
    assert lab.interface("leaf1:up").lossless.counters()["SAI_PORT_STAT_PFC_3_RX_PKTS"] > 0
    assert nic(lab, "a")["rx_prio3_pause"] > 0


@pytest.mark.fresh
@pytest.mark.topology(TAGS)
def test_a_class_is_known_by_its_tag(lab: Lab) -> None:
    """Hosts with a VLAN device of their own, which puts the priority of a socket into the tag."""
    for number, name in enumerate(("a", "c"), 1):
        host = lab[name]
        host.run(
            "ip",
            "link",
            "add",
            "link",
            "eth1",
            "name",
            "tagged",
            "type",
            "vlan",
            "id",
            "10",
            "egress-qos-map",
            "0:0",
            "6:4",
        )
        host.run("ip", "address", "add", f"10.0.10.{100 + number}/24", "dev", "tagged")
        host.run("ip", "link", "set", "tagged", "up")
    ping = "ping", "-q", "-c", "200", "-i", "0.002", "-s", "1000", "-W", "2"
    lab["a"].run(*ping, "10.0.10.102")
    assert sent_and_dropped(lab, "leaf:e2")[0] == 0
    before = sent_and_dropped(lab, "leaf:e2", 0)[0]
    lab["a"].run(*ping, "-Q", "0x10", "10.0.10.102")  # the kernel makes priority 6 of this type of service
    assert sent_and_dropped(lab, "leaf:e2") == (200, 0)
    assert sent_and_dropped(lab, "leaf:e2", 0)[0] <= before + 4  # ARP
    assert lab.interface("leaf:e1").lossless.group(3).most_bytes > 1000


SHARES = """
name: shares
topology:
  lossless: [{dscp: 26, priority: 3}, {dscp: 34, priority: 4}]
  kinds:
    host: {nic: hardware, congestion_control: none}
    switch: {profile_values: {buffer: 250000, pfc_headroom: 10000}}
  nodes:
    leaf: {kind: switch, vlans: {10: 10.0.10.1/24}}
    a: {kind: host}
    b: {kind: host}
    c: {kind: host}
  links:
    - {endpoints: ["leaf:e1", "a:eth1"], vlan: 10, rate: 50mbit}
    - {endpoints: ["leaf:e2", "b:eth1"], vlan: 10, rate: 50mbit}
    - {endpoints: ["leaf:e3", "c:eth1"], vlan: 10, rate: 50mbit, qos: {weights: {3: 75, 4: 25}}}
"""


@pytest.mark.topology(SHARES)
def test_classes_share_a_port_by_their_weights_or_one_is_before_all(lab: Lab) -> None:
    out = lab.interface("leaf:e3").lossless

    def sent_of_both() -> tuple[int, int]:
        """Within a tenth of a second in which both wait."""
        before = [out.queue(priority).sent_bytes for priority in (3, 4)]
        lab.scheduler.sleep(0.1)
        three, four = (out.queue(priority).sent_bytes - then for priority, then in zip((3, 4), before, strict=True))
        return three, four

    ends = [pair(lab, "a", "c", LOSSLESS), pair(lab, "b", "c", Attributes(timeout=16, traffic_class=34 << 2))]
    posted = [(end, [end.post_write(250_000) for _ in range(12)]) for end in ends]
    lab.scheduler.sleep(0.05)
    three, four = sent_of_both()
    assert 2.8 < three / four < 3.2
    take_back = out.change(weights={3: 50, 4: 50})
    three, four = sent_of_both()
    assert 0.95 < three / four < 1.05
    take_back()
    out.change(strict=(4,))
    assert out.settings()["strict"] == (4,)
    three, four = sent_of_both()
    assert three < four / 20
    assert {end.wait(request, within=60).status for end, requests in posted for request in requests} == {"SUCCESS"}
    assert out.queue(3).dropped_packets + out.queue(4).dropped_packets == 0


@pytest.mark.topology(SHARES.replace("weights: {3: 75, 4: 25}", "ecn_max: 9000, pfc_watchdog: 0.4"))
def test_a_port_may_differ_from_the_profile_of_its_switch(lab: Lab) -> None:
    first, third = (lab.interface(f"leaf:e{number}").lossless for number in (1, 3))
    assert (first.settings()["marking"][3][1], third.settings()["marking"][3][1]) == (0, 9000)
    lab.switch("leaf").change_profile(ecn_max=20_000, pfc_watchdog_poll=0.1)
    assert (first.settings()["marking"][3][1], third.settings()["marking"][3][1]) == (20_000, 9000)
    assert (first.settings()["watchdog_detect_ns"], third.settings()["watchdog_detect_ns"]) == (0, 400_000_000)
    assert third.settings()["watchdog_poll_ns"] == 100_000_000
    with pytest.raises(InputError, match="ecn_min"):  # above what this port has
        lab.switch("leaf").change_profile(ecn_min=10_000)
    assert lab.switch("leaf").profile()["ecn_min"] == 0
