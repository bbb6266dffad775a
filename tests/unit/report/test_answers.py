"""Who answered: what the packets of captures show, with hand-made packets of an EVPN fabric with two leaves."""

import struct
from collections.abc import Sequence
from dataclasses import replace
from ipaddress import IPv6Address
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_samples import EPOCH_NS, MS, ethernet, event, pcap, raw, row

from testbed.protocol import PlanRows
from testbed.report import answers, links, packet_rows
from testbed.report.answers import Answer, Answers
from testbed.report.owners import Owners
from testbed.report.packet_rows import captured

ASKER, HOST, BOTH, GATEWAY, OTHER = (f"02:00:00:00:00:0{n}" for n in range(1, 6))
LEAF1, LEAF2 = "02:00:01:00:00:01", "02:00:01:00:00:02"
ASKER_IP, HOST_IP, BOTH_IP, GATEWAY_IP = (f"10.0.10.{n}" for n in (2, 3, 4, 1))
VIRTUAL = "00:00:5e:00:01:05"
ROWS = [
    row("leaf1", "e1", "asker:eth1", LEAF1, kind="switch", vlan=10),
    row("leaf1", "e2", "both:eth1", LEAF1, kind="switch", master="po1"),
    row("leaf1", "po1", "both:eth1", LEAF1, kind="switch", mode="802.3ad", members=["e2"]),
    row("leaf1", "u1", "spine:d1", LEAF1, kind="switch"),
    row("leaf1", "vlan10", "", GATEWAY, kind="switch", vlan=10, address=f"{GATEWAY_IP}/24"),
    row("spine", "d1", "leaf1:u1", "02:00:01:00:00:03", kind="switch"),
    row("spine", "d2", "leaf2:u1", "02:00:01:00:00:03", kind="switch"),
    row("leaf2", "e1", "host:eth1", LEAF2, kind="switch", vlan=10),
    row("leaf2", "e2", "both:eth2", LEAF2, kind="switch", master="po1"),
    row("leaf2", "po1", "both:eth2", LEAF2, kind="switch", mode="802.3ad", members=["e2"]),
    row("leaf2", "u1", "spine:d2", LEAF2, kind="switch"),
    row("asker", "eth1", "leaf1:e1", ASKER, kind="host", address=f"{ASKER_IP}/24"),
    row("host", "eth1", "leaf2:e1", HOST, kind="host", address=f"{HOST_IP}/24"),
    row("both", "eth1", "leaf1:e2", BOTH, kind="host", master="bond0"),
    row("both", "eth2", "leaf2:e2", BOTH, kind="host", master="bond0"),
    row("both", "bond0", "leaf1:e2", BOTH, kind="host", mode="802.3ad", members=["eth1", "eth2"], address=BOTH_IP),
]
PLAN: PlanRows = {
    "name": "two leaves",
    "interfaces": ROWS,
    "switches": {"leaf2": {"profile": "x", "values": {}, "vtep": "10.255.0.2"}},
}
VTEP = "10.255.0.2"


def arp(op: int, src: str, sender: str, target: str, dst: str = "ff:ff:ff:ff:ff:ff") -> bytes:
    head = struct.pack("!HHBBH", 1, 0x0800, 6, 4, op)
    four = [bytes(map(int, ip.split("."))) for ip in (sender, target)]
    target_mac = raw(dst) if op == 2 else bytes(6)
    return ethernet(dst, src, 0x0806, head + raw(src) + four[0] + target_mac + four[1])


def request(ip: str = HOST_IP, src: str = ASKER, sender: str = ASKER_IP) -> bytes:
    return arp(1, src, sender, ip)


def reply(mac: str = HOST, ip: str = HOST_IP, to: str = ASKER) -> bytes:
    return arp(2, mac, ip, ASKER_IP, to)


