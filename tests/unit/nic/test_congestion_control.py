"""The parameters of DCQCN and TIMELY, and the law by which they are scaled."""

import pytest

from testbed.errors import InputError
from testbed.kernel.lossless.layout import structures
from testbed.nic.congestion_control import ALGORITHMS, Algorithm, Dcqcn, congestion


def chosen(name: str, **values: float) -> Algorithm:
    found = congestion(name, values, "h1")
    assert found
    return found


def test_times_are_multiplied_and_rates_divided_by_the_scale() -> None:
    published, slower = chosen("dcqcn", scale=1).numbers(), chosen("dcqcn", scale=400).numbers()
    assert (published["cnp_ns"], published["alpha_ns"], published["increase_ns"]) == (50_000, 55_000, 55_000)
    assert (published["ai"], published["hai"], published["increase_bytes"]) == (40e6, 400e6, 10_000_000)
    assert (slower["cnp_ns"], slower["increase_ns"], slower["ai"]) == (20_000_000, 22_000_000, 100_000)
    assert slower["increase_bytes"] == published["increase_bytes"]
    assert published["g"] == 256


def test_a_round_trip_is_slower_and_a_step_smaller_in_the_lab() -> None:
    numbers = chosen("timely", scale=100).numbers()
    assert (numbers["low_ns"], numbers["high_ns"], numbers["ai"]) == (5_000_000, 50_000_000, 100_000)
    assert (numbers["beta"], numbers["ewma"]) == (52429, 57344)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_numbers_are_those_that_the_programs_take(name: str) -> None:
    assert set(chosen(name).numbers()) == {field for field, *_ in structures()[name]._fields_}


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("dcqcn", {"gain": 1}, "dcqcn has no value 'gain'"),
        ("dcqcn", {"g": 2}, "g: "),
        ("timely", {"scale": 0}, "scale: "),
        ("timely", {"increase_us": 5}, "It has: scale, low_us"),
    ],
)
def test_a_value_that_is_none_is_named(name: str, values: dict[str, float], message: str) -> None:
    with pytest.raises(InputError) as caught:
        congestion(name, values, "h1")
    assert message in f"{caught.value}\n{caught.value.hint}"


def test_values_may_have_nvidias_names_and_units() -> None:
    given = {"rpg_ai_rate": 5, "dce_tcp_g": 1019, "min_time_between_cnps": 4, "rpg_min_dec_fac": 50, "cnp_per": "port"}
    found = congestion("dcqcn", given, "a")
    assert isinstance(found, Dcqcn)
    assert (found.additive_bps, found.cnp_us, found.min_dec_fac, found.cnp_per) == (5e6, 4, 50, "port")
    assert found.g == pytest.approx(5 / 1024)
    assert found.clamp_tgt_rate


@pytest.mark.parametrize(
    ("given", "wrong"),
    [
        ({"rpg_ai_rate": 5, "additive_bps": 5e6}, "'additive_bps'.* another name"),
        ({"rpg_ai_rat": 5}, "rpg_ai_rat"),
        ({"cnp_per": "host"}, "cnp_per"),
    ],
)
def test_wrong_names_of_nvidias_values_are_refused(given: dict[str, object], wrong: str) -> None:
    with pytest.raises(InputError, match=wrong):
        congestion("dcqcn", given, "a")
