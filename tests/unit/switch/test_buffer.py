"""The buffer of a switch, from its profile."""

import pytest

from testbed.errors import InputError
from testbed.switch.buffer import Buffer, buffer_of, pool_values, port_values
from testbed.switch.profile import profile
from testbed.topology import Lossless

LOSSLESS = Lossless((3,), ((26, 3),))
SONIC = profile("sonic")


def test_what_is_shared_is_left_of_the_buffer_beside_reserves_and_headroom() -> None:
    values = {"buffer": 400_000, "pfc_headroom": 10_000, "pfc_reserve": 2_000, "lossy_reserve": 100}
    found = buffer_of("leaf", SONIC.replace(**values), LOSSLESS, ports=4, mtu=1500)
    assert found == Buffer(shared=400_000 - 4 * 12_000 - 4 * 5 * 100, headroom=10_000, reserve=2_000, lossy_reserve=100)


@pytest.mark.parametrize(
    ("values", "wrong", "hint"),
    [
        ({"pfc_headroom": 1000}, "pfc_headroom (1000 bytes) does not hold one frame", "MTU has 1518"),
        ({"buffer": 50_000}, "leaves -50000 shared bytes", "The minimum is `buffer: 106000`."),
        ({"pfc_xon_offset": 290_000}, "(290000 bytes) is above the threshold", "`pfc_xon_offset: 75000`"),
    ],
)
def test_sizes_that_cannot_work_are_refused_with_what_would(values: dict[str, int], wrong: str, hint: str) -> None:
    with pytest.raises(InputError) as caught:
        buffer_of("leaf", SONIC.replace(**values), LOSSLESS, ports=10, mtu=1500)
    assert "leaf: " in str(caught.value)
    assert wrong in str(caught.value)
    assert hint in (caught.value.hint or "")


def test_what_a_message_says_would_work_does() -> None:
    for values in {"buffer": 106_000}, {"pfc_xon_offset": 75_000}:
        assert buffer_of("leaf", SONIC.replace(**values), LOSSLESS, ports=10, mtu=1500).shared > 0


@pytest.mark.parametrize(("alpha", "ratio"), [(1, 1), (1 / 8, 1 / 8), (8, 8), (0.3, 0.3)])
def test_alpha_is_a_ratio_of_small_numbers(alpha: float, ratio: float) -> None:
    values = SONIC.replace(pfc_alpha=alpha)
    size, classes = pool_values(values, buffer_of("leaf", values, LOSSLESS, 4, 1500), LOSSLESS)
    assert size == 400_000 - 4 * 10_000
    assert classes[3]["alpha_numerator"] / classes[3]["alpha_denominator"] == pytest.approx(ratio, rel=1e-3)
    assert classes[3]["alpha_denominator"] <= 1 << 16


def test_lossless_queues_are_marked_and_watched() -> None:
    values = SONIC.replace(ecn_min=5_000, ecn_max=200_000, ecn_probability=1, pfc_watchdog=0.2)
    found = port_values(values, buffer_of("leaf", values, LOSSLESS, 4, 1500), LOSSLESS)
    assert found["marking"] == {3: (5_000, 200_000, 655, 0)}
    assert found["watchdog_detect_ns"] == 200_000_000


def test_automatic_ecn_has_an_interval() -> None:
    values = SONIC.replace(ecn_min=5_000, ecn_max=200_000, ecn_control="adaptive", ecn_interval=0.05)
    found = port_values(values, buffer_of("leaf", values, LOSSLESS, 4, 1500), LOSSLESS)
    assert found["marking"] == {3: (5_000, 200_000, 655, 50_000)}


def test_marking_has_a_range() -> None:
    with pytest.raises(InputError, match="ecn_min"):
        SONIC.replace(ecn_min=10, ecn_max=5)
