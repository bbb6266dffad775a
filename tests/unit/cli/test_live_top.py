"""The screen of a lab: what fits, what comes first, what is cut."""

import io
from typing import Any

import pytest
from rich.console import Console

from testbed.cli.live import top
from testbed.machine.live.labs import Lab
from testbed.protocol.live import Overview

LAB = Lab("pair", "pair.clab.yml", "virtual", 1.0, 1, "1", "", "up")


def port(end: str, **counts: Any) -> Any:
    empty = dict.fromkeys(("rx_bytes", "tx_bytes", "rx_packets", "tx_packets", "dropped"), 0)
    return {"end": end, "up": True, **empty, **counts}


def overview(now_s: float, ports: list[Any], **others: Any) -> Overview:
    return {"now_s": now_s, "ports": ports, "tables": {}, "queue_pairs": [], "faults": [], "events": [], **others}


def large() -> Overview:
    """More of everything than a screen has lines for."""
    pair = {"device": "h1-eth1", "number": 17, "state": "RTS", "kind": "RC", "remote": 18, "program": "ib_write_bw"}
    return overview(
        3661.5,
        [port(f"leaf{number}:e1") for number in range(50)],
        tables={f"leaf{number}": {"arp": number, "nd": 0, "fdb": 7} for number in range(30)},
        queue_pairs=[{**pair, "node": f"h{number}"} for number in range(40)],
        faults=[{"number": 3, "fault": "link-loss", "parameters": {"end": "leaf:e1", "loss": 5}, "since_s": 12.0}],
        events=[
            {"t": number * 10**9, "kind": "arp.learned", "node": "leaf", "text": f"event {number} " + "x" * 200}
            for number in range(100)
        ],
    )


def drawn(now: Overview, before: Overview | None = None, width: int = 80, height: int = 24) -> list[str]:
    console = Console(width=width, height=height, record=True, force_terminal=False, file=io.StringIO())
    console.print(top.screen(LAB, now, before, width, height))
    return console.export_text().rstrip("\n").split("\n")


@pytest.mark.parametrize(("width", "height"), [(80, 24), (80, 12), (132, 50), (200, 100)])
def test_a_screen_has_no_more_than_its_lines_and_columns(width: int, height: int) -> None:
    lines = drawn(large(), width=width, height=height)
    assert len(lines) <= height
    assert max(map(len, lines)) <= width


def test_at_80_by_24_every_section_has_its_part() -> None:
    lines = drawn(large())
    assert lines[0].startswith("pair 1:01:01.500 · virtual clock · pair.clab.yml")
    text = " ".join(" ".join(lines).split())
    for shown in (
        "link-loss 3 end=leaf:e1 loss=5",
        "leaf0:e1",
        "leaf0 ",
        "h0 h1-eth1 17 RTS",
        "event 99",
        "… ",
        "q quits",
    ):
        assert shown in text
    assert "event 10 " not in text  # of events the latest count


def test_rates_are_over_the_lab_s_time_and_drops_come_first() -> None:
    before = overview(10.0, [port("a:1", rx_bytes=1000), port("b:1"), port("c:1", dropped=5)])
    now = overview(12.0, [port("a:1", rx_bytes=3_501_000), port("b:1", up=False), port("c:1", dropped=8)])
    rows = top.port_rows(now, before)
    assert [row[0] for row in rows] == ["c:1", "a:1", "b:1"]
    assert rows[0][-2:] == ["8", "+3"]
    assert rows[1][2:4] == ["14M", "0"]
    assert rows[2][1] == "down"


def test_without_an_earlier_picture_no_rate_is_known() -> None:
    assert top.port_rows(overview(1.0, [port("a:1", rx_bytes=5)]), None)[0][2:4] == ["-", "-"]


@pytest.mark.parametrize(
    ("rate", "shown"),
    [(0.0, "0"), (999.0, "999"), (1234.0, "1.2k"), (99_960.0, "100k"), (999_600.0, "1.0M"), (4e11, "400G")],
)
def test_rates_have_at_most_four_characters(rate: float, shown: str) -> None:
    assert top.bits(rate) == shown


@pytest.mark.parametrize(
    ("wanted", "room", "given"),
    [([2, 3], 10, [2, 3]), ([2, 50, 50], 22, [2, 10, 10]), ([9, 9, 9], 2, [1, 1, 0]), ([], 5, []), ([5], 0, [0])],
)
def test_lines_are_shared(wanted: list[int], room: int, given: list[int]) -> None:
    assert top.shares(wanted, room) == given