def nd(kind: int, src: str, dst: str, ips: tuple[str, str], target: str, option: bytes) -> bytes:
    near, far = (IPv6Address(ip).packed for ip in ips)
    body = struct.pack("!BBHI", kind, 0, 0, 0x60000000 if kind == 136 else 0) + IPv6Address(target).packed + option
    return ethernet(dst, src, 0x86DD, struct.pack("!IHBB", 6 << 28, len(body), 58, 255) + near + far + body)


class Wire:
    """Captures by their place, and the events of a run."""

    def __init__(self, tmp_path: Path) -> None:
        self._directory = tmp_path
        self.events: list[dict[str, Any]] = []
        self._frames: dict[str, Sequence[tuple[int, bytes]]] = {}

    def capture(
        self, place: str, *frames: tuple[int, bytes], filter_: str = "arp", begin: int = 0, end: int | None = 5000
    ) -> "Wire":
        """`begin` and `end` are in milliseconds, as the times of frames; with None the capture does not end."""
        node, _, interface = place.partition(":")
        file = f"{node}-{interface}-{len(self._frames)}.pcap"
        of_file = {"interface": interface, "file": file, "filter": filter_}
        self.events.append(event(begin * MS, "capture", node, **of_file, running=True))
        if end is not None:
            self.events.append(event(end * MS, "capture", node, **of_file, running=False))
        self._frames[file] = [(t * MS, data) for t, data in frames]
        return self

    def knows(self, leaf: str = "leaf1", mac: str = HOST, ip: str = HOST_IP, t: int = 1, **more: Any) -> "Wire":
        """EVPN has put the address into the leaf's tables."""
        found = {"vlan": 10, "mac": mac, "port": "vni10010", "reason": "evpn"}
        self.events.append(event(t * MS, "fdb.learned", leaf, **found, vteps=[VTEP]))
        self.events.append(event(t * MS, "nd.learned" if ":" in ip else "arp.learned", leaf, ip=ip, **found, **more))
        return self

    def happens(self, t: int, kind: str, node: str, **data: Any) -> "Wire":
        self.events.append(event(t * MS, kind, node, **data))
        return self

    def result(self, plan: PlanRows | None = PLAN) -> Answers | None:
        owners = Owners(plan["interfaces"] if plan else [], self.events)  # type: ignore[arg-type]
        found = []
        for name, frames in self._frames.items():
            (self._directory / name).write_bytes(pcap(*frames))
            if one := captured(self._directory / name, name, EPOCH_NS, owners):
                found.append(one)
        return answers.answers(found, plan, self.events, owners)  # type: ignore[arg-type]

    def rows(self) -> list[Answer]:
        result = self.result()
        return result.rows if result else []

    def only(self) -> tuple[str, str, str]:
        [one] = self.rows()
        return one.by, one.why, one.level


@pytest.fixture
def wire(tmp_path: Path) -> Wire:
    return Wire(tmp_path)


ASKED = (100, request()), (101, reply())
SUPPRESSED = "suppression: learned from leaf2; nothing came from host"


def test_a_host_answers_if_its_reply_is_on_its_link(wire: Wire) -> None:
    wire.knows().capture("asker:eth1", *ASKED).capture("host:eth1", *ASKED)
    [one] = wire.rows()
    assert (one.asker, one.ip, one.mac, one.t, one.count) == ("asker", HOST_IP, HOST, 101 * MS, 1)
    assert wire.only() == ("host", "the reply was on its link", "plain")


def test_the_other_end_of_the_hosts_link_shows_the_same_and_the_askers_link_is_not_needed(wire: Wire) -> None:
    assert wire.capture("leaf2:e1", *ASKED).only() == ("host", "the reply was on its link", "plain")


def test_a_leaf_answers_for_a_host_whose_link_has_no_reply(wire: Wire) -> None:
    wire.knows().capture("asker:eth1", *ASKED).capture("host:eth1", (900, request(BOTH_IP)))
    assert wire.rows()[0].by == "leaf1"
    assert (wire.rows()[0].why, wire.rows()[0].level) == (SUPPRESSED, "note")


