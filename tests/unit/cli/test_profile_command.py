"""`testbed profile`: the profiles of switches, their values with units and sources."""

import json

import pytest

from testbed.cli.main import invoke
from testbed.switch.profile import load_profiles


def test_list_has_every_profile(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["profile", "list", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [entry["name"] for entry in found] == list(load_profiles())
    assert set(found[0]) == {"name", "about", "values"}


def test_describe_has_values_with_units_and_sources(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["profile", "describe", "sonic", "--json"]) == 0
    values = json.loads(capsys.readouterr().out)["values"]
    age = {key: values["arp_age"][key] for key in ("value", "unit", "source")}
    assert age == {"value": 1800, "unit": "s", "source": "D"}
    assert (values["arp_pps"]["unit"], values["arp_cap"]["unit"]) == ("packets/s", "entries")
    assert (values["mac_cap"]["value"], values["mac_cap"]["source"]) == (None, "")
    assert all(value["text"] for value in values.values())


def test_describe_is_for_people_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["profile", "describe", "sonic"]) == 0
    shown = capsys.readouterr().out
    assert "arp_age" in shown
    assert "1800 s" in shown
    assert "600 packets/s" in shown
    assert "documented by the vendor" in shown


def test_a_name_that_is_none_is_2_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["profile", "describe", "sonc"]) == 2
    assert "Did you mean sonic?" in capsys.readouterr().err
