"""The kernel's log as /dev/kmsg hands it out: a record a read, EPIPE where the ring was overwritten."""

import errno
import os
from pathlib import Path

import pytest

from testbed.executor.variant import KernelWatch
from testbed.kernel.kmsg import KernelLog
from testbed.scenario.event_log import EventLog

Ring = list[bytes | OSError]


class Device:
    """Stands for the module os: what the next reads of /dev/kmsg return or raise; then there is nothing."""

    O_RDONLY, O_NONBLOCK, O_CLOEXEC, SEEK_END = os.O_RDONLY, os.O_NONBLOCK, os.O_CLOEXEC, os.SEEK_END

    def __init__(self) -> None:
        self.answers: Ring = []

    def open(self, *_: object) -> int:
        return -1

    def lseek(self, *_: object) -> None: ...

    def close(self, _: int) -> None: ...

    def read(self, _: int, length: int) -> bytes:
        if not self.answers:
            raise BlockingIOError
        answer = self.answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        if len(answer) > length:
            raise OSError(errno.EINVAL, "the record is longer")
        return answer


@pytest.fixture
def ring(monkeypatch: pytest.MonkeyPatch) -> Ring:
    device = Device()
    monkeypatch.setattr("testbed.kernel.kmsg.os", device)
    return device.answers


def record(number: int, text: str, *, priority: int = 6) -> bytes:
    return f"{priority},{number},{number * 1000},-;{text}\n".encode()


OVERWRITTEN = BrokenPipeError(errno.EPIPE, "overwritten")


def test_what_was_overwritten_is_counted_by_the_numbers_of_records(ring: Ring) -> None:
    log = KernelLog(whole=True)
    ring += [record(0, "a"), record(1, "b")]
    assert [(one.us, one.text, one.lost) for one in log.records()] == [(0, "a", 0), (1000, "b", 0)]
    ring += [OVERWRITTEN, record(7, "c"), OVERWRITTEN, OVERWRITTEN, record(20, "d"), record(21, "e")]
    assert [(one.text, one.lost) for one in log.records()] == [("c", 5), ("d", 12), ("e", 0)]


def test_a_log_that_is_read_from_now_on_has_lost_nothing_before(ring: Ring) -> None:
    log = KernelLog()
    ring += [record(400, "a"), record(402, "b")]
    assert [one.lost for one in log.records()] == [0, 1]


def test_a_boot_whose_first_records_are_gone_has_lost_them(ring: Ring) -> None:
    ring += [record(30, "a")]
    assert [one.lost for one in KernelLog(whole=True).records()] == [30]


def test_a_record_is_one_line_whatever_it_has_in_it(ring: Ring) -> None:
    ring += [
        b"4,0,5,c,caller=T1,more;two\\x0alines \\x5c\n SUBSYSTEM=net\n DEVICE=+net:e1\n",
        record(1, ""),
        record(2, "x" * 8000),
        record(3, "of a program", priority=12),
    ]
    found = [(one.text, one.kernel) for one in KernelLog(whole=True).records()]
    long = "x" * 8000
    assert found == [("two\\x0alines \\x5c", True), ("", True), (long, True), ("of a program", False)]


@pytest.fixture
def watch(ring: Ring) -> tuple[KernelWatch, EventLog]:
    return KernelWatch(), EventLog(lambda _: None)


def test_a_complaint_of_the_kernel_fails_a_run_and_a_programs_does_not(
    ring: Ring, watch: tuple[KernelWatch, EventLog], tmp_path: Path
) -> None:
    kernel, log = watch
    ring += [record(0, "WARNING: net/core/dev.c:1"), record(1, "rxe: up"), record(2, "WARNING: of mine", priority=12)]
    kernel.read(log)
    ring += [record(3, "BUG: at last")]
    kernel.read(log)

    complaints = kernel.end(log, tmp_path / "kernel.log")

    assert [line.partition("] ")[2] for line in complaints] == ["WARNING: net/core/dev.c:1", "BUG: at last"]
    assert log.losses() == []
    assert (tmp_path / "kernel.log").read_text().splitlines()[1] == "[    0.001000] rxe: up"


def test_lost_records_are_an_event_and_a_line(ring: Ring, watch: tuple[KernelWatch, EventLog], tmp_path: Path) -> None:
    kernel, log = watch
    ring += [record(0, "a"), OVERWRITTEN, record(9, "b"), OVERWRITTEN, record(12, "c")]
    kernel.read(log)
    assert log.losses() == ["the lab: 10 records of the kernel's log were overwritten unread"]
    assert kernel.end(log, tmp_path / "kernel.log") == []
    assert [line for line in (tmp_path / "kernel.log").read_text().splitlines() if "lost" in line] == [
        "(8 records lost)",
        "(2 records lost)",
    ]


def test_a_log_that_cannot_be_kept_is_a_failure_and_no_error(
    watch: tuple[KernelWatch, EventLog], tmp_path: Path
) -> None:
    kernel, log = watch
    (failure,) = kernel.end(log, tmp_path / "nowhere" / "kernel.log")
    assert failure.startswith("the kernel's log could not be kept: ")
