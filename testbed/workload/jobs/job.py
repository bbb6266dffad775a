"""A distributed job while it runs, and its end."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from testbed.errors import DeadlineError, TestbedError, UnsupportedError
from testbed.kernel import netns, pid_namespaces, rxe_devices
from testbed.lab import Host, Lab
from testbed.lab.processes import Process
from testbed.protocol import FLIGHT, events
from testbed.protocol.flight import Call
from testbed.protocol.ucx_words import STATUS, UNREACHED
from testbed.workload.jobs import recorder
from testbed.workload.jobs.fork_server import PID_NAMESPACE, SOCKET
from testbed.workload.jobs.placement import Rank, gid_address

STUB = Path(__file__).with_name("stub.py")
GONE_S = 10.0
LOOK_S = 0.1
"""Seconds between two checks of how many calls its ranks have completed."""
STALL_S = 1.5
"""Seconds between two checks of its ranks' progress; one that waited in the same call at both has stalled."""
STALL_SHARE = 1 / 16
"""Of a stall's length so far: the seconds to the next check, if they are more."""
NUMBER = re.compile(rb"(?:^|\0)(?:OMPI_COMM_WORLD_RANK|RANK)=(\d+)\0")
"""The number of a rank, in its environment."""
POINTER = re.compile(r" 0x[0-9a-f]+")
LAST_WORDS = 3
Blame = Callable[["Job"], "tuple[Rank, str] | None"]
"""A launcher's report of the rank that ended a job, and of its end."""


@dataclass(frozen=True)
class Failure:
    """The first rank that reported why it ended. `status` is the completion status that UCX named, or empty."""

    rank: Rank
    status: str
    text: str

    def __str__(self) -> str:
        return f"{self.rank}: {f'{self.status}: ' if self.status else ''}{self.text}"


@dataclass(frozen=True)
class Step:
    """A step() of an optimizer of torch in a rank. It began when the one before it ended, the first with the program;
    both are in nanoseconds of CLOCK_MONOTONIC."""

    number: int
    """The step's number, from 1."""
    began_ns: int
    ended_ns: int

    @property
    def seconds(self) -> float:
        return (self.ended_ns - self.began_ns) / 1e9


def torch_waits() -> bool:
    """Return whether this machine has the process that ranks are forked from."""
    return os.path.exists(SOCKET)


def forked(program: str | Path) -> list[str]:
    """Return the command that starts a Python program as a fork of the process that has torch imported."""
    if not torch_waits():
        raise UnsupportedError(
            "this machine has no process with torch imported",
            hint="Set `training = True` in the scenario, or use `testbed pytest --training`.",
        )
    return ["/usr/bin/python3", "-I", "-S", str(STUB), str(program)]


