"""PyTorch's flight records, which come from outside."""

import json
import os
import pickle
from pathlib import Path
from typing import Any

import pytest

from testbed.protocol.flight import Call
from testbed.records.bundle import flights

ENTRY: dict[str, Any] = {
    "record_id": 7,
    "pg_id": 0,
    "process_group": ("0", "default_pg"),
    "collective_seq_id": 3,
    "p2p_seq_id": 0,
    "op_id": 3,
    "profiling_name": "nccl:_reduce_scatter_base",
    "time_created_ns": 1_000,
    "input_sizes": ((4, 256),),
    "input_dtypes": ["BFloat16"],
    "output_sizes": ((256,),),
    "output_dtypes": ["BFloat16"],
    "state": "completed",
    "time_discovered_started_ns": 1_500,
    "time_discovered_completed_ns": 2_000,
    "retired": True,
    "timeout_ms": 600_000,
    "is_p2p": False,
}
DUMP = {
    "version": "2.5",
    "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2, 3]"}, "1": {"ranks": "[0, 2]"}},
    "entries": [
        ENTRY,
        {**ENTRY, "record_id": 8, "process_group": ("1", "pairs"), "profiling_name": "nccl:all_reduce",
         "state": "started", "time_discovered_completed_ns": None},
        {**ENTRY, "record_id": 9, "profiling_name": "nccl:send 0->3", "is_p2p": True},
    ],
}  # fmt: skip


def as_pickle(path: Path) -> None:
    path.write_bytes(pickle.dumps(DUMP))


def as_json(path: Path) -> None:
    path.write_text(json.dumps(DUMP))


@pytest.mark.parametrize("write", [as_pickle, as_json])
def test_calls_of_a_dump(tmp_path: Path, write: Any) -> None:
    path = tmp_path / "nccl_trace_rank_0"
    write(path)
    assert list(flights.dumps(tmp_path)) == [(0, path)]
    first, second, third = flights.read(path, 0, "gpu1")
    assert (first.operation, first.communicator, first.sequence, first.bytes) == (
        "Reduce_scatter_block",
        "0-3",
        3,
        2048,
    )
    assert (first.began, first.ended, first.host) == (1_500, 2_000, "gpu1")
    assert (second.operation, second.communicator, second.ended) == ("Allreduce", "0,2", None)
    assert (third.operation, third.peer, third.sequence) == ("Send", 3, 0)


class Hostile:
    def __reduce__(self) -> Any:
        return os.system, ("touch hostile",)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (pickle.dumps(Hostile()), "it has an object of posix.system; a flight record has none"),
        (pickle.dumps(DUMP)[:-9], "is no flight record"),
        (b"\x80\x04r\xff\xff\xff\xff.", "is no flight record"),
        (pickle.dumps([1, 2]), "it has no entries"),
        (b'{"entries": 3}', "it has no entries"),
        (b"", "is no flight record"),
        (b'{"a":' * 100_000, "nested too deeply"),
    ],
    ids=["a program", "cut off", "a large memo", "a list", "no entries", "empty", "deep"],
)
def test_what_is_no_flight_record_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: bytes, words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "nccl_trace_rank_0"
    path.write_bytes(data)
    with pytest.raises(ValueError, match=words):
        flights.read(path, 0, "gpu1")
    assert not (tmp_path / "hostile").exists()


def test_what_is_written_is_read_again_and_has_what_pytorch_s_analyzer_asks_for(tmp_path: Path) -> None:
    calls = [
        Call(1, "n1", 1, "Allreduce", "0-3", 1, 400, None, 10, 20),
        Call(1, "n1", 2, "Comm_split", "0-3", 2, 0, None, 20, 30),
        Call(1, "n1", 3, "Reduce_scatter_block", "1,3", 1, 100, None, 30, 40),
        Call(1, "n1", 4, "Isend", "1,3", 0, 64, 3, 40, 41),
        Call(1, "n1", 5, "Recv", "0-3", 0, 64, 2, 41, None),
        Call(1, "n1", 6, "Wait", "", 0, 0, None, 50, 60),
    ]
    path = tmp_path / "nccl_trace_rank_1"
    path.write_bytes(flights.dumped(calls))
    found = pickle.loads(path.read_bytes())  # noqa: S301
    names = [entry["profiling_name"] for entry in found["entries"]]
    assert names == ["nccl:all_reduce", "nccl:_reduce_scatter_base", "nccl:send 0->1", "nccl:recv 1<-2"]
    assert found["pg_config"]["1,3"]["ranks"] == "[1, 3]"
    assert found["entries"][1]["input_sizes"] == [[200]]
    assert found["entries"][1]["output_sizes"] == [[100]]
    assert [entry["state"] for entry in found["entries"]] == ["completed"] * 3 + ["started"]
    again = flights.read(path, 1, "n1")
    assert [(call.operation, call.communicator, call.began, call.ended) for call in again] == [
        ("Allreduce", "0-3", 10, 20),
        ("Reduce_scatter_block", "1,3", 30, 40),
        ("Send", "1,3", 40, 41),
        ("Recv", "0-3", 41, None),
    ]
