"""What is recorded of a lab has the profiles that its switches start with, and where each value is from."""

import pytest

from testbed.executor.topologies import plan_of
from testbed.report.contents import switches
from testbed.scenario.rows import plan_rows
from testbed.switch.profile import profile
from testbed.topology import Topology
from testbed.topology.graph import STYLES

TEXT = """
name: recorded
topology:
  nodes:
    leaf1: {kind: switch, profile: cisco-nxos, profile_values: {mac_age: 60}, vlans: {10: 10.0.10.1/24}}
    leaf2: {kind: switch, vlans: {20: 10.0.20.1/24}}
    leaf3: {kind: switch, vlans: {30: 10.0.30.1/24}}
    host: {kind: host}
    store: {kind: host}
    third: {kind: host}
  links:
    - {endpoints: ["leaf1:e1", "host:eth1"], vlan: 10}
    - {endpoints: ["leaf2:e1", "store:eth1"], vlan: 20}
    - {endpoints: ["leaf3:e1", "third:eth1"], vlan: 30}
"""
LOSSLESS = TEXT.replace("  nodes:", "  lossless: {dscp: 26, priority: 3}\n  nodes:", 1)


def rows(text=TEXT, **profiles):
    return plan_rows(Topology.parse(text, source="t.yml").plan(), profiles)


def test_they_are_those_of_the_file_and_a_value_of_the_file_is_set_here() -> None:
    found = rows()["switches"]
    assert {name: row["profile"] for name, row in found.items()} == {
        "leaf1": "cisco-nxos",
        "leaf2": "linux-default",
        "leaf3": "linux-default",
    }
    values = found["leaf1"]["values"]
    assert values["mac_age"] == {"value": 60, "unit": "s", "quality": "set here"}
    assert values["arp_age"] == {"value": 1500, "unit": "s", "quality": "documented"}
    assert values["refresh_before"] == {"value": 30, "unit": "s", "quality": "from memory"}
    assert found["leaf2"]["values"]["arp_age"]["quality"] == "chosen"


def test_a_profile_that_the_scenario_sets_is_in_the_rows_and_in_the_picture() -> None:
    found = rows(leaf1=profile("arista-eos").replace(arp_age=60))
    assert found["switches"]["leaf1"]["profile"] == "arista-eos"
    assert {row["profile"] for row in found["interfaces"] if row["node"] == "leaf1"} == {"arista-eos"}
    assert found["switches"]["leaf1"]["values"]["arp_age"] == {"value": 60, "unit": "s", "quality": "set here"}
    drawn = STYLES["svg"](plan_of(found))
    assert "arista-eos" in drawn
    assert "arp_age 60" in drawn
    assert "cisco-nxos" not in drawn
    assert "mac_age" not in drawn


def test_a_value_that_is_set_to_what_it_was_keeps_its_source() -> None:
    same = profile("arista-eos").replace(arp_age=14400)
    assert same == profile("arista-eos")


@pytest.mark.parametrize("text", [TEXT, LOSSLESS], ids=["lossy", "lossless"])
def test_sizes_of_queues_are_shown_where_there_are_lossless_classes(text: str) -> None:
    tuned = profile("sonic").replace(pfc_headroom=20_000, lossless_unknown_unicast="drop")
    values = rows(text, leaf1=tuned)["switches"]["leaf1"]["values"]
    assert ("pfc_headroom" in values) == (text is LOSSLESS)
    assert values["lossless_unknown_unicast"]["value"] == "drop"


def test_the_page_names_switches_that_are_alike_once() -> None:
    one, other = switches(rows(), [])
    assert (one["names"], one["profile"]) == (["leaf1"], "cisco-nxos")
    assert (other["names"], other["profile"]) == (["leaf2", "leaf3"], "linux-default")
    assert ("mac_age", "60 s", "set here") in one["values"]


def test_values_that_were_set_later_are_on_the_page_with_their_time() -> None:
    event = {"t": 5, "kind": "profile", "node": "leaf2", "text": "", "data": {"arp_age": 60, "arp_aging": "timer"}}
    found = {tuple(one["names"]): one["set"] for one in switches(rows(), [event])}
    assert found == {("leaf1",): [], ("leaf2",): [(5, "arp_age", "60"), (5, "arp_aging", "timer")], ("leaf3",): []}
