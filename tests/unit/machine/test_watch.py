"""What a watch makes of a machine: a hang is told from a guest that works in silence, and from a host without time."""

import asyncio
import itertools
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest

from testbed.errors import MachineError
from testbed.machine import watch
from testbed.machine.patience import StarvedError
from testbed.machine.qemu import EndedError
from testbed.machine.watch import PULSE_LOST_S, STILL_LOOKS, Watch
from testbed.protocol import Clock

MANY = 2000


class Machine:
    """A guest whose time is given, one value a look, and the CPU seconds of its QEMU."""

    def __init__(self, seconds: Iterator[int], ran: Iterator[float]) -> None:
        self.process = SimpleNamespace(pid=1)
        self._seconds, self.ran = seconds, ran
        self.nudged = 0

    async def clock_s(self) -> int:
        return next(self._seconds)

    async def nudge(self) -> None:
        self.nudged += 1

    def last_output(self) -> str:
        return "  | last words"


class Outcome:
    def __init__(self, pulses: Iterator[int]) -> None:
        self._pulses = pulses

    @property
    def pulse(self) -> int:
        return next(self._pulses)


@pytest.fixture(autouse=True)
def _every_call_is_a_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "SLICE_S", 0.0)
    monkeypatch.setattr(watch, "QUIET_S", 0.0)


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Sets the share of each second for which the machine waits for a CPU; a look is a second."""

    monkeypatch.setattr(Watch, "_used_s", lambda one: next(one._machine.ran))  # type: ignore[attr-defined]

    def waits(share: float) -> None:
        monkeypatch.setattr(watch, "Starvation", lambda _: SimpleNamespace(look=lambda: (1.0, share)))

    waits(0.0)
    return waits


def watched(
    machine: Machine, pulses: Iterator[int], looks: int = MANY, clock: Clock = "virtual", heard_every: int = 0
) -> list[str]:
    """What is said during so many looks."""
    said: list[str] = []

    async def run() -> None:
        one = Watch(machine, clock, Outcome(pulses), said.append)  # type: ignore[arg-type]
        for number in range(1, looks + 1):
            if heard_every and number % heard_every == 0:
                one.alive()
            await one.look()

    asyncio.run(run())
    return said


def forever(value: int) -> Iterator[int]:
    return itertools.repeat(value)


def test_a_clock_that_stands_still_with_a_cpu_is_a_hang(host: Callable[[float], None]) -> None:
    with pytest.raises(MachineError, match=r"its clock stands still(.|\n)*last words"):
        watched(Machine(forever(7), forever(100)), forever(3), STILL_LOOKS + 2)


def test_a_qemu_that_does_not_answer_is_a_hang(host: Callable[[float], None], monkeypatch: pytest.MonkeyPatch) -> None:
    async def silent(_: Machine) -> int:
        raise MachineError("QEMU did not execute qom-get: no answer")

    monkeypatch.setattr(Machine, "clock_s", silent)
    with pytest.raises(MachineError, match=r"the guest hangs: QEMU did not .* no answer(.|\n)*last words"):
        watched(Machine(forever(7), forever(100)), forever(3), 1)


def test_a_qemu_that_has_ended_is_no_hang(host: Callable[[float], None], monkeypatch: pytest.MonkeyPatch) -> None:
    async def ended(_: Machine) -> int:
        raise EndedError("QEMU ended by signal 9")

    monkeypatch.setattr(Machine, "clock_s", ended)
    with pytest.raises(EndedError, match=r"^QEMU ended by signal 9$"):
        watched(Machine(forever(7), forever(100)), forever(3), 1)


def test_it_is_nudged_once_before_that(host: Callable[[float], None]) -> None:
    machine = Machine(forever(7), forever(100))
    watched(machine, forever(3), STILL_LOOKS)
    assert machine.nudged == 1


def test_a_machine_that_goes_on_when_it_is_nudged_does_not_hang(host: Callable[[float], None]) -> None:
    machine = Machine(forever(7), iter(lambda: machine.nudged, None))
    watched(machine, forever(3), STILL_LOOKS + 4)
    assert machine.nudged > 1


def test_before_that_it_is_none(host: Callable[[float], None]) -> None:
    watched(Machine(forever(7), forever(100)), forever(3), STILL_LOOKS)


def test_a_guest_that_reports_is_not_looked_at_as_hanging(host: Callable[[float], None]) -> None:
    watched(Machine(forever(7), forever(100)), forever(3), heard_every=STILL_LOOKS - 1)


def test_a_silent_guest_whose_time_goes_on_is_let_be_however_long_it_takes(host: Callable[[float], None]) -> None:
    watched(Machine(forever(7), forever(100)), itertools.count())


def test_a_guest_that_only_computes_is_let_be(host: Callable[[float], None]) -> None:
    """It takes minutes of CPU time from one pulse to the next."""
    pulses = (pulse for pulse in itertools.count() for _ in range(300))
    watched(Machine(forever(7), itertools.count()), pulses)


def test_what_takes_long_in_silence_is_said_once_a_while(
    host: Callable[[float], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = itertools.count()
    monkeypatch.setattr(watch.time, "monotonic", lambda: float(next(seconds)))
    said = watched(Machine(forever(7), itertools.count()), itertools.count(), looks=100)
    assert 1 < len(said) < 10
    assert said[0].endswith("virtual time goes on")


def test_a_machine_without_a_cpu_does_not_hang_but_is_given_up(host: Callable[[float], None]) -> None:
    host(1.0)
    with pytest.raises(StarvedError, match="got no CPU") as error:
        watched(Machine(forever(7), forever(100)), forever(3))
    assert error.value.exit_status == 3


def test_a_machine_that_gets_little_is_let_be_and_the_user_hears_of_it_once(host: Callable[[float], None]) -> None:
    """Once in its command, however many machines that has."""
    host(0.9)
    watch._remarked.clear()
    said = watched(Machine(forever(7), itertools.count()), itertools.count())
    assert said == ["this host is busy: a machine mostly waits for a CPU"]
    assert watched(Machine(forever(7), itertools.count()), itertools.count()) == []


@pytest.mark.parametrize("clock", ["real", "virtual"])
@pytest.mark.parametrize("ran", [itertools.repeat(100), itertools.count()], ids=["idle", "busy"])
def test_a_guest_whose_first_process_does_not_run_hangs(
    host: Callable[[float], None], clock: Clock, ran: Iterator[float]
) -> None:
    with pytest.raises(MachineError, match=rf"first process has not run for {PULSE_LOST_S} s of its time"):
        watched(Machine(itertools.count(), ran), forever(3), PULSE_LOST_S + 1, clock)


def test_a_guest_on_the_real_clock_that_idles_is_let_be(host: Callable[[float], None]) -> None:
    """Its QEMU uses next to no CPU, and its first process runs every 30 seconds."""
    pulses = (pulse for pulse in itertools.count() for _ in range(30))
    said = watched(Machine(itertools.count(), forever(100)), pulses, clock="real")
    assert said == []


def test_minutes_that_pass_between_two_looks_are_no_lost_pulse(host: Callable[[float], None]) -> None:
    """A guest that was not looked at for long: that its pulse is the same at two looks says nothing then."""
    pulses = (pulse for pulse in itertools.count() for _ in range(3))
    watched(Machine(itertools.count(0, PULSE_LOST_S), forever(100)), pulses, clock="real")
