"""Packets of a lossless class whose next hop has no MAC yet wait in the buffer of their port, or go by the profile."""

import pytest
import yaml
from lossless_lab import pair

from testbed.faults import LinkDelay, LinkLoss
from testbed.faults.fault import injected
from testbed.lab import Lab
from testbed.workload.attributes import Attributes

PATIENT = Attributes(timeout=20, retry_cnt=6, traffic_class=26 << 2)
PACKETS = 200_000 // 1024 + 1


def two_switches(**profile: object) -> str:
    """Hosts a and b behind w1, r behind w2; between them a VLAN and static routes, in both families."""

    def switch(number: int) -> dict[str, object]:
        other = 3 - number
        routes = [
            {"to": f"10.1.{other}.0/24", "via": f"10.255.0.{other}"},
            {"to": f"2001:db8:{other}::/64", "via": f"2001:db8:ff::{other}"},
        ]
        vlans = {
            10: [f"10.1.{number}.1/24", f"2001:db8:{number}::1/64"],
            100: [f"10.255.0.{number}/24", f"2001:db8:ff::{number}/64"],
        }
        return {"kind": "switch", "vlans": vlans, "routes": routes, "profile_values": profile}

    ends = [
        (["w1:ea", "a:eth1"], 10),
        (["w1:eb", "b:eth1"], 10),
        (["w1:up", "w2:down"], 100),
        (["w2:er", "r:eth1"], 10),
    ]
    topology = {
        "lossless": {"dscp": 26, "priority": 3},
        "kinds": {"host": {"nic": "hardware", "congestion_control": "none"}},
        "nodes": {"w1": switch(1), "w2": switch(2), **{name: {"kind": "host"} for name in "abr"}},
        "links": [{"endpoints": end, "vlan": vlan, "rate": "100mbit"} for end, vlan in ends],
    }
    return yaml.safe_dump({"name": "cold", "topology": topology})


pytestmark = [pytest.mark.topology(two_switches()), pytest.mark.fresh]


def burst(lab: Lab) -> list[str]:
    ends = [pair(lab, name, "r", PATIENT) for name in "ab"]
    works = [(end, end.post_write(200_000)) for end in ends]
    return [end.wait(work, within=60).status for end, work in works]


@pytest.mark.parametrize("family", [4, 6])
def test_a_burst_waits_in_the_buffer_of_its_port_and_leaves_in_order(lab: Lab, family: int) -> None:
    """The next hop's answers are lost for half a second. The port stops its host at once: nothing else can be known."""
    ends = [pair(lab, name, "r", PATIENT, family) for name in "ab"]
    into = lab.interface("w1:ea").lossless
    with injected(lab, LinkLoss(end="w2:down", loss=100)):
        works = [(end, end.post_write(200_000)) for end in ends]
        lab.scheduler.sleep(0.5)
        waiting = into.group(3)
        assert 1_000 < waiting.reserve + waiting.shared + waiting.headroom < 10_000
        assert all(lab.interface(f"{name}:eth1").lossless.paused(3) for name in "ab")
        assert lab.interface("w1:up").lossless.queue(3).sent_packets == 0
    assert [end.wait(work, within=60).status for end, work in works] == ["SUCCESS"] * 2
    assert lab.host("r")["eth1"].rdma_counters()["out_of_sequence"] == 0
    sent = [lab.host(name)["eth1"].lossless.queue(3).sent_packets for name in "ab"]
    assert sent == [PACKETS, PACKETS]


def test_what_comes_in_while_a_switch_sends_what_it_held_is_not_before_it(lab: Lab) -> None:
    """Hosts that heed no pause go on to send: many packets wait, and more come while those leave."""
    for name in "ab":
        lab.interface(f"{name}:eth1").lossless.change(honours_pause=())
    assert burst(lab) == ["SUCCESS"] * 2
    assert lab.host("r")["eth1"].rdma_counters()["out_of_sequence"] == 0
    assert lab.interface("w1:ea").lossless.group(3).most_bytes > 10_000


def test_what_waits_for_nobody_is_dropped_and_its_room_comes_back(lab: Lab) -> None:
    """The switch gives up three seconds after its first request."""
    end, into = pair(lab, "a", "r", PATIENT), lab.interface("w1:ea").lossless
    with injected(lab, LinkLoss(end="w2:down", loss=100)):
        end.post_write(2_000)  # the first packet makes the switch ask; it is not charged
        lab.scheduler.sleep(2.5)
        assert into.group(3).shared > 1_000
        assert lab.interface("a:eth1").lossless.paused(3)
        lab.scheduler.sleep(1)
        assert not any(into.group(3)[:3])
        assert not lab.interface("a:eth1").lossless.paused(3)


