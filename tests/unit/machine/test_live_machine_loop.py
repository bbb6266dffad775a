"""The outside's end of the machine of a lab that lives."""

import contextlib
import socket
from types import SimpleNamespace

import pytest

from testbed.machine.live.lifecycle import Lifecycle
from testbed.machine.live.machine_loop import MachineLoop
from testbed.machine.memory_files import Bundle, Outcome


@pytest.fixture
def bell():
    ours, guests = socket.socketpair()
    with ours, guests:
        for end in ours, guests:
            end.setblocking(False)
        yield SimpleNamespace(ours=ours, guests=guests)


@pytest.fixture
def loop(bell):
    listener = SimpleNamespace(handed_over=lambda _: None, received=lambda _: None)
    with Bundle() as bundle, Outcome() as outcome:
        opened = SimpleNamespace(bundle=bundle, outcome=outcome, machine=SimpleNamespace(bell=bell.ours))
        yield MachineLoop(opened, SimpleNamespace(), "real", listener, Lifecycle("mine"))


def rung(bell):
    with contextlib.suppress(BlockingIOError):
        return bool(bell.guests.recv(100))
    return False


def test_a_bell_that_did_not_wake_the_guest_is_rung_again_until_it_has_read(bell, loop):
    loop.poll()
    assert not rung(bell)
    loop.post({"id": 1})
    assert rung(bell)
    for _ in range(2):
        loop.poll()
        assert rung(bell)
