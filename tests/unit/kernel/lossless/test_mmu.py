"""The memory management unit against a plain model of it: the same decision for each packet, the same bytes after."""

import ctypes
from collections import deque
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.kernel.lossless.layout import constants, structures

LOSSLESS, LOSSY = 3, 0
PORTS = 3
REFUSED, STOP_PEER = 1, 2
ALPHAS = [Fraction(1, 64), Fraction(1, 8), Fraction(1, 2), Fraction(1), Fraction(2), Fraction(8)]
ACTS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["in", "lossy"]), st.integers(0, PORTS - 1), st.integers(60, 9018)),
        st.tuples(st.just("out"), st.integers(0, 1), st.just(0)),
    ),
    max_size=120,
)
SIZES = st.fixed_dictionaries(
    {
        "size": st.integers(1_000, 100_000),
        "alpha": st.sampled_from(ALPHAS),
        "lossy_alpha": st.sampled_from(ALPHAS),
        "headroom": st.sampled_from([0, 1_500, 5_000, 40_000]),
        "reserve": st.sampled_from([0, 2_000, 10_000]),
        "lossy_reserve": st.sampled_from([0, 3_000]),
        "xon_offset": st.sampled_from([0, 2_000, 20_000]),
    }
)


class Model:
    """A shared buffer of `size` bytes: groups of a lossless class by their port, and one lossy queue."""

    def __init__(self, **values):
        self.__dict__ |= values
        self.groups = [{"reserve": 0, "shared": 0, "headroom": 0, "stopped": False} for _ in range(PORTS)]
        self.queue = {"reserve": 0, "shared": 0}

    @property
    def used(self):
        return sum(one["shared"] for one in (*self.groups, self.queue))

    def threshold(self, alpha):
        return int((self.size - self.used) * alpha)

    def arrive(self, port, length):
        group = self.groups[port]
        calm = group["headroom"] == 0
        if calm and group["shared"] == 0 and group["reserve"] + length <= self.reserve:
            part = "reserve"
        elif calm and group["shared"] + length <= self.threshold(self.alpha):
            part = "shared"
        elif group["headroom"] + length <= self.headroom:
            part = "headroom"
        else:
            part = None
        if part:
            group[part] += length
        stops = (part is None or group["headroom"] > 0) and not group["stopped"]
        group["stopped"] |= stops
        return (0 if part else REFUSED) | (STOP_PEER if stops else 0)

    def arrive_lossy(self, length):
        if self.queue["shared"] == 0 and self.queue["reserve"] + length <= self.lossy_reserve:
            self.queue["reserve"] += length
        elif self.queue["shared"] + length <= self.threshold(self.lossy_alpha):
            self.queue["shared"] += length
        else:
            return REFUSED
        return 0

    def leave(self, owner, length):
        for part in "headroom", "shared", "reserve":
            taken = min(owner.get(part, 0), length)
            if taken:
                owner[part] -= taken
                length -= taken
        assert length == 0, "more leaves than came"

    def may_go_on(self, group):
        return not group["headroom"] and (
            not group["shared"] or group["shared"] + self.xon_offset <= self.threshold(self.alpha)
        )


@pytest.fixture(scope="module")
def library(mmu):
    return ctypes.CDLL(str(mmu))


