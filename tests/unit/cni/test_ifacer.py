"""What of the plugin `ifacer` needs no kernel: its configuration, and the names of what it makes."""

from typing import Any

import pytest

from testbed.cni.plugins.contract import Call, Refusal
from testbed.cni.plugins.ifacer import call, configuration
from testbed.cni.spec import CONFIG

TWO = ["eth1", "eth2"]


@pytest.mark.parametrize(
    ("keys", "names"),
    [
        ({"interfaces": ["eth1"]}, []),
        ({"interfaces": ["eth1"], "vlanID": 20}, ["eth1.20"]),
        ({"interfaces": TWO, "bond": {}}, ["sp_bond0"]),
        ({"interfaces": TWO, "bond": {"name": "bond0"}, "vlanID": 20}, ["bond0", "bond0.20"]),
    ],
)
def test_names(keys: dict[str, Any], names: list[str]) -> None:
    assert configuration(keys).names() == names


def test_options_of_a_bond() -> None:
    settings = configuration({"interfaces": TWO, "bond": {"mode": 4, "options": "miimon=100;lacp_rate=1"}})
    assert settings.bond
    assert settings.bond.options == {"miimon": 100, "lacp_rate": 1}


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({}, "interfaces is missing"),
        ({"interfaces": [], "vlanID": 4095}, r"too few entries in interfaces: 0, at least 1; vlanID: .* 4094"),
        ({"interfaces": TWO, "bond": {"options": "mimon=1"}}, r"bond\.options: unknown option 'mimon'.*miimon"),
        ({"interfaces": TWO, "bond": {"options": "miimon=fast"}}, r"bond\.options: miimon must be a number"),
        ({"interfaces": TWO, "bond": {"options": 5}}, r"bond\.options: the number 5 is not a text such as"),
        ({"interfaces": TWO}, "interfaces: more than one need bond"),
        ({"interfaces": ["eth1"], "bond": {}}, "bond: interfaces must name more than one"),
    ],
)
def test_wrong_configurations(keys: dict[str, Any], said: str) -> None:
    with pytest.raises(Refusal, match=said) as error:
        configuration(keys)
    assert error.value.code == CONFIG


def test_del_asks_for_nothing() -> None:
    """What ADD refused is deleted, too."""
    assert call(Call("DEL", "c0ffee", "", "eth0", {}, {"cniVersion": "1.0.0", "name": "n"})) is None
