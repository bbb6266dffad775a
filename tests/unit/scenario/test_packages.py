"""Debian packages that a scenario needs: named in its class, checked before a machine is started, described."""

from collections.abc import Callable
from pathlib import Path

import pytest

from testbed.errors import InputError
from testbed.scenario import loading

SCENARIO = """
from testbed import Scenario, Variant

class Tiny(Scenario):
    title = "Tiny"
    packages = {packages}
    variants = (Variant("only", "healthy", "it works"),)
    def run(self, run, parameters): ...
"""


def test_a_scenario_says_which_packages_it_needs(write: Callable[..., Path]) -> None:
    scenario = loading.load(write(SCENARIO.format(packages=("tcpflow", "iperf3", "tcpflow"))))
    assert loading.info(scenario, "tiny", {}, [], Path("scenario.py"))["packages"] == ["iperf3", "tcpflow"]


@pytest.mark.parametrize("packages", ["iperf3", ("-o", "x"), ("Iperf3",), (7,)])
def test_what_cannot_be_a_package_is_refused(write: Callable[..., Path], packages: object) -> None:
    with pytest.raises(InputError, match="is not a valid Debian package name") as said:
        loading.load(write(SCENARIO.format(packages=repr(packages))))
    assert said.value.hint == 'Write packages = ("iperf3", "tcpflow").'
