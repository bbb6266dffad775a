"""500 cases of configurations, results and errors of plugins, tried with real plugins: no crash, no leak."""

import json
import shutil
from pathlib import Path
from typing import Any

import cni_cases as cases
import pytest
from hypothesis import Phase, given, seed, settings
from hypothesis import strategies as st

INSIDE = Path(__file__).parent / "cni_fuzz" / "inside.py"
PARTS, CASES = 5, 100
VALID = {"network": cases.networks(cases.CHAINS)[0], "odd": {}}
ANSWERED = st.tuples(st.just(0), cases.ANSWERS)
REFUSED = st.tuples(st.integers(1, 255), cases.REFUSALS)
SAID = st.tuples(ANSWERED, ANSWERED | REFUSED | st.just((0, ""))).map(lambda said: {"ADD": said[0], "DEL": said[1]})
"""What the plugin `odd` says in two of three cases: an ADD that goes on, and a DEL that may not."""
FAILED = st.tuples(REFUSED | ANSWERED, st.just((0, ""))).map(lambda said: {"ADD": said[0], "DEL": said[1]})
CHAINED = [{**cases.MACVLAN, "ipam": cases.STATIC}, {"type": "rxe"}, {"type": "odd"}]
"""What `odd` says of addresses is true if it is not changed."""
ODD = st.sampled_from(cases.networks([[{"type": "odd"}], CHAINED]))
WITH_ODD = st.fixed_dictionaries({"network": ODD, "odd": SAID | FAILED})
CONFIGURED = st.fixed_dictionaries({"network": cases.changed(cases.networks(cases.CHAINS)), "odd": st.just({})})


def chosen(part: int) -> list[dict[str, Any]]:
    """The cases of a part, a valid one first. They have to be JSON: a scenario's file could not hold others."""
    found = [VALID]

    @seed(part)
    @settings(max_examples=4 * CASES, phases=[Phase.generate], database=None, deadline=None)
    @given(CONFIGURED | WITH_ODD)
    def collect(case: dict[str, Any]) -> None:
        text = json.dumps(case)
        if len(found) < CASES and "\\u0000" not in text:  # no program's argument holds it
            found.append(json.loads(text))

    collect()
    assert len(found) == CASES
    return found


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_whatever_plugins_are_told_and_say(testbed, tmp_path, part):
    inside = tmp_path / "inside"
    inside.mkdir()
    shutil.copy(INSIDE, inside / "test_cases.py")
    (inside / "cases.json").write_text(json.dumps(chosen(part)))
    done = testbed("pytest", inside)
    assert done.status == 0, done.out + done.err
