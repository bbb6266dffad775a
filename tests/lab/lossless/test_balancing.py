"""Packets of a class over all equal paths: in turn, at random, over the shortest queue, or a flowlet at a time."""

import time
from typing import Literal

import pytest
import yaml

from testbed import Lab
from testbed.errors import InputError
from testbed.faults import LinkDown, LinkLoss, LinkRate
from testbed.faults.fault import injected
from testbed.workload.attributes import Attributes
from testbed.workload.verbs import Endpoint, connect_pair, open_endpoint

UPLINKS = 4


def leaves(balancing: object = "ecmp", routing: str = "static", reorder: object = None) -> str:
    """Hosts a and b behind one leaf, c and d behind another; between the leaves four spines, or four VLANs."""

    def leaf(number: int) -> dict[str, object]:
        vlans: dict[int, object] = {10: [f"10.1.{number}.1/24", f"2001:db8:{number}::1/64"]}
        found: dict[str, object] = {"kind": "switch", "vlans": vlans, "load_balancing": balancing}
        if routing == "static":
            other = 3 - number
            vlans |= {100 + up: [f"10.255.{up}.{number}/24", f"2001:db8:ff:{up}::{number}/64"] for up in range(UPLINKS)}
            vias = [f"10.255.{up}.{other}" for up in range(UPLINKS)]
            vias6 = [f"2001:db8:ff:{up}::{other}" for up in range(UPLINKS)]
            found["routes"] = [
                {"to": f"10.1.{other}.0/24", "via": vias},
                {"to": f"2001:db8:{other}::/64", "via": vias6},
            ]
        return found

    links: list[dict[str, object]] = [
        {"endpoints": [f"leaf{1 + (host in 'cd')}:{host}", f"{host}:eth1"], "vlan": 10, "rate": "200mbit"}
        for host in "abcd"
    ]
    nodes: dict[str, object] = {"leaf1": leaf(1), "leaf2": leaf(2), **{name: {"kind": "host"} for name in "abcd"}}
    for up in range(UPLINKS):
        if routing == "static":
            links.append({"endpoints": [f"leaf1:up{up}", f"leaf2:up{up}"], "vlan": 100 + up, "rate": "100mbit"})
        else:
            nodes[f"spine{up}"] = {"kind": "switch"}
            links += [{"endpoints": [f"leaf{n}:up{up}", f"spine{up}:e{n}"], "rate": "100mbit"} for n in (1, 2)]
    topology: dict[str, object] = {
        "lossless": {"dscp": 26, "priority": 3},
        "kinds": {
            "host": {"nic": "hardware", "congestion_control": "none", **({"reorder": reorder} if reorder else {})}
        },
        "nodes": nodes,
        "links": links,
    }
    if routing != "static":
        topology["routing"] = routing
    return yaml.safe_dump({"name": "leaves", "topology": topology})


pytestmark = pytest.mark.topology(leaves())


def sent(lab: Lab, priority: int = 3) -> list[int]:
    return [lab.interface(f"leaf1:up{up}").lossless.queue(priority).sent_packets for up in range(UPLINKS)]


def ping(lab: Lab, far: str, number: int, tos: int = 26 << 2, family: Literal[4, 6] = 4) -> list[int]:
    """How many packets of a flood each uplink of the first leaf sends: in a class, to one address."""
    target = str(lab.host(far)["eth1"].address(family).ip)
    before = sent(lab)
    lab["a"].run("ping", "-q", "-f", "-c", str(number), "-s", "1000", "-Q", str(tos), target)
    return [after - then for then, after in zip(before, sent(lab), strict=True)]


@pytest.mark.parametrize(
    "routing", [pytest.param(r, marks=pytest.mark.topology(leaves(routing=r))) for r in ("static", "frr")]
)
def test_packets_of_a_flow_take_one_path_or_all(lab: Lab, routing: str) -> None:
    leaf = lab.switch("leaf1")
    assert sorted(ping(lab, "c", 128))[:-1] == [0] * 3
    leaf.change_profile(load_balancing="spray")
    ping(lab, "c", 64)  # the first ones show which ports there are
    assert max(ping(lab, "c", 400)) - min(ping(lab, "c", 400)) <= 4
    leaf.change_profile(load_balancing="random")
    shares = ping(lab, "c", 400)
    assert all(60 < share < 140 for share in shares)
    assert max(shares) - min(shares) > 4
    leaf.change_profile(load_balancing="ecmp")
    assert sorted(ping(lab, "c", 64))[:-1] == [0] * 3


