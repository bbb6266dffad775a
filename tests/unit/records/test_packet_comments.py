"""Comments on packets: which events they name, and where there is none because it may not be true."""

from typing import Any

import pytest
from lab_traffic import (
    ACKNOWLEDGE,
    BROADCAST,
    CLIENT,
    MS,
    NEXT,
    POD,
    REQUEST,
    SERVER,
    SWITCH,
    TO_POD,
    arp,
    ethernet,
    event,
    learned,
    roce,
)
from pcapng_reader import Written, comments

from testbed.protocol import Event, Made
from testbed.records.comments import CANDIDATES, KEPT_COMMENTS, REMEMBERED, Wanted

# Events of switches


def test_what_a_switch_learned_is_named_at_the_port_where_it_came_in(written: Written) -> None:
    """The request is broadcast, and leaves at the other port."""
    found = written(
        [learned(2 * MS)], leaf_e1=[(2 * MS, REQUEST)], leaf_e2=[(MS, REQUEST)], server_eth1=[(MS, REQUEST)]
    )
    text = f"arp.learned at leaf, 1.000 ms later: ARP {POD} is at {SERVER}"
    assert dict(found.comments) == {"leaf:e2": [text], "server:eth1": [text], "leaf:e1": []}


@pytest.mark.parametrize(
    "frames",
    [
        [(MS, REQUEST), (2 * MS, REQUEST)],
        [(MS, arp(CLIENT, POD, "10.0.20.1"))],
        [(MS, arp(SERVER, NEXT, "10.0.20.1"))],
        [(6 * MS, REQUEST)],
    ],
    ids=["two fit", "another MAC", "another address", "it came later"],
)
def test_a_frame_that_may_be_another_has_no_comment(written: Written, frames: list[tuple[int, bytes]]) -> None:
    assert comments(written([learned(5 * MS)], leaf_e2=frames)) == [[]] * len(frames)


def test_a_frame_long_before_the_event_has_no_comment(written: Written) -> None:
    assert comments(written([learned(50 * MS)], leaf_e2=[(MS, REQUEST)])) == [[]]


def test_the_first_frame_of_a_mac_at_a_port_is_what_the_fdb_learned_it_from(written: Written) -> None:
    moved = event(3 * MS, "fdb.moved", "leaf", "it moves", vlan=20, mac=SERVER, port="e2", old_port="e1")
    frames = [(MS, roce(SERVER, SWITCH, TO_POD, psn=1)), (2 * MS, roce(SERVER, SWITCH, TO_POD, psn=2))]
    assert comments(written([moved], leaf_e2=frames)) == [["fdb.moved at leaf, 2.000 ms later: it moves"], []]


def test_it_is_not_if_the_fdb_changed_shortly_before(written: Written) -> None:
    events = [
        event(t * MS, kind, "leaf", "", vlan=20, mac=SERVER, port="e2")
        for t, kind in ((2, "fdb.flushed"), (4, "fdb.learned"))
    ]
    assert comments(written(events, leaf_e2=[(MS, roce(SERVER, SWITCH, TO_POD))])) == [[]]


def test_a_refresh_is_the_switch_s_own_question_behind_it(written: Written) -> None:
    refresh = event(2 * MS, "arp.refresh", "leaf", "it asks", vlan=20, ip=POD, mac=SERVER, probe=1)
    ours = arp(SWITCH, "10.0.20.1", POD, dst=SERVER)
    found = written([refresh], leaf_e2=[(MS, ours), (3 * MS, ours), (4 * MS, arp(CLIENT, "10.0.20.7", POD))])
    assert comments(found) == [[], ["arp.refresh at leaf, 1.000 ms earlier: it asks"], []]


def test_a_miss_names_the_first_packet_that_met_no_entry(written: Written) -> None:
    miss = event(3 * MS, "arp.miss", "leaf", "no entry", vlan=20, ip=POD)
    frames = [(MS, roce(CLIENT, SWITCH, TO_POD, psn=1)), (2 * MS, roce(CLIENT, SWITCH, TO_POD, psn=2))]
    found = written([miss], leaf_e1=frames, leaf_e2=[(4 * MS, roce(SWITCH, SERVER, TO_POD))])
    assert comments(found) == [["arp.miss at leaf, 2.000 ms later: no entry"], [], []]