def test_an_empty_capture_on_the_hosts_link_is_enough(wire: Wire) -> None:
    assert wire.knows().capture("leaf1:e1", *ASKED).capture("leaf2:e1").only() == ("leaf1", SUPPRESSED, "note")


IN_ITS_PLACE = "unknown", "host, or leaf1 in its place: its link was not captured", "plain"


@pytest.mark.parametrize(
    "watched",
    [
        None,
        {"filter_": "udp port 4791"},
        {"filter_": "arp and host 10.0.10.9"},
        {"begin": 101},
        {"end": 100},
        {"end": None},
        {"place": "spine:d2"},
    ],
)
def test_it_is_unknown_where_no_capture_can_have_had_the_hosts_reply(wire: Wire, watched: dict[str, Any]) -> None:
    wire.knows().capture("asker:eth1", *ASKED)
    if watched is not None:
        wire.capture(watched.pop("place", "host:eth1"), **watched)
    assert wire.only() == IN_ITS_PLACE


def test_without_a_leaf_that_knew_the_host_it_can_be_the_host_only(wire: Wire) -> None:
    assert wire.capture("asker:eth1", *ASKED).only() == ("host", "it has the MAC; its link was not captured", "plain")


def test_a_reply_that_neither_the_host_nor_a_leaf_can_have_sent_is_unknown(wire: Wire) -> None:
    wire.capture("asker:eth1", *ASKED).capture("host:eth1")
    assert wire.only() == ("unknown", "nothing came from host", "plain")


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("arp.cleared", {"ip": HOST_IP, "mac": HOST, "reason": "evpn"}),
        ("arp.updated", {"ip": HOST_IP, "mac": HOST, "port": "e1", "reason": "request"}),
        ("arp.updated", {"ip": HOST_IP, "mac": OTHER, "port": "vni10010", "reason": "evpn"}),
        ("fdb.flushed", {"mac": HOST, "port": "vni10010", "reason": "evpn"}),
        ("fdb.moved", {"mac": HOST, "port": "e1"}),
    ],
)
def test_a_leaf_that_knew_the_host_no_longer_or_as_its_own_has_not_answered(
    wire: Wire, kind: str, data: dict[str, Any]
) -> None:
    wire.knows().happens(50, kind, "leaf1", vlan=10, **data).capture("asker:eth1", *ASKED).capture("host:eth1")
    assert wire.only()[:2] == ("unknown", "nothing came from host")


def test_a_leaf_that_came_to_know_the_host_later_has_not_answered(wire: Wire) -> None:
    wire.knows(t=102).capture("asker:eth1", *ASKED).capture("host:eth1")
    assert wire.only()[0] == "unknown"


def test_the_leaf_at_the_asker_answers_and_not_another_one_that_knows_too(wire: Wire) -> None:
    wire.knows().knows("leaf3").capture("asker:eth1", *ASKED).capture("host:eth1")
    assert wire.only()[0] == "leaf1"


def test_several_leaves_that_could_have_answered_are_all_named(wire: Wire) -> None:
    wire.knows("leaf3").knows("leaf4").capture("asker:eth1", *ASKED).capture("host:eth1")
    assert wire.only()[0] == "leaf3 or leaf4"


def test_a_tunnel_of_no_planned_switch_has_its_address(wire: Wire) -> None:
    plan: PlanRows = {**PLAN, "switches": {}}
    result = wire.knows().capture("asker:eth1", *ASKED).capture("host:eth1").result(plan)
    assert result
    assert result.rows[0].why == f"suppression: learned from {VTEP}; nothing came from host"


