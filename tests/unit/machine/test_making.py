"""A machine that makes a snapshot while the run is planned: whoever begins from it gets it, and else it is ended."""

import asyncio
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import pytest

from testbed.errors import MachineError
from testbed.machine import making, snapshot

MISSING = SimpleNamespace(key="ab" * 32, text="load it", usable=lambda: False)


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The machines that were ended; each that is made is called after the way it was asked for."""
    gone: list[str] = []

    async def make_locked(_: object, flavour: object, source: object, log: Any) -> tuple[str, AsyncExitStack]:
        name = "ahead" if flavour is making.VIRTUAL else "later"
        stack = AsyncExitStack()
        stack.callback(gone.append, name)
        return name, stack

    monkeypatch.setattr(making, "make_locked", make_locked)
    monkeypatch.setattr(making.images, "find", lambda: "the image")
    boot = SimpleNamespace(usable=lambda: True)
    monkeypatch.setattr(snapshot, "stack", lambda *_: [boot, MISSING])
    return gone


async def nothing() -> None: ...


async def machine(ended: list[str], logged: list[str]) -> str:
    async with making.begun(None, None, MISSING, logged.append) as opened:  # type: ignore[arg-type]
        assert ended == []
        return str(opened)


def test_the_machine_that_was_begun_while_the_run_was_planned_is_that_of_the_first_job(ended: list[str]) -> None:
    logged: list[str] = []
    with making.event_loop(ahead=True) as run:
        run(nothing())
        assert run(machine(ended, logged)) == "ahead"
        assert ended == ["ahead"]
        ended.clear()
        assert run(machine(ended, logged)) == "later"
    assert logged == ["load it"]


def test_a_machine_that_nobody_begins_with_is_ended_with_the_command(ended: list[str]) -> None:
    with suppress(ZeroDivisionError), making.event_loop(ahead=True) as run:
        run(nothing())
        raise ZeroDivisionError
    assert ended == ["ahead"]


def test_without_it_nothing_is_begun(ended: list[str]) -> None:
    with making.event_loop(ahead=False) as run:
        run(nothing())
    assert ended == []


def test_what_goes_wrong_with_it_is_raised_where_the_machine_begins(
    ended: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> None:
        raise MachineError("the guest could not load testbed")

    monkeypatch.setattr(making, "make_locked", fail)
    with making.event_loop(ahead=True) as run:
        run(nothing())
        with pytest.raises(MachineError, match="could not load"):
            run(machine(ended, []))


def test_the_first_snapshot_is_made_again_when_only_those_on_it_are_left(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The least recently used files are removed: the lowest snapshot is needed only to compile what was edited."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    done: list[str] = []

    class Opened:
        outcome = SimpleNamespace(extract=lambda _: None)

        def __init__(self, image: object, flavour: object, source: snapshot.Snapshot) -> None:
            self.source = source

        async def __aenter__(self) -> Self:
            return self

        async def __aexit__(self, *_: object) -> None: ...

        async def begin(self) -> None:
            done.append(f"began from {self.source.text}")

    async def boot(image: object, flavour: object, target: snapshot.Snapshot) -> None:
        done.append(f"made {target.text}")

    async def install(*_: object) -> None: ...

    for name, function in ("Opened", Opened), ("boot", boot), ("install", install):
        monkeypatch.setattr(making, name, function)
    first = snapshot.Snapshot("a" * 64, "the first")
    edited = snapshot.Snapshot("b" * 64, "the code", first, files={"x.py": b"x = 1"})
    image = SimpleNamespace(manifest={"digest": "d"})
    asyncio.run(making.compiled(image, making.VIRTUAL, [edited], done.append))  # type: ignore[arg-type]
    assert done == ["the first", "made the first", "began from the first"]
