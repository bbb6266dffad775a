"""A signal ends the command with its status and at most one word, whatever it meets."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).parents[3]
MEETS = """
import builtins, os, signal, sys

number, module = int(sys.argv[1]), sys.argv[2]
real = builtins.__import__


def import_and_die(name, *arguments):
    found = real(name, *arguments)
    if name == module and builtins.__import__ is not real:
        builtins.__import__ = real
        os.kill(os.getpid(), number)
    return found


from testbed.__main__ import main

builtins.__import__ = import_and_die
sys.argv[1:] = ["list"]
main()
"""
DURING = """
import asyncio, os, signal, sys
from testbed.cli import main as command

number = int(sys.argv[1])


def invoke(arguments):
    {body}


command.invoke = invoke
command.main()
"""
SEVERAL = """
    async def cleans_up_badly():
        try:
            await asyncio.sleep(60)
        finally:
            raise ValueError("while it was cleaned up")

    async def run():
        from testbed.machine.task_group import TaskGroup

        async with TaskGroup() as group:
            for _ in range(3):
                group.create_task(cleans_up_badly())
            asyncio.get_running_loop().call_later(0.01, os.kill, os.getpid(), number)

    asyncio.run(run())
"""
LOST = """
    class Swallows:
        def __del__(self):
            os.kill(os.getpid(), number)
            for _ in range(1000):
                pass

    Swallows()
    return 0
"""
TWICE = """
    try:
        os.kill(os.getpid(), number)
        while True:
            pass
    finally:
        os.kill(os.getpid(), number)
        while True:
            pass
"""
SIGNALS = [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]


def run(code: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-c", code, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": str(TOP)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("module", ["click", "testbed.cli.main", "testbed.errors", "asyncio"])
@pytest.mark.parametrize(("number", "status"), SIGNALS[:2])
def test_while_the_command_is_loaded(module: str, number: int, status: int) -> None:
    done = run(MEETS, int(number), module)
    assert (done.returncode, done.stdout) == (status, "")
    assert done.stderr.strip() in ("", "interrupted")


@pytest.mark.parametrize("body", [SEVERAL, LOST, TWICE], ids=["cleaned up badly", "lost", "twice"])
@pytest.mark.parametrize(("number", "status"), SIGNALS)
def test_while_it_is_at_work(body: str, number: int, status: int) -> None:
    done = run(DURING.format(body=body.strip()), int(number))
    assert (done.returncode, done.stdout) == (status, "")
    assert done.stderr.strip() in ("", "interrupted")


def test_a_defect_is_still_shown() -> None:
    done = run(DURING.format(body="raise ValueError('a defect')"), 0)
    assert done.returncode == 1
    assert "ValueError: a defect" in done.stderr
