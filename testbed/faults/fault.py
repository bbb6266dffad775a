"""
Faults: injected, verified in place, verified to have held, recovered, verified gone.

A fault on packets counts them: without any it had no effect. It does not report the symptoms that users observe;
whoever injects it measures them.
"""

import inspect
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from testbed.errors import InputError, TestbedError, did_you_mean, nearest
from testbed.lab import Lab, Pod
from testbed.protocol import events
from testbed.topology import IPAddress, IPInterface

Verified = Mapping[str, Any]
"""Evidence that a fault is in place, as short values under the field's names."""
Address = Annotated[IPAddress, BeforeValidator(lambda value: value.ip if isinstance(value, IPInterface) else value)]
End = Annotated[
    str,
    Field(
        pattern=r"^[^:]+:[^:]+$",
        description="An end of a link, such as `leaf:e1`; the fault acts on packets that this end sends.",
    ),
]
What = Literal["injected", "recovered", "lost"]
KINDS_OF_EVENTS = {"injected": events.FAULT_INJECTED, "recovered": events.FAULT_RECOVERED, "lost": events.FAULT_LOST}
Mac = Annotated[str, Field(pattern=r"^[0-9a-f]{2}(:[0-9a-f]{2}){5}$")]


class FaultError(TestbedError):
    """A fault that verification does not find after its injection or still finds after its recovery; a recovery that
    failed."""


class Fault(BaseModel, ABC):
    """A fault, its parameters as fields. A docstring's first line is its title; `name` is for files and commands."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)

    name: ClassVar[str]
    holds: ClassVar[bool] = True
    """Whether it stays in place until it is recovered. Others the network may undo, or they come and go."""

    def __init__(self, **parameters: Any) -> None:
        """InputError for a wrong parameter."""
        try:
            super().__init__(**parameters)
        except ValidationError as error:
            raise wrong_parameters(self.name, error, list(type(self).model_fields)) from error

    @abstractmethod
    def inject(self, lab: Lab, undo: ExitStack) -> None:
        """Break it. Each action registers its undo in `undo` at once. InputError for what the lab does not have."""

    @abstractmethod
    def verify(self, lab: Lab) -> Verified | None:
        """Return the parts of it in place, read from the broken object itself; None if there are none."""

    def hits(self, lab: Lab) -> int | None:
        """Return the number of packets that it has acted on so far; None if nothing counts them."""
        return None

    def __str__(self) -> str:
        given = self.model_dump(exclude_defaults=True)
        return " ".join([self.name, *(f"{key}={value}" for key, value in given.items())])

    @classmethod
    def title(cls) -> str:
        return inspect.cleandoc(cls.__doc__ or "").partition("\n")[0].rstrip(".")

    @classmethod
    def text(cls) -> str:
        return inspect.cleandoc(cls.__doc__ or "").partition("\n")[2].strip()


class Injection:
    """A fault in a lab from `inject` to `recover`, at the latest until the end of the lab or of a pod that it names."""

    def __init__(self, lab: Lab, fault: Fault) -> None:
        self.lab = lab
        self.fault = fault
        self.came = False
        self.active = False
        self.judged = False
        """True if a run's verdict has reported that part of it did not happen."""
        self.lost = ""
        """When it was no longer in place, as text, if it had to be."""
        self._began = self._found = 0.0
        """Times of its injection, and of the last verification that found it."""
        self._before: int | None = None
        """Hits before its injection, which belong to others."""
        self._hits: int | None = None
        """Its hits at its recovery."""
        self._lasting = 0.0
        self._end: float | None = None
        """The end of a fault with a duration."""
        self._missed = ""
        self._there = False
        """True if it is injected, or recovered and not yet verified gone."""
        self._undo = ExitStack()
        self._cancel: Callable[[], None] | None = None
        lab.injections.append(self)

    def inject(self) -> None:
        """Break it; FaultError if verification finds nothing of it, and then nothing of it stays."""
        self.lab.scheduler.one_by_one(self._inject)

    def inject_after(self, seconds: float, lasting: float | None) -> None:
        """Inject it in so many seconds, then `recover` it after `lasting`, earlier if the lab ends first."""

        def begin() -> None:
            self._missed = ""
            self.inject()
            if lasting is not None:
                self._lasting, self._end = lasting, time.monotonic() + lasting
                self._cancel = self.lab.scheduler.after(lasting, self.recover)
                self.lab.defer(self._cut_short)

        if seconds:
            self._missed = "was never injected: the run ended before its time"
            self._cancel = self.lab.scheduler.after(seconds, begin)
        else:
            begin()

    def _cut_short(self) -> None:
        if self.active and self._end is not None:
            left = self._end - time.monotonic()
            self._missed = f"was cut short: the run ended {left:.3f} s before its {self._lasting:g} s were over"

    @property
    def unfinished(self) -> str:
        """Return the part of `inject_after` that is missing if the run ends now or has ended, as text; else empty."""
        self._cut_short()
        return self._missed

    def check(self) -> None:
        """Emit `fault.lost` if it has to be in place and is not, except where a later fault may be the cause."""
        others: list[Injection] = self.lab.injections
        later = any(other.active and other._began > self._began for other in others)
        if not (self.active and self.fault.holds) or self.lost or later:
            return
        now = time.monotonic()
        if self.fault.verify(self.lab) is None:
            found = f"verification found it last {now - self._found:.3f} s before"
            self.lost = f"no longer held {now - self._began:.3f} s after its injection; {found}"
            self._emit("lost", self.lost)
        self._found = now

    def recover(self) -> None:
        """Recover it; FaultError if verification still finds it then, or, where other faults may be the cause, when
        those are gone. May be repeated; a fault that has not been injected yet never will be."""
        if self._cancel:
            self._cancel()
        self.lab.scheduler.one_by_one(self._recover)

    def _inject(self) -> None:
        if self.fault.verify(self.lab) is not None:
            raise FaultError(f"fault {self.fault}: it is already in place")
        self._before = self.fault.hits(self.lab)
        with self._undo:
            self.fault.inject(self.lab, self._undo)
            if (verified := self.fault.verify(self.lab)) is None:
                raise FaultError(f"fault {self.fault}: it was injected, but verification does not find it")
            self._undo = self._undo.pop_all()
        self.came = self.active = True
        self._there = True
        self._began = self._found = time.monotonic()
        self.lab.defer(self.recover)
        for name in self.named():
            if isinstance(pod := self.lab.nodes.get(name), Pod):
                pod.defer(self.recover)
        hits = self._hits_since()
        words = "" if hits is None else f", hits {hits} so far"
        self._emit("injected", f"injected: {_words(verified)}{words}", verified, hits)

    def _recover(self) -> None:
        if not self.active:
            return
        try:
            self.check()
            self._hits = self._hits_since()
        finally:
            self.active = False
            self._take_back()
        there: list[Injection] = [other for other in self.lab.injections if other._there]
        for injection in [other for other in there if not other.active]:
            if (verified := injection.fault.verify(self.lab)) is None:
                injection._there = False
                hits = injection._hits
                words = "" if hits is None else f": hits {hits}" if hits else ": no effect, no packet matched it"
                injection._emit("recovered", f"recovered{words}", hits=hits)
            elif not any(other.active for other in there):
                injection._there = False
                raise FaultError(f"fault {injection.fault}: it was recovered but is still in place: {_words(verified)}")

    def named(self) -> list[str]:
        """Return the texts among its parameters: names of nodes and of ends of links are there."""
        return list(_texts(self.fault.model_dump()))

    def _take_back(self) -> None:
        try:
            self._undo.close()
        except (TestbedError, OSError) as error:
            self._there = False
            raise FaultError(f"fault {self.fault}: it cannot be recovered: {error}") from error

    def _hits_since(self) -> int | None:
        """Return the hits since its injection; None if their counter was reset meanwhile."""
        now = self.fault.hits(self.lab)
        return None if now is None or self._before is None or now < self._before else now - self._before

    def _emit(self, what: What, text: str, verified: Verified | None = None, hits: int | None = None) -> None:
        made = partial(KINDS_OF_EVENTS[what], fault=self.fault.name, verified=dict(verified or {}))
        data = made() if hits is None else made(hits=hits)
        self.lab.emit(data.plus(self.fault.model_dump(mode="json")), "", f"{self.fault} {text}")


