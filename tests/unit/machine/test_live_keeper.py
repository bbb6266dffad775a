"""The keeper of a lab and commands that are connected to it. The loop of its machine is played here."""

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from testbed.machine import image
from testbed.machine.live import labs, stoppable
from testbed.machine.live.keeper import Keeper
from testbed.machine.live.lifecycle import Input
from testbed.machine.live.order import Order
from testbed.machine.live.stoppable import RunOrder, StoppableMachine
from testbed.machine.moments import DEVICES, Moment, Saved
from testbed.protocol import messages
from testbed.protocol.live import Down, Exec, Inspect

MOMENT = Moment(3, 2_000_000_000, "step", "pod B gets the address")
START, CONTINUE = {"control": "start"}, {"control": "continue", "discard": False, "to": ""}
NONSENSE = {**CONTINUE, "to": "T=soon"}
"""Refused at once: what the same command sent before has come."""
INSPECT, DOWN = messages.ask(0, Inspect()), messages.ask(0, Down())


class Loop:
    """Notes what the machine is given, and answers nothing."""

    reached = MOMENT

    def __init__(self) -> None:
        self.touched: list[str] = []
        self.given: list[Any] = []

    def next_number(self) -> int:
        return 7

    def submit(self, requests: Any) -> None:
        self.given += [message["request"]["kind"] for message in requests]

    def post(self, message: Any) -> None:
        self.given.append(message)

    def go_on(self, stop: Any, *, discard: bool) -> None:
        self.given.append("go on")


