"""How many vCPUs a guest has, and what becomes of a QEMU that does not get on with a snapshot."""

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from qemu.qmp import EventListener, ExecInterruptedError

from testbed.errors import MachineError
from testbed.machine import emulator, qemu
from testbed.machine.emulator import Emulator
from testbed.machine.qemu import Accelerator, EndedError, Flavour, Qemu, StateError
from testbed.protocol import Clock


@pytest.mark.parametrize(
    ("clock", "accelerator", "version", "cpus"),
    [
        ("virtual", "tcg", "10.0.2", 1),
        ("real", "tcg", "7.2.22", 1),
        ("real", "tcg", "8.0.4", 1),
        ("real", "tcg", "8.1.0", 4),
        ("real", "tcg", "10.0.2", 4),
        ("real", "kvm", "7.2.22", 4),
    ],
)
def test_more_vcpus_than_one_only_where_qemu_executes_them_right(
    monkeypatch: pytest.MonkeyPatch, clock: Clock, accelerator: Accelerator, version: str, cpus: int
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    monkeypatch.setattr(emulator, "version", lambda: version)
    assert Flavour(clock, accelerator).cpus == cpus


def test_the_version_is_that_of_the_qemu_that_is_there_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An upgrade may replace it while a sweep runs."""
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv(emulator.CHOICE, "host")
    for version in "10.0.2 (Debian 1:10.0.2+ds-2)", "10.0.20 (Debian 1:10.0.20+ds-1)":
        (tmp_path / "new").write_text(f"#!/bin/sh\necho 'QEMU emulator version {version}'\n")
        (tmp_path / "new").chmod(0o755)
        (tmp_path / "new").replace(tmp_path / emulator.BINARY)
        assert emulator.release() == version


def test_a_comma_in_a_path_is_quoted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(emulator, "emulator", lambda: Emulator(("qemu",), "", ""))
    file = tmp_path / "a,b"
    file.write_bytes(b"x")
    image: Any = SimpleNamespace(mounted=lambda: [("root", file)], file=lambda name: tmp_path / name)
    words = qemu.command_line(image, Flavour("virtual"), qemu.Ram(3, shared=False), "/in,to", "/out", (1, 1))
    paths = [word.partition("mem-path=")[2] for word in words if "mem-path=" in word]
    assert [path.partition(",size=")[0] for path in paths] == [
        "/dev/fd/3",
        str(file).replace(",", ",,"),
        "/in,,to",
        "/out",
    ]


class SilentQmp:
    """Carries out every command and never tells of an event."""

    def register_listener(self, _: EventListener) -> None: ...

    def send_fd_scm(self, _: int) -> None: ...

    async def execute(self, _: str, __: Any) -> dict[str, Any]:
        return {}


class LostQmp(SilentQmp):
    """The connection to a QEMU that has ended."""

    async def execute(self, _: str, __: Any) -> dict[str, Any]:
        raise TimeoutError


def with_qemu(qmp: SilentQmp, use: Callable[[Qemu], Awaitable[None]]) -> None:
    async def story() -> None:
        here, there = socket.socketpair()
        with here, there:
            await use(Qemu(SimpleNamespace(pid=os.getpid(), returncode=None), qmp, here, there))  # type: ignore[arg-type]

    asyncio.run(story())


def test_a_command_without_an_answer_says_so() -> None:
    with pytest.raises(MachineError, match="QEMU did not execute cont: no answer"):
        with_qemu(LostQmp(), lambda machine: machine.command("cont"))


@pytest.mark.parametrize(("status", "how"), [(-9, "by signal 9"), (1, "with status 1")])
def test_a_command_to_a_qemu_that_ends_says_how_it_ended(tmp_path: Path, status: int, how: str) -> None:
    """The kernel's OOM killer, for one: the connection is lost before the process has ended."""

    class Cut(SilentQmp):
        async def execute(self, _: str, __: Any) -> dict[str, Any]:
            raise ExecInterruptedError("Disconnected")

    class Ending(SimpleNamespace):
        async def wait(self) -> None:
            await asyncio.sleep(0.01)
            self.returncode = status

    async def story() -> None:
        with (tmp_path / "console").open("w+b") as console:
            process: Any = Ending(pid=os.getpid(), returncode=None)
            await Qemu(process, Cut(), console.fileno(), None).clock_s()  # type: ignore[arg-type]

    with pytest.raises(EndedError, match=f"QEMU ended {how}") as said:
        asyncio.run(story())
    assert ("dmesg" in said.value.hint) == (status == -9)


def test_a_snapshot_that_qemu_never_finishes_to_read_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(qemu, "ANSWER_S", 0.01)
    with pytest.raises(MachineError, match=r"still reading the snapshot after 0\.01 s"):
        with_qemu(SilentQmp(), lambda machine: machine.load(0))


@pytest.mark.parametrize("qmp", [SilentQmp(), LostQmp()])
def test_whatever_hinders_the_reading_of_a_state_is_told_from_other_errors(
    monkeypatch: pytest.MonkeyPatch, qmp: SilentQmp
) -> None:
    monkeypatch.setattr(qemu, "ANSWER_S", 0.01)
    with pytest.raises(StateError):
        with_qemu(qmp, lambda machine: machine.load(0))