def connected(lab: Lab, near: str = "a", far: str = "c", family: Literal[4, 6] = 4, **values: int) -> Endpoint:
    """A queue pair whose next hops are resolved."""
    here, there = (open_endpoint(lab.host(name)["eth1"], family, memory=1 << 18) for name in (near, far))
    connect_pair(here, there, Attributes(**{"timeout": 16, "retry_cnt": 6, "traffic_class": 26 << 2, **values}))
    assert all(here.write(20_000, within=10).ok for _ in range(2))
    return here


def resent(lab: Lab, end: Endpoint, size: int = 200_000, number: int = 4) -> int:
    """How many packets of WRITEs were sent again."""
    queue = lab.host("a")["eth1"].lossless.queue
    before = queue(3).sent_packets
    works = [end.post_write(size) for _ in range(number)]
    assert {end.wait(work, within=30).status for work in works} == {"SUCCESS"}
    return queue(3).sent_packets - before - number * -(-size // 1024)


def nic(lab: Lab, host: str, name: str) -> int:
    return lab.interface(f"{host}:eth1").lossless.counters()[name]


def test_without_a_nic_that_reorders_a_sprayed_flow_is_sent_again_and_again(lab: Lab) -> None:
    lab.switch("leaf1").change_profile(load_balancing="random")
    assert resent(lab, connected(lab, retry_cnt=7)) > 100  # for rxe that is without end
    assert lab.host("c")["eth1"].rdma_counters()["out_of_sequence"] > 10
    assert "rx_reordered_packets" not in lab.interface("c:eth1").lossless.counters()


@pytest.mark.topology(leaves("random", reorder=128))
@pytest.mark.parametrize("family", [4, 6])
def test_a_nic_that_reorders_gives_rxe_its_packets_in_order(lab: Lab, family: Literal[4, 6]) -> None:
    """WRITEs, READs, whose responses have PSNs of their own, and both in turn; captures have each packet once."""
    capture = lab.interface("c:eth1").capture("udp port 4791 and dst port 4791")
    end = connected(lab, family=family)
    assert resent(lab, end) == 0
    reordered = nic(lab, "c", "rx_reordered_packets")
    assert reordered > 20
    for _ in range(3):
        assert end.read(100_000, within=5).ok
        assert end.write(50_000, within=5).ok
    works = [end.post_read(20_000) for _ in range(4)]
    assert {end.wait(work, within=5).status for work in works} == {"SUCCESS"}
    assert nic(lab, "a", "rx_reordered_packets") > 5
    assert nic(lab, "c", "rx_reordered_packets") > reordered
    for host in "ac":
        counters = lab.host(host)["eth1"].rdma_counters()
        assert (counters["out_of_sequence"], counters["packet_seq_err"]) == (0, 0)
        assert (nic(lab, host, "rx_reorder_timeouts"), nic(lab, host, "rx_reorder_held")) == (0, 0)
    offset = {4: 14 + 20 + 8, 6: 14 + 40 + 8}[family]
    sequence = [
        int.from_bytes(frame.data[offset + 9 : offset + 12])
        for frame in capture.frames()
        if frame.data[:6] == bytes.fromhex(lab.host("c")["eth1"].mac.replace(":", "")) and frame.data[offset] < 0x0C
    ]
    assert sequence != sorted(sequence), "it has them as they were on the wire"
    assert len(sequence) == len(set(sequence))


@pytest.mark.topology(leaves("random", reorder=128))
def test_queue_pairs_that_come_and_go_are_all_put_in_order(lab: Lab) -> None:
    """More than a NIC has places for, and one that lives through all of them."""
    first = connected(lab)
    for _ in range(40):
        here, there = (open_endpoint(lab.host(name)["eth1"], memory=1 << 15) for name in "ac")
        connect_pair(here, there, Attributes(timeout=16, retry_cnt=6, traffic_class=26 << 2))
        assert here.write(20_000, within=5).ok
        assert here.read(5_000, within=5).ok
        here.close()
        there.close()
    assert resent(lab, first) == 0
    assert nic(lab, "c", "rx_unsorted_packets") == 0
    assert [lab.host(host)["eth1"].rdma_counters()["out_of_sequence"] for host in "ac"] == [0, 0]


@pytest.mark.topology(leaves("random", reorder={"packets": 128, "timeout": "5ms"}))
def test_what_is_lost_is_given_up_after_a_time(lab: Lab) -> None:
    end = connected(lab)
    with pytest.raises(InputError, match="c:eth1 puts packets in order"):
        lab.interface("leaf2:c").sends.change(loss=2)
    with injected(lab, LinkLoss(end="leaf1:up1", loss=4)):
        assert resent(lab, end) > 10
    gave_up = nic(lab, "c", "rx_reorder_timeouts")
    assert gave_up > 2
    assert nic(lab, "c", "rx_reorder_held") == 0
    assert resent(lab, end) == 0, "it is in order again"
    assert nic(lab, "c", "rx_reorder_timeouts") == gave_up


@pytest.mark.topology(leaves("random", reorder=2))
def test_a_nic_holds_as_many_as_it_can(lab: Lab) -> None:
    end = connected(lab, retry_cnt=7)
    assert sum(resent(lab, end) for _ in range(4)) > 100  # one may have 14
    assert nic(lab, "c", "rx_reorder_overflows") > 2
    assert nic(lab, "c", "rx_reorder_most_held") == 3, "the one too many shows that it is"


@pytest.mark.topology(leaves("random", reorder=128))
def test_a_receiver_that_is_not_ready_gets_its_packets_in_order_again(lab: Lab) -> None:
    """SENDs without a buffer: RNR NAKs name the packet that is to come next."""
    here, there = (open_endpoint(lab.host(name)["eth1"], memory=1 << 18) for name in "ac")
    connect_pair(here, there, Attributes(timeout=16, rnr_retry=7, min_rnr_timer=20, traffic_class=26 << 2))
    assert all(here.write(20_000, within=10).ok for _ in range(2))
    works = [here.post_send(30_000) for _ in range(3)]
    lab.scheduler.sleep(0.05)
    for _ in works:
        there.post_recv(30_000)
    assert {here.wait(work, within=5).status for work in works} == {"SUCCESS"}
    assert nic(lab, "c", "rx_reorder_held") == 0


@pytest.mark.topology(leaves("spray", reorder=256))
def test_a_slow_path_gets_less_if_queues_decide(lab: Lab) -> None:
    """One of four uplinks at a quarter of its rate. In turn, the others wait for it."""
    end = connected(lab)
    seconds, shares = {}, {}
    with injected(lab, LinkRate(end="leaf1:up2", rate=25_000_000)):
        for balancing in "spray", "adaptive":
            lab.switch("leaf1").change_profile(load_balancing=balancing)
            assert resent(lab, end, 20_000) == 0
            before, start = sent(lab), time.monotonic()
            works = [end.post_write(250_000) for _ in range(8)]
            assert {end.wait(work, within=30).status for work in works} == {"SUCCESS"}
            seconds[balancing] = time.monotonic() - start
            shares[balancing] = [now - then for then, now in zip(before, sent(lab), strict=True)]
    assert max(shares["spray"]) - min(shares["spray"]) < 40
    assert shares["adaptive"][2] < sum(shares["adaptive"]) / 6
    assert seconds["adaptive"] < 0.7 * seconds["spray"]


@pytest.mark.parametrize(
    "balancing",
    [pytest.param(one, marks=pytest.mark.topology(leaves(one, routing="frr"))) for one in ("spray", "adaptive")],
)
def test_a_path_that_goes_is_left_and_one_that_comes_back_is_used(lab: Lab, balancing: str) -> None:
    """FRR takes the next hop away and back. No packet is lost on it, and the others have its share at once."""
    families: tuple[Literal[4, 6], ...] = (4, 6)
    for family in families:
        ping(lab, "c", 64, family=family)
    with injected(lab, LinkDown(end="spine3:e1")):
        lab.routing.converged(within=30, without=["leaf1:up3"])
        for family in families:
            shares = ping(lab, "c", 300, family=family)
            assert (shares[3], sum(shares)) == (0, 300)
            assert all(90 < share < 110 for share in shares[:3]), family
    lab.routing.converged(within=60)
    for family in families:
        shares = ping(lab, "c", 300, family=family)
        assert sum(shares) == 300
        assert all(65 < share < 85 for share in shares), (balancing, family)


@pytest.mark.topology(leaves({0: "spray", 3: "ecmp"}))
def test_classes_may_differ(lab: Lab) -> None:
    def both() -> list[list[int]]:
        return [sent(lab, priority) for priority in (0, 3)]

    ping(lab, "c", 64, tos=0)
    before = both()
    ping(lab, "c", 200, tos=0)
    ping(lab, "c", 200)
    lossy, lossless = (
        [now - then for then, now in zip(*pair, strict=True)] for pair in zip(before, both(), strict=True)
    )
    assert max(lossy) - min(lossy) <= 8
    assert sorted(lossless)[:-1] == [0] * 3


def test_a_flowlet_takes_a_path_of_its_own_after_a_gap(lab: Lab) -> None:
    lab.switch("leaf1").change_profile(load_balancing="flowlet", flowlet_gap=0.05)
    assert sorted(ping(lab, "c", 200))[:-1] == [0] * 3
    taken = []
    for _ in range(12):
        lab.scheduler.sleep(0.1)
        taken.append(tuple(share > 0 for share in ping(lab, "c", 20)))
    assert {sum(one) for one in taken} == {1}
    assert len(set(taken)) >= 3