class Unit:
    """bpf/mmu.h with its structures."""

    def __init__(self, library, values):
        kinds = structures()
        self.library = library
        self.pool, self.config, self.queue = kinds["pool"](), kinds["port_config"](), kinds["queue"]()
        self.states = [kinds["port_state"]() for _ in range(PORTS)]
        self.groups = [state.group[LOSSLESS] for state in self.states]
        self.pool.size = values["size"]
        self.config.headroom, self.config.reserve = values["headroom"], values["reserve"]
        for number, alpha, reserve in (
            (LOSSLESS, values["alpha"], 0),
            (LOSSY, values["lossy_alpha"], values["lossy_reserve"]),
        ):
            found = getattr(self.pool, "class")[number]
            found.alpha_numerator, found.alpha_denominator = alpha.as_integer_ratio()
            found.xon_offset, found.reserve = values["xon_offset"], reserve

    def arrive(self, port, length):
        state, by = self.states[port], ctypes.byref
        verdict = int(self.library.charge_to_group(by(self.pool), LOSSLESS, by(self.config), by(state), length))
        assert bool(state.stopped) == bool(self.groups[port].xoff)
        return verdict

    def arrive_lossy(self, length):
        return self.library.charge_to_queue(ctypes.byref(self.pool), LOSSY, ctypes.byref(self.queue), length)

    def leave(self, port, length):
        self.library.release_group(ctypes.byref(self.pool), ctypes.byref(self.groups[port]), length)

    def leave_lossy(self, length):
        self.library.release_queue(ctypes.byref(self.pool), ctypes.byref(self.queue), length)

    def may_go_on(self, port):
        by = ctypes.byref
        return bool(self.library.group_may_resume(by(self.pool), LOSSLESS, by(self.groups[port])))


@settings(max_examples=300)
@given(ACTS, SIZES)
def test_each_packet_has_the_decision_of_the_model_and_all_bytes_come_back(library, acts, sizes):
    unit, model = Unit(library, sizes), Model(**sizes)
    waiting = deque()
    for act, which, length in [*acts, *[("out", 0, 0)] * len(acts)]:
        if act == "in":
            verdict = model.arrive(which, length)
            assert unit.arrive(which, length) == verdict
            if not verdict & REFUSED:
                waiting.append((which, length))
        elif act == "lossy":
            verdict = model.arrive_lossy(length)
            assert unit.arrive_lossy(length) == verdict
            if not verdict:
                waiting.append((None, length))
        elif waiting:
            port, left = waiting.popleft() if which == 0 else waiting.pop()
            model.leave(model.queue if port is None else model.groups[port], left)
            if port is None:
                unit.leave_lossy(left)
            else:
                unit.leave(port, left)
        assert unit.pool.used == model.used
        assert (unit.queue.reserve, unit.queue.shared) == (model.queue["reserve"], model.queue["shared"])
        for port, group in enumerate(model.groups):
            found = unit.groups[port]
            assert (found.reserve, found.shared, found.headroom, found.xoff) == tuple(group.values())
            assert unit.may_go_on(port) == model.may_go_on(group)
    assert unit.pool.used == 0


def test_the_headroom_is_what_makes_a_class_lossless(library):
    """What arrives after the peer was told to stop finds room there, and nowhere else."""
    values = {"size": 10_000, "alpha": Fraction(1), "lossy_alpha": Fraction(1), "headroom": 3_000, "reserve": 0}
    unit = Unit(library, {**values, "lossy_reserve": 0, "xon_offset": 0})
    verdicts = [unit.arrive(0, 1_000) for _ in range(9)]
    assert verdicts == [0, 0, 0, 0, 0, STOP_PEER, 0, 0, REFUSED]
    assert unit.groups[0].max_headroom == 3_000


def test_a_packet_without_a_next_hop_stops_its_peer_until_it_has_one(library):
    """Its group is far below its threshold."""
    values = {"size": 100_000, "alpha": Fraction(1), "lossy_alpha": Fraction(1), "headroom": 3_000, "reserve": 0}
    unit, by = Unit(library, {**values, "lossy_reserve": 0, "xon_offset": 0}), ctypes.byref
    waiting = [
        library.charge_to_wait(by(unit.pool), LOSSLESS, by(unit.config), by(unit.states[0]), 1_000) for _ in range(2)
    ]
    assert waiting == [STOP_PEER, 0]
    assert (unit.groups[0].shared, unit.groups[0].waiting) == (2_000, 2)
    assert not unit.may_go_on(0)
    unit.groups[0].waiting = 0
    assert unit.may_go_on(0)


def test_the_header_and_the_classes_agree():
    assert constants()["CLASSES"] == 8
    assert ctypes.sizeof(structures()["pool"]) == 104 + 8 * ctypes.sizeof(structures()["pool_class"])