def test_an_answer_with_a_mac_that_nobody_has_any_more_is_wrong(wire: Wire) -> None:
    gone = "06:00:00:00:00:09"
    add = {"command": "ADD", "network": "net", "interface": "eth0", "host": "host", "mac": gone, "result": {"x": 1}}
    wire.happens(2, "cni", "pod", **add, addresses=["10.0.10.9/24"])
    wire.happens(50, "cni", "pod", command="DEL", network="net", interface="eth0", host="host", result=None)
    wire.knows(mac=gone, ip="10.0.10.9").capture(
        "asker:eth1", (60, request("10.0.10.9")), (61, reply(gone, "10.0.10.9"))
    )
    assert wire.only() == ("leaf1", "suppression: learned from leaf2; nobody has this MAC", "bad")


def test_a_pods_answer_is_on_its_hosts_link_or_on_its_own_interface(wire: Wire) -> None:
    mac, ip = "06:00:00:00:00:09", "10.0.10.9"
    add = {"command": "ADD", "network": "net", "interface": "eth0", "host": "host", "mac": mac, "result": {"x": 1}}
    wire.happens(2, "cni", "pod", **add, addresses=[f"{ip}/24"]).knows(mac=mac, ip=ip)
    wire.capture("asker:eth1", (60, request(ip)), (61, reply(mac, ip)))
    assert wire.only()[0] == "unknown"
    wire.capture("pod:eth0")
    assert wire.only()[0] == "leaf1"
    wire.capture("leaf2:e1", (60, request(ip)), (61, reply(mac, ip)))
    assert wire.only()[0] == "pod"


def test_an_answer_with_a_mac_of_nobody_is_unknown(wire: Wire) -> None:
    assert wire.capture("asker:eth1", ASKED[0], (101, reply(OTHER))).only() == ("unknown", "nobody has this MAC", "bad")


def test_an_answer_for_the_wrong_owner_is_wrong_also_if_the_fabric_gives_it(wire: Wire) -> None:
    wire.happens(50, "address", "host", interface="eth1", ip=HOST_IP, has=False)
    wire.happens(51, "address", "both", interface="bond0", ip=HOST_IP, has=True)
    wire.knows().capture("asker:eth1", *ASKED).capture("host:eth1")
    assert wire.only() == ("leaf1", SUPPRESSED, "bad")


FROM_BOTH = (100, request(BOTH_IP)), (101, reply(BOTH, BOTH_IP))


def test_of_a_bond_all_links_must_have_been_silent(wire: Wire) -> None:
    wire.knows(mac=BOTH, ip=BOTH_IP).capture("asker:eth1", *FROM_BOTH).capture("both:eth1")
    assert wire.only()[0] == "unknown"
    wire.capture("leaf2:e2")
    assert wire.only()[:2] == ("leaf1", "suppression: learned from leaf2; nothing came from both")


@pytest.mark.parametrize("place", ["both:bond0", "both:eth2", "leaf2:po1"])
def test_a_bond_answers_by_any_of_its_links(wire: Wire, place: str) -> None:
    wire.knows(mac=BOTH, ip=BOTH_IP).capture("asker:eth1", *FROM_BOTH).capture(place, *FROM_BOTH)
    assert wire.only()[:2] == ("both", "the reply was on its link")


def test_a_capture_of_a_bond_watches_all_its_links(wire: Wire) -> None:
    wire.knows(mac=BOTH, ip=BOTH_IP).capture("asker:eth1", *FROM_BOTH).capture("both:bond0")
    assert wire.only()[0] == "leaf1"


def test_a_switch_answers_for_its_own_address(wire: Wire) -> None:
    wire.capture("asker:eth1", (100, request(GATEWAY_IP)), (101, reply(GATEWAY, GATEWAY_IP)))
    assert wire.only() == ("leaf1", "its own address", "plain")


def test_a_proxy_answers_with_its_own_mac_for_others(wire: Wire) -> None:
    frames = (100, request()), (101, reply(GATEWAY))
    assert wire.capture("asker:eth1", *frames).only() == ("leaf1", "it has the MAC", "plain")
    wire.happens(10, "arp.proxied", "leaf1", vlan=10, ip=HOST_IP, mac=ASKER)
    assert wire.only()[1] == "it has the MAC"
    wire.happens(101, "arp.proxied", "leaf1", vlan=10, ip=HOST_IP, mac=ASKER)
    assert wire.only() == ("leaf1", "proxy", "plain")


