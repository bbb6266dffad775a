"""Probes between all pairs: what arrives, by which ports, and where the network has the rest last."""

import pytest

from testbed.errors import InputError
from testbed.faults import LinkDelay, LinkDown, LinkLoss, LinkMtu
from testbed.faults.fault import injected
from testbed.topology.fabrics import leaf_spine
from testbed.workload import Mesh, probe

FABRIC = leaf_spine(leaves=2, spines=2, hosts=3).topology()
OVERLAY = leaf_spine(leaves=2, spines=2, hosts=1, routing="evpn").topology()
DUAL = leaf_spine(leaves=2, spines=1, hosts=1, family="dual").topology()
HOSTS = ("host1", "host2", "host4", "host5")
LEAVES = {"host1": "leaf1", "host2": "leaf1", "host4": "leaf2", "host5": "leaf2"}


def probed(lab, *hosts: str, **options) -> Mesh:
    """Return the mesh of RDMA probes; the switches know all MACs before."""
    nics = [lab.host(host)["eth1"] for host in hosts or HOSTS]
    probe(nics, lab.nodes.values(), protocols=["rdma"])
    (mesh,) = probe(nics, lab.nodes.values(), protocols=["rdma"], **options)
    return mesh


def lossy(mesh: Mesh) -> set[tuple[str, str]]:
    return {(pair.source.node.name, pair.target.node.name) for pair in mesh.pairs.values() if pair.arrived < pair.sent}


@pytest.mark.topology(FABRIC)
def test_all_probes_arrive_by_both_spines(lab):
    mesh = probed(lab)

    assert lossy(mesh) == set()
    assert {pair.sent for pair in mesh.pairs.values()} == {8}
    for pair in mesh.pairs.values():
        near, far = LEAVES[pair.source.node.name], LEAVES[pair.target.node.name]
        for path in pair.paths:
            nodes = [port.partition(":")[0] for port in path]
            assert (nodes[0], nodes[-1]) == (pair.source.node.name, far)
            assert len(path) == (2 if near == far else 4)
    used = {port for pair in mesh.pairs.values() for path in pair.paths for port in path}
    assert {port for port in used if port.startswith("spine")} == {"spine1:e1", "spine1:e2", "spine2:e1", "spine2:e2"}
    assert mesh.slow_ports() == {}
    assert not mesh.unseen


@pytest.mark.topology(FABRIC)
def test_a_link_that_is_dead_in_one_direction_is_where_packets_are_lost(lab):
    uplink = next(end for end in lab.switch("leaf1").interfaces.values() if end.peer.node.name == "spine1")
    with injected(lab, LinkLoss(end=str(uplink), loss=50)):
        mesh = probed(lab, count=16)

    across = {(near, far) for near in ("host1", "host2") for far in ("host4", "host5")}
    assert lossy(mesh) <= across
    assert lossy(mesh)
    lost = {place.text: count for place, count in mesh.lost_at.items()}
    assert {*lost} <= {f"in leaf1, before {uplink} sends it", "in leaf1, which sends it by no port"}
    assert lost[f"in leaf1, before {uplink} sends it"] > 3
    assert {place.end for place in mesh.lost_at} <= {str(uplink), ""}


@pytest.mark.topology(FABRIC)
def test_a_port_that_keeps_packets_is_named_and_the_others_are_not(lab):
    downlink = next(end for end in lab.switch("spine2").interfaces.values() if end.peer.node.name == "leaf2")
    with injected(lab, LinkDelay(end=str(downlink), delay=0.003)):
        mesh = probed(lab)

    assert [*mesh.slow_ports()] == [str(downlink)]
    assert 2900 < mesh.slow_ports()[str(downlink)] < 3200
    for pair in mesh.pairs.values():
        by_it = [time for time in pair.times_ns if time > 2e6]
        assert len(by_it) == sum(count for path, count in pair.paths.items() if str(downlink) in path)


