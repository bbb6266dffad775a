from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_samples import EVENTS, IP, MS, ROWS, A, B, event, row

from testbed.errors import InputError
from testbed.report.contents import folds, marks
from testbed.report.owners import Owners
from testbed.report.timeline import Lane, Timeline

END = 430 * MS


def lanes(events: list[Any], rows: list[Any] = ROWS, end: int = END) -> dict[tuple[str, str], Lane]:
    return {(lane.group, lane.name): lane for lane in Timeline(events, Owners(rows, events), end).lanes}


def bars(lane: Lane) -> list[tuple[int, int, str, str]]:
    return [(bar.start // MS, bar.end // MS, bar.text, bar.level) for bar in lane.bars]


def test_an_entry_is_wrong_from_when_the_address_has_another_owner() -> None:
    found = lanes(EVENTS)
    assert bars(found["ARP and ND", f"leaf: {IP}"]) == [
        (21, 100, f"pod-a {A}", "plain"),
        (100, 430, f"pod-a {A}", "bad"),
    ]
    assert bars(found["Addresses", IP]) == [(10, 30, f"pod-a {A}", "plain"), (100, 430, f"pod-b {B}", "plain")]


def test_an_entry_ends_where_it_ages_out_and_a_new_one_is_right() -> None:
    more = [
        event(200 * MS, "arp.aged", "leaf", vlan=20, ip=IP, mac=A),
        event(300 * MS, "arp.learned", "leaf", vlan=20, ip=IP, mac=B, port="e3", reason="request"),
    ]
    assert bars(lanes([*EVENTS[:10], *more])["ARP and ND", f"leaf: {IP}"])[1:] == [
        (100, 200, f"pod-a {A}", "bad"),
        (300, 430, f"pod-b {B}", "plain"),
    ]


def test_an_address_that_moves_to_another_interface_makes_the_entry_wrong() -> None:
    events = [
        event(
            10 * MS, "arp.learned", "leaf", vlan=20, ip="10.0.20.2", mac="02:00:03:00:00:01", port="e2", reason="garp"
        ),
        event(50 * MS, "address", "node1", interface="eth1", ip="10.0.20.2", has=False),
        event(60 * MS, "address", "node2", interface="eth1", ip="10.0.20.2", has=True),
    ]
    assert [level for *_, level in bars(lanes(events)["ARP and ND", "leaf: 10.0.20.2"])] == ["plain", "bad"]


def test_a_mac_that_moves_with_its_address_makes_the_old_port_wrong() -> None:
    mac = "02:00:03:00:00:01"
    events = [
        event(10 * MS, "fdb.learned", "leaf", vlan=20, mac=mac, port="e2"),
        event(50 * MS, "address", "node1", interface="eth1", ip="10.0.20.2", has=False),
        event(55 * MS, "link", "node2", interface="eth1", mac=mac),
        event(60 * MS, "fdb.moved", "leaf", vlan=20, mac=mac, port="e3", old_port="e2"),
    ]
    found = lanes(events)["MAC table", f"leaf: node1, node2 {mac}, VLAN 20"]
    assert bars(found) == [(10, 55, "e2", "plain"), (55, 60, "e2", "bad"), (60, 430, "e3", "plain")]


def test_a_switch_that_is_not_at_the_owner_is_not_judged() -> None:
    events = [event(10 * MS, "fdb.learned", "spine", vlan=20, mac="02:00:03:00:00:01", port="e9")]
    [lane] = lanes(events).values()
    assert bars(lane) == [(10, 430, "e9", "plain")]


def test_a_fault_lasts_until_it_is_recovered_and_is_marked_at_its_link() -> None:
    fault = {"fault": "link-down", "end": "leaf:e2", "verified": {"down": "leaf:e2"}}
    events = [
        event(100 * MS, "fault.injected", "", "link-down end=leaf:e2 injected: down leaf:e2", **fault),
        event(100 * MS, "link", "leaf", interface="e2", state="down"),
        event(200 * MS, "link", "leaf", interface="e2", state="up"),
        event(210 * MS, "fault.recovered", "", "link-down recovered", **{**fault, "verified": {}}),
    ]
    found = lanes(events)
    assert bars(found["Faults", "link-down end=leaf:e2"]) == [(100, 210, "link-down end=leaf:e2", "bad")]
    assert bars(found["Links", "leaf:e2"]) == [(100, 200, "down", "bad")]
    placed = marks(found.values(), events, {"leaf", "node1"}, {})
    assert [mark.places for mark in placed] == [[("leaf", "leaf:e2")], [("leaf", "leaf:e2")]]


@pytest.mark.parametrize(
    ("kind", "hits", "end", "text"),
    [
        ("fault.recovered", {"hits": 7}, 300, "arp-drop end=leaf:e2"),
        ("fault.recovered", {"hits": 0}, 300, "arp-drop end=leaf:e2, no effect seen"),
        ("fault.lost", {}, 200, "arp-drop end=leaf:e2, no longer in place then"),
    ],
)
def test_a_fault_without_effect_and_one_that_did_not_hold_are_named(
    kind: str, hits: dict[str, int], end: int, text: str
) -> None:
    fault = {"fault": "arp-drop", "end": "leaf:e2", "verified": {}}
    lost = [event(200 * MS, kind, "", "", **fault)] if kind == "fault.lost" else []
    events = [
        event(100 * MS, "fault.injected", "", "arp-drop end=leaf:e2 injected: rule at", **{**fault, "hits": 0}),
        *lost,
        event(300 * MS, "fault.recovered", "", "", **fault, **hits),
    ]
    found = lanes(events)
    assert bars(found["Faults", "arp-drop end=leaf:e2"]) == [(100, end, text, "bad")]
    [mark] = marks(found.values(), events, {"leaf"}, {})
    assert (mark.places, mark.text) == ([("leaf", "leaf:e2")], "arp-drop end=leaf:e2")


def test_a_fault_of_a_pod_is_marked_at_its_host() -> None:
    fault = {"fault": "duplicate-ip", "host": "pod-a", "verified": {}}
    events = [event(1, "fault.injected", "", "duplicate-ip host=pod-a injected", **fault)]
    [mark] = marks(lanes(events).values(), events, {"leaf", "node1"}, {"pod-a": "node1"})
    assert mark.places == [("node1", "")]


def qp(t: int, state: str, qpn: int = 17) -> dict[str, Any]:
    peer = "10.0.20.100 QP 18"
    return event(t * MS, "qp", "client", interface="eth1", state=state, device="client-eth1", qpn=qpn, peer=peer)


def test_a_queue_pair_has_its_states_and_the_next_one_takes_its_lane() -> None:
    events = [qp(1, "INIT"), qp(2, "RTS"), qp(5, "ERR"), qp(6, "closed"), qp(8, "INIT", 18), qp(9, "INIT", 19)]
    found = lanes(events)
    assert bars(found["Queue pairs", "client:eth1"]) == [
        (1, 2, "QP 17 INIT", "plain"),
        (2, 5, "QP 17 RTS, to 10.0.20.100 QP 18", "good"),
        (5, 6, "QP 17 ERR", "bad"),
        (8, 430, "QP 18 INIT", "plain"),
    ]
    assert bars(found["Queue pairs", "client:eth1, beside it 2"]) == [(9, 430, "QP 19 INIT", "plain")]


def test_a_completion_lasts_from_its_request_on() -> None:
    assert bars(lanes(EVENTS)["Completions", "client"]) == [(150, 400, "RDMA_WRITE RETRY_EXC_ERR", "bad")]


@pytest.mark.parametrize("data", [{}, {"ip": 5}, {"ip": "x", "mac": []}, {"seconds": "nan"}, {"result": [1]}])
@pytest.mark.parametrize("kind", ["arp.learned", "fdb.moved", "qp", "completion", "cni", "sleep", "job", "link", "nie"])
def test_events_of_any_shape_make_no_error(kind: str, data: dict[str, Any]) -> None:
    lanes([event(1, kind, "leaf", **data)])


def test_hours_between_two_tries_are_folded_and_all_tries_are_seen() -> None:
    second = 1000 * MS
    times = [t * 300 * second + offset for t in range(48) for offset in (0, 50 * MS, 270 * MS)]
    found = folds(times, 48 * 300 * second)
    assert len(found) == 48
    assert not any(start <= t <= end for start, end in found for t in times)
    left = 48 * 300 * second - sum(end - start for start, end in found)
    assert left < 60 * second


def test_a_port_that_is_told_to_stop_has_a_lane_of_pauses() -> None:
    told = {"interface": "eth1", "priority": 3, "lasted_ns": 40 * MS, "frames": 12}
    events = [event(100 * MS, "pfc.paused", "a", **told), event(410 * MS, "pfc.paused", "a", **told)]
    found = bars(lanes(events)["Pauses", "a:eth1, priority 3"])
    assert found == [(100, 140, "12 frames", "note"), (410, 430, "12 frames", "note")]


def test_even_pauses_are_not_folded() -> None:
    assert folds(range(0, 1000 * 2000 * MS, 2000 * MS), 2_000_000 * MS) == []


@given(st.lists(st.integers(0, 10**15), max_size=40), st.integers(1, 10**15))
def test_folds_are_in_order_and_hold_no_event(times: list[int], end: int) -> None:
    found = folds(times, end)
    edges = [edge for fold in found for edge in fold]
    assert edges == sorted(edges)
    assert all(0 <= edge <= end for edge in edges)
    assert not any(start < t < stop for start, stop in found for t in times)


def test_a_drawing_of_the_rows_is_that_of_the_plan() -> None:
    """But for the VLANs in which a switch only bridges, which have no row, and values that are the profile's own."""
    from testbed.executor.topologies import plan_of
    from testbed.scenario.rows import plan_rows
    from testbed.switch.profile import DEFAULT, configured
    from testbed.topology import Topology
    from testbed.topology.graph import STYLES

    root = Path(__file__).parents[3]
    for file in sorted((*root.glob("scenarios/*/*.clab.yml"), *root.glob("tests/lab/*.clab.yml"))):
        plan = Topology.load(file).plan()
        for node in plan.nodes.values():
            if node.kind == "switch":
                source = configured(node.profile, node.profile_values).source
                values = tuple((name, value) for name, value in node.profile_values if source.get(name) == "U")
                svis = tuple(svi for svi in node.svis if svi.addresses or svi.vni)
                profile = node.profile or DEFAULT
                plan.nodes[node.name] = replace(node, svis=svis, profile=profile, profile_values=values)
        drawn, again = (STYLES["svg"](one).splitlines() for one in (plan, plan_of(plan_rows(plan, {}))))
        assert sorted(again) == sorted(drawn), file


def test_rows_of_an_older_testbed_are_drawn_without_what_they_lack() -> None:
    from testbed.executor.topologies import plan_of
    from testbed.scenario.rows import plan_rows
    from testbed.topology import Topology
    from testbed.topology.graph import svg

    rows = plan_rows(Topology.load(Path(__file__).parents[2] / "lab/segments.clab.yml").plan(), {})
    new = svg(plan_of(rows))
    for one in rows["interfaces"]:
        for key in "vni", "vrrp", "es_id", "system":
            one.pop(key, None)
    for switch in rows["switches"].values():
        switch.pop("vtep", None)
        switch.pop("l3vni", None)
    old = svg(plan_of(rows))
    assert ">VLAN 10 · 10.0.10.1/24<" in old
    for text in "VNI", "VTEP", "ES 1":
        assert text in new
        assert text not in old
    assert "bond0: eth1, eth2" in old


def test_rows_that_lead_nowhere_are_no_plan() -> None:
    from testbed.executor.topologies import plan_of

    with pytest.raises(InputError, match="the peer of a:eth1 is nowhere:e1"):
        plan_of({"name": "x", "interfaces": [row("a", "eth1", "nowhere:e1", A)]})