def test_which_of_the_switches_with_one_mac_answered_is_not_claimed(wire: Wire) -> None:
    anycast = row("leaf2", "vlan10", "", GATEWAY, kind="switch", vlan=10, address=f"{GATEWAY_IP}/24")
    plan: PlanRows = {**PLAN, "interfaces": [*ROWS, anycast]}
    result = wire.capture("asker:eth1", (100, request(GATEWAY_IP)), (101, reply(GATEWAY, GATEWAY_IP))).result(plan)
    assert result
    [one] = result.rows
    assert (one.by, one.why) == ("leaf1 or leaf2", "each of them has the MAC")


def test_a_leaf_may_answer_for_several_switches_with_one_mac(wire: Wire) -> None:
    both = [
        row(leaf, "vlan10", "", OTHER, kind="switch", vlan=10, address="10.0.10.254/24") for leaf in ("leaf2", "spine")
    ]
    plan: PlanRows = {**PLAN, "interfaces": [*ROWS, *both]}
    wire.knows(mac=OTHER, ip="10.0.10.254")
    result = wire.capture("asker:eth1", (100, request("10.0.10.254")), (101, reply(OTHER, "10.0.10.254"))).result(plan)
    assert result
    assert result.rows[0].by == "unknown"
    assert result.rows[0].why.startswith("leaf2 or spine, or leaf1 in its place")


def test_a_leaf_may_answer_for_another_switch(wire: Wire) -> None:
    own = row("leaf2", "vlan10", "", OTHER, kind="switch", vlan=10, address="10.0.10.254/24")
    plan: PlanRows = {**PLAN, "interfaces": [*ROWS, own]}
    wire.capture("asker:eth1", (100, request("10.0.10.254")), (101, reply(OTHER, "10.0.10.254")))
    result = wire.result(plan)
    assert result
    assert result.rows[0].by == "leaf2"
    result = wire.knows(mac=OTHER, ip="10.0.10.254").result(plan)
    assert result
    assert (result.rows[0].by, result.rows[0].why) == (
        "unknown", "leaf2, or leaf1 in its place: its link was not captured",
    )  # fmt: skip


def test_the_master_of_a_virtual_router_answers_with_its_mac(wire: Wire) -> None:
    ip = "10.0.10.100"
    for t, switch in (10, "leaf1"), (200, "leaf2"):
        wire.happens(t, "vrrp.master", switch, vlan=10, ip=ip, mac=VIRTUAL)
    wire.happens(190, "vrrp.backup", "leaf1", vlan=10, ip=ip, mac=VIRTUAL)
    wire.capture(
        "asker:eth1",
        *((100, request(ip)), (101, reply(VIRTUAL, ip))),
        *((195, request(ip)), (196, reply(VIRTUAL, ip))),
        *((300, request(ip)), (301, reply(VIRTUAL, ip))),
    )
    assert [(one.by, one.why) for one in wire.rows()] == [
        ("leaf1", "VRRP master"),
        ("unknown", "nobody has this MAC"),
        ("leaf2", "VRRP master"),
    ]


def test_two_answers_to_one_request_are_two_rows(wire: Wire) -> None:
    wire.knows().capture("asker:eth1", *ASKED, (102, reply(OTHER))).capture("host:eth1", *ASKED)
    assert [(one.by, one.mac) for one in wire.rows()] == [("host", HOST), ("unknown", OTHER)]


def test_answers_that_are_alike_are_one_row(wire: Wire) -> None:
    frames = [(100 * n + k, frame) for n in range(1, 8) for k, frame in ((0, request()), (1, reply()))]
    [one] = wire.capture("host:eth1", *frames).rows()
    assert (one.count, one.t, one.last) == (7, 101 * MS, 701 * MS)