# Events of requests, pods and the run


def completion(t: int, status: str, elapsed_s: float = 0.005, far: tuple[str, int] = (POD, 17)) -> Event:
    data = {"opcode": "RDMA_WRITE", "status": status, "elapsed_s": elapsed_s, "near": ["10.0.10.2", 18], "far": [*far]}
    return event(t, "completion", "client", f"it ends with {status}", **data)


def test_a_request_that_died_is_named_at_its_last_try(written: Written) -> None:
    frames = [(t * MS, roce(CLIENT, SWITCH, TO_POD, psn=t)) for t in (1, 2, 3)]
    other = (4 * MS, roce(CLIENT, SWITCH, TO_POD, qp=99))
    found = written([completion(5 * MS, "RETRY_EXC_ERR")], leaf_e2=[*frames, other])
    assert comments(found) == [[], [], ["completion at client, 2.000 ms later: it ends with RETRY_EXC_ERR"], []]


def test_a_request_that_was_refused_is_named_at_the_nak(written: Written) -> None:
    nak = roce(SERVER, SWITCH, (POD, "10.0.10.2"), qp=18, opcode=ACKNOWLEDGE, syndrome=0x62)
    found = written([completion(3 * MS, "REM_ACCESS_ERR")], leaf_e2=[(MS, roce(CLIENT, SWITCH, TO_POD)), (2 * MS, nak)])
    assert comments(found) == [
        [],
        ["completion at client, 1.000 ms later: it ends with REM_ACCESS_ERR", "roce.nak: remote access error"],
    ]


@pytest.mark.parametrize(
    "one",
    [
        completion(5 * MS, "SUCCESS"),
        completion(5 * MS, "WR_FLUSH_ERR"),
        completion(5 * MS, "RETRY_EXC_ERR", far=(NEXT, 17)),
        completion(5 * MS, "RETRY_EXC_ERR", elapsed_s=0.001),
    ],
    ids=["success", "flushed", "to another address", "it was posted later"],
)
def test_no_frame_is_said_to_be_the_end_of_a_request_that_may_not_be(written: Written, one: Event) -> None:
    assert comments(written([one], leaf_e2=[(MS, roce(CLIENT, SWITCH, TO_POD))])) == [[]]


def network(t: int, command: str, of: str = SERVER, pod: str = "pod-a") -> Event:
    result = {"interfaces": [{"name": "eth0", "mac": of, "sandbox": "/run/netns/x"}]} if command == "ADD" else None
    return event(t, "cni", pod, command, command=command, network="net", interface="eth0", result=result)


def test_the_first_frame_to_a_mac_that_is_gone_says_whose_it_was(written: Written) -> None:
    frames = [(t * MS, roce(CLIENT, SERVER, TO_POD, psn=t)) for t in (1, 3, 4)]
    found = written([network(0, "ADD"), network(2 * MS, "DEL")], leaf_e2=frames, leaf_e1=[(5 * MS, frames[2][1])])
    assert comments(found) == [[], [f"mac.gone: the first frame to {SERVER} since pod-a lost this MAC"], [], []]


def test_a_mac_that_another_pod_has_by_then_is_not_gone(written: Written) -> None:
    events = [network(0, "ADD"), network(MS, "DEL"), network(2 * MS, "ADD", pod="pod-b")]
    assert comments(written(events, leaf_e2=[(3 * MS, roce(CLIENT, SERVER, TO_POD))])) == [[]]


def test_a_step_is_named_at_its_first_frame_of_all_captures_and_not_at_the_next_one_s(written: Written) -> None:
    steps = [event(t * MS, "step", "", f"step {t}") for t in (0, 2, 4)]
    frames = {"leaf_e1": [(5 * MS, REQUEST)], "leaf_e2": [(MS, REQUEST), (6 * MS, REQUEST)]}
    assert comments(written(steps, **frames)) == [
        ["step, 1.000 ms earlier: step 0"],
        ["step, 1.000 ms earlier: step 4"],
        [],
    ]


