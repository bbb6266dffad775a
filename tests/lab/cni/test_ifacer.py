"""The plugin `ifacer`: the interface of the node on which the next plugin makes those of pods."""

import json
from typing import Any

import pytest
from networks import ippool, network

from testbed.cni.runtime.plugin_call import CniError
from testbed.workload.verbs import connect_pair, open_endpoint

pytestmark = [pytest.mark.topology("trunk.clab.yml"), pytest.mark.fresh]
BOND = {"name": "bond0", "mode": 1, "options": "miimon=100;fail_over_mac=0"}


def chain(master: str, **keys: Any) -> dict[str, Any]:
    main = {"type": "macvlan", "master": master, "capabilities": {"mac": True}, "ipam": ippool(20)}
    return network({"type": "ifacer", **keys}, main, {"type": "rxe"})


def details(node: Any, interface: str) -> dict[str, Any]:
    (found,) = json.loads(node.run("ip", "-j", "-d", "link", "show", interface).stdout)
    return found


def interfaces(lab: Any) -> dict[str, bool]:
    """Those of the node, and whether they are up."""
    found = json.loads(lab.host("node1").run("ip", "-j", "link").stdout)
    return {entry["ifname"]: "UP" in entry["flags"] for entry in found}


def create(lab: Any, name: str, conflist: dict[str, Any]) -> Any:
    return lab.pods.create(lab.host("node1"), name, [conflist])


def test_pods_speak_rdma_on_a_vlan_of_the_node_which_stays(lab):
    node = lab.host("node1")
    pods = [create(lab, name, chain("eth1.20", interfaces=["eth1"], vlanID=20)) for name in ("one", "two")]
    far = lab.pods.create(lab.host("node2"), "far", [chain("eth1", interfaces=["eth1"])])
    assert details(node, "eth1.20")["linkinfo"]["info_data"]["id"] == 20
    for pod in pods:
        with open_endpoint(pod["eth0"]) as near, open_endpoint(far["eth0"]) as other:
            connect_pair(near, other)
            assert near.write(4096, within=5).ok
        pod.check()

    for pod in pods:
        pod.delete()
    assert "UP" in details(node, "eth1.20")["flags"]
    again = create(lab, "again", chain("eth1.20", interfaces=["eth1"], vlanID=20))
    node.run("ip", "link", "set", "eth1.20", "down")
    with pytest.raises(CniError, match=r"the node's interface eth1\.20 is down"):
        again.check()


def test_a_vlan_is_on_an_interface_once(lab):
    node = lab.host("node1")
    node.run(*["ip", "link", "add", "link", "eth1", "name", "storage", "type", "vlan", "id", "20"])
    with pytest.raises(CniError, match=r"VLAN 20 already has the interface storage, so eth1\.20 cannot be created"):
        create(lab, "web", chain("eth1.20", interfaces=["eth1"], vlanID=20))


@pytest.mark.slow
def test_the_bond_of_a_pod_moves_to_its_other_link(lab):
    node = lab.host("node1")
    pod = create(lab, "web", chain("bond0", interfaces=["eth2", "eth3"], bond=BOND))
    bond = details(node, "bond0")["linkinfo"]["info_data"]
    assert (bond["mode"], bond["miimon"], bond["active_slave"]) == ("active-backup", 100, "eth2")
    assert {details(node, name)["master"] for name in ("eth2", "eth3")} == {"bond0"}
    assert pod.ping("10.0.20.1", within=1)

    lab.switch("leaf")["e3"].hold_down()
    lab.scheduler.sleep(0.5)
    assert details(node, "bond0")["linkinfo"]["info_data"]["active_slave"] == "eth3"
    assert pod.ping("10.0.20.1", within=1)
    pod.delete()
    create(lab, "vlan", chain("bond0.7", interfaces=["eth2", "eth3"], bond=BOND, vlanID=7)).check()
    assert details(node, "bond0.7")["link"] == "bond0"


def test_what_cannot_be_made_leaves_nothing(lab):
    before, two = interfaces(lab), ["eth2", "eth3"]
    for keys, said in (
        ({"interfaces": ["eth9"], "vlanID": 20}, "the node has no interface eth9"),
        ({"interfaces": two, "bond": {"name": "eth1"}}, "an interface eth1, which is not a bond"),
        ({"interfaces": two, "bond": {"options": "min_links=1;primary_reselect=9"}}, "the kernel refuses"),
        ({"interfaces": ["eth2", "lo"], "bond": {}}, "the kernel refused"),
    ):
        with pytest.raises(CniError, match=said) as error:
            create(lab, "web", chain("sp_bond0", **keys))
        assert error.value.code == 100
        assert interfaces(lab) == before

    main = {"type": "macvlan", "master": "eth1", "ipam": ippool(20)}
    with pytest.raises(CniError, match="ifacer must be the first in its list"):
        create(lab, "web", network(main, {"type": "ifacer", "interfaces": ["eth1"]}))