class Command:
    """A connection to the keeper."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    def send(self, message: dict[str, Any]) -> None:
        self._writer.write(json.dumps({**message, "id": 1}).encode() + b"\n")

    async def answer(self) -> Any:
        """The next message that comes, but for its number."""
        found = json.loads(await self._reader.readline())
        assert found.pop("id") == 1
        return found

    async def asks(self, message: dict[str, Any]) -> Any:
        self.send(message)
        return await self.answer()

    async def close(self) -> None:
        self._writer.close()
        with contextlib.suppress(ConnectionError):
            await self._writer.wait_closed()


class Kept:
    """A keeper, whose machine works until it is told to have finished."""

    def __init__(self, order: Order) -> None:
        self.keeper = Keeper(order)
        self.loop = self.keeper.loop = Loop()  # type: ignore[assignment]
        self._finished = asyncio.Event()
        self._commands: list[Command] = []

    async def live(self) -> None:
        await self._finished.wait()
        self.keeper._apply(Input.FINISHED)

    def finish(self) -> None:
        self._finished.set()

    async def command(self) -> Command:
        self._commands.append(Command(*await asyncio.open_unix_connection(sock=labs.connected(self.keeper.lab))))
        return self._commands[-1]

    async def leave(self) -> None:
        for command in self._commands:
            await command.close()


@contextlib.asynccontextmanager
async def kept(directory: Path, run: dict[str, Any] | None = None) -> AsyncIterator[Kept]:
    lab = labs.Lab("mine", "x.yml", "virtual", 1.0, 7, "0.1", str(directory / "runs" / "mine"), "starting")
    order = Order(lab, {}, {}, [], "tcg", 1, [], [], None, attached=False, run=run)
    with labs.claimed(lab):
        played = Kept(order)
        if run is None:
            played.keeper._live = played.live  # type: ignore[method-assign]
        pipes = [*os.pipe(), *os.pipe()]
        running = asyncio.create_task(played.keeper.run(pipes[0], pipes[3], None))
        await asyncio.to_thread(os.read, pipes[2], 1)
        try:
            yield played
        finally:
            os.close(pipes[1])
            played.finish()
            await running
            await played.leave()
            for pipe in pipes[0], pipes[2]:
                os.close(pipe)


@pytest.fixture
def with_keeper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    def run(test: Callable[[Kept], Coroutine[Any, Any, None]], order: dict[str, Any] | None = None) -> None:
        async def whole() -> None:
            async with kept(tmp_path, order) as played:
                await test(played)

        asyncio.run(whole())

    return run


def error(message: dict[str, Any]) -> tuple[str, int]:
    return message["error"]["message"], message["error"]["status"]


def test_who_waits_for_a_lab_is_answered_when_it_is_up_and_later_ones_at_once(with_keeper: Callable[..., None]) -> None:
    async def test(lab: Kept) -> None:
        early, late = await lab.command(), await lab.command()
        assert error(await late.asks(INSPECT)) == ("lab mine is still starting", 1)
        early.send(START)
        assert error(await early.asks(NONSENSE))[1] == 2
        lab.keeper._report({"up": True})
        assert await early.answer() == {"response": None}
        events = (lab.keeper.lab.directory / labs.RECORD).stat().st_mtime_ns
        assert await late.asks(START) == {"response": None}
        assert (lab.keeper.lab.directory / labs.RECORD).stat().st_mtime_ns == events, "nothing has changed"
        assert error(await early.asks(CONTINUE)) == ("mine is not stopped", 2)

    with_keeper(test)


def test_who_comes_while_a_lab_is_taken_down_is_refused_and_it_goes_on_ending(with_keeper: Callable[..., None]) -> None:
    async def test(lab: Kept) -> None:
        first, second = await lab.command(), await lab.command()
        lab.keeper._report({"up": True})
        first.send(DOWN)
        assert error(await first.asks(NONSENSE))[1] == 2
        for message in START, INSPECT, CONTINUE:
            assert error(await second.asks(message)) == ("lab mine is being taken down", 1)
        record = json.loads((lab.keeper.lab.directory / labs.RECORD).read_text())
        assert (record["state"], lab.loop.given) == ("ending", ["Down"])
        lab.finish()
        assert await first.answer() == {"response": {"out": lab.keeper.lab.out}}

    with_keeper(test)


def test_a_stopped_run_shows_late_comers_where_it_stands_and_goes_on_without_what_was_asked(
    with_keeper: Callable[..., None],
) -> None:
    async def test(lab: Kept) -> None:
        lab.keeper.held(MOMENT)
        looks, goes, late = [await lab.command() for _ in range(3)]
        assert await late.asks(START) == {"response": {"stopped": asdict(MOMENT)}}
        looks.send(messages.ask(0, Exec(node="h1", command=["true"])))
        assert error(await looks.asks(NONSENSE))[1] == 2
        goes.send(CONTINUE)
        assert error(await looks.answer()) == ("mine goes on", 1)
        assert (lab.loop.given, lab.loop.touched) == (["Exec", "go on"], ["Exec"])
        assert error(await looks.asks(INSPECT)) == (
            "lab mine is running, and accepts requests only while it is stopped",
            1,
        )
        late.send(START)
        assert error(await late.asks(NONSENSE))[1] == 2
        lab.keeper.held(MOMENT)
        for waiting in goes, late:
            assert await waiting.answer() == {"response": {"stopped": asdict(MOMENT)}}

    with_keeper(test)


def test_a_run_that_was_touched_does_not_stop_at_a_time_unless_that_is_discarded(
    with_keeper: Callable[..., None],
) -> None:
    async def test(lab: Kept) -> None:
        lab.keeper.held(MOMENT)
        lab.loop.touched = ["Exec"]
        command = await lab.command()
        message, status = error(await command.asks({**CONTINUE, "to": "T=5s"}))
        assert ("cannot stop at a time" in message, status, lab.loop.given) == (True, 2, [])
        command.send({**CONTINUE, "to": "T=5s", "discard": True})
        assert error(await command.asks(INSPECT))[0].startswith("lab mine is running")
        assert lab.loop.given == ["go on"]

    with_keeper(test)


@pytest.mark.parametrize("stopped", [False, True])
def test_down_gives_up_what_is_not_up_and_keeps_the_directory_of_a_run_that_was_stopped(
    with_keeper: Callable[..., None], tmp_path: Path, stopped: bool
) -> None:
    async def test(lab: Kept) -> None:
        waits, ends = await lab.command(), await lab.command()
        if stopped:
            lab.keeper.held(MOMENT)
            waits.send(CONTINUE)
        else:
            waits.send(START)
        assert error(await waits.asks(NONSENSE))[1] == 2
        ends.send(DOWN)
        before = "" if stopped else " before it was up"
        assert error(await waits.answer()) == (f"lab mine was ended{before}", 1)
        assert await ends.answer() == {"response": {"out": ""}}

    with_keeper(test)
    assert (tmp_path / "runs" / "mine").exists() == stopped
    assert labs.every() == []


def test_a_step_of_another_version_is_wrong_input_with_its_hint(
    with_keeper: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = Saved(MOMENT, "another snapshot", b"", {name: [] for name in DEVICES})
    (tmp_path / "steps").mkdir()
    scenario = tmp_path / "mine" / "scenario.py"
    scenario.parent.mkdir()
    scenario.write_text("")
    lab = {"topology": "lab.clab.yml", "profiles": {}}
    variant: Any = {"name": "v", "expected": "fault", "text": "", "settings": {}, "lab": lab}
    info = {"name": "mine", "title": "", "text": "", "limit_s": 1, "busy_limit_s": 1, "training": False}
    info["variants"] = [variant]

    async def described(*_: object) -> list[Any]:
        return [info]

    monkeypatch.setattr(image, "find", lambda: SimpleNamespace(digest="0", layers=()))
    monkeypatch.setattr(stoppable.scenarios, "describe", described)
    monkeypatch.setattr(StoppableMachine, "source", lambda *_: SimpleNamespace(key="this version's"))
    monkeypatch.setattr("testbed.machine.live.keeper.containers.equip", lambda found, *_: asyncio.sleep(0, found))
    step = saved.write(tmp_path / "steps")
    order = RunOrder("mine", str(scenario), None, "v", variant, stop="", step=str(step))

    async def test(lab: Kept) -> None:
        command = await lab.command()
        found = (await command.asks(START))["error"]
        assert (found["message"], found["where"]) == (
            "another version of testbed, its image or QEMU kept the step",
            str(step),
        )
        assert "--keep-steps" in found["hint"]
        assert found["status"] == 2

    with_keeper(test, asdict(order))
    assert labs.every() == []