def test_a_request_at_two_places_is_one_and_a_repeated_one_is_two(wire: Wire) -> None:
    wire.knows().capture("asker:eth1", *ASKED, (2000, request()), (2001, reply()))
    wire.capture("host:eth1", (100, request()), (101, reply()))
    assert [(one.by, one.count) for one in wire.rows()] == [("host", 1), ("leaf1", 1)]


def test_no_reply_is_said_of_links_that_were_captured_for_a_second(wire: Wire) -> None:
    wire.capture("asker:eth1", (100, request()))
    assert wire.only() == ("nobody", "no reply on the asker's link", "note")


def test_requests_that_are_repeated_before_have_no_reply_until_then(wire: Wire) -> None:
    wire.capture("asker:eth1", (100, request()), (350, request()), end=1400)
    [one] = wire.rows()
    assert (one.by, one.count) == ("nobody", 2)


def test_only_the_last_request_is_undecided_where_the_capture_ended_soon_after_it(wire: Wire) -> None:
    result = wire.capture("asker:eth1", (100, request()), (350, request()), end=500).result()
    assert result
    assert ([(one.by, one.count) for one in result.rows], result.undecided) == ([("nobody", 1)], 1)


@pytest.mark.parametrize("watched", [{"end": 1000}, {"place": "host:eth1"}, {"filter_": "arp or udp and port 1"}])
def test_what_answers_a_request_captured_elsewhere_or_too_shortly_is_unknown(
    wire: Wire, watched: dict[str, Any]
) -> None:
    result = wire.capture(watched.pop("place", "asker:eth1"), (100, request()), **watched).result()
    assert result
    assert (result.rows, result.undecided) == ([], 1)


def test_announcements_and_probes_are_no_questions(wire: Wire) -> None:
    announced, probe = request(ASKER_IP), request("10.0.10.77", sender="0.0.0.0")  # noqa: S104, a probe of RFC 5227
    wire.capture("asker:eth1", (100, announced), (200, probe), (300, reply(to="ff:ff:ff:ff:ff:ff")))
    assert wire.result() is None


def test_a_probe_that_is_answered_is_a_conflict_to_be_shown(wire: Wire) -> None:
    probe = request(sender="0.0.0.0")  # noqa: S104
    assert wire.capture("host:eth1", (100, probe), (101, reply())).only()[0] == "host"


SIX = "2001:db8::2", "2001:db8::3"


def test_neighbour_discovery_is_judged_alike(wire: Wire) -> None:
    asks = nd(135, ASKER, "33:33:ff:00:00:03", (SIX[0], "ff02::1:ff00:3"), SIX[1], b"\1\1" + raw(ASKER))
    said = nd(136, HOST, ASKER, (SIX[1], SIX[0]), SIX[1], b"\2\1" + raw(HOST))
    wire.knows(ip=SIX[1]).capture("asker:eth1", (100, asks), (101, said), filter_="icmp6")
    wire.capture("host:eth1", filter_="arp")
    assert wire.only()[0] == "unknown"
    wire.capture("host:eth1", filter_="icmp6 or arp")
    assert wire.only() == ("leaf1", SUPPRESSED, "note")


