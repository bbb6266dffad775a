"""What the scenario API offers for what many scenarios do: NICs, WRITEs, tries, virtual seconds, events."""

from collections.abc import Callable
from ipaddress import IPv4Address
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from testbed.scenario.event_log import EventLog
from testbed.scenario.run import Run, Variant


class Endpoint:
    """It writes its memory into that of its peer, unless the network loses it."""

    def __init__(self, status: str, memory: bytes) -> None:
        self.status = status
        self.memory = memory
        self.closed = False

    def close(self) -> None:
        self.closed = True

    def write(self, size: int, *, within: float) -> Any:
        return SimpleNamespace(
            opcode="RDMA_WRITE",
            status=self.status,
            ok=self.status == "SUCCESS",
            t_ns=0,
            elapsed_s=0,
            near=None,
            far=None,
        )

    def load(self, offset: int, size: int) -> bytes:
        return self.memory[offset : offset + size]


class Scheduler:
    """A sleep moves the clock; `late` is what the switches report at the next call of `catch_up`."""

    def __init__(self, clock: Any) -> None:
        self.clock = clock
        self.slept: list[float] = []
        self.late: list[Callable[[], None]] = []

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.clock.ns += round(seconds * 1e9)

    def catch_up(self) -> None:
        while self.late:
            self.late.pop()()


@pytest.fixture
def scheduler(clock: Any) -> Scheduler:
    return Scheduler(clock)


@pytest.fixture
def run(scheduler: Scheduler, tmp_path: Path) -> Run:
    lab: Any = SimpleNamespace(
        scheduler=scheduler, host=lambda name: {"eth1": f"{name}'s eth1"}, file=tmp_path.joinpath
    )
    lab.switches, lab.nodes, lab.injections = list, {}, []
    return Run(lab, EventLog(lambda _: None), Variant("fixed", "healthy", "it works"))


def test_now_counts_virtual_seconds_from_the_begin(run: Run, clock: Any) -> None:
    clock.ns += 1_500_000_000
    assert run.now == 1.5


@pytest.mark.parametrize(
    ("within", "pauses"), [(0, []), (1, [10]), (10, [10]), (11, [10, 10]), (20, [10, 10]), (25, [10, 10, 10])]
)
def test_tries_go_on_until_their_time_is_over(
    run: Run, scheduler: Scheduler, within: float, pauses: list[float]
) -> None:
    assert run.tries(lambda: "RETRY_EXC_ERR", within, 10) == ["RETRY_EXC_ERR"] * (len(pauses) + 1)
    assert scheduler.slept == pauses


def test_pauses_between_tries_double_up_to_the_longest(run: Run, scheduler: Scheduler) -> None:
    run.tries(lambda: "ETIMEDOUT", 150, 10, longest=35)
    assert scheduler.slept == [10, 20, 35, 35, 35, 35]


def test_time_that_a_try_takes_counts(run: Run, scheduler: Scheduler) -> None:
    def slow() -> str:
        scheduler.clock.ns += 7_000_000_000
        return "RETRY_EXC_ERR"

    assert len(run.tries(slow, 10, 2)) == 2


def test_a_try_that_works_is_the_last(run: Run, scheduler: Scheduler) -> None:
    ends = iter(("ETIMEDOUT", "RETRY_EXC_ERR", "SUCCESS"))
    assert run.tries(lambda: next(ends), 60, 5) == ["ETIMEDOUT", "RETRY_EXC_ERR", "SUCCESS"]
    assert scheduler.slept == [5, 5]


def test_events_are_those_up_to_now_and_found_by_values_of_any_type(run: Run, scheduler: Scheduler) -> None:
    ip = IPv4Address("10.0.20.2")
    scheduler.late.append(lambda: run.log.emit("arp.aged", "leaf", "aged", ip=ip))
    assert [event["data"] for event in run.events("arp.aged", ip=ip)] == [{"ip": "10.0.20.2"}]
    assert run.events("arp.aged", ip=IPv4Address("10.0.20.3")) == []


def test_nics_are_the_hosts_first_interfaces_in_the_order_asked_for(run: Run) -> None:
    assert run.nics("server", "client") == ["server's eth1", "client's eth1"]


@pytest.mark.parametrize(
    ("status", "arrives", "failures"),
    [
        ("SUCCESS", b"hello", []),
        ("SUCCESS", b"h", ["the bytes arrived: it was False, not True"]),
        ("RETRY_EXC_ERR", b"", ["the first WRITE: it was 'RETRY_EXC_ERR', not 'SUCCESS'"]),
    ],
)
def test_a_connection_s_first_write_is_a_step_that_expects_it_to_arrive(
    run: Run, monkeypatch: pytest.MonkeyPatch, status: str, arrives: bytes, failures: list[str]
) -> None:
    ends: dict[Any, Any] = {"near": Endpoint(status, b"hello"), "far": Endpoint("", arrives)}
    near: Any = SimpleNamespace(node=SimpleNamespace(name="client"))
    monkeypatch.setattr("testbed.scenario.run.open_endpoint", lambda nic: ends["near" if nic is near else "far"])
    monkeypatch.setattr("testbed.scenario.run.connect_pair", lambda *_: None)
    connection = run.connect("the job runs", near, "far", size=5)  # type: ignore[arg-type]
    assert run.failures == failures
    assert [event["text"] for event in run.log.find("step")] == ["the job runs"]
    assert connection.write(5).status == status
    assert len(run.log.find("completion", status=status)) == 2
    assert [end.closed for end in ends.values()] == [False, False]
    connection.close()
    assert [end.closed for end in ends.values()] == [True, True]
