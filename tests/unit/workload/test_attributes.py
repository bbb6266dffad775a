"""Attributes of a reliable connection: what is out of range is said before a kernel sees it."""

import math

import pytest

from testbed.errors import InputError
from testbed.workload.attributes import Attributes


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("timeout", 0, 31),
        ("retry_cnt", 0, 7),
        ("rnr_retry", 0, 7),
        ("min_rnr_timer", 0, 31),
        ("traffic_class", 0, 255),
        ("flow_label", 0, 0xFFFFF),
        ("hop_limit", 1, 255),
        ("max_rd_atomic", 1, 128),
    ],
)
def test_the_ends_of_a_range_are_valid_and_what_is_beyond_is_not(name: str, low: int, high: int) -> None:
    assert getattr(Attributes(**{name: low}), name) == low
    assert getattr(Attributes(**{name: high}), name) == high
    for value in low - 1, high + 1:
        with pytest.raises(InputError, match=f"{name} is {value}\n  It is {low} to {high}"):
            Attributes(**{name: value})


@pytest.mark.parametrize("value", ["14", 1.5, None, True])
def test_only_whole_numbers(value: object) -> None:
    with pytest.raises(InputError, match="timeout is "):
        Attributes(timeout=value)  # type: ignore[arg-type]


def test_a_path_mtu_is_one_of_five() -> None:
    assert Attributes(path_mtu=4096).path_mtu == 4096
    with pytest.raises(InputError, match="256, 512, 1024, 2048, 4096"):
        Attributes(path_mtu=1500)


def test_retries_end_by_default() -> None:
    assert Attributes().retry_cnt < 7
    assert Attributes().retry_s == pytest.approx(4 * 0.0671, rel=0.01)


@pytest.mark.parametrize("attributes", [Attributes(retry_cnt=7), Attributes(timeout=0)])
def test_rxe_never_gives_up(attributes: Attributes) -> None:
    assert math.isinf(attributes.retry_s)


def test_a_flow_label_chooses_the_source_port_and_without_one_there_is_none_to_tell() -> None:
    ports = [Attributes(flow_label=label).source_port for label in range(1, 9)]
    assert len(set(ports)) == len(ports)
    assert all(0xC000 <= port <= 0xFFFF for port in ports)
    with pytest.raises(InputError, match="without a flow label"):
        _ = Attributes().source_port
