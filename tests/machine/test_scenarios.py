"""What comes with testbed tells the truth: every variant of every scenario ends as it says."""

import pytest

from testbed.machine.scenarios import shipped


@pytest.mark.parametrize("scenario", [source.name for source in shipped()])
def test_every_variant_is_as_expected(testbed, scenario):
    done = testbed("run", scenario, "--json")
    assert done.status == 0, done.err or done.out
    assert [variant["name"] for variant in done.json["variants"] if variant["observed"] != variant["expected"]] == []