@pytest.mark.topology(FABRIC)
def test_a_small_mtu_stops_full_datagrams_only(lab):
    with injected(lab, LinkMtu(end="leaf1:e1", mtu=1000)):
        full, small = probed(lab), probed(lab, size=64)

    assert lossy(full) == {pair for other in HOSTS[1:] for pair in (("host1", other), (other, "host1"))}
    assert lossy(small) == set()
    assert {place.text.partition(",")[0] for place in full.lost_at} == {"in leaf1"}


@pytest.mark.topology(FABRIC)
def test_without_a_carrier_a_nic_cannot_send_and_its_leaf_floods_what_is_for_it(lab):
    probed(lab)
    with injected(lab, LinkDown(end="leaf2:e1")):
        nics = [lab.host(host)["eth1"] for host in HOSTS]
        rdma, tcp = probe(nics, lab.nodes.values())

    with_it = {pair for other in HOSTS if other != "host4" for pair in (("host4", other), (other, "host4"))}
    for mesh in rdma, tcp:
        failed = {(pair.source.node.name, pair.target.node.name) for pair in mesh.pairs.values() if pair.error}
        assert lossy(mesh) | failed == with_it
    assert {place.text for place in rdma.lost_at} == {
        "sent by several ports of leaf2",
        "received by host6:eth1, not by host4:eth1",  # from host5 there is only this port left
    }


@pytest.mark.topology(FABRIC)
def test_a_wrong_mac_leads_packets_to_another_host(lab):
    near, far, other = (lab.host(host)["eth1"] for host in ("host1", "host2", "host3"))
    probed(lab, "host1", "host2", "host3")
    near.set_neighbour(far.address().ip, other.mac)
    try:
        (mesh,) = probe([near, far], lab.nodes.values(), protocols=["rdma"])
    finally:
        near.node.kernel.delete_neighbour(near.index, far.address().ip)

    assert lossy(mesh) == {("host1", "host2")}
    assert [place.text for place in mesh.lost_at] == ["received by host3:eth1, not by host2:eth1"]


@pytest.mark.topology(FABRIC)
def test_hardware_nics_keep_the_mac_of_an_address_handle_for_the_ports_that_datagrams_have(lab):
    nic, other = (lab.host(host)["eth1"] for host in ("host1", "host2"))
    capture = nic.capture("udp dst port 4791")
    probe([nic, other], lab.nodes.values(), protocols=["rdma"], count=4)

    sent = {int.from_bytes(frame.data[34:36]) for frame in capture.roce(to=other.mac)}
    assert len(sent) == 4
    assert sent <= {pin.sport for pin in nic.nic.pins.values() if pin.remote_ip == other.address().ip}


@pytest.mark.topology(OVERLAY)
def test_probes_are_seen_in_tunnels(lab):
    mesh = probed(lab, "host1", "host2")

    assert lossy(mesh) == set()
    (there, back) = mesh.pairs.values()
    for pair in there, back:
        for path in pair.paths:
            nodes = [port.partition(":")[0] for port in path]
            assert nodes[2].startswith("spine")
            assert len(nodes) == 4


@pytest.mark.topology(DUAL)
def test_probes_over_ipv6(lab):
    mesh = probed(lab, "host1", "host2", family=6)

    assert lossy(mesh) == set()
    assert {len(path) for pair in mesh.pairs.values() for path in pair.paths} == {4}


@pytest.mark.topology(FABRIC)
def test_what_cannot_be_probed_is_refused(lab):
    nic, other = lab.host("host1")["eth1"], lab.host("host2")["eth1"]
    for nics, options, text in (
        ([nic], {}, "two NICs"),
        ([nic, other], {"size": 2000}, "do not fit"),
        ([nic, other], {"family": 6}, "no IPv6 address"),
    ):
        with pytest.raises(InputError, match=text):
            probe(nics, lab.nodes.values(), **options)
