"""A scenario's parameters: defaults, the user's settings over them, the variant's own over both unless it is named."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import Field, ValidationError

from testbed.errors import InputError
from testbed.protocol import ScenarioInfo
from testbed.scenario import loading
from testbed.scenario.model import Parameters, Scenario
from testbed.scenario.run import Variant


class Settings(Parameters):
    profile: str = Field("cisco-nxos", description="profile of the leaf")
    announce: bool = Field(False, description="whether pod B announces itself")
    rest: float = Field(1.0, ge=0, description="seconds between the pods")
    limit: int | None = Field(None, gt=0, description="tries; empty: no limit")


class Story(Scenario[Settings]):
    """A story.

    What happens.

    And why.
    """

    tags = ("arp",)
    variants = (
        Variant("as-is", "fault", "it breaks"),
        Variant("cure", "healthy", "it works", {"announce": True, "rest": 1600}),
    )

    def run(self, run: Any, parameters: Any) -> None: ...


class Plain(Scenario):
    """A scenario without parameters."""

    variants = (Variant("only", "fault", ""),)

    def run(self, run: Any, parameters: Any) -> None: ...


class Former(Scenario):
    """
    What happens.

    And why.
    """

    title = "A story"
    parameters = Settings
    variants = Story.variants

    def run(self, run: Any, parameters: Any) -> None: ...


class Another(Story):
    """Another story
    over two lines."""


AS_IS, CURE = Story.variants


def test_without_settings_the_defaults_count() -> None:
    assert Story.settle(AS_IS, {}) == Settings()


def test_a_variant_replaces_defaults() -> None:
    assert Story.settle(CURE, {}) == Settings(announce=True, rest=1600)


@pytest.mark.parametrize(("named", "rest"), [([], 1600), (["as-is"], 1600), (["as-is", "cure"], 0.5)])
def test_a_variant_s_own_settings_stay_unless_the_user_names_it(named: list[str], rest: float) -> None:
    changes = Story.changes(CURE, {"rest": "0.5", "profile": "arista-eos"}, named)
    assert Story.settle(CURE, changes) == Settings(profile="arista-eos", announce=True, rest=rest)
    assert Story.changes(AS_IS, {"rest": "0.5"}, named) == {"rest": "0.5"}


def test_settling_one_variant_changes_no_other() -> None:
    Story.settle(CURE, {"rest": "7"})
    assert Story.settle(CURE, {}) == Settings(announce=True, rest=1600)


@pytest.mark.parametrize(
    ("text", "value"), [("true", True), ("false", False), ("1", True), ("no", False), ("on", True)]
)
def test_words_of_the_command_line_become_values(text: str, value: bool) -> None:
    assert Story.settle(CURE, {"announce": text}).model_dump()["announce"] is value


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"colour": "red"}, "there is no 'colour'"),
        ({"announce": "perhaps"}, "announce: Input should be a valid boolean"),
        ({"rest": "-1"}, "rest: Input should be greater than or equal to 0"),
        ({"limit": "1.5"}, "limit: Input should be a valid integer"),
        ({"limit": ""}, "limit: Input should be a valid integer"),
    ],
)
def test_what_does_not_fit_is_named_with_the_parameters_there_are(settings: dict[str, str], problem: str) -> None:
    with pytest.raises(InputError) as said:
        Story.settle(CURE, settings)
    assert said.value.message.startswith(f"parameters of variant cure: {problem}")
    assert said.value.hint == "Parameters: profile, announce, rest, limit."


def test_a_parameter_that_is_near_is_suggested() -> None:
    with pytest.raises(InputError, match="there is no 'profiles'") as said:
        Story.settle(AS_IS, {"profiles": "sonic"})
    assert said.value.hint == "Did you mean profile? Parameters: profile, announce, rest, limit."


def test_every_problem_is_named_at_once() -> None:
    with pytest.raises(InputError, match=r"announce: .*; there is no 'colour'"):
        Story.settle(AS_IS, {"colour": "red", "announce": "perhaps"})


def test_a_scenario_without_parameters_says_so() -> None:
    with pytest.raises(InputError) as said:
        Plain.settle(Plain.variants[0], {"rest": "1"})
    assert said.value.hint == "Parameters: none."


def test_parameters_do_not_change_during_a_story() -> None:
    settled = Story.settle(AS_IS, {})
    with pytest.raises(ValidationError, match="frozen"):
        settled.rest = 3.0  # type: ignore[attr-defined]


def described(scenario: type[Scenario]) -> ScenarioInfo:
    return loading.info(scenario, "story", {}, [], Path("scenario.py"))


def test_a_scenario_says_what_it_is() -> None:
    said = described(Story)
    assert (said["name"], said["title"], said["text"]) == ("story", "A story", "What happens.\n\nAnd why.")
    assert (said["tags"], said["limit_s"]) == (["arp"], 7 * 86400)
    own = {"announce": True, "rest": 1600.0}
    assert said["variants"][1] == {"name": "cure", "expected": "healthy", "text": "it works", "settings": own}
    properties = said["parameters"]["properties"]
    assert list(properties) == ["profile", "announce", "rest", "limit"]
    assert (properties["rest"]["default"], properties["rest"]["description"]) == (1.0, "seconds between the pods")


def test_a_variant_is_found_by_its_name() -> None:
    assert Story.variant("cure") is CURE


def test_attributes_of_a_class_win_over_the_docstring_s_first_line_and_the_brackets() -> None:
    """Scenarios that were written before these have a title and parameters as attributes."""
    former, said = described(Former), described(Story)
    assert former["tags"] == []
    assert {**former, "tags": said["tags"]} == said


def test_a_scenario_derived_from_another_has_its_parameters_and_a_title_of_its_own() -> None:
    assert Another.parameters is Settings
    assert Another.words() == ("Another story over two lines", "")
