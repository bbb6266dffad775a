"""Messages between the outside and a machine. Each is a JSON object; those of a machine are lines of text.

outside -> machine  {"protocol": 1, "id": N, "request": {"kind": …}}
machine -> outside  {"id": N, "report": {…}}     any number of times during the request
machine -> outside  {"id": N, "response": …}     its end: the request succeeded
machine -> outside  {"id": N, "error": {…}}      its end: the request was refused, or failed
machine -> outside  {"id": N, "ended": "text"}   its end: its process ended early; the process's output
machine -> outside  {"id": N, "crash": "text"}   its end: a traceback
machine -> outside  {"crash": "text"}            the end of the whole job: a traceback, or the limit that it reached

The outside chooses the number `id`. A machine with one job bundle has its requests in job.json; a live one reads the
same objects from a stream, and responds in any order.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from testbed.errors import InputError, MachineError, TestbedError
from testbed.protocol import MESSAGE_BYTES, MESSAGE_DEPTH, Failure, Problem, requests
from testbed.protocol.requests import Request

if TYPE_CHECKING:
    from pydantic import ValidationError

VERSION = 1
"""Version of the messages. A machine refuses requests of any other."""
LAST_BYTES = 1 << 16
"""Bytes shown of the output of a process that ended early."""
Write = Callable[[bytes, bool], None]
"""A function that sends a machine's message, without the newline; True marks an end, which always fits."""
Emit = Callable[[dict[str, Any]], None]
"""A function that sends a report."""


def failure(error: TestbedError) -> Failure:
    also: list[Problem] = [{"message": message, "where": where} for where, message in error.also]
    status: Any = error.exit_status
    return {"message": error.message, "where": error.where, "hint": error.hint, "also": also, "status": status}


def error_of(found: Failure, place: Callable[[str], str]) -> TestbedError:
    """Return the error that `failure` wrote; `place` turns a place in the job's files into one of the user's."""
    also = [(place(problem["where"]), problem["message"]) for problem in found["also"]]
    error = TestbedError(found["message"], where=place(found["where"]), hint=found["hint"], also=also)
    error.exit_status = found["status"]
    return error


# Inside


def parse(message: Mapping[str, Any]) -> Request[Any]:
    """Return the request of a message. TestbedError for another version, or if it is no request."""
    if (version := message.get("protocol")) != VERSION:
        raise InputError(
            f"the request has version {version} of the protocol, but this machine has version {VERSION}",
            hint="Use the version of testbed that started the machine, or start a new machine.",
        )
    try:
        return requests.read(message["request"])
    except (KeyError, TypeError, ValueError) as error:
        raise TestbedError(f"the machine does not know this request: {error}") from None


class Channel:
    """The return channel of one request."""

    def __init__(self, number: int, write: Write) -> None:
        self._number = number
        self._write = write

    def _line(self, kind: str, content: Any) -> bytes:
        return json.dumps({"id": self._number, kind: content}, separators=(",", ":")).encode()

    def report(self, record: dict[str, Any]) -> None:
        """Send a report. A report that is too large is not shown; the job's files have it."""
        if len(line := self._line("report", record)) < MESSAGE_BYTES:
            self._write(line, False)

    def respond(self, response: Any) -> None:
        if len(line := self._line("response", response)) >= MESSAGE_BYTES:
            raise TestbedError(f"the response has {len(line) >> 20} MiB, of at most {MESSAGE_BYTES >> 20}")
        self._write(line, True)

    def fail(self, error: TestbedError) -> None:
        self._write(self._line("error", failure(error)), True)

    def crash(self, text: str) -> None:
        self._write(self._line("crash", text), True)


def crash(text: str) -> bytes:
    """Return the message that ends a whole job."""
    return json.dumps({"crash": text}).encode()


def ended(number: int, wrote: bytes) -> bytes:
    return json.dumps({"id": number, "ended": wrote[-LAST_BYTES:].decode(errors="replace")}).encode()


# Outside


def ask(number: int, request: Request[Any]) -> dict[str, Any]:
    asked = {"kind": type(request).__name__, **asdict(request)}  # type: ignore[call-overload]
    return {"protocol": VERSION, "id": number, "request": asked}


def load(line: bytes) -> dict[str, Any]:
    """Parse a machine's message. It ran the user's code, so it may be anything: MachineError if it is no message."""
    try:
        found = json.loads(line) if len(line) < MESSAGE_BYTES else None
        if isinstance(found, dict) and depth(found) <= MESSAGE_DEPTH:
            return found
    except (ValueError, RecursionError):
        pass
    raise MachineError(f"a line of progress is damaged: {line[:80]!r}")


def depth(value: Any) -> int:
    """Return the nested levels of lists and objects: display and storage of a message can follow only so many."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(map(depth, inner), default=0)


def checked(kind: Any, found: Any, name: str) -> Any:
    """Return the value `name` from a machine if it has the type `kind`; else raise MachineError."""
    from pydantic import ValidationError  # not needed for help

    try:
        requests.adapter(kind).validate_python(found, strict=True)
    except ValidationError as error:
        raise MachineError(f"the {name} is damaged: {first_problem(error)}") from error
    return found


def first_problem(error: ValidationError) -> str:
    """Return the first problem of data with a wrong type, with its place in them."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    place = ".".join(map(str, first["loc"]))[:80]
    return f"{place}: {first['msg']}" if place else first["msg"]
