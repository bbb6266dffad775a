"""Both ends of the wire of a machine that lives, against each other, in rings that are a few blocks long."""

import json
import os
import pty

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from testbed.errors import MachineError
from testbed.executor import wire as inside
from testbed.machine.live import machine_wire as outside
from testbed.machine.memory_files import BLOCK, Bundle, Outcome

RING = 4 * BLOCK
SIZES = st.one_of(st.integers(0, 50), st.sampled_from([BLOCK - 1, BLOCK, RING - 1, RING, 3 * RING]))
ACTS = st.lists(st.tuples(st.sampled_from(["in", "out"]), SIZES, st.booleans()), max_size=25)


class Map:
    """A device as the guest has it."""

    def __init__(self, found):
        self.map = found

    def read(self, offset, length):
        return self.map[offset : offset + length]

    def write(self, offset, data):
        assert offset % BLOCK == 0
        assert len(data) % BLOCK == 0
        self.map[offset : offset + len(data)] = data


class Both:
    def __init__(self, bundle, outcome):
        self.host = outside.Wire(bundle, outcome)
        self.guest = inside.Wire(Map(bundle.map), Map(outcome.map), virtual=False)
        self.guest._wait_for_room = self.drain
        self.came = {"in": [], "out": []}

    def drain(self):
        """The host takes what is there."""
        self.came["out"] += self.host.receive()
        self.host.acknowledge()

    def settle(self):
        self.drain()
        while self.host.waiting:
            self.came["in"] += self.guest.receive()
            self.host.push()


@pytest.fixture
def both(monkeypatch):
    there, here = pty.openpty()
    monkeypatch.setattr(inside, "BELL", os.ttyname(here))
    monkeypatch.setattr(inside, "RING", RING)
    monkeypatch.setattr(outside, "RING", RING)
    with Bundle() as bundle, Outcome() as outcome:
        yield lambda: Both(bundle, outcome)
    os.close(there)
    os.close(here)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(ACTS)
def test_all_that_is_sent_arrives_in_order_however_the_sides_take_turns(both, acts):
    wire = both()
    sent = {"in": [], "out": []}
    try:
        for number, (way, size, at_once) in enumerate(acts):
            message = {"id": number, "text": "x" * size}
            sent[way].append(message)
            line = json.dumps(message).encode()
            if way == "in":
                wire.host.send(line)
            else:
                wire.guest.send(line)
            if at_once:
                wire.settle()
        wire.settle()
    finally:
        os.close(wire.guest.fileno())
        wire.host._bundle.map[wire.host._out : wire.host._out + 24] = bytes(24)
        wire.host._outcome.map[wire.host._in : wire.host._in + 24] = bytes(24)
    assert wire.came == sent


@pytest.mark.parametrize("header", [(1 << 40, 0), (0, 1 << 40), ((1 << 64) - 1, 0)])
def test_a_guest_that_lies_about_the_wire_is_found_out(both, header):
    wire = both()
    outside.HEADER.pack_into(wire.host._outcome.map, wire.host._in, *header, 0)
    with pytest.raises(MachineError, match="wire is damaged"):
        [*wire.host.receive(), wire.host.push()]
    os.close(wire.guest.fileno())


def test_the_guest_takes_no_number_that_is_half_written(both):
    """It reads until it has read the same twice."""
    wire = both()
    reads = iter([(511, 0), (256, 0), (256, 0)])
    wire.guest._in.read = lambda offset, length: inside.HEADER.pack(*next(reads), 0)
    assert wire.guest._theirs() == (256, 0)
    os.close(wire.guest.fileno())
