"""Which queue pairs outlive a link of the bond below them. docs/cni-plugins.md has the table."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import IPv4Address
from typing import Any

import pytest
from networks import ippool, network

from testbed.workload import Attributes
from testbed.workload.verbs import Endpoint, connect_pair, connected, open_endpoint

pytestmark = pytest.mark.fresh

ACTIVE_BACKUP, BALANCE_XOR, LACP = 1, 2, 4
PATIENT = Attributes(timeout=14, retry_cnt=6)
"""Half a second: longer than the 0.1 s after which a bond with `miimon=100` knows that a link is down."""
LINKS = {"eth2": "e3", "eth3": "e4"}
"""Those of node1's bond in trunk.clab.yml, with the leaf's ports."""
WRITES, SIZE, PACKETS = 20, 4096, 4


def macvlan(master: str, *before: dict[str, Any]) -> dict[str, Any]:
    main = {"type": "macvlan", "master": master, "capabilities": {"mac": True}, "ipam": ippool(20)}
    return network(*before, main, {"type": "rxe"})


def on_a_bond(lab: Any, mode: int) -> Any:
    """A pod of node1 with macvlan on a bond of ifacer."""
    bond = {"name": "bond0", "mode": mode, "options": "miimon=100"}
    ifacer = {"type": "ifacer", "interfaces": list(LINKS), "bond": bond}
    return lab.pods.create(lab.host("node1"), "near", [macvlan("bond0", ifacer)])


def far_pod(lab: Any) -> Any:
    return lab.pods.create(lab.host("node2"), "far", [macvlan("eth1")])


def run(node: Any, *commands: str) -> None:
    for command in commands:
        node.run(*command.split())


def aggregate(leaf: Any, mode: int) -> None:
    """Make one logical port of the leaf's two, as a switch's port channel is."""
    run(leaf, f"ip link add po1 type bond mode {mode} miimon 100")
    for port in LINKS.values():
        run(leaf, f"ip link set {port} down nomaster", f"ip link set {port} master po1")
    run(leaf, "ip link set po1 up master br0", "bridge vlan add dev po1 vid 20 pvid untagged")


def used(node: Any, link: str) -> bool:
    """Whether a link's bond uses it; with LACP when both ends have agreed."""
    (found,) = json.loads(node.run("ip", "-j", "-d", "link", "show", link).stdout)
    slave = found["linkinfo"]["info_slave_data"]
    return (slave["state"], slave["mii_status"]) == ("ACTIVE", "UP")


def sent(node: Any) -> dict[str, int]:
    return {link: node[link].counters()["tx_packets"] for link in LINKS}


def sent_by_write(node: Any, near: Endpoint) -> dict[str, int]:
    """The packets that each link sends while `WRITES` of them, of which all arrive, are made."""
    before = sent(node)
    for _ in range(WRITES):
        assert near.write(SIZE, within=5).ok
    return {link: count - before[link] for link, count in sent(node).items()}


@pytest.mark.topology("trunk.clab.yml")
@pytest.mark.parametrize("mode", [BALANCE_XOR, LACP], ids=["balance-xor", "802.3ad"])
def test_queue_pairs_outlive_a_link_of_an_aggregation_without_a_retry(lab, mode):
    node, leaf = lab.host("node1"), lab.switch("leaf")
    aggregate(leaf, mode)
    pods = on_a_bond(lab, mode), far_pod(lab)
    ends = [*((node, link) for link in LINKS), *((leaf, port) for port in LINKS.values())]

    def wait_until_all_are_used() -> None:
        assert lab.scheduler.wait(lambda: all(used(*end) for end in ends), within=60)

    wait_until_all_are_used()
    with connected(*(pod["eth0"] for pod in pods), PATIENT) as (near, far):
        gone = max(sent_by_write(node, near).items(), key=lambda link: link[1])[0]
        (other,) = LINKS.keys() - {gone}

        bring_back = leaf[LINKS[gone]].hold_down()
        by_link = sent_by_write(node, near)
        assert (by_link[gone], by_link[other] >= WRITES * PACKETS) == (0, True)
        assert far.write(SIZE, within=5).ok
        bring_back()
        wait_until_all_are_used()
        sent_by_write(node, near)
        assert {pod["eth0"].rdma_counters()["completer_retry_err"] for pod in pods} == {0}


