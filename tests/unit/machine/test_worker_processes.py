"""Processes on a worker of a cluster, which stay between requests: each answers as a fresh one would.

They are real and have the code that a sweep sends, but for what they can be asked.
"""

import asyncio
import io
import os
import pickle
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from process_ends import LIMIT_S, ended

from testbed.errors import TestbedError
from testbed.machine.sweeps import answers, dask_cluster, remote, worker_processes
from testbed.machine.sweeps.worker_processes import Names, Pool

pytestmark = pytest.mark.long

NAMES = "code-1", "work-1", "ef" * 32
OWN = """
import signal

before = []

def itself(work, digest):
    return os.getpid(), dict(os.environ), os.getcwd(), work, digest

def spoil(work, digest):
    os.environ["XDG_CACHE_HOME"] = "/elsewhere"
    os.chdir("/")
    print("on standard output")
    return itself(work, digest)

def end(work, digest, how):
    print("its last words", flush=True)
    if how == "signal":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "exit":
        sys.exit(3)
    raise ValueError("no answer")

def only_first(work, digest):
    return end(work, digest, "exit") if before else os.getpid()

def fail(work, digest):
    raise TestbedError("not here")

def read(work, digest):
    return sys.stdin.read()

def wait(work, digest, path):
    Path(path).write_text(str(os.getpid()))
    signal.pause()

def noted(act):
    def run(*arguments):
        try:
            return pickle.dumps(act(*arguments))
        finally:
            before.append(act)
    return run

ACTIONS = {act.__name__: noted(act) for act in (itself, spoil, end, only_first, fail, read, wait)}
main()
"""


@pytest.fixture(autouse=True)
def _sent() -> None:
    """The host has the code and the work."""
    code = remote.place() / NAMES[0]
    zipfile.ZipFile(io.BytesIO(dask_cluster.code_file().data)).extractall(code)
    file = code / "testbed/machine/sweeps/worker.py"
    file.write_text(file.read_text().partition('if __name__ == "__main__":')[0] + OWN)
    (remote.place() / NAMES[1]).write_bytes(pickle.dumps("the work"))


def with_pool(use: Callable[[Pool], Awaitable[None]]) -> None:
    async def story() -> None:
        one = Pool()
        try:
            await use(one)
        finally:
            await one.teardown(None)

    asyncio.run(story())


async def ask(one: Pool, *request: Any, names: Names = NAMES) -> Any:
    answer = await one.answer(names, pickle.dumps(request))
    return pickle.loads(answer) if answer[:1] == b"\x80" else answers.read(answer, "")  # noqa: S301 - this test's code


async def pid_of(one: Pool) -> int:
    return int((await ask(one, "itself"))[0])


def test_one_process_answers_after_the_other_and_several_side_by_side() -> None:
    async def use(one: Pool) -> None:
        first = await pid_of(one)
        assert await pid_of(one) == first
        both = {*await asyncio.gather(pid_of(one), pid_of(one))}
        assert len(both) == 2
        assert first in both
        assert {*await asyncio.gather(pid_of(one), pid_of(one))} == both

    with_pool(use)


def test_a_sweep_with_another_work_has_another_process() -> None:
    (remote.place() / "work-2").write_bytes(pickle.dumps("another"))

    async def use(one: Pool) -> None:
        _, _, _, work, digest = await ask(one, "itself")
        assert (work, digest) == ("the work", NAMES[2])
        other = await ask(one, "itself", names=("code-1", "work-2", "ab"))
        assert other[3:] == ("another", "ab")

    with_pool(use)


def test_a_request_finds_nothing_of_the_one_before() -> None:
    """Neither its environment nor its directory; and standard input and output are not those of the protocol."""

    async def use(one: Pool) -> None:
        fresh = await ask(one, "itself")
        assert (await ask(one, "spoil"))[:3] == (fresh[0], {**fresh[1], "XDG_CACHE_HOME": "/elsewhere"}, "/")
        assert await ask(one, "itself") == fresh
        assert fresh[2] == str(remote.place())
        assert await ask(one, "read") == ""
        assert await pid_of(one) == fresh[0]

    with_pool(use)


def test_an_error_of_testbed_is_an_answer() -> None:
    async def use(one: Pool) -> None:
        before = await pid_of(one)
        with pytest.raises(TestbedError, match="not here"):
            await ask(one, "fail")
        assert await pid_of(one) == before

    with_pool(use)


@pytest.mark.parametrize("reused", [False, True])
@pytest.mark.parametrize(
    ("how", "status", "wrote"), [("signal", -9, ""), ("exit", 3, ""), ("error", 1, "ValueError: no answer")]
)
def test_a_request_that_ends_its_process_is_reported_and_spoils_no_other(
    how: str, status: int, wrote: str, reused: bool
) -> None:
    async def use(one: Pool) -> None:
        before = await pid_of(one) if reused else 0
        if reused:
            await ask(one, "spoil")
        with pytest.raises(RuntimeError) as raised:
            await ask(one, "end", how)
        head, _, text = str(raised.value).partition("\n")
        assert head.startswith(f"testbed ended with status {status} on ")
        assert text.startswith("its last words")
        assert text.endswith(wrote)
        assert await pid_of(one) != before

    with_pool(use)


def test_what_only_a_process_with_a_past_cannot_answer_is_answered_by_a_fresh_one() -> None:
    async def use(one: Pool) -> None:
        before = await pid_of(one)
        assert await ask(one, "only_first") != before

    with_pool(use)


def test_a_process_that_was_killed_while_it_was_idle_is_replaced() -> None:
    async def use(one: Pool) -> None:
        before = await pid_of(one)
        os.kill(before, signal.SIGKILL)
        assert ended(before)
        assert await pid_of(one) != before

    with_pool(use)


def test_a_process_without_a_request_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_processes, "IDLE_S", 0.05)

    async def use(one: Pool) -> None:
        before = await pid_of(one)
        assert await asyncio.to_thread(ended, before)
        assert await pid_of(one) != before

    with_pool(use)


def test_a_process_whose_answer_nobody_waits_for_ends(tmp_path: Path) -> None:
    """As when its worker is closed."""
    file = tmp_path / "pid"

    async def use(one: Pool) -> None:
        asking = asyncio.create_task(ask(one, "wait", str(file)))
        pid = await asyncio.to_thread(written, file)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert await asyncio.to_thread(ended, pid)

    with_pool(use)


def test_the_processes_end_with_the_pool() -> None:
    pids = []

    async def use(one: Pool) -> None:
        pids.extend(await asyncio.gather(pid_of(one), pid_of(one)))

    with_pool(use)
    assert all(map(ended, pids))


def test_a_busy_process_ends_with_a_worker_that_is_killed_and_not_with_a_thread_of_it(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    code = f"""
import asyncio, pickle
from testbed.machine.sweeps.worker_processes import Pool

async def main():
    one = Pool()
    answer = pickle.loads(await one.answer({NAMES}, pickle.dumps(("itself",))))
    print(answer[0], flush=True)
    await asyncio.get_running_loop().shutdown_default_executor()
    await one.answer({NAMES}, pickle.dumps(("wait", {str(file)!r})))

asyncio.run(main())
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as worker:
        assert worker.stdout
        first = int(worker.stdout.readline())
        assert written(file) == first
        worker.kill()
    assert ended(first)


def written(file: Path) -> int:
    """The number in a file, once it is there."""
    deadline = time.monotonic() + LIMIT_S
    while not (file.exists() and file.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return int(file.read_text())