class Watch:
    """A watchdog as NCCL's: it reports when no rank of a job goes on any more, with the call in which each waits and
    the states of their devices' queue pairs; and when they go on again."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._before: list[bytes] = []
        self._stalled_at: float | None = None
        self._plan()

    def stop(self) -> None:
        self._cancel()

    def _plan(self) -> None:
        scheduler = self._job.lab.scheduler
        stalled_s = 0.0 if self._stalled_at is None else time.monotonic() - self._stalled_at
        self._cancel = scheduler.after(max(STALL_S, stalled_s * STALL_SHARE), self._look)

    def _look(self) -> None:
        job = self._job
        now = [recorder.progress(self._file(rank)) for rank in job.ranks]
        if now == self._before and self._stalled_at is None and any(map(recorder.waits, now)):
            self._stalled_at = time.monotonic()
            self._report()
        elif now != self._before and self._stalled_at is not None:
            self._stalled_at = None
            job.lab.emit(events.JOB_RESUMED(name=job.name), "", f"{job.name} goes on")
        self._before = now
        self._plan()

    def _report(self) -> None:
        job = self._job
        last = [recorder.last(self._file(rank), rank, job.lab.zero_ns) for rank in job.ranks]
        waits = [call for call in last if call and call.ended is None]
        stalled = events.JOB_STALLED(
            name=job.name,
            since_ns=max(call.began for call in waits),
            waiting=[call.json() for call in waits],
            queue_pairs={str(rank.host): self._queue_pairs(rank) for rank in job.ranks if rank.device},
            addresses=[self._address(rank) for rank in job.ranks],
        )
        text = f"{job.name} stalls: {len(waits)} of {len(job.ranks)} ranks wait in {waits[0].operation}"
        job.lab.emit(stalled, "", text)

    def _file(self, rank: Rank) -> Path:
        return recorder.path(self._job.directory, rank.number)

    def _address(self, rank: Rank) -> str:
        """Return the address of the GID that a rank uses; empty if that is not known."""
        index = recorder.gid(self._file(rank))
        if index is not None and rank.device:
            with contextlib.suppress(TestbedError):  # the device may be gone
                return gid_address(rank, index)
        return ""

    def _queue_pairs(self, rank: Rank) -> dict[str, int]:
        """Count the queue pairs of a rank's device by their state: ``RC RTS``."""
        found = rxe_devices.queue_pairs(rank.device, rank.host.namespace)
        return dict(sorted(Counter(f"{pair.kind} {pair.state}" for pair in found).items()))


