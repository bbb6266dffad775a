"""The moments of a run at which its machine pauses: lab up, each step, each fault, each expectation that fails.

On the virtual clock every run pauses at all of them, even if nobody keeps or stops it there, because all runs have to
be the same. The outside then sends its request over the wire: to be served there (`Hold`), or to pause again at a time
(`StopAt`).
"""

from testbed.executor.live.server import Server
from testbed.executor.wire import MOMENT, Wire
from testbed.lab import Lab
from testbed.protocol import Event, events, live, messages
from testbed.protocol.messages import Channel, Emit
from testbed.scenario.event_log import EventLog


class Cut(SystemExit):
    """The end, by the user, of a run that was stopped."""


class Moments:
    """The moments of one run."""

    def __init__(self, wire: Wire | None, emit: Emit, source: str) -> None:
        """Without a wire, or on the real clock, there are none. `source` is the text of the lab's topology file."""
        self._wire = wire if wire and wire.virtual else None
        self._emit = emit
        self._source = source
        self._number = 0
        self._holding = False
        """True while the run is held: a change by hand is then no moment of it."""
        self._lab: Lab | None = None
        self._log: EventLog | None = None
        self._server: Server | None = None

    def begin(self, lab: Lab, log: EventLog) -> None:
        self._lab, self._log = lab, log

    def on_event(self, event: Event) -> None:
        """Receive an event of the run, which has been reported."""
        if self._server:
            self._server.publish(event)
        if is_moment(event):
            self._reach(event["t"], event["kind"], event["text"])

    def _reach(self, t: int, kind: str, text: str) -> None:
        if self._wire is None or self._lab is None or self._holding:
            return
        self._number += 1
        self._emit({"moment": {"number": self._number, "t": t, "kind": kind, "text": text}})
        self._wire.pause(MOMENT)
        for message in self._wire.receive():
            self._obey(message)

    def _obey(self, message: dict[str, object]) -> None:
        assert self._wire
        assert self._lab
        assert self._log
        request = messages.parse(message)
        Channel(int(str(message["id"])), self._write).respond(None)
        if isinstance(request, live.StopAt):
            left = request.t - self._log.now
            self._lab.scheduler.after(left / 1e9, lambda: self._reach(request.t, "time", ""))
        elif isinstance(request, live.Hold):
            self._server = Server(self._lab, self._log, self._wire, self._source)
            self._holding = True
            down = self._server.serve()
            self._holding = False
            if down is not None:
                down.respond(None)
                raise Cut(1)

    def _write(self, line: bytes, _: bool) -> None:
        assert self._wire
        self._wire.send(line)


def is_moment(event: Event) -> bool:
    if event["kind"] in (events.LAB.name, events.EXPECT.name):
        match events.named(event["kind"], event["data"]):
            case events.Lab(up=True) | events.Expectation(met=False):
                return True
    return event["kind"] in (events.STEP.name, events.FAULT_INJECTED.name)
