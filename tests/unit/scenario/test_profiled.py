"""Parameters of a scenario choose the profile of its switches, and replace those of its values that it names."""

import pytest

from testbed.scenario.model import Parameters, Scenario
from testbed.scenario.run import Run, Variant
from testbed.switch.profile import profile


class Settings(Parameters):
    profile: str = "cisco-nxos"
    arp_age: float | None = None
    announce: bool = True
    """Of the scenario's host. A profile has a value of that name, too."""


class Aged(Scenario[Settings]):
    """A scenario whose switches age as its parameters say."""

    profiled = ("leaf1", "leaf2")
    profile_values = ("arp_age",)
    variants = (Variant("as-is", "fault", "it ages"),)

    def run(self, run: Run, parameters: Settings) -> None: ...


@pytest.mark.parametrize("name", ["cisco-nxos", "sonic"])
def test_the_parameter_profile_is_that_of_every_switch_named(name: str) -> None:
    assert Aged().profiles(Settings(profile=name)) == {"leaf1": profile(name), "leaf2": profile(name)}


def test_a_value_that_the_scenario_names_replaces_that_of_the_profile_and_no_other_does() -> None:
    found = Aged().profiles(Settings(arp_age=60))["leaf1"]
    assert found == profile("cisco-nxos").replace(arp_age=60)
    assert not found.announce


def test_a_scenario_that_names_no_switch_has_the_leaf() -> None:
    class Leaf(Aged):
        profiled = Scenario.profiled

    assert Leaf().profiles(Settings(profile="sonic")) == {"leaf": profile("sonic")}


def test_without_a_parameter_profile_no_switch_has_another_one_than_in_its_file() -> None:
    class Plain(Scenario):
        def run(self, run: Run, parameters: Parameters) -> None: ...

    assert Plain().profiles(Parameters()) == {}
