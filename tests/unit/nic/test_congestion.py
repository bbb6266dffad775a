"""DCQCN's parameters, and the law by which they are scaled."""

import pytest

from testbed.errors import InputError
from testbed.kernel.lossless.layout import structures
from testbed.nic.congestion import dcqcn


def test_times_are_multiplied_and_rates_divided_by_the_scale() -> None:
    published, slower = dcqcn({"scale": 1}, "h").numbers(), dcqcn({"scale": 400}, "h").numbers()
    assert (published["cnp_ns"], published["alpha_ns"], published["increase_ns"]) == (50_000, 55_000, 55_000)
    assert (published["ai"], published["hai"], published["increase_bytes"]) == (40e6, 400e6, 10_000_000)
    assert (slower["cnp_ns"], slower["increase_ns"], slower["ai"]) == (20_000_000, 22_000_000, 100_000)
    assert slower["increase_bytes"] == published["increase_bytes"]
    assert published["g"] == 256


def test_the_numbers_are_those_that_the_programs_take() -> None:
    assert set(dcqcn({}, "h").numbers()) == {name for name, *_ in structures()["dcqcn"]._fields_}


@pytest.mark.parametrize(
    ("values", "message"), [({"gain": 1}, "DCQCN has no value 'gain'"), ({"g": 2}, "g: "), ({"scale": 0}, "scale: ")]
)
def test_a_value_that_is_none_is_named(values: dict[str, float], message: str) -> None:
    with pytest.raises(InputError, match=message):
        dcqcn(values, "h1")
