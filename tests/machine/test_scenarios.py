"""What comes with testbed is the same every time. That all variants are as expected is `make scenarios`' to show."""

import json

import pytest

from testbed.machine.scenarios import shipped


@pytest.mark.slow
@pytest.mark.parametrize("scenario", [source.name for source in shipped()])
def test_the_first_variant_has_the_same_trace_again(testbed, run_of_the_catalogue, scenario):
    latest = run_of_the_catalogue(scenario)
    variant = json.loads((latest / "result.json").read_text())["variants"][0]["name"]
    done = testbed("rerun", latest, "--variant", variant)
    assert done.status == 0, done.out + done.err


def test_a_matrix_compares_profiles_and_is_repeated(testbed, short):
    done = testbed("matrix", short, "--variant", "announced", "--over", "profile=cisco-nxos,sonic", "--json")
    assert done.status == 0, done.err
    rows = {row["values"]["profile"]: row for row in done.json["variants"]}
    assert {profile: row["outage_s"] for profile, row in rows.items()} == {"cisco-nxos": 0, "sonic": 0}
    assert rows["cisco-nxos"]["trace"] != rows["sonic"]["trace"]
    again = testbed("rerun", done.json["out"], "--variant", "profile=sonic", "--json")
    assert again.status == 0, again.err
    (variant,) = again.json["run"]["variants"]
    assert variant["parameters"]["profile"] == "sonic"
    assert variant["trace"] == rows["sonic"]["trace"]
