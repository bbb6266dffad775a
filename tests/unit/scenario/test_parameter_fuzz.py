"""Whatever a user sets, a parameter has a value of its type or there is one InputError."""

import math
from pathlib import Path
from typing import Any, Literal

from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import Field

from testbed.errors import InputError
from testbed.scenario import loading
from testbed.scenario.model import Parameters, Scenario
from testbed.scenario.run import Variant
from testbed.switch.profile import ProfileName


class Every(Parameters):
    """The types that parameters of shipped scenarios have."""

    text: str = "x"
    number: int = Field(4, ge=1)
    seconds: float = Field(1.0, ge=0)
    maybe: float | None = Field(None, gt=0)
    switch: bool = False
    chosen: Literal["one", "two"] = "one"
    profile: ProfileName = "sonic"


class Story(Scenario[Every]):
    """Nothing."""

    variants = (Variant("only", "fault", ""),)

    def run(self, run: Any, parameters: Any) -> None: ...


KEYS = st.one_of(st.sampled_from(sorted(Every.model_fields)), st.text(max_size=10))
TEXTS = st.one_of(
    st.text(max_size=30),
    st.integers().map(str),
    st.floats().map(str),
    st.sampled_from(
        ["inf", "-inf", "nan", "1e999", "9" * 5000, "0x10", "²", "1_0", " 1 ", "true", "null", "[1]", "\x1b[2J"]
    ),
)


@settings(derandomize=True, deadline=None, database=None, max_examples=60)
@given(st.dictionaries(KEYS, TEXTS, max_size=3))
@example({"seconds": "inf"})
@example({"maybe": "nan"})
def test_any_setting(chosen: dict[str, str]) -> None:
    (variant,) = Story.variants
    try:
        settled = Story.settle(variant, chosen)
        loading.info(Story, "story", chosen, ["only"], Path("scenario.py"))
    except InputError:
        return
    assert chosen.keys() <= Every.model_fields.keys()
    assert all(math.isfinite(value) for value in settled.model_dump().values() if isinstance(value, float))
