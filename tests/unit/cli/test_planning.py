"""`--over`: values as users write them, and every combination of them."""

import pytest

from testbed.cli.sweep import planning
from testbed.errors import InputError
from testbed.protocol import ScenarioInfo

INFO: ScenarioInfo = {
    "name": "tiny",
    "title": "",
    "text": "",
    "tags": [],
    "variants": [],
    "compared": "bad",
    "limit_s": 1.0,
    "busy_limit_s": 1.0,
    "training": False,
    "notes": [],
    "packages": [],
    "images": [],
    "parameters": {
        "properties": {
            "profile": {"type": "string", "enum": ["sonic", "cisco-ios"]},
            "gate": {"type": "boolean"},
            "packets": {"type": "integer", "default": 4},
        }
    },
}


@pytest.mark.parametrize(
    ("option", "values"),
    [
        ("profile", ("profile", ["sonic", "cisco-ios"])),
        ("gate", ("gate", ["false", "true"])),
        ("packets=4, 9", ("packets", ["4", "9"])),
        ("profile=sonic", ("profile", ["sonic"])),
    ],
)
def test_values_are_those_named_or_all_that_there_are(option: str, values: tuple[str, list[str]]) -> None:
    assert planning.values_over(option, INFO) == values


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("packet=1", "there is no parameter 'packet'"),
        ("packets", "--over packets: name its values"),
        ("profile=", "--over profile: name its values"),
        ("profile= ,", "--over profile: name its values"),
        ("packets=1,2,1", "--over packets: 1 is given twice"),
    ],
)
def test_values_that_cannot_be_are_refused(option: str, message: str) -> None:
    with pytest.raises(InputError) as said:
        planning.values_over(option, INFO)
    assert message in said.value.message


def test_every_combination_is_one_and_without_parameters_there_is_one() -> None:
    found = planning.combinations(planning.axes_over(["profile=a,b", "packets=1,2"], INFO))
    assert [(one["profile"], one["packets"]) for one in found] == [("a", "1"), ("a", "2"), ("b", "1"), ("b", "2")]
    assert planning.combinations(planning.axes_over([], INFO)) == [{}]
