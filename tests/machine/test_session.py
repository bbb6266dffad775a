"""`testbed.session`, used as in docs/notebooks.md."""

from pathlib import Path
from typing import Any

import pytest

from testbed import session
from testbed.errors import TestbedError

PAIR = """
name: pair
topology:
  nodes: {leaf: {kind: switch}, a: {kind: host}, b: {kind: host}}
  links: [{endpoints: ["leaf:e1", "a:eth1"]}, {endpoints: ["leaf:e2", "b:eth1"]}]
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def pings(lab: Any, times: int) -> list[bool]:
    address = lab.host("b")["eth1"].address().ip
    return [lab["a"].ping(address, within=1) for _ in range(times)]


def fails(lab: Any) -> None:
    assert lab["a"].run("hostname").stdout == "another"


def test_a_function_in_a_lab() -> None:
    answer = session.call(pings, PAIR, 2)
    assert answer.value == [True, True]
    assert [event["kind"] for event in answer.events()][:1] == ["lab"]
    assert {row["node"] for row in answer.counters()} >= {"a", "b", "leaf"}
    with pytest.raises(TestbedError, match=r"fails failed in the lab:\n(.|\n)*AssertionError"):
        session.call(fails, PAIR)


def test_a_lab_that_lives() -> None:
    Path("pair.clab.yml").write_text(PAIR)
    with session.up("pair.clab.yml") as lab:
        assert lab.execute("a", "hostname") == "a\n"
        assert lab.rdma_write("a", "b")["status"] == "SUCCESS"
        fault = lab.inject("nic-down", end="b:eth1")
        assert lab.inspect()["faults"][0]["number"] == fault["number"]
        lab.recover(fault["number"])
        lab.advance("5m")
    typed = [event["command"] for event in lab.events() if event["kind"] == "typed"]
    assert any(command.startswith("fault inject nic-down") for command in typed)
    assert "link_downed" in {row["counter"] for row in lab.counters() if row["node"] == "b"}
    lab.down()
