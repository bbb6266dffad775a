"""Queue pairs report the states that they take, interfaces the addresses that they gain and lose."""

import pytest

from testbed.workload.attributes import Attributes
from testbed.workload.verbs import connected

PAIR = """
name: pair
topology:
  nodes:
    leaf: {kind: switch, vlans: {10: 10.0.10.1/24}}
    a: {kind: host}
    b: {kind: host}
  links:
    - {endpoints: ["leaf:e1", "a:eth1"], vlan: 10}
    - {endpoints: ["leaf:e2", "b:eth1"], vlan: 10}
"""
pytestmark = pytest.mark.topology(PAIR)
QUICK = Attributes(timeout=8, retry_cnt=1)


def states(log, node: str) -> list[str]:
    return [event["data"]["state"] for event in log.find("qp") if event["node"] == node]


def test_a_queue_pair_reports_its_states_up_to_its_error_and_its_end(lab, log):
    a, b = (lab.host(name)["eth1"] for name in "ab")
    with connected(a, b, QUICK) as (near, far):
        assert near.write(64, within=5).ok
        lab.switch("leaf")["e2"].down()
        assert near.write(64, within=5).status == "RETRY_EXC_ERR"
        assert near.state == states(log, "a")[-1] == "ERR"
        qpn, peer = near.address.qpn, f"{b.address().ip} QP {far.address.qpn}"
        lab.switch("leaf")["e2"].up()
    assert states(log, "a") == ["INIT", "RTR", "RTS", "ERR", "closed"]
    assert states(log, "b") == ["INIT", "RTR", "RTS", "closed"]
    last = [event for event in log.find("qp") if event["node"] == "a"][-1]["data"]
    assert (last["interface"], last["device"], last["qpn"], last["peer"]) == ("eth1", a.rdma, qpn, peer)


@pytest.mark.fresh
def test_an_interface_reports_addresses_that_the_plan_does_not_give_it(lab, log):
    a, b = (lab.host(name)["eth1"] for name in "ab")
    assert log.find("address") == []
    address = a.remove_address()
    b.add_address(address)
    found = [(event["node"], event["data"]["ip"], event["data"]["has"]) for event in log.find("address")]
    assert found == [("a", str(address.ip), False), ("b", str(address.ip), True)]