def unfinished(lab: Lab) -> list[str]:
    """Return an ended lab's faults that never came, did not hold or were cut short, unless a verdict reported them."""
    found = [(one, text) for one in lab.injections if not one.judged for text in (one.lost, one.unfinished)]
    return [f"fault {one.fault} {text}" for one, text in found if text]


@contextmanager
def injected(lab: Lab, fault: Fault) -> Iterator[Injection]:
    """Inject the fault for the block."""
    injection = Injection(lab, fault)
    injection.inject()
    try:
        yield injection
    finally:
        injection.recover()


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (dict, tuple)):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _texts(part)


def make(kinds: Mapping[str, type[Fault]], name: str, parameters: Mapping[str, Any]) -> Fault:
    """Return the fault of that name; InputError for an unknown name or parameter."""
    if name not in kinds:
        raise InputError(f"there is no fault {name!r}", hint=f"{did_you_mean(name, kinds)}See `testbed fault list`.")
    try:
        return kinds[name].model_validate(parameters)
    except ValidationError as error:
        raise wrong_parameters(name, error, list(kinds[name].model_fields)) from error


def wrong_parameters(name: str, error: ValidationError, known: list[str]) -> InputError:
    problems = [_problem(detail, known) for detail in error.errors()]
    return InputError(f"fault {name}: {'; '.join(problems)}", hint=f"Parameters: {', '.join(known)}.")


def _problem(detail: Any, known: list[str]) -> str:
    key = ".".join(map(str, detail["loc"]))
    match detail["type"]:
        case "missing":
            return f"{key!r} is missing"
        case "extra_forbidden":
            near = nearest(key, known)
            return f"there is no {key!r}" + (f", perhaps {near}" if near else "")
        case _:
            message = detail["msg"].removeprefix("Value error, ")
            return f"{key} is {detail['input']!r}: {message}" if key else message


def _words(verified: Verified) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in verified.items())
