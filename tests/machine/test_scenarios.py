"""What comes with testbed tells the truth, every time the same. All variants are `make scenarios`' to tell."""

import pytest

from testbed.machine.scenarios import shipped


@pytest.mark.slow
@pytest.mark.parametrize("scenario", [source.name for source in shipped()])
def test_the_first_variant_is_as_expected_and_the_same_again(testbed, scenario):
    first = testbed("describe", scenario, "--json").json["variants"][0]["name"]
    done, again = (testbed("run", scenario, "--variant", first, "--json") for _ in range(2))
    assert done.status == 0, done.err or done.out
    assert done.json["trace"] == again.json["trace"]


def test_a_matrix_compares_profiles(testbed):
    done = testbed("matrix", "ip-reuse", "--over", "profile=cisco-nxos,sonic", "--json")
    assert done.status == 0, done.err
    nxos, sonic = (row["outage_s"] for row in done.json["variants"])
    assert sonic < 300
    assert 1500 < nxos < 1800
