"""The kernel's spanning tree on bridges and switches, with its own timers."""

import json

import pytest

TRIANGLE = """
name: triangle
topology:
  nodes:
    s1: {kind: switch, stp: true, profile: sonic}
    s2: {kind: bridge, stp: true}
    s3: {kind: bridge, stp: true}
    h1: {kind: host}
    h3: {kind: host}
  links:
    - {endpoints: ["h1:eth1", "s1:h1"], ipv4: [10.0.0.1/24]}
    - {endpoints: ["h3:eth1", "s3:h3"], ipv4: [10.0.0.3/24]}
    - endpoints: ["s1:s2", "s2:s1"]
    - endpoints: ["s2:s3", "s3:s2"]
    - endpoints: ["s3:s1", "s1:s3"]
"""


def states(lab) -> dict[str, str]:
    found = {}
    for name in ("s1", "s2", "s3"):
        for link in json.loads(lab[name].use("bridge", "-json", "link", "show").stdout):
            found[f"{name}:{link['ifname']}"] = link["state"]
    del found["s1:dummy"]  # by which SONiC keeps its bridge up
    return found


@pytest.mark.topology(TRIANGLE)
@pytest.mark.fresh
def test_one_port_of_a_loop_is_blocked_and_takes_over_when_a_link_fails(lab, log):
    up = next(event for event in log.find("lab") if event["data"].get("up"))
    assert 30 < up["t"] / 1e9 < 35, "two forward delays of 15 s"
    before = states(lab)
    assert sorted(before.values()) == ["blocking"] + ["forwarding"] * 7
    h1 = lab["h1"]
    assert h1.ping("10.0.0.3", within=1)
    assert before["s1:s3"] == before["s3:s1"] == "forwarding", "the root's links forward"
    lab["s1"]["s3"].down()
    assert not h1.ping("10.0.0.3", within=1)
    assert lab.scheduler.wait(lambda: h1.ping("10.0.0.3", within=1), 60)
    assert "blocking" not in states(lab).values()
