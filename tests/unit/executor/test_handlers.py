"""Each kind of request has one handler, which takes that kind and returns its response."""

import importlib
import inspect
import json
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from testbed import executor
from testbed.executor import HANDLERS, Context
from testbed.executor.live import server
from testbed.protocol import live, messages, requests
from testbed.protocol.requests import KINDS, Request

LIVE = {kind for kind in KINDS.values() if issubclass(kind, live.LiveRequest)}
SERVED = sorted((kind for kind in LIVE if kind.handler), key=lambda kind: kind.__name__)


def test_every_kind_of_request_has_a_handler_but_those_that_the_server_serves_itself() -> None:
    assert {*HANDLERS} == {*KINDS.values()} - LIVE
    assert LIVE - {*SERVED} == {live.Choose, live.Down, live.Continue, live.Hold, live.StopAt}


@pytest.mark.parametrize("kind", SERVED, ids=lambda kind: kind.__name__)
def test_a_handler_of_a_lab_that_lives_takes_its_request(kind: type[live.LiveRequest[Any]]) -> None:
    request, call = inspect.signature(server.handler_of(kind), eval_str=True).parameters.values()
    assert (request.annotation, call.annotation) == (kind, server.Call)


@pytest.mark.parametrize("kind", HANDLERS, ids=lambda kind: kind.__name__)
def test_a_handler_takes_its_request_and_returns_its_response(kind: type[Request[Any]]) -> None:
    module, _, name = HANDLERS[kind].partition(":")
    handler = getattr(importlib.import_module(f"testbed.executor.{module}"), name)
    request, context = (hint for hint in list(inspect.signature(handler, eval_str=True).parameters.values()))
    assert (request.annotation, context.annotation) == (kind, Context)
    assert get_type_hints(handler)["return"] == kind.response()


def run(tmp_path: Path, *asked: dict[str, Any]) -> dict[int, dict[str, Any]]:
    """The last message of each request."""
    written: list[bytes] = []
    job = {"requests": asked, "files": str(tmp_path), "training": False}
    executor.run(job, str(tmp_path), lambda line, last: written.append(line))
    return {message["id"]: message for message in map(json.loads, written)}


def test_a_request_of_another_version_is_answered_with_an_error_and_the_next_one_is_carried_out(tmp_path: Path) -> None:
    asked = [messages.ask(number, requests.Fabric(fabric="single", options={})) for number in range(2)]
    ends = run(tmp_path, {**asked[0], "protocol": 99}, asked[1])
    assert ends[0]["error"]["status"] == 2
    assert "version 99" in ends[0]["error"]["message"]
    assert ends[1]["response"].startswith("#")


def test_a_refusal_is_an_error_with_its_place(tmp_path: Path) -> None:
    (tmp_path / "x.yml").write_text("name: 3\ntopology: {}\n")
    [end] = run(tmp_path, messages.ask(0, requests.Plan(file=str(tmp_path / "x.yml")))).values()
    assert end["error"]["where"].startswith(f"{tmp_path}/x.yml:1")


def test_a_scenario_is_described_where_there_is_no_rdma(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it imports of testbed needs no pyverbs; what it then uses of it would."""
    monkeypatch.setitem(__import__("sys").modules, "pyverbs", None)
    from testbed.workload import ibverbs, verbs

    assert verbs.Endpoint.__name__ == "Endpoint"
    with pytest.raises(ImportError, match="pyverbs"):
        _ = ibverbs.QPAttr
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = ibverbs.nonsense
