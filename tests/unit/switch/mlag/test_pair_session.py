"""The session of a pair: two ends with a wire between them that a test can cut in each direction."""

from testbed.switch.mlag.messages import Channel, Hello, Record, Sync, unpack, unpack_records
from testbed.switch.mlag.session import HELLO_S, Loss, Session
from testbed.switch.timers import SECOND

SYSTEM = "44:38:39:be:ef:aa"
TIMEOUT_S = 15


class Wire:
    """Both ends, and what each has received; `lost` says of a sender's payload whether it is lost."""

    def __init__(self) -> None:
        self.now = 100 * SECOND
        self.ends = [Session(number, SYSTEM, TIMEOUT_S) for number in (1, 2)]
        self.received: list[list[Record]] = [[], []]
        self.losses: list[list[Loss]] = [[], []]
        self.deaf: set[int] = set()
        """Ends that receive nothing."""
        self.unsynced: set[int] = set()
        """Ends that receive no sync frames."""
        self.sync_frames = 0

    def start(self) -> None:
        for end in self.ends:
            end.start(self.now)
        self.deliver()

    def deliver(self) -> None:
        while any(end.outbox for end in self.ends):
            for sender, end in enumerate(self.ends):
                payloads, end.outbox = end.outbox, []
                for payload in payloads:
                    self._receive(1 - sender, payload)

    def _receive(self, at: int, payload: bytes) -> None:
        message = unpack(payload)
        self.sync_frames += isinstance(message, Sync)
        if at in self.deaf or (at in self.unsynced and isinstance(message, Sync)):
            return
        end = self.ends[at]
        if isinstance(message, Hello):
            self._note(at, end.on_hello(self.now, message))
        elif isinstance(message, Sync):
            self.received[at] += unpack_records(end.on_sync(message) or b"")

    def _note(self, at: int, loss: Loss | None) -> None:
        self.losses[at] += [loss] if loss else []

    def run(self, seconds: float) -> None:
        until = self.now + round(seconds * SECOND)
        while (at := min(end.deadline or until for end in self.ends)) <= until:
            self.now = max(self.now, at)
            for number, end in enumerate(self.ends):
                if end.deadline is not None and end.deadline <= self.now:
                    self._note(number, end.act(self.now))
            self.deliver()
        self.now = until

    @property
    def up(self) -> list[bool]:
        return [end.up for end in self.ends]


def started() -> Wire:
    wire = Wire()
    wire.start()
    return wire


def test_it_is_up_at_once_and_the_lower_number_is_active() -> None:
    wire = started()
    assert wire.up == [True, True]
    assert [end.active for end in wire.ends] == [True, False]
    wire.run(3600)
    assert wire.losses == [[], []]


def test_one_that_hears_nobody_is_active_and_not_up() -> None:
    wire = Wire()
    wire.ends[1].start(wire.now)
    assert (wire.ends[1].up, wire.ends[1].active) == (False, True)


def test_without_hellos_both_time_out_and_are_up_again_when_they_hear_each_other() -> None:
    wire = started()
    wire.deaf = {0, 1}
    wire.run(TIMEOUT_S - 1.5)
    assert wire.up == [True, True]
    wire.run(2)
    assert wire.up == [False, False]
    assert wire.losses == [["timeout"], ["timeout"]]
    wire.deaf = set()
    wire.run(HELLO_S)
    assert wire.up == [True, True]


def test_one_direction_lost_ends_it_for_both() -> None:
    wire = started()
    wire.deaf = {1}
    wire.run(TIMEOUT_S + 1)
    assert wire.up == [False, False]
    assert wire.losses[0][0] == "unheard" or wire.losses[0][0] == "restarted"
    assert wire.losses[1] == ["timeout"]
    before = len(wire.ends[0].outbox)
    wire.run(60)
    assert wire.up == [False, False]
    assert before == 0


def test_a_switch_that_begins_anew_ends_the_old_session() -> None:
    wire = started()
    wire.run(5)
    wire.ends[1] = Session(2, SYSTEM, TIMEOUT_S)
    wire.ends[1].start(wire.now)
    wire.deliver()
    assert wire.losses[0] == ["restarted"]
    assert wire.up == [True, True]


def test_another_pairs_hello_is_ignored() -> None:
    wire = started()
    stranger = Session(9, "44:38:39:be:ef:bb", TIMEOUT_S)
    stranger.start(wire.now)
    hello = unpack(stranger.outbox[0])
    assert isinstance(hello, Hello)
    assert wire.ends[0].on_hello(wire.now, hello) is None
    assert (wire.ends[0].up, wire.ends[0].other) == (True, 2)


def test_records_arrive_once_and_in_order() -> None:
    wire = started()
    sent: list[Record] = [Channel(number, up=True) for number in range(1, 400)]
    for record in sent:
        wire.ends[0].tell(wire.now, [record])
    wire.deliver()
    wire.run(10)
    assert wire.received == [[], sent]
    assert wire.sync_frames == len(sent)


def test_lost_records_are_sent_again_until_they_arrive() -> None:
    wire = started()
    wire.unsynced = {1}
    sent: list[Record] = [Channel(number, up=True) for number in range(1, 200)]
    for record in sent:
        wire.ends[0].tell(wire.now, [record])
    wire.run(3600)
    assert (wire.received[1], wire.up) == ([], [True, True])
    wire.unsynced = set()
    wire.run(2 * HELLO_S)
    assert wire.received[1][:64] == sent[:64]
    wire.run(8 * HELLO_S)
    assert wire.received[1] == sent


def test_a_record_on_its_way_is_not_sent_again_within_a_hello() -> None:
    wire = started()
    wire.unsynced = {1}
    wire.run(HELLO_S / 2)
    wire.ends[0].tell(wire.now, [Channel(1, up=True)])
    wire.deliver()
    wire.run(HELLO_S)
    assert wire.sync_frames == 1
    wire.run(HELLO_S)
    assert wire.sync_frames == 2


def test_records_of_an_old_session_are_not_taken() -> None:
    wire = started()
    wire.ends[0].tell(wire.now, [Channel(1, up=True)])
    (late,) = wire.ends[0].outbox
    wire.ends[0].outbox.clear()
    wire.deaf = {0, 1}
    wire.run(TIMEOUT_S + 1)
    wire.deaf = set()
    wire.run(2)
    frame = unpack(late)
    assert isinstance(frame, Sync)
    assert wire.up == [True, True]
    assert wire.ends[1].on_sync(frame) is None
    assert wire.received == [[], []]
    wire.ends[0].tell(wire.now, [Channel(2, up=True)])
    wire.deliver()
    assert wire.received[1] == [Channel(2, up=True)]
