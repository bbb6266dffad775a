"""Whatever parameters a file gives a fault, it is made, or what is wrong is said in words."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.faults import KINDS, problem

PLAIN = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=20),
    st.sampled_from(["leaf:e1", "10.0.0.1", "10.0.0.1/24", "fd00::1", "02:00:00:00:00:01", "a", "drop", "SEND_FIRST"]),
)
VALUES = st.recursive(
    PLAIN,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=2)),
    max_leaves=5,
)


@st.composite
def faults(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    name = draw(st.sampled_from(sorted(KINDS)))
    keys = st.one_of(st.sampled_from(sorted(KINDS[name].model_fields)), st.text(max_size=8))
    return name, draw(st.dictionaries(keys, VALUES, max_size=4))


@settings(derandomize=True, deadline=None, database=None, max_examples=60)
@given(faults())
def test_any_parameters(fault: tuple[str, dict[str, Any]]) -> None:
    name, parameters = fault
    said = problem(name, parameters)
    assert not said or said.startswith(f"fault {name}: ")


def test_a_parameter_is_no_infinity() -> None:
    assert "finite" in problem("link-delay", {"end": "leaf:e1", "delay": float("inf")})
