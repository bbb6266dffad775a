"""A switch of a pair: what it does at its port channels when the other one is heard, lost, or without the peer link."""

from collections import deque
from collections.abc import Iterator
from ipaddress import ip_address

import pytest

from testbed.switch.core import Event
from testbed.switch.mlag.macs import PlaceMac, RemoveMac
from testbed.switch.mlag.messages import Neighbour
from testbed.switch.mlag.pair import Disable, Effect, Isolate, Leave, Pair, Told, Transmit
from testbed.switch.profile import Profile, profile
from testbed.switch.timers import SECOND
from testbed.topology import Topology

FILE = """\
name: lab
topology:
  groups:
    tor:
      kind: switch
      vlans: {10: null, 4000: null}
      mlag: {peer_link: p, keepalive: k, system: "44:38:39:be:ef:aa"}
      bonds: {po1: {members: [e1], mlag: 7}}
  nodes:
    tor1: {group: tor}
    tor2: {group: tor}
    a: {kind: host, bonds: {bond0: {members: [eth1, eth2]}}}
  links:
    - {endpoints: ["tor1:e1", "a:eth1"], vlan: 10}
    - {endpoints: ["tor2:e1", "a:eth2"], vlan: 10}
    - {endpoints: ["tor1:p", "tor2:p"], trunk: [10]}
    - {endpoints: ["tor1:k", "tor2:k"], vlan: 4000}
"""
X, MAC = Neighbour(10, ip_address("10.0.10.7"), "02:00:00:00:00:07"), "02:00:00:00:00:07"


class Two:
    """Both switches of a pair; `apart` while neither hears the other. Effects that are not sent are kept."""

    def __init__(self, of: Profile) -> None:
        plan = Topology.parse(FILE).plan()
        self.now, self.apart = 100 * SECOND, False
        self.heard: list[list[Neighbour]] = [[], []]
        self.of = of
        self.pairs = [
            Pair(plan.nodes[name], lambda: self.of, lambda at=at: self.heard[at])  # type: ignore[misc]
            for at, name in enumerate(("tor1", "tor2"))
        ]
        self.effects: list[list[Effect]] = [[], []]
        self.wire: deque[tuple[int, bytes]] = deque()
        for at, pair in enumerate(self.pairs):
            self._take(at, pair.start(self.now))
        for at, pair in enumerate(self.pairs):
            for port in "po1", "p":
                self.do(at, pair.on_port(self.now, port, up=True))

    def do(self, at: int, effects: list[Effect]) -> None:
        self._take(at, effects)
        while self.wire:
            to, payload = self.wire.popleft()
            self._take(to, self.pairs[to].on_payload(self.now, payload))

    def _take(self, at: int, effects: list[Effect]) -> None:
        sent = [effect.payload for effect in effects if isinstance(effect, Transmit)]
        self.wire += [(1 - at, payload) for payload in sent if not self.apart]
        self.effects[at] += [effect for effect in effects if not isinstance(effect, Transmit)]

    def run(self, seconds: float) -> None:
        until = self.now + round(seconds * SECOND)
        while (at := min(pair.next_deadline or until for pair in self.pairs)) <= until:
            self.now = max(at, self.now)
            for number, pair in enumerate(self.pairs):
                self.do(number, pair.on_timer(self.now))
        self.now = until

    def peer_link(self, *, up: bool) -> None:
        for at, pair in enumerate(self.pairs):
            self.do(at, pair.on_port(self.now, "p", up=up))

    def of_kind(self, at: int, kind: type[Effect]) -> Iterator[Effect]:
        return (effect for effect in self.effects[at] if isinstance(effect, kind))

    def last(self, at: int, kind: type[Effect]) -> Effect | None:
        return [None, *self.of_kind(at, kind)][-1]

    def states(self) -> list[tuple[str, str]]:
        return [(pair.state()["role"], pair.state()["session"]) for pair in self.pairs]


@pytest.fixture
def two() -> Two:
    return Two(profile("sonic"))


def test_the_first_switch_is_active_and_both_isolate_what_both_have(two: Two) -> None:
    two.run(1)
    assert two.states() == [("active", "up"), ("standby", "up")]
    assert [two.last(at, Isolate) for at in (0, 1)] == [Isolate(("po1",)), Isolate(("po1",))]
    (channel,) = two.pairs[0].state()["channels"]
    assert channel == {"number": 7, "port": "po1", "up": True, "peer_up": True}


def test_floods_of_the_peer_link_reach_a_host_whose_other_link_is_down(two: Two) -> None:
    two.do(0, two.pairs[0].on_port(two.now, "po1", up=False))
    assert [two.last(at, Isolate) for at in (0, 1)] == [Isolate(()), Isolate(())]
    assert two.pairs[0].backs("po1")
    assert not two.pairs[1].backs("po1")