def test_a_capture_that_is_read_in_part_shows_nothing_after_that(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    more = [(10 * n, request("10.0.10.9", HOST, HOST_IP)) for n in (1, 2, 3)]
    wire.knows().capture("asker:eth1", *ASKED).capture("host:eth1", *more)
    assert [one.by for one in wire.rows() if one.asker == "asker"] == ["leaf1"]
    monkeypatch.setattr(packet_rows, "MOST_FRAMES", 2)
    assert [one.by for one in wire.rows() if one.asker == "asker"] == ["unknown"]


def test_captures_of_an_older_testbed_have_no_place(wire: Wire) -> None:
    wire.knows().capture("asker:eth1", *ASKED)
    wire.events = [one for one in wire.events if one["kind"] != "capture"]
    assert wire.result() is None


def test_a_run_without_a_plan_knows_nobody(wire: Wire) -> None:
    result = wire.capture("asker:eth1", *ASKED).result(None)
    assert result
    [one] = result.rows
    assert (one.asker, one.by) == (ASKER, "unknown")


def test_the_remarkable_rows_stay_where_there_are_too_many(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "MOST_ROWS", 3)
    frames = [(100 + n, reply(HOST, f"10.0.10.{n}")) for n in range(10, 20)]
    result = wire.capture("host:eth1", *frames, (200, reply(OTHER, HOST_IP))).result()
    assert result
    assert len(result.rows) == 3
    assert result.left_out == 8
    assert result.rows[-1].level == "bad"


def test_each_address_that_was_asked_for_has_a_lane(wire: Wire) -> None:
    result = wire.knows().capture("asker:eth1", *ASKED, (2000, request(BOTH_IP))).capture("host:eth1").result()
    assert result
    named = {lane.name: [bar.text for bar in lane.bars] for lane in result.lanes()}
    assert named == {
        f"asker asks for {HOST_IP}": [f"{HOST} answered by leaf1: {SUPPRESSED}"],
        f"asker asks for {BOTH_IP}": ["nobody answered: no reply on the asker's link"],
    }


@pytest.mark.parametrize("length", range(0, 42, 3))
def test_a_frame_that_is_cut_off_is_no_answer(wire: Wire, length: int) -> None:
    cut = (100, request()[:length]), (101, reply()[:length])
    assert wire.knows().capture("asker:eth1", *cut).capture("host:eth1").result() is None


@given(st.lists(st.tuples(st.integers(0, 10**4), st.integers(0, 60), st.binary(max_size=8)), max_size=12))
def test_packets_of_any_contents_are_judged_without_an_error(tmp_path_factory, changes) -> None:  # type: ignore[no-untyped-def]
    frames = []
    for t, at, new in changes:
        base = reply() if t % 2 else request()
        frames.append((t, base[:at] + new + base[at + len(new) :]))
    wire = Wire(tmp_path_factory.mktemp("any")).knows()
    wire.capture("asker:eth1", *sorted(frames)).capture("host:eth1", *sorted(frames)[::2])
    result = wire.result()
    assert result is None or all(one.by for one in result.rows)


@pytest.mark.parametrize(
    "data", [{}, {"interface": 5}, {"interface": "eth1", "file": [], "filter": "", "running": True}, {"running": "yes"}]
)
def test_events_of_captures_of_any_shape_make_no_error(wire: Wire, data: dict[str, Any]) -> None:
    wire.capture("asker:eth1", *ASKED).happens(1, "capture", "asker", **data)
    assert len(wire.rows()) == 1


@pytest.mark.parametrize(
    ("filter_", "arp_too", "nd_too"),
    [
        ("", True, True),
        ("arp", True, False),
        (" udp port 4791  or arp", True, False),
        ("arp or icmp6", True, True),
        ("ip6", False, True),
        ("not arp", False, False),
        ("arp and host 10.0.0.1", False, False),
        ("arp or udp and host 10.0.0.1", False, False),
        ("(arp)", False, False),
        ("arp host 10.0.0.1 or udp", False, False),
    ],
)
def test_only_plain_filters_are_sure_to_pass_a_protocol(filter_: str, arp_too: bool, nd_too: bool) -> None:
    assert (links.has_all(filter_, "arp"), links.has_all(filter_, "nd")) == (arp_too, nd_too)


def test_a_capture_in_parts_is_shown_without_its_frames(tmp_path: Path) -> None:
    file = tmp_path / "asker-eth1.pcap"
    file.write_bytes(pcap(*((t * MS, frame) for t, frame in ASKED)))
    found = captured(file, file.name, EPOCH_NS, Owners(ROWS, []))
    assert found
    assert len(found.resolutions) == 2
    assert found.json().keys() == {"file", "frames", "complete", "rows", "left_out", "times"}
    assert replace(found, resolutions=[]).json() == found.json()
