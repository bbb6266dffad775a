"""A lab comes up as planned, carries packets, and leaves nothing."""

from ipaddress import IPv4Interface
from pathlib import Path

import pytest

from testbed.lab import netns, rdma

ROUTED = """
name: routed
topology:
  nodes:
    leaf: {kind: switch, profile: cisco-nxos, vlans: {10: 10.0.10.1/24, 20: 10.0.20.1/24}}
    a: {kind: host}
    b: {kind: host}
    c: {kind: host}
  links:
    - {endpoints: ["leaf:e1", "a:eth1"], vlan: 10}
    - {endpoints: ["leaf:e2", "b:eth1"], vlan: 20}
    - {endpoints: ["leaf:e3", "c:eth1"], vlan: 20}
"""


@pytest.mark.topology(ROUTED)
def test_hosts_reach_each_other_within_a_vlan_and_through_the_svi(lab):
    lab["b"].run("ping", "-c1", "-W1", str(lab.host("c").addresses["eth1"].ip))
    lab["a"].run("ping", "-c1", "-W1", str(lab.host("c").addresses["eth1"].ip))
    assert lab.switch("leaf").arp_table() == {
        str(lab.host(name).addresses["eth1"].ip): lab.host(name).macs["eth1"] for name in ("a", "c")
    }


@pytest.mark.topology(ROUTED)
def test_a_pod_has_its_own_address_and_device(lab):
    pod = lab.pod(
        "pod", on="b", address=IPv4Interface("10.0.20.100/24"), gateway=lab.plan.nodes["b"].interfaces[0].gateway
    )
    pod.run("ping", "-c1", "-W1", "10.0.10.1")
    with rdma.Rdma() as system:
        assert "pod-eth0" in system.devices()
    pod.delete()
    with rdma.Rdma() as system:
        assert "pod-eth0" not in system.devices()


@pytest.mark.parametrize("mode", ["shared", "exclusive"])
def test_a_lab_leaves_nothing(mode, tmp_path, log):
    from testbed import Lab, Topology

    with Lab(Topology.parse(ROUTED), tmp_path, log.emit, rdma_mode=mode):
        assert netns.exists("routed-leaf")
    assert not list(Path("/run/netns").iterdir())
    with rdma.Rdma() as system:
        assert not system.devices()
