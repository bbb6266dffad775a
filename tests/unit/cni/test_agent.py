"""The agent of a node: what a kill at any point of a call leaves, and in which order it carries out calls."""

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from testbed.cni import agent as module
from testbed.cni.agent import VARIABLES, Server
from testbed.cni.plugins.contract import Call

pytestmark = pytest.mark.long

BOTH = ["10.0.10.7/24", "fd00::7/64"]
EXHAUSTED = ["no address is free in four"]
NOT_FOR_S = 0.2
"""Long enough for what must not happen."""


def kills(command: str, pod: str, directory: Path) -> list[dict[str, Any]]:
    """The output of `agent_kills.py`: see `kills` of test_address_store.py."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COV")}
    script = [sys.executable, str(Path(__file__).with_name("agent_kills.py")), command, pod, str(directory)]
    done = subprocess.run(script, stdout=subprocess.PIPE, env=environment, check=True)
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def by(pod: str, container: str) -> list[list[str]]:
    return [[address.partition("/")[0], pod, container] for address in BOTH]


@pytest.mark.parametrize(("pod", "kept"), [("web", []), ("web-0", by("web-0", ""))])
def test_an_add_that_is_killed_loses_no_address_and_gives_none_twice(pod: str, kept: Any, tmp_path: Path) -> None:
    """`web-0` is of a StatefulSet, which keeps its addresses."""
    outcomes = kills("ADD", pod, tmp_path)
    for outcome in outcomes:
        assert outcome["held"] in ([], by(pod, "c1"))
        assert outcome["repeated"] == BOTH
        assert outcome["of another pod"] == (EXHAUSTED if outcome["held"] else BOTH)
        assert outcome["deleted"] == [[], []]
        assert outcome["left"] == (kept if outcome["held"] else [])
        assert outcome["next"] == BOTH
    *killed, whole = outcomes
    assert {bool(outcome["held"]) for outcome in killed} == {False, True}, "before the COMMIT, and behind it"
    assert whole["answer"] == BOTH


@pytest.mark.parametrize(("pod", "kept"), [("web", []), ("web-0", by("web-0", ""))])
def test_a_del_that_is_killed_is_done_by_the_next_one(pod: str, kept: Any, tmp_path: Path) -> None:
    outcomes = kills("DEL", pod, tmp_path)
    for outcome in outcomes:
        assert outcome["held"] in (by(pod, "c1"), kept)
        assert outcome["repeated"] == []
        assert outcome["of another pod"] == (EXHAUSTED if outcome["held"] else BOTH)
        assert outcome["deleted"] == [[], []]
        assert outcome["left"] == kept
        assert outcome["next"] == BOTH
    *killed, whole = outcomes
    assert [outcome["held"] for outcome in killed].count(kept) == 1, "behind the COMMIT"
    assert whole["answer"] == []


# A runtime that has killed a plugin after its time goes on with DEL


class Calls:
    """Calls of a plugin, each answered in a thread of its own."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.during: dict[str, Callable[[], object]] = {}
        """What happens while a command is carried out."""
        self.programs: list[socket.socket] = []
        """Each call's end of the runtime's: to close it is to kill the plugin."""
        self._server = Server({"ippool": self._carried_out}, self.log.append)
        self._threads: list[threading.Thread] = []

    def _carried_out(self, asked: Call) -> Mapping[str, Any] | None:
        self.log.append(f"{asked.command} begins")
        self.during.get(asked.command, lambda: None)()
        self.log.append(f"{asked.command} ends")
        return {} if asked.command == "ADD" else None

    def begin(self, command: str, container: str = "c1") -> None:
        ours, theirs = socket.socketpair()
        given = {"CNI_COMMAND": command, "CNI_CONTAINERID": container, "CNI_NETNS": "n", "CNI_ARGS": ""}
        variables = {**given, "CNI_IFNAME": "eth0", "CNI_PATH": "p"}
        config = json.dumps({"cniVersion": "1.0.0", "name": "rdma"})
        ours.sendall("\0".join(["ippool", *(variables[name] for name in VARIABLES), config]).encode())
        ours.shutdown(socket.SHUT_WR)
        self.programs.append(ours)
        self._threads.append(threading.Thread(target=self._server.answer, args=(theirs,)))
        self._threads[-1].start()

    def end(self) -> list[str]:
        """When all have ended: which began and ended, in their order."""
        for thread in self._threads:
            thread.join(20)
            assert not thread.is_alive()
        for program in self.programs:
            program.close()
        return [line for line in self.log if line.endswith(("begins", "ends"))]


def test_a_del_waits_for_the_add_of_its_attachment_and_for_no_other() -> None:
    calls, began = Calls(), threading.Event()
    found = []

    def during_add() -> None:
        calls.during["DEL"] = began.set
        calls.begin("DEL", "c2")
        found.append(began.wait(20))
        began.clear()
        calls.begin("DEL")
        found.append(began.wait(NOT_FOR_S))

    calls.during["ADD"] = during_add
    calls.begin("ADD")
    assert calls.end() == ["ADD begins", "DEL begins", "DEL ends", "ADD ends", "DEL begins", "DEL ends"]
    assert found == [True, False]


def test_an_add_whose_plugin_is_killed_before_its_turn_is_not_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """The DEL before it was the last call: should the agent be killed behind the ADD, nobody would take it back."""
    calls, looked = Calls(), threading.Event()
    is_gone = module._is_gone

    def looking(client: socket.socket) -> bool:
        found = is_gone(client)
        looked.set()
        return found

    def during_del() -> None:
        monkeypatch.setattr(module, "_is_gone", looking)
        calls.begin("ADD")
        looked.wait(NOT_FOR_S)
        calls.programs[1].close()

    calls.during["DEL"] = during_del
    calls.begin("DEL")
    assert calls.end() == ["DEL begins", "DEL ends"]
    assert "ADD ippool c1 eth0: not done, its caller was killed\n" in calls.log


def test_an_add_whose_plugin_is_killed_meanwhile_is_undone_before_the_next_call() -> None:
    """So what the next ADD of the container gets is not taken from it."""
    calls, began = Calls(), threading.Event()

    def during_add() -> None:
        calls.during["ADD"] = began.set
        calls.programs[0].close()
        calls.begin("ADD")
        began.wait(NOT_FOR_S)

    calls.during["ADD"] = during_add
    calls.begin("ADD")
    assert calls.end() == ["ADD begins", "ADD ends", "DEL begins", "DEL ends", "ADD begins", "ADD ends"]
