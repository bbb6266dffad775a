"""On the virtual clock the same commands give the same events: those of session.jsonl in a run directory."""

import itertools
import json
import subprocess
import sys

import pytest
from live import Live

from testbed.machine.live import labs
from testbed.machine.live.connection import Connection
from testbed.protocol.requests import read

CONFLIST = """{"cniVersion": "1.0.0", "name": "pods", "plugins": [
    {"type": "macvlan", "master": "eth1", "mode": "bridge",
     "ipam": {"type": "static", "addresses": [{"address": "10.0.10.50/24", "gateway": "10.0.10.1"}]}},
    {"type": "rxe"}]}
"""
SESSION = (
    ("exec", "h1", "h2", "--", "ping", "-c", "2", "10.0.10.1"),
    ("rdma", "write", "h1", "h2"),
    ("pod", "add", "h1", "p1", "conf.conflist"),
    ("rdma", "write", "p1", "h2"),
    ("exec", "-i", "h2", "--", "sh", "-c", "head -c 100000 | wc -c"),
    ("link", "set", "leaf:e1", "delay=1ms"),
    ("fault", "inject", "link-down", "end=leaf:e2", "--for", "2s"),
    ("rdma", "write", "h1", "h2"),
    ("advance", "25m"),
    ("exec", "h1", "--", "sh", "-c", "head -c 3000000 /dev/zero | tr '\\\\0' x"),
    ("tables", "leaf"),
    ("pod", "del", "p1"),
    ("rdma", "write", "h2", "h1"),
)


@pytest.fixture
def recorded(tmp_path):
    made = Live(tmp_path)
    (tmp_path / "conf.conflist").write_text(CONFLIST)
    made.up("first", "--clock", "virtual", "--seed", "5")
    for command in SESSION:
        done = made(*command, given=b"x" * 200_000)
        assert done.status == 0 or command[0] == "rdma", (command, done.err)
    assert made("down").status == 0
    yield made
    made.end()


def kept(live: Live, lab: str):
    [run] = (path for path in (live.directory / "runs" / lab).glob("2*"))
    return run


def replay(live: Live, lab: str, monkeypatch) -> None:
    """Sends what was sent, what came together again together."""
    monkeypatch.setenv("XDG_STATE_HOME", str(live.state))
    lines = [json.loads(line) for line in (kept(live, "first") / "session.jsonl").read_text().splitlines()]
    assert not any("meanwhile" in line for line in lines)
    requests = [line for line in lines if line["request"]["kind"] not in ("Inspect", "Down")]  # those of up and down
    with Connection(labs.living(lab)) as connection:
        for _, together in itertools.groupby(requests, lambda line: line["rest"]):
            group = list(together)
            monkeypatch.setattr(connection, "_typed", group[0]["typed"])
            asked = [(read(line["request"]), lambda _: None) for line in group]
            for number in connection.ask_at_once(asked):
                connection.end(number)


@pytest.mark.parametrize("host", ["idle", pytest.param("busy", marks=pytest.mark.slow)])
def test_a_session_that_is_replayed_gives_the_same_events(recorded, host, monkeypatch):
    lab = recorded.up("second", "--clock", "virtual", "--seed", "5")
    load = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(6 * (host == "busy"))]
    try:
        replay(recorded, lab, monkeypatch)
        assert recorded("down").status == 0
    finally:
        for process in load:
            process.kill()
            process.wait()
    first, second = ((kept(recorded, name) / "events.jsonl").read_bytes() for name in ("first", "second"))
    assert first.count(b"\n") > 20
    assert first == second
    traces = [json.loads((kept(recorded, name) / "result.json").read_text())["trace"] for name in ("first", "second")]
    assert traces[0] == traces[1]


@pytest.mark.slow
def test_another_session_gives_other_events(recorded):
    """The test above can fail."""
    recorded.up("second", "--clock", "virtual", "--seed", "5")
    assert recorded("advance", "1ms").status == 0
    for command in SESSION[:2]:
        recorded(*command)
    assert recorded("down").status == 0
    first, second = ((kept(recorded, name) / "events.jsonl").read_bytes() for name in ("first", "second"))
    assert not first.startswith(second[: len(second) // 2])