def test_the_standby_leaves_the_system_when_it_is_alone_and_comes_back(two: Two) -> None:
    two.apart = True
    two.run(16)
    assert two.states() == [("active", "down"), ("standby", "down")]
    assert (two.last(0, Leave), two.last(1, Leave)) == (None, Leave(left=True))
    assert [two.last(at, Isolate) for at in (0, 1)] == [Isolate(()), Isolate(())]
    two.apart = False
    two.run(1)
    assert two.last(1, Leave) == Leave(left=False)
    assert [two.last(at, Isolate) for at in (0, 1)] == [Isolate(("po1",)), Isolate(("po1",))]


def test_by_nxos_both_stay_one_system_when_they_are_alone() -> None:
    two = Two(profile("cisco-nxos"))
    two.apart = True
    two.run(3600)
    assert two.states() == [("active", "down"), ("standby", "down")]
    assert [two.last(at, Leave) for at in (0, 1)] == [None, None]
    assert two.last(0, Isolate) == Isolate(("po1",)), "if the peer link is still there, hosts get no copies"


def test_without_the_peer_link_sonic_goes_on(two: Two) -> None:
    two.peer_link(up=False)
    two.run(60)
    assert two.states() == [("active", "up"), ("standby", "up")]
    assert [two.last(at, Disable) for at in (0, 1)] == [None, None]


def test_without_the_peer_link_nxos_disables_the_standbys_ports_while_it_hears_the_other() -> None:
    two = Two(profile("cisco-nxos"))
    two.peer_link(up=False)
    assert [two.last(at, Disable) for at in (0, 1)] == [None, None]
    two.run(1)
    assert [two.last(at, Disable) for at in (0, 1)] == [None, Disable(disabled=True)]
    two.peer_link(up=True)
    assert two.last(1, Disable) == Disable(disabled=False)
    two.peer_link(up=False)
    two.run(1)
    two.apart = True
    two.run(16)
    assert two.last(1, Disable) == Disable(disabled=False), "the other switch is dead: it has the hosts alone"


def test_without_both_links_nothing_is_disabled() -> None:
    two = Two(profile("cisco-nxos"))
    two.apart = True
    two.peer_link(up=False)
    two.run(60)
    assert [two.last(at, Disable) for at in (0, 1)] == [None, None]


def test_addresses_are_told_at_once_and_all_of_them_in_a_new_session(two: Two) -> None:
    two.do(0, two.pairs[0].tell(two.now, X))
    assert [*two.of_kind(1, Told)] == [Told(X)]
    two.apart = True
    two.run(16)
    two.heard[0] = [X]
    two.apart = False
    two.run(1)
    assert [*two.of_kind(1, Told)] == [Told(X), Told(X)]


def test_what_is_told_late_comes_late_and_in_order(two: Two) -> None:
    two.pairs[0].delay = 30 * SECOND
    other = Neighbour(10, ip_address("10.0.10.8"), MAC)
    two.do(0, two.pairs[0].tell(two.now, X))
    two.run(10)
    two.do(0, two.pairs[0].tell(two.now, other))
    two.run(19)
    assert two.last(1, Told) is None
    two.run(2)
    assert [*two.of_kind(1, Told)] == [Told(X)]
    two.pairs[0].delay = 0
    two.run(10)
    assert [*two.of_kind(1, Told)] == [Told(X), Told(other)]
    assert two.states() == [("active", "up"), ("standby", "up")]


def test_events_say_what_has_happened(two: Two) -> None:
    two.apart = True
    two.run(16)
    kinds = [effect.kind for effect in two.effects[1] if isinstance(effect, Event)]
    assert kinds == ["mlag.up", "mlag.lost", "mlag.left"]


def test_what_the_bridge_reports_is_told_and_what_is_told_is_put_there(two: Two) -> None:
    two.run(1)

    def report(at: int, port: str | None, **how: bool) -> None:
        two.do(at, two.pairs[at].on_fdb(two.now, 10, MAC, port, **how))
        two.do(at, two.pairs[at].on_settled(two.now))

    placed = PlaceMac(10, MAC, "po1")
    report(0, "po1")
    assert [*two.of_kind(1, PlaceMac)] == [placed]
    report(1, "po1", synced=True, comes=False)
    report(1, None, synced=True)
    assert [*two.of_kind(1, PlaceMac)] == [placed, placed], "a command has removed it"
    report(1, "po1", synced=True, comes=False)
    report(0, None)
    assert two.last(1, RemoveMac) == RemoveMac(10, MAC, "po1")
    assert two.last(0, PlaceMac) is None