@pytest.mark.topology(two_switches(miss_packets="cpu", miss_pps=20))
def test_the_cpu_gets_as_many_as_the_profile_says(lab: Lab) -> None:
    with injected(lab, LinkLoss(end="w2:down", loss=100)):
        address = str(lab.host("r")["eth1"].address().ip)
        lab["a"].run("ping", "-q", "-i", "0.01", "-c", "100", "-W", "0.1", "-Q", "104", address, check=False)
        counters = lab.interface("w1:ea").lossless.counters()
        assert counters["miss_dropped:3"] == pytest.approx(74, abs=5)  # ping sends them 16 ms apart
        assert not any(lab.interface("w1:ea").lossless.group(3)[:3])


@pytest.mark.topology(two_switches(miss_packets="drop"))
def test_a_switch_may_drop_all_but_the_one_that_asks(lab: Lab) -> None:
    """The answer takes a tenth of a second."""
    address = str(lab.host("r")["eth1"].address().ip)
    with injected(lab, LinkDelay(end="w2:down", delay=0.1)):
        ping = lab["a"].run("ping", "-q", "-i", "0.01", "-c", "20", "-Q", "104", address, check=False)
    lost = 20 - int(ping.stdout.split(" received")[0].split()[-1])
    assert 4 <= lost <= 7  # ping sends them 16 ms apart
    assert lab.interface("w1:ea").lossless.counters()["miss_dropped:3"] == lost


SIZES: list[dict[str, object]] = [
    {},
    {"buffer": 200_000, "pfc_headroom": 9_000},
    {"buffer": 120_000, "pfc_headroom": 6_000, "pfc_alpha": 0.25, "pfc_xon_offset": 2_000},
]


def ring(number: int, **profile: object) -> str:
    """Switches in a ring, each with a host that writes to the one two switches on, all clockwise: half of the load that
    the links could have. They are routed, by static routes."""
    nodes: dict[str, object] = {}
    links: list[dict[str, object]] = []
    for one in range(number):
        after = (one + 1) % number
        routes = [{"to": f"10.1.{to}.0/24", "via": f"10.255.{one}.{2}"} for to in range(number) if to != one]
        vlans = {
            10: f"10.1.{one}.1/24",
            100 + one: f"10.255.{one}.1/24",
            100 + (one - 1) % number: f"10.255.{(one - 1) % number}.2/24",
        }
        nodes[f"s{one}"] = {"kind": "switch", "vlans": vlans, "routes": routes, "profile_values": profile}
        nodes[f"h{one}"] = {"kind": "host"}
        links.append({"endpoints": [f"s{one}:host", f"h{one}:eth1"], "vlan": 10, "rate": "75mbit"})
        links.append({"endpoints": [f"s{one}:on", f"s{after}:back"], "vlan": 100 + one, "rate": "200mbit"})
    topology = {
        "lossless": {"dscp": 26, "priority": 3},
        "kinds": {"host": {"nic": "hardware", "congestion_control": "none"}},
        "nodes": nodes,
        "links": links,
    }
    return yaml.safe_dump({"name": "ring", "topology": topology})


@pytest.mark.parametrize("sizes", [pytest.param(one, marks=pytest.mark.topology(ring(4, **one))) for one in SIZES])
def test_a_ring_below_its_load_neither_drops_nor_locks(lab: Lab, sizes: dict[str, object]) -> None:
    """Two flows of 75 Mbit/s share each link of 200, while all switches resolve their next hops."""
    ends = [pair(lab, f"h{one}", f"h{(one + 2) % 4}", PATIENT) for one in range(4)]
    works = [(end, end.post_write(250_000)) for end in ends]
    assert {end.wait(work, within=20).status for end, work in works} == {"SUCCESS"}
    dropped = [
        port.lossless.queue(3).dropped_packets
        for node in lab.switches()
        for port in node.interfaces.values()
        if port.port
    ]
    assert set(dropped) == {0}
    assert [lab.host(f"h{one}")["eth1"].rdma_counters()["out_of_sequence"] for one in range(4)] == [0] * 4
