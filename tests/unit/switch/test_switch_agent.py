"""The agent process on a data plane that is not a kernel: a pipe wakes it, and what it does is in a file."""

import gc
import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from ipaddress import IPv4Address, IPv4Interface
from pathlib import Path
from select import select
from typing import ClassVar

import pytest
from simulated_switch import GATEWAY, GATEWAY_MAC, A, B, X, Y

from testbed.errors import DeadlineError, InputError, TestbedError
from testbed.switch.agent import Agent
from testbed.switch.dataplane import FdbChange, Lost, Miss
from testbed.switch.frames import NO_MAC, REQUEST, Arp
from testbed.switch.profile import Profile, profile
from testbed.topology.plan import Node, Svi

SVI = Svi(10, "vlan10", GATEWAY_MAC, IPv4Interface(f"{GATEWAY}/24"))


class Pipes:
    """Stands for DataPlane: JSON lines written to its pipe are what the kernel would have to say."""

    bfd = pair = None

    def __init__(self, name: str, did: Path) -> None:
        self.node = Node(name, "switch", (), svis=(SVI,))
        self.closed = False
        self.cpu_port = self.neighbours = self
        self._did = did
        self._news, self.kernel = os.pipe2(os.O_NONBLOCK)
        self._idle, self._keep = os.pipe2(os.O_NONBLOCK)
        self._lines: list[dict[str, str]] = []

    def close(self) -> None:
        """Of the parent's copies: the test goes on writing to `kernel`."""
        self.closed = True

    def filenos(self) -> tuple[int, int]:
        return self._news, self._idle

    def changes(self, known: object) -> Iterator[Miss | FdbChange]:
        self._read()
        while self._lines and not {"arp", "lose"} & self._lines[0].keys():
            line = self._lines.pop(0)
            if "fail" in line:
                raise TestbedError("switch leaf cannot be read")
            yield Miss(10, IPv4Address(line["miss"])) if "miss" in line else FdbChange(10, line["mac"], line["port"])

    def packets(self) -> Iterator[tuple[int, Arp]]:
        while self._lines and "arp" in self._lines[0]:
            line = self._lines.pop(0)
            yield 10, Arp(REQUEST, line["mac"], IPv4Address(line["arp"]), NO_MAC, GATEWAY)

    by_hand: ClassVar[dict[tuple[int, IPv4Address], str]] = {}

    def is_static(self, vlan: int, mac: str) -> bool:
        return False

    is_synced = is_static

    def losses(self) -> Iterator[Lost]:
        if self._lines and "lose" in self._lines[0]:
            yield Lost(self._lines.pop(0)["lose"], 3)

    def say(self, **line: str) -> None:
        os.write(self.kernel, json.dumps(line).encode() + b"\n")

    def done(self) -> list[str]:
        return self._did.read_text().splitlines()

    def _read(self) -> None:
        try:
            data = os.read(self._news, 1 << 16)
        except BlockingIOError:
            return
        self._lines += [json.loads(line) for line in data.splitlines()]

    def send(self, vlan: int, dst: str, arp: Arp) -> None:
        self._do(f"send {arp.target_ip} to {dst}")

    def set(self, vlan: int, ip: IPv4Address, mac: str) -> None:
        self._do(f"set {ip} {mac}")

    def delete(self, vlan: int, ip: IPv4Address) -> None:
        self._do(f"delete {ip}")

    def configure(self, profile: Profile) -> None:
        self._do(f"mac_age {profile.mac_age:g}")

    def _do(self, what: str) -> None:
        with self._did.open("a") as file:
            file.write(f"{what}\n")


@pytest.fixture
def leaf(tmp_path: Path) -> Pipes:
    return Pipes("leaf", tmp_path / "leaf")


@pytest.fixture
def agent(leaf: Pipes) -> Iterator[Agent]:
    agent = Agent.start([(leaf, profile("arista-eos"))])  # type: ignore[list-item]
    yield agent
    if agent.running:
        agent.stop()


def wait_for(agent: Agent, kind: str) -> list[dict[str, object]]:
    events: list[dict[str, object]] = []
    deadline = time.monotonic() + 5
    while kind not in [event["kind"] for event in events]:
        assert time.monotonic() < deadline, events
        events += agent.events()
        time.sleep(0.001)
    return events


@contextmanager
def late(agent: Agent) -> Iterator[None]:
    """What the block does first has happened before the agent gets to do anything; its last command waits for it."""
    os.kill(agent.pid, signal.SIGSTOP)
    wake = threading.Timer(0.1, os.kill, (agent.pid, signal.SIGCONT))
    wake.start()
    yield
    wake.join()


