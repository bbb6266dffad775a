"""What comes with testbed tells the truth, every time the same."""

import pytest

from testbed.machine.scenarios import shipped


@pytest.mark.parametrize("scenario", [source.name for source in shipped()])
def test_every_variant_is_as_expected_and_the_first_one_is_the_same_again(testbed, scenario):
    done = testbed("run", scenario, "--json")
    assert done.status == 0, done.err or done.out
    variants = done.json["variants"]
    assert [variant["name"] for variant in variants if variant["observed"] != variant["expected"]] == []
    again = testbed("run", scenario, "--variant", variants[0]["name"], "--json")
    assert again.json["variants"][0]["trace"] == variants[0]["trace"]
