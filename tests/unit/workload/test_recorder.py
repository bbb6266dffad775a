"""The file of a flight recorder, as flight.c writes it."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from testbed.workload.jobs import recorder

GROUPS = 64
Calls = list[tuple[Any, ...]]


def rank(number: int) -> Any:
    return SimpleNamespace(number=number, host=f"n{number}")


def file(directory: Path, rank: int, groups: list[tuple[int, ...]], calls: Calls) -> Path:
    """`calls` are sequence, group, peer, operation, beginning and end."""
    data = bytearray(recorder.HEAD.size + GROUPS * recorder.GROUP.size + recorder.CALLS * recorder.CALL.size)
    recorder.HEAD.pack_into(data, 0, len(calls), len(groups), 0)
    for number, members in enumerate(groups):
        padding = [0] * (62 - len(members))
        recorder.GROUP.pack_into(
            data, recorder.HEAD.size + number * recorder.GROUP.size, len(members), 0, *members, *padding
        )
    for number, (sequence, group, peer, operation, began, ended) in enumerate(calls):
        place = recorder.HEAD.size + GROUPS * recorder.GROUP.size + number % recorder.CALLS * recorder.CALL.size
        recorder.CALL.pack_into(data, place, number + 1, began, ended, 8, sequence, group, peer, operation.encode())
    path = recorder.path(directory, rank)
    path.write_bytes(data)
    return path


def test_calls_name_their_communicator_and_their_peer_by_ranks_of_the_job(tmp_path: Path) -> None:
    calls: Calls = [
        (1, 0, -1, "Allreduce", 10, 20),
        (1, 1, 1, "Bcast", 30, 40),
        (1, 2, -1, "Barrier", 50, 60),
        (0, -1, -1, "Wait", 70, 0),
    ]
    found = list(recorder.read(file(tmp_path, 2, [(0, 1, 2, 3), (0, 2), (0, 2)], calls), rank(2), zero_ns=0))
    assert [(one.operation, one.communicator, one.peer) for one in found] == [
        ("Allreduce", "0-3", None),
        ("Bcast", "0,2", 2),
        ("Barrier", "0,2#2", None),
        ("Wait", "", None),
    ]
    assert [(one.number, one.ended) for one in found] == [(1, 20), (2, 40), (3, 60), (4, None)]


def test_a_ring_that_went_round_has_its_last_calls(tmp_path: Path) -> None:
    calls: Calls = [(number, 0, -1, "Barrier", number, number + 1) for number in range(1, recorder.CALLS + 11)]
    path = file(tmp_path, 0, [(0, 1)], calls)
    assert [one.sequence for one in recorder.read(path, rank(0), zero_ns=0)] == list(range(11, recorder.CALLS + 11))
    last = recorder.last(path, rank(0), zero_ns=0)
    assert last
    assert last.sequence == recorder.CALLS + 10


def test_there_is_no_last_call_before_the_first(tmp_path: Path) -> None:
    assert recorder.last(tmp_path / "none", rank(0), zero_ns=0) is None
    assert recorder.last(file(tmp_path, 0, [], []), rank(0), zero_ns=0) is None
    (tmp_path / "begun").write_bytes(b"")
    assert recorder.last(tmp_path / "begun", rank(0), zero_ns=0) is None


def test_the_records_of_all_ranks_become_lines_in_the_order_of_time(tmp_path: Path) -> None:
    for number in (0, 1):
        file(tmp_path, number, [(0, 1)], [(1, 0, -1, "Barrier", 1100 - number, 1200)])
    recorder.write(tmp_path, [rank(number) for number in range(3)], zero_ns=1000)
    lines = [json.loads(line) for line in (tmp_path / "flight.jsonl").read_text().splitlines()]
    assert [(line["rank"], line["host"], line["began"], line["ended"]) for line in lines] == [
        (1, "n1", 99, 200),
        (0, "n0", 100, 200),
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["flight.jsonl"]


@pytest.mark.parametrize("data", [b"", b"\1" * 8])
def test_a_rank_that_ended_while_it_began_its_file_has_no_records(tmp_path: Path, data: bytes) -> None:
    recorder.path(tmp_path, 0).write_bytes(data)
    recorder.write(tmp_path, [rank(0)], zero_ns=0)
    assert not list(tmp_path.iterdir())


def test_numbers_in_words() -> None:
    assert recorder.ranges([0, 1, 2, 5, 7, 8]) == "0-2,5,7-8"
    assert recorder.ranges([]) == ""
