"""Counters over time in a report: read from counters.jsonl, sorted, and those chosen that are shown first."""

import json
from pathlib import Path
from typing import Any

import pytest
from report_samples import COUNTED

from testbed.report.counters import SHOWN, at_the_end, groups, meanings, over_time

SHOULD_BE_0, BUSY, RDMA = map(groups().index, ("should be 0", "traffic of interfaces", "traffic of RDMA devices"))


def counted(directory: Path, *moments: dict[str, Any]) -> dict[str, Any]:
    """Of lines with these counters, a second apart."""
    lines = ({"t": t * 10**9, "after": f"step {t}", "counters": found} for t, found in enumerate(moments))
    (directory / "counters.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = over_time(directory)
    assert found
    return found


def group(found: dict[str, Any], name: str) -> str:
    """The group of the one counter with this name."""
    (number,) = (number for _, _, own, number, _ in found["rows"] if own == name)
    return str(found["groups"][number])


def names(found: dict[str, Any]) -> list[str]:
    """The counters that are shown first."""
    return [" ".join(found["rows"][number][:3]) for number in found["shown"]]


def test_a_counter_has_its_values_from_the_moments_at_which_they_changed(tmp_path: Path) -> None:
    (tmp_path / "counters.jsonl").write_text("".join(json.dumps(line) + "\n" for line in COUNTED))
    assert over_time(tmp_path) == {
        "t": [0, 40_000_000, 415_000_000, 416_000_000],
        "after": ["the lab came up", "pod A serves", "pod B gets the address", "the end"],
        "groups": groups(),
        "rows": [
            ["client", "client-eth1", "retry_exceeded_err", SHOULD_BE_0, [2, 1]],
            ["client", "eth1", "tx_bytes", BUSY, [0, 60, 1, 4000]],
            ["client", "eth1", "rx_packets", BUSY, [0, 1, 2, 7]],
            ["client", "client-eth1", "sent_pkts", RDMA, [2, 9]],
        ],
        "shown": [0],
    }


def test_a_queue_that_was_used_is_shown_beside_what_it_dropped(tmp_path: Path) -> None:
    port = {"tx_bytes": 9000, "queue_sent": 90, "queue_waiting": 16, "queue_marked": 0, "queue_dropped": 4}
    found = counted(tmp_path, {}, {"leaf": {"e2": port}}, {"leaf": {"e2": {"queue_waiting": 0}}})
    assert names(found) == ["leaf e2 queue_dropped", "leaf e2 queue_waiting"]
    assert group(found, "queue_dropped") == "should be 0"
    assert group(found, "queue_waiting") == "queues and rates"
    assert group(found, "queue_sent") == "traffic of link queues"


def test_sampled_queues_and_rates_are_shown_first(tmp_path: Path) -> None:
    port = {"SAI_QUEUE_STAT_CURR_OCCUPANCY_BYTES:3": 9000, "SAI_QUEUE_STAT_PACKETS:3": 90}
    nic = {"rp_rate_bps:10.0.10.6#17": 12_000_000, "tx_prio3_packets": 90}
    found = counted(tmp_path, {}, {"leaf": {"e2": port}, "a": {"eth1": nic}})
    assert names(found) == ["a eth1 rp_rate_bps:10.0.10.6#17", "leaf e2 SAI_QUEUE_STAT_CURR_OCCUPANCY_BYTES:3"]


def test_without_the_file_or_a_line_there_is_nothing(tmp_path: Path) -> None:
    assert over_time(tmp_path) is None
    (tmp_path / "counters.jsonl").write_text('{"t": 1, "after": "cut o')
    assert over_time(tmp_path) is None


@pytest.mark.parametrize(
    "line",
    ["", "[]", "7", '{"t": 1}', '{"t": "1", "after": "", "counters": {}}', '{"t": 1, "after": 2, "counters": {}}', "{"],
)
def test_a_damaged_line_is_left_out(tmp_path: Path, line: str) -> None:
    whole = '{"t": 5, "after": "the end", "counters": {"a": {"eth1": {"rx_bytes": 1, "x": "y"}, "eth2": 3}, "b": []}}'
    (tmp_path / "counters.jsonl").write_text(f"{line}\n{whole}\n{line}")
    found = over_time(tmp_path)
    assert found
    assert (found["t"], found["rows"]) == ([5], [["a", "eth1", "rx_bytes", BUSY, [0, 1]]])


def test_the_busiest_interfaces_are_shown_if_nothing_went_wrong(tmp_path: Path) -> None:
    idle = {f"h{number}": {"eth1": {"rx_bytes": number, "rx_packets": 10**9}} for number in range(20)}
    found = counted(tmp_path, {}, idle | {"busy": {"eth1": {"tx_bytes": 10**9, "sent_bytes": 10**10}}})
    assert names(found) == ["busy eth1 tx_bytes", *(f"h{number} eth1 rx_bytes" for number in range(19, 12, -1))]
    assert len(found["shown"]) == SHOWN


def test_what_bring_up_counted_did_not_grow(tmp_path: Path) -> None:
    up = {"a": {"eth1": {"rx_dropped": 9, "tx_bytes": 90}}}
    assert names(counted(tmp_path, up, {"a": {"eth1": {"tx_bytes": 91}}})) == ["a eth1 tx_bytes"]
    assert names(counted(tmp_path, up, {"a": {"eth1": {"rx_dropped": 10}}})) == ["a eth1 rx_dropped"]
    assert names(counted(tmp_path, up)) == ["a eth1 rx_dropped"], "of one moment all is from it"


def test_a_device_that_counts_anew_has_grown_by_what_it_counted(tmp_path: Path) -> None:
    def errors(value: int) -> dict[str, Any]:
        return {"a": {"a-eth1": {"send_err": value}}}

    found = counted(tmp_path, {}, errors(5), errors(0), errors(2), {"b": {"b-eth1": {"send_err": 6}}})
    assert names(found) == ["a a-eth1 send_err", "b b-eth1 send_err"], "7, and 6"


def test_what_a_switch_drops_is_shown_first_and_what_nobody_knows_is_shown_as_that(tmp_path: Path) -> None:
    """As in headroom-too-small."""
    port = {"SAI_QUEUE_STAT_DROPPED_PACKETS:3": 617, "SAI_PORT_STAT_PFC_3_TX_PKTS": 9, "SAI_QUEUE_STAT_BYTES:3": 10**6}
    found = counted(tmp_path, {}, {"leaf": {"e5": port | {"SAI_QUEUE_STAT_OF_TOMORROW": 5}}})
    assert names(found) == ["leaf e5 SAI_QUEUE_STAT_DROPPED_PACKETS:3", "leaf e5 SAI_PORT_STAT_PFC_3_TX_PKTS"]
    assert group(found, "SAI_QUEUE_STAT_BYTES:3") == "traffic of switch queues"
    assert group(found, "SAI_QUEUE_STAT_OF_TOMORROW") == "unknown"


def test_at_the_end_those_count_that_are_not_0() -> None:
    found = {"a": {"interfaces": {"eth1": {"rx_bytes": 3, "tx_bytes": 0}}, "rdma": {"d": {"send_err": 1}}}, "b": 7}
    assert list(at_the_end(found)) == [("a", "eth1", "rx_bytes", 3), ("a", "d", "send_err", 1)]
    assert list(at_the_end(None)) == []


def test_a_counter_has_its_unit_and_owner() -> None:
    assert meanings(["SAI_QUEUE_STAT_DROPPED_PACKETS:3", "x"]) == {
        "SAI_QUEUE_STAT_DROPPED_PACKETS:3": (
            True,
            "packets",
            "switch queue",
            "Packets that the queue had no room for.",
        ),
        "x": (False, "", "unknown", ""),
    }