def test_a_packet_becomes_an_entry_an_answer_and_an_event_with_its_time(agent: Agent, leaf: Pipes) -> None:
    before = time.monotonic_ns()

    leaf.say(mac=A, port="port1")
    leaf.say(arp=str(X), mac=A)
    learned = wait_for(agent, "arp.learned")

    assert [event["kind"] for event in learned] == ["fdb.learned", "arp.learned"]
    assert before < learned[0]["t"] <= learned[1]["t"] <= time.monotonic_ns()  # type: ignore[operator]
    assert leaf.done() == [f"set {X} {A}", f"send {X} to {A}"]
    tables = agent.ask("leaf", "tables")
    assert tables["fdb"] == [{"vlan": 10, "mac": A, "port": "port1"}]
    assert (tables["arp"][0]["ip"], tables["arp"][0]["port"]) == (str(X), "port1")


def test_deadlines_are_kept_without_being_asked(agent: Agent, leaf: Pipes) -> None:
    agent.ask("leaf", "set", values={"resolve_interval": 0.05})
    leaf.say(miss=str(X))

    events = wait_for(agent, "arp.failed")

    asked, failed = events[0]["t"], events[-1]["t"]
    assert failed - asked >= 150_000_000  # type: ignore[operator]
    assert leaf.done() == ["mac_age 300", *[f"send {X} to ff:ff:ff:ff:ff:ff"] * 3, f"delete {X}"]


def test_packets_that_found_no_room_are_an_event_and_the_agent_goes_on(agent: Agent, leaf: Pipes) -> None:
    leaf.say(lose="ARP packets")
    (event,) = wait_for(agent, "lost")
    assert (event["what"], event["records"]) == ("ARP packets", 3)

    leaf.say(arp=str(X), mac=A)
    wait_for(agent, "arp.learned")


def test_the_data_plane_is_the_agents_alone(agent: Agent, leaf: Pipes) -> None:
    assert leaf.closed


def test_a_deadline_that_comes_nearer_is_kept_too(agent: Agent, leaf: Pipes) -> None:
    leaf.say(arp=str(X), mac=A)
    wait_for(agent, "arp.learned")

    agent.ask("leaf", "set", values={"arp_age": 0.05})

    wait_for(agent, "arp.aged")


def test_packets_find_the_fdb_as_it_was_when_they_came(agent: Agent, leaf: Pipes) -> None:
    with late(agent):
        for mac, port, ip in (A, "port1", X), (B, "port2", Y):
            leaf.say(mac=mac, port=port)
            leaf.say(arp=str(ip), mac=mac)
        tables = agent.ask("leaf", "tables")

    assert [(row["mac"], row["port"]) for row in tables["arp"]] == [(A, "port1"), (B, "port2")]


def test_commands_see_what_came_before_them(agent: Agent, leaf: Pipes) -> None:
    with late(agent):
        leaf.say(arp=str(X), mac=A)
        leaf.say(arp=str(Y), mac=A)
        agent.ask("leaf", "clear", family=4, vlan=None, ip=str(X))

    assert [row["ip"] for row in agent.ask("leaf", "tables")["arp"]] == [str(Y)]


def test_commands_see_what_was_due_before_them(agent: Agent, leaf: Pipes) -> None:
    agent.ask("leaf", "set", values={"resolve_interval": 0.01})
    leaf.say(miss=str(X))
    wait_for(agent, "arp.miss")

    with late(agent):
        tables = agent.ask("leaf", "tables")

    assert tables["arp"] == []


def test_a_wrong_value_and_a_wrong_name_are_the_users_and_leave_the_agent_alive(agent: Agent) -> None:
    with pytest.raises(InputError, match="arp_age: Input should be greater than 0"):
        agent.ask("leaf", "set", values={"arp_age": 0})
    with pytest.raises(InputError, match="there is no switch 'spine'") as error:
        agent.ask("spine", "tables")

    assert error.value.hint == "switches: leaf"
    assert agent.ask("leaf", "tables") == {"arp": [], "nd": [], "fdb": []}


def test_a_parent_that_does_not_listen_does_not_stop_it(agent: Agent, leaf: Pipes) -> None:
    for number in range(6000):
        leaf.say(mac=f"02:00:00:00:{number >> 8:02x}:{number & 255:02x}", port="port1")
        if number % 100 == 99:
            agent.ask("leaf", "tables")

    assert len(agent.events()) == 6000


