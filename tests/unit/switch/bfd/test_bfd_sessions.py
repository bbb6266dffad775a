"""Sessions of BFD against RFC 5880: the states of section 6.2, and the intervals of 6.8."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.switch.bfd.control_packet import ControlPacket, State
from testbed.switch.bfd.state_machine import Session, Settings

ADMIN_DOWN, DOWN, INIT, UP = State
SETTINGS = Settings(discriminator=1, multiplier=3, desired_tx=300_000, required_rx=300_000)
FROM_PEER = ControlPacket(DOWN, 0, 3, mine=2, yours=1, desired_tx=300_000, required_rx=300_000)


def session(*states: State, settings: Settings = SETTINGS) -> Session:
    """A session that has received packets with these states."""
    made = Session(settings)
    for state in states:
        made.receive(replace(FROM_PEER, state=state))
    return made


def exchange(one: Session, other: Session) -> None:
    for sender, receiver in (one, other), (other, one):
        reply = receiver.receive(sender.packet)
        if reply:
            sender.receive(reply)


@pytest.mark.parametrize(
    ("before", "received", "after"),
    [
        ((), ADMIN_DOWN, DOWN),
        ((), DOWN, INIT),
        ((), INIT, UP),
        ((), UP, DOWN),
        ((DOWN,), ADMIN_DOWN, DOWN),
        ((DOWN,), DOWN, INIT),
        ((DOWN,), INIT, UP),
        ((DOWN,), UP, UP),
        ((INIT,), ADMIN_DOWN, DOWN),
        ((INIT,), DOWN, DOWN),
        ((INIT,), INIT, UP),
        ((INIT,), UP, UP),
    ],
)
def test_the_states_of_the_rfc(before: tuple[State, ...], received: State, after: State) -> None:
    assert session(*before, received).state is after


@pytest.mark.parametrize(
    ("states", "diagnostic"), [((INIT, DOWN), 3), ((INIT, ADMIN_DOWN), 3), ((INIT, DOWN, INIT), 0)]
)
def test_a_neighbour_that_signals_is_the_diagnostic_until_the_session_is_up(states, diagnostic) -> None:
    assert session(*states).diagnostic == diagnostic


def test_an_expired_detection_time_is_down_and_forgets_the_peer() -> None:
    up = session(INIT)
    up.expire()
    assert (up.state, up.diagnostic, up.packet.yours, up.detection) == (DOWN, 1, 0, 0)
    idle = session()
    idle.expire()
    assert (idle.state, idle.diagnostic) == (DOWN, 0)


def test_two_sessions_come_up_and_agree_on_their_intervals() -> None:
    one, other = Session(SETTINGS), Session(replace(SETTINGS, discriminator=2, desired_tx=400_000, multiplier=5))
    assert (one.packet.desired_tx, one.interval) == (1_000_000, 1_000_000)
    for _ in range(4):
        exchange(one, other)
    assert (one.state, other.state) == (UP, UP)
    assert not one.polling
    assert not other.polling
    assert (one.interval, other.interval) == (300_000, 400_000)
    assert (one.detection, other.detection) == (5 * 400_000, 3 * 300_000)


def test_of_one_lost_direction_one_end_is_down_and_the_other_stays_in_init() -> None:
    deaf, other = Session(SETTINGS), Session(replace(SETTINGS, discriminator=2))
    for _ in range(4):
        exchange(deaf, other)
    deaf.expire()
    states = []
    for _ in range(5):
        other.receive(deaf.packet)
        states.append((deaf.state, other.state))
    assert states == [(DOWN, DOWN), *[(DOWN, INIT)] * 4]
    assert (deaf.diagnostic, other.diagnostic) == (1, 3)
    exchange(other, deaf)
    exchange(other, deaf)
    assert (deaf.state, other.state) == (UP, UP)


class TestPollSequences:
    def up(self) -> Session:
        found = session(INIT)
        found.receive(replace(FROM_PEER, state=UP, final=True))
        assert not found.polling
        return found

    def test_a_session_that_comes_up_polls_until_the_final_bit(self) -> None:
        found = session(INIT)
        assert found.packet.poll
        found.receive(replace(FROM_PEER, state=UP))
        assert found.packet.poll
        found.receive(replace(FROM_PEER, state=UP, final=True))
        assert not found.packet.poll

    def test_slower_packets_and_faster_reception_wait_for_its_end(self) -> None:
        found = self.up()
        found.configure(replace(SETTINGS, desired_tx=500_000, required_rx=100_000))
        assert (found.packet.desired_tx, found.packet.required_rx, found.packet.poll) == (500_000, 100_000, True)
        assert (found.interval, found.detection) == (300_000, 900_000)
        found.receive(replace(FROM_PEER, state=UP, final=True, desired_tx=50_000))
        assert (found.interval, found.detection) == (500_000, 300_000)

    def test_faster_packets_and_slower_reception_do_not(self) -> None:
        found = self.up()
        found.receive(replace(FROM_PEER, state=UP, required_rx=100_000))
        found.configure(replace(SETTINGS, desired_tx=200_000, required_rx=400_000))
        assert (found.interval, found.detection) == (200_000, 3 * 400_000)

    def test_a_poll_is_answered_at_once_and_not_with_a_poll(self) -> None:
        found = session(INIT)
        reply = found.receive(replace(FROM_PEER, state=UP, poll=True))
        assert reply is not None
        assert (reply.final, reply.poll) == (True, False)
        assert found.receive(replace(FROM_PEER, state=UP)) is None


def test_a_peer_that_wants_no_packets_gets_none() -> None:
    found = session(INIT)
    found.receive(replace(FROM_PEER, state=UP, required_rx=0))
    assert found.interval == 0
    found.receive(replace(FROM_PEER, state=UP, required_rx=700_000))
    assert found.interval == 700_000


def test_a_peer_in_demand_mode_gets_none_while_both_are_up_and_nobody_polls() -> None:
    found = session(INIT)
    found.receive(replace(FROM_PEER, state=UP, demand=True))
    assert found.interval
    found.receive(replace(FROM_PEER, state=UP, demand=True, final=True))
    assert found.interval == 0


def test_a_passive_session_waits_for_its_peer() -> None:
    found = Session(replace(SETTINGS, passive=True))
    assert found.interval == 0
    found.receive(FROM_PEER)
    assert (found.state, found.interval) == (INIT, 1_000_000)


def test_a_session_that_is_shut_down_says_so_and_follows_no_packet() -> None:
    found = session(INIT)
    found.configure(replace(SETTINGS, shutdown=True))
    found.receive(replace(FROM_PEER, state=UP))
    assert (found.packet.state, found.packet.diagnostic, found.expected) == (ADMIN_DOWN, 7, b"")
    found.configure(SETTINGS)
    assert (found.state, found.diagnostic) == (DOWN, 0)


@given(
    st.lists(
        st.builds(
            ControlPacket,
            st.sampled_from(list(State)),
            st.integers(0, 8),
            st.integers(1, 9),
            st.just(2),
            st.just(1),
            *[st.integers(0, 2_000_000)] * 3,
            *[st.booleans()] * 4,
        ),
        min_size=1,
    )
)
def test_the_expected_packet_changes_nothing(packets: list[ControlPacket]) -> None:
    found = Session(SETTINGS)
    for packet in packets:
        found.receive(packet)
    before = found.state, found.packet, found.interval, found.detection
    if found.expected:
        last = replace(packets[-1], poll=False, final=False)
        assert found.expected == last.pack()
        assert found.receive(last) is None
        assert before == (found.state, found.packet, found.interval, found.detection)