@pytest.mark.topology("trunk.clab.yml")
@pytest.mark.parametrize("later", [0, 0.5], ids=["before the failover", "after it"])
def test_the_failover_of_an_active_backup_bond_ends_queue_pairs_of_macvlan(lab, later):
    """Before it what is sent is dropped on the host; after it ib_core has made the GIDs anew."""
    near, far = on_a_bond(lab, ACTIVE_BACKUP)["eth0"], far_pod(lab)["eth0"]
    with connected(near, far, PATIENT) as (here, there):
        assert here.write(SIZE, within=5).ok
        lab.switch("leaf")["e3"].hold_down()
        lab.scheduler.sleep(later)
        assert here.write(SIZE, within=5).status == "WR_FLUSH_ERR"
        assert (here.state, there.state) == ("ERR", "RTS")

    lab.scheduler.sleep(0.5)
    with connected(near, far, PATIENT) as (here, _):
        assert here.write(SIZE, within=5).ok


def pod_with_lacp(lab: Any, name: str) -> Any:
    """A pod with LACP over a VF of each of node1's two links, as bond-cni makes it."""
    pod = lab.pods.create(lab.host("node1"), name, [macvlan(link) for link in LINKS])
    address = pod["eth0"].address()
    run(pod, f"ip link add bond0 type bond mode {LACP} miimon 100 lacp_rate fast")
    for link in "eth0", "net1":
        run(pod, f"ip addr flush dev {link}", f"ip link set {link} down", f"ip link set {link} master bond0")
    run(pod, "ip link set bond0 up", f"ip addr add {address} dev bond0")
    return pod


def echoes(pod: Any, to: str) -> int:
    return pod.run("ping", "-c", "10", "-i", "0.5", "-W", "1", to, check=False).stdout.count("bytes from")


@pytest.mark.topology("trunk.clab.yml")
def test_two_pods_with_lacp_over_vfs_of_the_same_ports_break_each_other(lab):
    """https://github.com/k8snetworkplumbingwg/bond-cni/issues/149: a port of the switch hears two partners."""
    leaf = lab.switch("leaf")
    aggregate(leaf, LACP)
    far = str(far_pod(lab)["eth0"].address().ip)

    def agreed() -> bool:
        return all(used(leaf, port) for port in LINKS.values())

    first = pod_with_lacp(lab, "first")
    assert lab.scheduler.wait(agreed, within=60)
    assert echoes(first, far) == 10
    second = pod_with_lacp(lab, "second")
    assert lab.scheduler.wait(lambda: not agreed(), within=60)
    lab.scheduler.sleep(10)
    assert echoes(first, far) + echoes(second, far) <= 2
    second.delete()
    assert lab.scheduler.wait(agreed, within=120)
    assert echoes(first, far) == 10


@contextmanager
def device_of_bond(node: Any, interface: str) -> Iterator[Endpoint]:
    """An endpoint of the node itself, on an active-backup bond of its links (bond0) or on a bridge above it (br0)."""
    run(node, f"ip link add bond0 type bond mode {ACTIVE_BACKUP} miimon 100")
    for link in LINKS:
        run(node, f"ip link set {link} down", f"ip link set {link} master bond0")
    run(node, "ip link add br0 type bridge", "ip link set bond0 up")
    if interface == "br0":
        run(node, "ip link set bond0 master br0", "ip link set br0 up")
    run(node, f"ip address add 10.0.20.77/24 dev {interface}", f"rdma link add roce0 type rxe netdev {interface}")
    ready = node.context.scheduler.ready
    with Endpoint("roce0", node.namespace, IPv4Address("10.0.20.77"), ready=ready) as endpoint:
        yield endpoint
    run(node, "rdma link delete roce0")


@pytest.mark.topology("leaves.clab.yml")
@pytest.mark.parametrize(
    ("interface", "statuses"), [("bond0", {"WR_FLUSH_ERR", "RETRY_EXC_ERR"}), ("br0", {"SUCCESS"})]
)
def test_queue_pairs_of_a_bridge_on_a_bond_outlive_a_dead_leaf(lab, interface, statuses):
    node, far = lab.host("node1"), far_pod(lab)["eth0"]
    with device_of_bond(node, interface) as here, open_endpoint(far) as there:
        connect_pair(here, there, PATIENT)
        assert here.write(SIZE, within=5).ok
        before = sent(node)
        for port in ("e1", "up"):
            lab.switch("leaf1")[port].hold_down()
        posted = [(end, end.post_write(SIZE)) for end in (here, there)]
        assert {end.wait(request, 5).status for end, request in posted} == statuses
        if interface == "br0":
            assert sent(node)["eth2"] == before["eth2"]
            assert sent(node)["eth3"] >= before["eth3"] + PACKETS
