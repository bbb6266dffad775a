"""The event log of a variant: everything that happened, in virtual time. Its bytes are the run's fingerprint."""

import contextlib
import hashlib
import json
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from testbed.kernel import kmsg
from testbed.kernel.kmsg import KernelLog
from testbed.protocol import Epoch, Event
from testbed.protocol.events import LOST, Data


class EventLog:
    """The events that a scenario and its lab report; `listen` gets each event at once.

    The switches report a little later than their events happened. `settled` gets the time before which no further event
    can come: up to there events can be shown in the order in which `write` writes them.
    """

    def __init__(self, listen: Callable[[Event], None], settled: Callable[[int], None] = lambda until_ns: None) -> None:
        self._listen = listen
        self._report_settled = settled
        self._settled = -1
        self.zero_ns = time.monotonic_ns()
        """CLOCK_MONOTONIC at t = 0."""
        read = time.time_ns()
        self.realtime_ns = read - (time.monotonic_ns() - self.zero_ns) // 2
        """CLOCK_REALTIME at t = 0, by which the time of a captured packet becomes the `t` of an event."""
        self.events: list[Event] = []
        self._withheld = False

    @contextlib.contextmanager
    def withheld(self) -> Iterator[None]:
        """Keep out of the log what happens in the block."""
        self._withheld = True
        try:
            yield
        finally:
            self._withheld = False

    @property
    def now(self) -> int:
        """Return virtual nanoseconds since the variant began."""
        return time.monotonic_ns() - self.zero_ns

    def emit(self, kind: str | Data, node: str, text: str, /, *, at_ns: int | None = None, **data: Any) -> None:
        """Emit an event of a kind of yours with any `data`, or one of testbed's, which have their own.

        `at_ns` is a CLOCK_MONOTONIC time for what happened earlier than it is reported. If the log is settled there,
        the event gets the time of its report, and `at_ns` becomes its `happened_ns`."""
        if isinstance(kind, Data):
            kind, data = kind.kind_name, {**vars(kind), **data}
        at = self.now if at_ns is None else at_ns - self.zero_ns
        if at <= self._settled:
            data["happened_ns"] = at
            at = self.now
        event: Event = {"t": at, "kind": str(kind), "node": str(node), "text": plain(str(text)), "data": plain(data)}
        if not self._withheld:
            self.events.append(event)
            self._listen(event)

    def settle(self, drain: Callable[[], None]) -> None:
        """Settle the log up to now; `drain` collects what the switches did until then."""
        now = self.now
        drain()
        self._settled = now
        self._report_settled(now)

    def kernel_ns(self) -> int | None:
        """Return the time of t = 0 in the kernel's log, found by a line written there, exact to some microseconds; None
        for a kernel that accepts no lines (printk.devkmsg=off)."""
        text = "testbed: the event log begins"
        with contextlib.closing(KernelLog()) as log, contextlib.suppress(PermissionError):
            kmsg.DEVICE.write_text(f"<7>{text}\n")
            at = self.now
            return next((record.us * 1000 - at for record in log.records() if record.text == text), None)
        return None

    def epoch(self) -> Epoch:
        """Return the time t = 0 on the clocks of the other files of a run; write to the kernel's log for that."""
        return {"realtime_ns": self.realtime_ns, "monotonic_ns": self.zero_ns, "kernel_ns": self.kernel_ns()}

    def find(self, kind: str, **data: Any) -> list[Event]:
        """Return the events of a kind whose data contains all of `data`, oldest first."""
        wanted = plain(data)
        return [e for e in self.events if e["kind"] == kind and all(e["data"].get(k) == v for k, v in wanted.items())]

    def losses(self) -> list[str]:
        """Return the `lost` events in words: reports are missing for some of what happened."""
        return [f"{event['node'] or 'the lab'}: {event['text']}" for event in self.find(LOST.name)]

    def write(self, path: Path) -> str:
        """Write the log as JSON lines in the order of time; return its SHA-256."""
        ordered = sorted(self.events, key=lambda event: event["t"])
        lines = (json.dumps(event, separators=(",", ":"), ensure_ascii=False) + "\n" for event in ordered)
        data = "".join(lines).encode(errors="backslashreplace")
        path.write_bytes(data)
        return hashlib.sha256(data).hexdigest()


def plain(value: Any) -> Any:
    """Return a value as JSON can hold it: NaN and infinity as text, bytes that are no UTF-8 replaced."""
    if isinstance(value, str):
        return value.encode(errors="replace").decode()
    if isinstance(value, float) and not math.isfinite(value):
        return plain(str(value))
    if isinstance(value, (int, float, bool, type(None))):
        return value
    if isinstance(value, dict):
        return {plain(str(key)): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return str(value)