class Job:
    """Ranks and their launcher. Output of rank n is in ``<name>/rank-<n>.log`` of the run directory."""

    def __init__(
        self, lab: Lab, name: str, ranks: Sequence[Rank], blame: Blame = lambda job: None, *, made: bool = False
    ) -> None:
        """`made` says that its programs may have made its directory already."""
        self.lab = lab
        self.name = name
        self.ranks: list[Rank] = []
        self._blame = blame
        self.directory = lab.file(name)
        self.directory.mkdir(exist_ok=made)
        if lab.seal:
            lab.seal.shown.append(self.directory)
        self.scratch = Path(tempfile.mkdtemp(prefix="job-"))
        """The directory of the launcher's sockets, whose paths must be short."""
        self._processes: list[Process] = []
        self._links: list[Path] = []
        self._steps: dict[int, tuple[list[Step], int]] = {}
        """The steps of ranks that are read, with the bytes read of their files."""
        self._watch = Watch(self)
        lab.recorders.append(self._record)
        if ranks:
            self._begin(ranks)

    def _begin(self, ranks: Sequence[Rank]) -> None:
        self.ranks = list(ranks)
        for host in {rank.host: None for rank in self.ranks if not rank.host.shares}:
            host.defer(partial(self._end_on, host))
        hosts = [str(rank.host) for rank in self.ranks]
        text = f"{self.name} starts on {', '.join(hosts)}"
        own = [rank.device for rank in self.ranks]
        self.lab.emit(events.JOB(name=self.name, ranks=len(self.ranks), hosts=hosts, devices=own), "", text)

    def launch(self, host: Host, command: Sequence[str], *, own_run: bool = True, of_all: bool = True) -> Process:
        """Start a part of the launcher in the job's directory; `command` is env(1)'s: variables, then the program. The
        whole job is closed with its host at the latest; without `of_all` the ranks there. `own_run` as for
        `Namespace.launch`."""
        own = [f"{PID_NAMESPACE}={pid_namespaces.path(host.namespace)}"] * pid_namespaces.exists(host.namespace)
        process = host.launch("env", "-C", str(self.directory), *own, *command, own_run=own_run)
        self._processes.append(process)
        host.defer(self.close if of_all else partial(self._end_on, host))
        return process

    @classmethod
    def alone(cls, lab: Lab, host: Host, program: Path, *arguments: str, name: str) -> Job:
        """Start one process, forked as a rank is, with no network, to compare a job with."""
        job = cls(lab, name, [Rank(0, host)])
        job.launch(host, [f"TESTBED_RANKS={job.directory}", "RANK=0", *forked(program), *arguments])
        return job

    def _record(self) -> tuple[str, str]:
        """Return the path of the ranks' record in the run directory, and its text so far."""
        return f"{self.name}/{FLIGHT}", recorder.text(self.directory, self.ranks, self.lab.zero_ns)

    def output(self, rank: int) -> str:
        """Return the output of a rank so far."""
        return self.log(f"rank-{rank}")

    def steps(self, rank: int) -> list[Step]:
        """Return the steps that a rank has done so far; none of a program without an optimizer of torch."""
        found, read = self._steps.setdefault(rank, ([], 0))
        with contextlib.suppress(FileNotFoundError), (self.directory / f"steps-{rank}.jsonl").open("rb") as file:
            file.seek(read)
            whole, end, _ = file.read().rpartition(b"\n")
            found += [Step(**json.loads(line)) for line in whole.splitlines()]
            self._steps[rank] = found, read + len(whole) + len(end)
        return list(found)

    def steps_done(self) -> int:
        """Return the number of steps that every rank has done."""
        return min(len(self.steps(rank.number)) for rank in self.ranks)

    def calls(self, rank: int, operation: str) -> list[Call]:
        """Return the calls of an MPI operation, such as ``Allreduce``, that a rank has made so far: those that are
        among its last 2048 calls."""
        found = recorder.calls(self.directory, self.ranks[rank], self.lab.zero_ns)
        return [call for call in found if call.operation == operation]

    def reaches(self, operation: str, count: int, within: float) -> bool:
        """Return whether the job still runs when every rank has completed so many calls of an operation, or the job has
        ended. Return False after `within` seconds, too."""

        def reached() -> bool:
            return all(
                sum(call.ended is not None for call in self.calls(rank.number, operation)) >= count
                for rank in self.ranks
            )

        over = self.lab.scheduler.wait(lambda: reached() or not self.running, within, pause=LOOK_S)
        return over and self.running

    def log(self, name: str) -> str:
        path = self.directory / f"{name}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def launcher_output(self) -> str:
        return "".join(process.output for process in self._processes)

    @property
    def running(self) -> bool:
        """Return whether the launcher still works; the failure of a part of it ends all."""
        statuses = [process.status for process in self._processes]
        return None in statuses and not any(statuses)

    def wait(self, within: float) -> Failure | None:
        """Return when the job has ended and nothing of it is left; None if it succeeded.

        Raise DeadlineError after `within` seconds of the lab's clock; the job is ended then too.
        """
        over = self.lab.scheduler.wait(lambda: not self.running, within, pause=within)
        ended = [] if over else [str(rank) for rank in self.ranks if rank.number not in self._alive()]
        failure = self._failure()
        self.close()
        gone = f", though it has ended on: {', '.join(ended)}" if ended else ""
        late = "" if over else f"still running after {round(within, 1):g} s{gone}"
        ending = "; ".join(filter(None, (late, str(failure) if failure else ""))) or "all is well"
        ok = over and failure is None
        made = partial(events.JOB, name=self.name, ok=ok, late=not over)
        data = made()
        if failure:
            rank = failure.rank
            data = made(rank=rank.number, host=str(rank.host), status=failure.status, failure=failure.text)
        self.lab.emit(data, "", f"{self.name} ends: {ending}")
        if late:
            raise DeadlineError(f"job {self.name}: {ending}")
        return failure

    def check(self, within: float) -> None:
        """Wait for a job that has to succeed; raise its failure."""
        if failure := self.wait(within):
            raise TestbedError(f"job {self.name}: {failure}", where=str(self.directory))

    def seen_by(self, rank: Rank) -> str:
        """Return the end that a rank's output reports: a completion status, a peer that was not reached, an exception;
        or nothing."""
        text = self.output(rank.number)
        found = completion_in(text) or unreached_in(text)
        return ": ".join(filter(None, found)) if found else exception_in(text)

    def bring(self, directory: Path) -> None:
        """Link the files of a directory into the job's, where programs find them by relative paths, until its end."""
        for path in sorted(directory.iterdir()):
            link = self.directory / path.name
            if not link.exists():
                link.symlink_to(path)
                self._links.append(link)

    def close(self) -> None:
        """End what still runs, and wait until it is gone: queue pairs must go before their device. The ranks' records
        become flight.jsonl."""
        self._watch.stop()
        for process in self._processes:
            process.stop()
        self._kill(self._processes_left)
        self._clear()

    def _clear(self) -> None:
        """Remove what only the job's programs need, and write its calls."""
        shutil.rmtree(self.scratch, ignore_errors=True)
        while self._links:
            if (link := self._links.pop()).is_symlink():  # a program may have put a file of its own there
                link.unlink()
        recorder.write(self.directory, self.ranks, self.lab.zero_ns)

    def _end_on(self, host: Host) -> None:
        """End the ranks of a host or pod that is taken down: its devices cannot go before their queue pairs."""
        network = netns.path(host.namespace).stat().st_ino
        self._kill(lambda: [pid for pid in self._processes_left() if _network_of(pid) == network])

    def _kill(self, left: Callable[[], list[str]]) -> None:
        if not self.lab.scheduler.wait(lambda: self._gone(left()), GONE_S):
            raise DeadlineError(f"job {self.name}: a rank still exists {GONE_S:g} s after it was killed")

    def _gone(self, left: list[str]) -> bool:
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        return not left

    def _alive(self) -> set[int]:
        found = set()
        for pid in self._processes_left():
            with contextlib.suppress(OSError):
                if number := NUMBER.search(Path(f"/proc/{pid}/environ").read_bytes()):
                    found.add(int(number[1]))
        return found

    def _processes_left(self) -> list[str]:
        """Return the processes left of the job: those that work in its directory."""
        return [pid for pid in filter(str.isdigit, os.listdir("/proc")) if self._is_ours(pid)]

    def _is_ours(self, pid: str) -> bool:
        try:
            return os.readlink(f"/proc/{pid}/cwd") == str(self.directory)
        except OSError:
            return False

    def _failed(self) -> bool:
        # mpirun that lost a daemon ends with 0
        return any(process.status for process in self._processes) or self._blame(self) is not None

    def _failure(self) -> Failure | None:
        if not self._failed():
            return None
        statuses = [process.status or 0 for process in self._processes]
        outputs = [(rank, self.output(rank.number)) for rank in self.ranks]
        for find in completion_in, unreached_in:
            for rank, text in outputs:
                if found := find(text):
                    return Failure(rank, *found)
        if blamed := self._blame(self):
            rank, ending = blamed
            return Failure(rank, "", exception_in(self.output(rank.number)) or ending)
        for rank, text in outputs:
            if raised := exception_in(text):
                return Failure(rank, "", raised)
        last = [line for line in self.launcher_output().splitlines() if line.strip()]
        return Failure(
            self.ranks[0], "", "\n  ".join(last[-LAST_WORDS:]) or f"ended with status {max(statuses, key=abs)}"
        )


def _network_of(pid: str) -> int | None:
    try:
        return os.stat(f"/proc/{pid}/ns/net").st_ino
    except OSError:
        return None


def completion_in(text: str) -> tuple[str, str] | None:
    """Return the completion status with an error that UCX reports in a rank's output, and libibverbs' words for it."""
    return next(((status, words) for words, status in STATUS.items() if words in text), None)


def unreached_in(text: str) -> tuple[str, str] | None:
    """Return UCX's words in a rank's output for a peer that it did not reach. There is no completion status."""
    found = UNREACHED.search(text)
    return ("", POINTER.sub("", found[0])) if found else None


def exception_in(text: str) -> str:
    """Return the last line of a Python traceback, or nothing."""
    return text.strip().splitlines()[-1] if "Traceback (most recent call last)" in text else ""
