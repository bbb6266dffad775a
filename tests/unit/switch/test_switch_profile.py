"""Profiles are data: complete, sourced, and wrong values are named."""

import pytest
import yaml

from testbed.errors import InputError
from testbed.switch import profile as module
from testbed.switch.profile import load_profiles, profile

NAMES = [
    "linux-default",
    "cisco-nxos",
    "cisco-ios",
    "arista-eos",
    "cumulus-3-4plus",
    "cumulus-3-0",
    "sonic",
    "sonic-mac-move-guard",
    "h3c-comware7",
    "huawei-ce",
    "huawei-ce-fixed-mac",
    "huawei-ce-fixed-all",
    "huawei-ce-send-ack",
    "msft-2016-tor",
    "msft-2016-tor-fixed",
    "nokia-sar",
    "ignore-garp-strict",
]


def test_the_profiles() -> None:
    assert list(load_profiles()) == NAMES


def test_every_value_of_the_file_has_a_source() -> None:
    data = yaml.safe_load(module._DATA.read_text())
    for name, given in data.items():
        for key in given.keys() - {"base", "about", "cited"}:
            assert getattr(profile(name), key) == given[key][0]
            assert profile(name).source[key] == given[key][1]


@pytest.mark.parametrize("name", NAMES)
def test_what_is_documented_has_its_document_and_nothing_else_has_one(name: str) -> None:
    found = profile(name)
    assert set(found.citations) == {value for value, source in found.source.items() if source == "D"}


def test_a_replaced_value_has_no_document() -> None:
    found = load_profiles()["sonic"].replace(arp_age=60)
    assert (found.source["arp_age"], found.citations.get("arp_age")) == ("U", None)
    assert found.citations["arp_ignore"]


def test_a_profile_starts_from_its_base() -> None:
    base, derived = profile("huawei-ce"), profile("huawei-ce-fixed-mac")

    assert derived.arp_age == base.arp_age
    assert derived.source["arp_age"] == "D"
    assert (base.on_mac_change, derived.on_mac_change) == ("update", "drop")


def test_unknown_profile_names_close_ones_and_all() -> None:
    with pytest.raises(InputError, match="there is no switch profile 'cisco_nxsos'") as error:
        profile("cisco_nxsos")

    assert error.value.hint.startswith("Did you mean cisco-nxos")
    assert "nokia-sar" in error.value.hint


def test_replace_takes_the_text_of_a_command_line() -> None:
    changed = profile("arista-eos").replace(arp_age="60", garp_new="true", arp_pps="10")

    assert (changed.arp_age, changed.garp_new, changed.arp_pps) == (60, True, 10)
    assert profile("arista-eos").arp_age == 14400


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"arp_agee": 1}, "no value 'arp_agee'"),
        ({"name": "x"}, "no value 'name'"),
        ({"arp_age": 0}, "arp_age: .*greater than 0"),
        ({"refresh_period": 1e-10}, "refresh_period: .*greater than or equal to 0.001"),  # no whole nanosecond
        ({"mac_move_check": 1e-10}, "mac_move_check: .*greater than or equal to 0.001"),
        ({"arp_age": "soon"}, "arp_age: .*valid number"),
        ({"arp_age": "inf"}, "arp_age: .*finite"),
        ({"on_mac_change": "shrug"}, "on_mac_change: .*'update', 'drop' or 'verify'"),
        ({"arp_age": 20}, r"refresh_before \(30 s\) must be less than arp_age \(20 s\)"),
    ],
)
def test_replace_names_what_is_wrong(values: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        profile("cisco-nxos").replace(**values)
