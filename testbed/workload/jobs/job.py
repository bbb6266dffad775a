"""A distributed job while it runs, and how it ended."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from testbed.errors import DeadlineError, TestbedError, UnsupportedError
from testbed.kernel import netns
from testbed.lab import Host, Lab
from testbed.lab.processes import Process
from testbed.workload.jobs.placement import Rank
from testbed.workload.jobs.ranks import SOCKET

STUB = Path(__file__).with_name("stub.py")
GONE_S = 10.0
LOOK_S = 0.1
"""Between two looks at whether a job still runs."""
STATUS = {
    "transport retry counter exceeded": "RETRY_EXC_ERR",
    "RNR retry counter exceeded": "RNR_RETRY_EXC_ERR",
    "Work Request Flushed Error": "WR_FLUSH_ERR",
    "remote access error": "REM_ACCESS_ERR",
    "remote operation error": "REM_OP_ERR",
}
"""libibverbs' words for a completion status (ibv_wc_status_str), as UCX prints them, and its name."""
UCX_SAID = re.compile(
    r"UD endpoint .* unhandled timeout error|Destination is unreachable|Endpoint timeout"
    r"|network device '.*' is not available.*"
)
"""UCX's words for a peer that is not reached, and for a device that is not there."""
NUMBER = re.compile(rb"(?:^|\0)(?:OMPI_COMM_WORLD_RANK|RANK)=(\d+)\0")
"""Of a rank, in its environment."""
POINTER = re.compile(r" 0x[0-9a-f]+")
LAST_WORDS = 3
Blame = Callable[["Job"], "tuple[Rank, str] | None"]
"""A launcher's report of the rank that ended a job, and of its end."""


@dataclass(frozen=True)
class Failure:
    """The first rank that said why it ended. `status` is the completion status that UCX named, or empty."""

    rank: Rank
    status: str
    text: str

    def __str__(self) -> str:
        return f"{self.rank}: {f'{self.status}: ' if self.status else ''}{self.text}"


def torch_waits() -> bool:
    """Whether this machine has the process that ranks are forked from."""
    return os.path.exists(SOCKET)


def forked(program: str | Path) -> list[str]:
    """The command that starts a Python program as a fork of the process that has torch imported."""
    if not torch_waits():
        raise UnsupportedError(
            "no process with torch waits for ranks in this machine",
            hint="Say `training = True` in the scenario, or `testbed pytest --training`.",
        )
    return ["/usr/bin/python3", "-I", "-S", str(STUB), str(program)]


