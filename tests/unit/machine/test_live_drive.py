"""The outside's end of the machine of a lab that lives."""

import contextlib
import socket
from types import SimpleNamespace

import pytest

from testbed.machine.devices import Bundle, Outcome
from testbed.machine.live.drive import Drive


@pytest.fixture
def bell():
    ours, guests = socket.socketpair()
    with ours, guests:
        for end in ours, guests:
            end.setblocking(False)
        yield SimpleNamespace(ours=ours, guests=guests)


@pytest.fixture
def drive(bell):
    hearer = SimpleNamespace(said=lambda _: None, answered=lambda _: None)
    with Bundle() as bundle, Outcome() as outcome:
        opened = SimpleNamespace(bundle=bundle, outcome=outcome, machine=SimpleNamespace(bell=bell.ours))
        yield Drive(opened, SimpleNamespace(lives=True), "real", hearer)


def rung(bell):
    with contextlib.suppress(BlockingIOError):
        return bool(bell.guests.recv(100))
    return False


def test_a_bell_that_did_not_wake_the_guest_is_rung_again_until_it_has_read(bell, drive):
    drive.look()
    assert not rung(bell)
    drive.say({"id": 1})
    assert rung(bell)
    for _ in range(2):
        drive.look()
        assert rung(bell)