def test_stop_returns_the_last_events_and_leaves_no_process(agent: Agent, leaf: Pipes) -> None:
    with late(agent):
        leaf.say(arp=str(X), mac=A)
        events = agent.stop()

    assert [event["kind"] for event in events] == ["arp.learned"]
    assert not agent.running
    with pytest.raises(ChildProcessError):
        os.waitpid(agent.pid, os.WNOHANG)


def test_an_error_in_the_agent_is_an_error_in_the_parent(agent: Agent, leaf: Pipes) -> None:
    leaf.say(fail="now")

    with pytest.raises(TestbedError, match=r"ended with status 1\n(.*\n)*.*cannot be read"):
        wait_for(agent, "never")
    assert not agent.running


@pytest.mark.parametrize("use", [lambda agent: agent.events(), lambda agent: agent.ask("leaf", "tables"), Agent.stop])
def test_a_killed_agent_is_an_error_at_the_next_use(agent: Agent, use) -> None:  # type: ignore[no-untyped-def]
    os.kill(agent.pid, signal.SIGKILL)
    os.waitid(os.P_PID, agent.pid, os.WEXITED | os.WNOWAIT)

    with pytest.raises(TestbedError, match="ended with status -9"):
        use(agent)


def test_an_agent_killed_while_it_is_asked_is_the_same_error(agent: Agent) -> None:
    os.kill(agent.pid, signal.SIGSTOP)
    threading.Timer(0.1, os.kill, (agent.pid, signal.SIGKILL)).start()

    with pytest.raises(TestbedError, match="ended with status -9"):
        agent.ask("leaf", "tables")


def test_an_agent_that_cannot_begin_is_an_error_at_once(leaf: Pipes) -> None:
    leaf.say(fail="now")

    with pytest.raises(TestbedError, match="cannot be read"):
        Agent.start([(leaf, profile("sonic"))])  # type: ignore[list-item]


@pytest.mark.parametrize("use", [lambda agent: agent.ask("leaf", "tables"), Agent.stop], ids=["tables", "stop"])
def test_an_agent_that_hangs_is_killed(agent: Agent, use, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr("testbed.switch.agent.ANSWER_S", 0.1)
    os.kill(agent.pid, signal.SIGSTOP)

    with pytest.raises(DeadlineError, match="did not answer"):
        use(agent)

    assert not agent.running
    with pytest.raises(TestbedError, match="ended with status -9"):
        agent.events()


def test_signals_to_the_whole_group_leave_the_end_to_the_parent(leaf: Pipes) -> None:
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        agent = Agent.start([(leaf, profile("sonic"))])  # type: ignore[list-item]
    finally:
        signal.signal(signal.SIGTERM, before)

    os.kill(agent.pid, signal.SIGINT)
    assert agent.ask("leaf", "tables") == {"arp": [], "nd": [], "fdb": []}
    os.kill(agent.pid, signal.SIGTERM)

    with pytest.raises(TestbedError, match="ended with status -15"):
        wait_for(agent, "never")


class Finalised:
    """Garbage of the parent that waits for the collector."""

    def __init__(self, by: Path) -> None:
        self.by = by
        self.me = self

    def __del__(self) -> None:
        with self.by.open("a") as file:
            file.write(f"{os.getpid()}\n")


def test_the_parents_garbage_is_not_finalised_in_the_agent(tmp_path: Path, leaf: Pipes) -> None:
    Finalised(tmp_path / "by")
    agent = Agent.start([(leaf, profile("sonic"))])  # type: ignore[list-item]
    for number in range(1000):
        leaf.say(mac=f"02:00:00:00:{number >> 8:02x}:{number & 255:02x}", port="port1")
    agent.ask("leaf", "tables")
    agent.stop()

    gc.collect()

    assert (tmp_path / "by").read_text() == f"{os.getpid()}\n"


@pytest.mark.parametrize("hangs", [False, True])
def test_the_agent_dies_with_its_parent(tmp_path: Path, hangs: bool) -> None:
    report = tmp_path / "pid"
    parent = os.fork()
    if parent == 0:
        agent = Agent.start([(Pipes("leaf", tmp_path / "leaf"), profile("sonic"))])  # type: ignore[list-item]
        report.write_text(str(agent.pid))
        if hangs:
            os.kill(agent.pid, signal.SIGSTOP)
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(parent, 0)

    with suppress(ProcessLookupError), open(os.pidfd_open(int(report.read_text()))) as agents:
        ended, _, _ = select([agents], [], [], 5)
        assert ended