def test_a_gratuitous_arp_is_named_wherever_it_is_seen(written: Written) -> None:
    announced = event(2 * MS, "garp", "pod-b", "announces", interface="eth0", ip=POD, mac=SERVER)
    found = written([announced], leaf_e1=[(MS, arp(SERVER, POD, POD))], leaf_e2=[(MS, arp(SERVER, POD, POD))])
    texts = ["garp at pod-b, 1.000 ms later: announces", f"arp.gratuitous: {POD} is claimed by {SERVER}"]
    assert comments(found) == [texts, texts]


# What a frame is in its conversation


def test_a_request_that_comes_again_says_after_what_time(written: Written) -> None:
    again = roce(CLIENT, SWITCH, TO_POD, psn=5)
    answer = roce(SERVER, SWITCH, (POD, "10.0.10.2"), opcode=ACKNOWLEDGE)
    frames = [(0, again), (MS, answer), (2 * MS, answer), (67 * MS, again), (1500 * MS, again)]
    assert comments(written(leaf_e2=frames)) == [
        [],
        [],
        [],
        ["roce.repeated: PSN 5 again, 67.000 ms after the last time"],
        ["roce.repeated: PSN 5 again, 1.433 s after the last time"],
    ]


def test_a_request_on_its_way_in_and_out_of_one_port_is_not_repeated(written: Written) -> None:
    frames = [(0, roce(CLIENT, SWITCH, TO_POD)), (MS, roce(SWITCH, SERVER, TO_POD))]
    assert comments(written(leaf_e2=frames)) == [[], []]


def test_what_is_remembered_of_a_capture_has_a_bound(written: Written) -> None:
    frames = [(psn, roce(CLIENT, SWITCH, TO_POD, psn=psn)) for psn in range(REMEMBERED + 1)]
    frames += [(MS, frames[0][1]), (2 * MS, frames[-1][1])]
    assert comments(written(leaf_e2=frames))[-2:] == [
        [],
        [f"roce.repeated: PSN {REMEMBERED} again, {2 - REMEMBERED / 1e6:.3f} ms after the last time"],
    ]


# What the user's code may leave


@pytest.mark.parametrize(
    "data",
    [
        {"ip": "no address", "mac": 7, "vlan": [], "port": {}},
        {"command": "ADD", "interface": [], "result": {"interfaces": [1, {"sandbox": 1, "mac": []}]}},
        {"command": "DEL", "interface": {}},
        {"status": "RETRY_EXC_ERR", "elapsed_s": float("nan"), "far": [[], True]},
        {"status": [], "far": 1, "happened_ns": 1 << 80},
    ],
)
def test_events_of_any_kind_are_no_reason_to_fail(written: Written, made: Made, data: dict[str, Any]) -> None:
    made["topology"]["interfaces"] += [7, {"node": []}]
    kinds = ("arp.learned", "nd.miss", "arp.refresh", "arp.proxied", "fdb.learned", "garp", "cni", "completion", "step")
    events = [event(MS, kind, "leaf", "\ud800" * 70_000, **data) for kind in kinds]
    found = written(events, leaf_e2=[(2 * MS, REQUEST), (3 * MS, ethernet(CLIENT, BROADCAST, 0x88B5, b""))])
    assert len(found.packets) == 2


@pytest.mark.parametrize(
    ("apart", "looks"), [(0, CANDIDATES), (1000 * MS, 1)], ids=["each may be of the frame", "one may be of the frame"]
)
def test_what_a_frame_costs_has_a_bound_whatever_events_there_are(
    written: Written, monkeypatch: pytest.MonkeyPatch, apart: int, looks: int
) -> None:
    taken = []
    monkeypatch.setattr(Wanted, "match", lambda *arguments: taken.append(arguments))
    written([learned(MS + number * apart) for number in range(1000)], leaf_e2=[(MS, REQUEST)])
    assert len(taken) == looks


def test_a_packet_has_some_comments_and_no_more(written: Written) -> None:
    events = [event(MS, "link", "leaf", str(number), interface="e1") for number in range(100)]
    (texts,) = comments(written(events, leaf_e2=[(MS, REQUEST)]))
    assert len(texts) == KEPT_COMMENTS
