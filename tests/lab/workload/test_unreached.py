"""A queue pair that cannot be connected says why: no route, or a next hop that does not answer."""

import pytest

from testbed.workload.queue_pair import ConnectError
from testbed.workload.verbs import Endpoint, open_endpoint

RAILS = """
name: rails
topology:
  nodes:
    leaf: {kind: switch, vlans: {10: [10.0.10.1/24, "2001:db8:10::1/64"], 20: [10.0.20.1/24, "2001:db8:20::1/64"],
      30: [10.0.30.1/24, "2001:db8:30::1/64"]}}
    a: {kind: host}
    b: {kind: host}
  links:
    - {endpoints: ["leaf:e1", "a:eth1"], vlan: 10}
    - {endpoints: ["leaf:e2", "a:eth2"], vlan: 20}
    - {endpoints: ["leaf:e3", "b:eth1"], vlan: 30}
"""
pytestmark = pytest.mark.topology(RAILS)


def refusal(lab, interface: str, family=4) -> str:
    near = open_endpoint(lab.host("a")[interface], family)
    far: Endpoint = open_endpoint(lab.host("b")["eth1"], family)
    with pytest.raises(ConnectError) as refused:
        near.connect(far.address)
    assert refused.value.error in ("ETIMEDOUT", "ENETUNREACH")
    return refused.value.message


def test_only_the_first_rail_has_a_default_route(lab):
    peer = lab.host("b")["eth1"].address().ip
    assert refusal(lab, "eth2").endswith(f": no route to {peer}")


@pytest.mark.fresh
def test_no_route_at_all_in_ipv6(lab):
    lab.host("a").run("ip", "-6", "route", "del", "default")
    assert refusal(lab, "eth1", 6).endswith(f": no route to {lab.host('b')['eth1'].address(6).ip}")


@pytest.mark.fresh
def test_a_gateway_that_does_not_answer_is_named(lab):
    lab.host("a").run("ip", "route", "add", "10.0.30.0/24", "via", "10.0.20.9")
    assert refusal(lab, "eth2").endswith(": no answer from 10.0.20.9 on eth2")


def test_a_switch_whose_cpu_is_out_is_named(lab):
    lab.switch("leaf").change_cpu(out=True)
    assert refusal(lab, "eth1").endswith(": no answer from 10.0.10.1 on eth1")