class Job:
    """Ranks and what launched them. Output of rank n is in ``<name>/rank-<n>.log`` of the run directory."""

    def __init__(self, lab: Lab, name: str, ranks: Sequence[Rank], blame: Blame = lambda job: None) -> None:
        self.lab = lab
        self.name = name
        self.ranks = list(ranks)
        self._blame = blame
        self.directory = lab.file(name)
        self.directory.mkdir()
        self.scratch = Path(tempfile.mkdtemp(prefix="job-"))
        """For the launcher's sockets, whose paths must be short."""
        self._processes: list[Process] = []
        for host in {rank.host: None for rank in self.ranks}:
            host.defer(partial(self._end_on, host))
        where = ", ".join(str(rank.host) for rank in self.ranks)
        lab.emit("job", "", f"{name} starts on {where}", name=name, ranks=len(self.ranks))

    def launch(self, host: Host, command: Sequence[str]) -> None:
        """Starts a part of the launcher in the job's directory; `command` is env(1)'s: variables, then the program. The
        whole job is closed with its host at the latest."""
        self._processes.append(host.spawn("env", "-C", str(self.directory), *command))
        host.defer(self.close)

    @classmethod
    def alone(cls, lab: Lab, host: Host, program: Path, *arguments: str, name: str) -> Job:
        """One process, forked as a rank is, with no network: what a job can be compared with."""
        job = cls(lab, name, [Rank(0, host)])
        job.launch(host, [f"TESTBED_RANKS={job.directory}", "RANK=0", *forked(program), *arguments])
        return job

    def output(self, rank: int) -> str:
        """The output of a rank so far."""
        return self.log(f"rank-{rank}")

    def log(self, name: str) -> str:
        path = self.directory / f"{name}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def launcher_output(self) -> str:
        return "".join(process.output for process in self._processes)

    @property
    def running(self) -> bool:
        """Whether the launcher still works; a part of it that failed is the end of all."""
        statuses = [process.status for process in self._processes]
        return None in statuses and not any(statuses)

    def wait(self, within: float) -> Failure | None:
        """Returns when the job has ended and nothing of it is left; None if all is well.

        Raises DeadlineError after `within` seconds of the lab's clock; the job is ended then too.
        """
        over = self.lab.scheduler.wait(lambda: not self.running, within, pause=LOOK_S)
        ended = [] if over else [str(rank) for rank in self.ranks if rank.number not in self._alive()]
        failure = self._failure()
        self.close()
        gone = f", though it has ended on: {', '.join(ended)}" if ended else ""
        late = "" if over else f"still running after {within:g} s{gone}"
        ending = "; ".join(filter(None, (late, str(failure) if failure else ""))) or "all is well"
        ok = over and failure is None
        self.lab.emit("job", "", f"{self.name} ends: {ending}", name=self.name, ok=ok)
        if late:
            raise DeadlineError(f"job {self.name}: {ending}")
        return failure

    def check(self, within: float) -> None:
        """The same for a job that has to end well."""
        if failure := self.wait(within):
            raise TestbedError(f"job {self.name}: {failure}", where=str(self.directory))

    def close(self) -> None:
        """Ends what still runs, and waits until it is gone: queue pairs must be gone before their device is."""
        for process in self._processes:
            process.stop()
        shutil.rmtree(self.scratch, ignore_errors=True)
        self._kill(self._processes_left)

    def _end_on(self, host: Host) -> None:
        """Ends the ranks of a host or pod that is taken down: its devices cannot go before their queue pairs."""
        network = netns.path(host.namespace).stat().st_ino
        self._kill(lambda: [pid for pid in self._processes_left() if _network_of(pid) == network])

    def _kill(self, left: Callable[[], list[str]]) -> None:
        """Kills processes until there are none."""
        if not self.lab.scheduler.wait(lambda: self._gone(left()), GONE_S):
            raise DeadlineError(f"job {self.name}: a rank is still there {GONE_S:g} s after it was killed")

    def _gone(self, left: list[str]) -> bool:
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        return not left

    def _alive(self) -> set[int]:
        """The numbers of the ranks that have a process."""
        found = set()
        for pid in self._processes_left():
            with contextlib.suppress(OSError):
                if number := NUMBER.search(Path(f"/proc/{pid}/environ").read_bytes()):
                    found.add(int(number[1]))
        return found

    def _processes_left(self) -> list[str]:
        """What is left of the job, which is what works in its directory."""
        return [pid for pid in filter(str.isdigit, os.listdir("/proc")) if self._is_ours(pid)]

    def _is_ours(self, pid: str) -> bool:
        try:
            return os.readlink(f"/proc/{pid}/cwd") == str(self.directory)
        except OSError:
            return False

    def _failure(self) -> Failure | None:
        statuses = [process.status or 0 for process in self._processes]
        if not any(statuses) and not self._blame(self):  # mpirun that lost a daemon ends with 0
            return None
        said = [(rank, self.output(rank.number)) for rank in self.ranks]
        for rank, text in said:
            for words, status in STATUS.items():
                if words in text:
                    return Failure(rank, status, words)
        for rank, text in said:
            if found := UCX_SAID.search(text):
                return Failure(rank, "", POINTER.sub("", found[0]))
        if blamed := self._blame(self):
            rank, ending = blamed
            return Failure(rank, "", exception_in(self.output(rank.number)) or ending)
        for rank, text in said:
            if raised := exception_in(text):
                return Failure(rank, "", raised)
        last = [line for line in self.launcher_output().splitlines() if line.strip()]
        return Failure(
            self.ranks[0], "", "\n  ".join(last[-LAST_WORDS:]) or f"ended with status {max(statuses, key=abs)}"
        )


def _network_of(pid: str) -> int | None:
    """The inode of a process's network namespace; None if the process is gone."""
    try:
        return os.stat(f"/proc/{pid}/ns/net").st_ino
    except OSError:
        return None


def exception_in(text: str) -> str:
    """The last line of a Python traceback, or nothing."""
    return text.strip().splitlines()[-1] if "Traceback (most recent call last)" in text else ""
