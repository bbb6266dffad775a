"""A lab without a machine: its keeper answers requests from a table."""

import contextlib
import json
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from testbed.machine.live import labs
from testbed.machine.live.labs import Lab

Messages = list[dict[str, Any]]
"""Reports, then the response or an error; without these the request goes on."""
Answers = Mapping[str, Callable[[dict[str, Any]], Messages]]
"""The answer to a request by its kind."""


class FakeLab:
    """`asked` are the requests and other messages in their order; `gone` counts connections that have ended."""

    def __init__(self, record: Lab, answers: Answers) -> None:
        self.record = record
        self.asked: list[dict[str, Any]] = []
        self.gone = threading.Semaphore(0)
        self.begun = threading.Semaphore(0)
        self._answers = answers

    def serve(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                threading.Thread(target=self._serve, args=[connection], daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as lines:
            for line in lines:
                message = json.loads(line)
                self.asked.append(message)
                kind = message.get("request", {}).get("kind", "stop" if "stop" in message else "")
                for answer in self._answers.get(kind, lambda _: [])(message.get("request", message)):
                    connection.sendall(json.dumps({"id": message["id"], **answer}).encode() + b"\n")
                self.begun.release()
        self.gone.release()

    def requests(self, kind: str) -> Messages:
        return [message["request"] for message in self.asked if message.get("request", {}).get("kind") == kind]


@contextlib.contextmanager
def fake_lab(answers: Answers, name: str = "pair", clock: str = "virtual") -> Iterator[FakeLab]:
    """Keep a lab in the directory of labs during the block."""
    record = Lab(name, f"/home/user/{name}.clab.yml", clock, 1.0, 1, "0.1", "/home/user/runs/pair/1", "up")
    made = FakeLab(record, answers)
    with labs.claimed(record), labs.listener(record) as listener:
        listener.listen()
        threading.Thread(target=made.serve, args=[listener], daemon=True).start()
        yield made
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
    labs.remove(record)
