"""The wait for Docker's daemon, which is a socket of the test here."""

import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.lab.docker import daemon

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nOK"
STARTING = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n"


@pytest.fixture(autouse=True)
def _place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(daemon, "SOCKET", Path("socket"))  # an absolute path may be too long for one
    monkeypatch.setattr(daemon, "LOG", Path("log"))
    monkeypatch.setattr(daemon, "PING_S", 0.05)
    Path("log").write_text("level=error why\n")


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
        server.listen()
        yield server


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "infinity"]) as alive:
        yield alive
        alive.kill()


def test_a_daemon_that_answers_later_is_waited_for(
    listening: socket.socket, process: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(daemon, "PING_S", 30.0)
    asked = []

    def serve() -> None:
        for answer in (b"", STARTING, OK):
            connection, _ = listening.accept()
            with connection:
                asked.append(connection.recv(1000).split(b"\r\n")[0])
                connection.sendall(answer)

    server = threading.Thread(target=serve)
    server.start()
    daemon.wait(process)
    server.join()
    assert asked == [b"GET /_ping HTTP/1.1"] * 3


@pytest.mark.usefixtures("listening")
def test_a_daemon_that_takes_the_connection_and_does_not_answer_has_not_started(
    process: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(daemon, "START_S", 0.1)
    with pytest.raises(RuntimeError, match="dockerd did not start:\nlevel=error why"):
        daemon.wait(process)


def test_a_daemon_that_has_ended_is_not_waited_for(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    with pytest.raises(RuntimeError, match="dockerd did not start"):
        daemon.wait(process)
