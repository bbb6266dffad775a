"""The IPAM plugin `ippool`: one pool for the pods of all nodes, kept by the agents of the nodes."""

import contextlib
import json
import os
import signal
import sqlite3
import subprocess

import pytest
from networks import FLAT, ROUTED, bridge, failed, ipam, ippool, macvlan, network

from testbed import Lab, Topology
from testbed.cni.ipam.address_store import Store
from testbed.cni.runtime.plugin_call import CniError
from testbed.cni.runtime.pod_networks import PodNetworks
from testbed.errors import InputError
from testbed.lab.pods import Caller
from testbed.workload.verbs import connect_pair, open_endpoint

pytestmark = pytest.mark.fresh

HANGS = f"{failed()}it was still running after 2 s and has been killed (code 5)"


def address(pod):
    return str(pod["eth0"].address().ip)


def make(lab, name, addresses, node="node1"):
    return lab.pods.create(lab.host(node), name, [macvlan(addresses)])


def agent_log(lab, node="node1"):
    log = lab.directory / f"{node}-cni-agent.log"
    return log.read_text() if log.exists() else ""


@pytest.mark.topology(FLAT)
def test_pods_of_all_nodes_share_a_pool(lab):
    one, two = make(lab, "one", ippool(20)), make(lab, "two", ippool(20), "node2")
    assert (address(one), address(two)) == ("10.0.20.100", "10.0.20.101")
    with open_endpoint(one["eth0"]) as near, open_endpoint(two["eth0"]) as far:
        connect_pair(near, far)
        assert near.write(4096, within=5).ok
    one.check()
    with Store(lab.directory / "cluster/addresses.sqlite") as store:
        assert [(lease.holder.pod, lease.holder.node) for lease in store.leases()] == [
            ("one", "node1"),
            ("two", "node2"),
        ]
    one.delete(), two.delete()
    with Store(lab.directory / "cluster/addresses.sqlite") as store:
        assert store.leases() == []
        assert store.free("net20") == 10


@pytest.mark.topology(ROUTED)
def test_gateway_and_routes_come_from_the_pool(lab):
    addresses = ippool(10)
    addresses["pools"][0]["routes"] = [{"dst": "10.9.0.0/16", "gw": "10.0.10.7"}]
    pod = make(lab, "web", addresses)
    routes = {route["dst"]: route.get("gateway") for route in json.loads(pod.run("ip", "-j", "route").stdout)}
    assert (routes["default"], routes["10.9.0.0/16"]) == ("10.0.10.1", "10.0.10.7")
    assert pod.ping("10.0.20.2", within=1)


@pytest.mark.topology(ROUTED)
def test_both_families(lab):
    six = {"name": "six", "subnet": "fd00:10::/64", "ips": ["fd00:10::100-fd00:10::1ff"]}
    addresses = ippool(10)
    addresses["pools"].append(six)
    pod = make(lab, "web", addresses)
    assert {str(one.ip) for one in pod["eth0"].addresses.values()} == {"10.0.10.100", "fd00:10::100"}


@pytest.mark.topology(ROUTED)
def test_an_address_cools_down(lab):
    rules = {"policy": "cool-down", "coolDown": 1200}
    make(lab, "one", ippool(10, last=101, **rules)).delete()
    assert address(make(lab, "two", ippool(10, last=101, **rules))) == "10.0.10.101"
    with pytest.raises(CniError) as said:
        make(lab, "three", ippool(10, last=101, **rules))
    assert str(said.value) == f"{failed(who='pod three')}no address is free in net10; 1 cool down (code 11)"
    lab.scheduler.sleep(1200)
    assert address(make(lab, "three", ippool(10, last=101, **rules))) == "10.0.10.100"


@pytest.mark.topology(ROUTED)
def test_a_used_up_pool_is_said(lab):
    make(lab, "one", ippool(10, last=100))
    with pytest.raises(CniError) as said:
        make(lab, "two", ippool(10, last=100))
    assert str(said.value) == (
        'pod two: plugin type="macvlan" name="rdma" failed (add): no address is free in net10 (code 100)'
    )
    alone = {"cniVersion": "1.1.0", "name": "rdma", "plugins": [{"type": "ippool", "ipam": ippool(10, last=100)}]}
    with pytest.raises(CniError) as said:
        lab.pods.status(lab.host("node1"), [alone])
    assert str(said.value) == f"{failed('ippool', 'status', 'node node1')}no address is free in net10 (code 50)"


@pytest.mark.topology(ROUTED)
def test_gc_takes_back_what_no_pod_has(lab):
    """As the first plugin of a list of CNI 1.1, which gets the command itself."""
    alone = {"cniVersion": "1.1.0", "name": "rdma", "plugins": [{"type": "ippool", "ipam": ippool(10)}]}
    second = {**alone, "name": "second"}
    node = lab.host("node1")
    lost, stays = (lab.pods.create(node, name, [alone, second]) for name in ("lost", "stays"))
    elsewhere = lab.pods.create(lab.host("node2"), "elsewhere", [alone])
    lost.lose()
    for file in (lab.directory / "cni/node1/lib/results").iterdir():
        file.unlink()  # libcni has forgotten, too

    lab.pods.collect(node, [alone])

    def holders(network):
        with Store(lab.directory / "cluster/addresses.sqlite") as store:
            return [lease.holder.pod for lease in store.leases(network)]

    assert (holders("rdma"), holders("second")) == (["stays", "elsewhere"], ["lost", "stays"])
    lab.pods.collect(node, [second])
    assert holders("second") == ["stays"]
    stays.delete(), elsewhere.delete()


@pytest.mark.topology(ROUTED)
def test_check_finds_an_address_that_the_store_does_not_have(lab):
    pod = make(lab, "web", ippool(10))
    with Store(lab.directory / "cluster/addresses.sqlite") as store:
        (lease,) = store.leases()
        store.give_back(lease.holder)
    with pytest.raises(CniError) as said:
        pod.check()
    container = lease.holder.container
    assert str(said.value) == f"{failed(operation='check')}the store has no address for eth0 of {container} (code 100)"


def refused(lab, *networks):
    """The error of a pod, of which nothing is left."""
    before = lab.resources()
    with pytest.raises(CniError) as said:
        lab.pods.create(lab.host("node1"), "web", list(networks))
    assert "web" not in lab.nodes
    assert lab.resources() == before
    return said.value


def damage(file):
    file.write_bytes(b"no database" * 100)


@pytest.mark.topology(ROUTED)
def test_a_damaged_store_of_addresses_is_one_message_and_nothing_is_left(lab):
    lab.pods.create(lab.host("node1"), "first", [])
    addresses = lab.directory / "cluster/addresses.sqlite"
    damage(addresses)
    error = refused(lab, macvlan(ippool(10)))
    assert str(error) == (
        f'pod web: plugin type="macvlan" name="rdma" failed (add): {addresses}: '
        "the cluster's store cannot be used: file is not a database (code 5)"
    )
    assert error.code == 5


@pytest.mark.topology(ROUTED)
def test_a_damaged_store_of_objects_is_one_message_and_nothing_is_left(lab):
    """No plugin is called: the pod's object comes before them."""
    lab.pods.create(lab.host("node1"), "first", []).delete()
    objects = lab.directory / "cluster/objects.sqlite"
    damage(objects)
    wrong = "the cluster's store cannot be used: file is not a database (code 5)"
    error = refused(lab, macvlan(ippool(10)))
    assert str(error) == f'{objects}: pod web: network "rdma": {wrong}'
    assert error.code == 5
    error = refused(lab, macvlan(ippool(10)), bridge())
    assert str(error) == f'{objects}: pod web: networks "rdma", "metadata": {wrong}'


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"pools": []}, "nothing names a pool for it, and the cluster has no default pool"),
        ({"pools": [{"ips": ["10.0.10.7"]}]}, "ipam.pools[0].subnet is missing"),
        (
            {"policy": "lowest"},
            "ipam.policy must be 'lowest-free', 'round-robin', 'random' or 'cool-down', not the string 'lowest'; "
            "did you mean 'lowest-free'?",
        ),
        ({"colDown": 3}, "ipam.colDown is unknown"),
        (
            {"pools": [{"subnet": "10.0.10.0/24", "ips": ["10.0.11.7"]}]},
            "pool rdma: ips: 10.0.11.7 is not in 10.0.10.0/24",
        ),
    ],
)
@pytest.mark.topology(ROUTED)
def test_wrong_configuration_is_code_7_and_named(lab, keys, said):
    with pytest.raises(CniError) as error:
        make(lab, "web", {**ippool(10), **keys})
    assert str(error.value) == f"{failed()}{said} (code 7)"


@pytest.mark.topology(ROUTED)
def test_without_its_agent_a_node_takes_no_pod(lab):
    """The runtime's calls fail and say why; with the agent of another node all is well."""
    agent = lab.pods.networks.runtime(lab.host("node1")).agent
    agent.stop()
    with pytest.raises(CniError) as said:
        make(lab, "web", ippool(10))
    assert said.value.code == 11
    assert str(said.value) == f"{failed()}the agent of this node does not answer (code 11): Connection refused"
    assert address(make(lab, "other", ippool(20), "node2")) == "10.0.20.100"
    agent.start()
    assert address(make(lab, "web", ippool(10))) == "10.0.10.100"


@pytest.mark.topology(ROUTED)
def test_an_agent_that_does_not_answer_is_waited_for_so_long_and_then_does_nothing(lab):
    make(lab, "first", ippool(10)).delete()  # the agent has its name then
    agent = lab.pods.networks.runtime(lab.host("node1")).agent
    os.kill(agent.pid, signal.SIGSTOP)
    before = lab.resources()
    with pytest.raises(CniError) as said:
        lab.pods.create(lab.host("node1"), "web", [macvlan(ippool(10))], Caller(plugin_limit=2))
    assert str(said.value) == HANGS
    os.kill(agent.pid, signal.SIGCONT)
    assert lab.scheduler.wait(lambda: agent_log(lab).count("not done, its caller was killed") == 2, 5)
    assert [line.split()[:2] for line in agent_log(lab).splitlines()[-2:]] == [["ADD", "ippool"], ["DEL", "rxe"]]
    assert lab.resources() == before
    assert address(make(lab, "web", ippool(10))) == "10.0.10.100"


@pytest.mark.topology(ROUTED)
def test_what_is_done_for_a_caller_that_was_killed_meanwhile_is_undone(lab):
    """Without a DEL, which may be before the end of its ADD."""
    make(lab, "first", ippool(10)).delete()
    with contextlib.closing(sqlite3.connect(lab.directory / "cluster/addresses.sqlite")) as store:
        store.execute("BEGIN IMMEDIATE")
        lab.scheduler.after(4, store.rollback)
        caller = Caller(plugin_limit=2, deletes_failed=False)
        with pytest.raises(CniError) as said:
            lab.pods.create(lab.host("node1"), "web", [macvlan(ippool(10))], caller)
        assert str(said.value) == HANGS
        assert lab.scheduler.wait(lambda: "undone, its caller was killed" in agent_log(lab), 20)
    with Store(lab.directory / "cluster/addresses.sqlite") as addresses:
        assert addresses.leases() == []


@contextlib.contextmanager
def small_disk(directory):
    """A file system for a directory, which ends with the block; yields a function that fills it and returns another
    one, which makes room again."""
    directory.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=128k", "none", directory], check=True)
    filler = directory / "filler"

    def fill():
        with contextlib.suppress(OSError), filler.open("wb") as full:
            while True:
                full.write(bytes(4096))
                full.flush()
        return filler.unlink

    try:
        yield fill
    finally:
        subprocess.run(["umount", "-l", directory], check=True)


@pytest.mark.topology(ROUTED)
def test_a_full_store_of_objects_is_one_message_and_nothing_is_left(lab):
    with small_disk(lab.directory / "cluster") as fill:
        pod = make(lab, "holds", ippool(10))
        make_room = fill()
        error = refused(lab, macvlan(ippool(10)))
        assert str(error) == (
            f"{lab.directory}/cluster/objects.sqlite: "
            'pod web: network "rdma": the cluster\'s store cannot be used: database or disk is full (code 5)'
        )
        assert error.code == 5
        make_room()
        with Store(lab.directory / "cluster/addresses.sqlite") as store:
            assert [lease.holder.pod for lease in store.leases()] == ["holds"]
        pod.delete()


@pytest.mark.topology(ROUTED)
def test_a_full_store_of_addresses_is_one_message_and_what_was_made_is_undone(lab):
    """The addresses have a disk of their own, so the pod's object is there and its first network made."""
    with small_disk(lab.directory / "small") as fill:
        addresses = lab.directory / "cluster/addresses.sqlite"
        addresses.parent.mkdir()
        addresses.symlink_to(lab.directory / "small/addresses.sqlite")
        pod = make(lab, "holds", ippool(10))
        lab.pods.create(lab.host("node1"), "other", [bridge()]).delete()  # what the first pod of a bridge leaves
        make_room = fill()
        error = refused(lab, bridge(), macvlan(ippool(10)))
        assert str(error) == (
            f'pod web: plugin type="macvlan" name="rdma" failed (add): {addresses}: '
            "the cluster's store cannot be used: database or disk is full (code 5)"
        )
        assert error.code == 5
        assert [one["metadata"]["name"] for one in lab.objects.list("Pod")] == ["holds"]
        make_room()
        with Store(addresses) as store:
            assert [lease.holder.pod for lease in store.leases()] == ["holds"]
        make(lab, "web", ippool(10)).delete()
        pod.delete()


ENDED = f"{failed()}the agent of this node does not answer (code 11): it ended"


def leases(lab):
    with Store(lab.directory / "cluster/addresses.sqlite") as store:
        return store.leases()


def kill(lab):
    os.kill(lab.pods.networks.runtime(lab.host("node1")).agent.pid, signal.SIGKILL)


@pytest.mark.topology(ROUTED)
def test_an_agent_that_is_killed_before_the_commit_of_an_add_holds_no_address(lab):
    make(lab, "first", ippool(10)).delete()
    with contextlib.closing(sqlite3.connect(lab.directory / "cluster/addresses.sqlite")) as store:
        store.execute("BEGIN IMMEDIATE")  # the agent waits for its turn

        def kill_it():
            kill(lab)
            store.rollback()

        lab.scheduler.after(2, kill_it)
        assert str(refused(lab, macvlan(ippool(10)))) == ENDED
    assert leases(lab) == []
    assert address(make(lab, "web", ippool(10))) == "10.0.10.100"


@pytest.mark.topology(ROUTED)
def test_an_agent_that_is_killed_between_the_commit_of_an_add_and_its_answer_loses_no_address(lab):
    """The DEL that follows gives the address back: nobody waits for GC."""
    only = macvlan(ippool(10, last=100))
    lab.pods.create(lab.host("node1"), "first", [only]).delete()
    log = lab.directory / "node1-cni-agent.log"
    log.unlink()
    os.mkfifo(log)  # in which nobody reads: the agent waits here, behind the COMMIT
    held = []

    def kill_it():
        held.extend(leases(lab))
        kill(lab)
        log.unlink()

    lab.scheduler.after(2, kill_it)
    error = refused(lab, only)
    assert str(error) == ENDED
    assert not getattr(error, "__notes__", []), "DEL was carried out"
    assert [(lease.holder.pod, str(lease.address)) for lease in held] == [("web", "10.0.10.100")]
    assert leases(lab) == []
    pod = lab.pods.create(lab.host("node1"), "web", [only])
    assert address(pod) == "10.0.10.100"
    pod.check()


@pytest.mark.topology(ROUTED)
def test_a_del_whose_agent_is_killed_is_repeated_with_the_next_one(lab):
    pod = make(lab, "web", ippool(10))
    before = agent_log(lab)
    with contextlib.closing(sqlite3.connect(lab.directory / "cluster/addresses.sqlite")) as store:
        store.execute("BEGIN IMMEDIATE")

        def kill_it():
            kill(lab)
            store.rollback()

        lab.scheduler.after(2, kill_it)
        pod.delete()
    assert leases(lab) == []
    lines = [line.split()[:2] for line in agent_log(lab).removeprefix(before).splitlines()]
    assert lines == [["DEL", "rxe"], ["the", "agent"], ["DEL", "rxe"], ["DEL", "ippool"]]


@pytest.mark.topology(ROUTED)
def test_a_del_without_an_agent_waits_for_one(lab):
    pod = make(lab, "web", ippool(10))
    agent = lab.pods.networks.runtime(lab.host("node1")).agent
    agent.stop()
    lab.scheduler.after(10, agent.start)
    pod.delete()
    assert leases(lab) == []


@pytest.mark.topology(ROUTED)
def test_the_agent_logs_its_calls(lab):
    make(lab, "web", ippool(10)).delete()
    lines = [line.split()[:2] for line in agent_log(lab).splitlines()]
    assert lines == [["ADD", "ippool"], ["ADD", "rxe"], ["DEL", "rxe"], ["DEL", "ippool"]]


def test_many_at_once_get_an_address_each(tmp_path, log, request):
    """In exclusive mode: in shared mode the kernel shows each device to each namespace, which takes its time."""
    topology, networks = Topology.load(request.path.parent / ROUTED), PodNetworks(tmp_path)
    with Lab(topology, tmp_path, log.emit, rdma_mode="exclusive", networks=networks) as lab:
        wanted = [(lab.host(f"node{1 + n % 2}"), f"p{n}", [macvlan(ippool(10, last=149))]) for n in range(20)]
        pods = lab.pods.create_all(wanted)
        assert len({address(pod) for pod in pods}) == 20
        lab.pods.delete_all(pods)
        with Store(lab.directory / "cluster/addresses.sqlite") as store:
            assert store.leases() == []


@pytest.mark.topology(ROUTED)
def test_host_local_and_ippool_live_side_by_side(lab):
    chain = [
        network({"type": "macvlan", "master": "eth1", "ipam": ipam(10)}, name="one"),
        macvlan(ippool(10, 200, 209)),
    ]
    pod = lab.pods.create(lab.host("node1"), "web", chain)
    assert {str(end.address().ip) for end in pod.interfaces.values()} == {"10.0.10.100", "10.0.10.200"}


def of_cluster(**keys):
    """A network whose pools are objects."""
    return macvlan({"type": "ippool", **keys})


@pytest.mark.topology(ROUTED)
def test_pools_that_are_objects_go_by_node_and_reserved_addresses_are_not_given(lab):
    lab.objects.apply("pools.yaml")
    one, two = (
        lab.pods.create(lab.host(node), name, [of_cluster()]) for node, name in [("node1", "a"), ("node2", "b")]
    )
    assert (address(one), address(two)) == ("10.0.10.102", "10.0.20.100")
    assert one.ping(address(two), within=1), "the pool's gateway is the default route"
    lab.objects.apply({**lab.objects.get("Node", "node2"), "metadata": {"name": "node2"}})
    with pytest.raises(CniError) as said:
        lab.pods.create(lab.host("node2"), "c", [of_cluster()])
    wrong = "no IPv4 pool may be used: rack1 is not for node node2; rack2 is not for node node2"
    assert str(said.value) == f"{failed(who='pod c')}{wrong} (code 7)"
    named = {"ipam.spidernet.io/ippools": '[{"interface": "eth0", "ipv4": ["own"], "cleangateway": true}]'}
    own = lab.pods.create(lab.host("node2"), "d", [of_cluster()], annotations=named)
    assert (address(own), own.run("ip", "route", "show", "default").stdout) == ("10.0.10.50", "")


@pytest.mark.topology("rails.clab.yml")
def test_the_annotations_of_a_pod_with_two_interfaces(lab):
    """Pools in the order of the interfaces, no default route for the second one, and routes where their gateway is."""
    kind, rails = {"apiVersion": "spiderpool.spidernet.io/v2beta1", "kind": "SpiderIPPool"}, []
    for n in (1, 2):
        spec = {"subnet": f"10.0.{n}0.0/24", "ips": [f"10.0.{n}0.50-10.0.{n}0.59"], "gateway": f"10.0.{n}0.1"}
        lab.objects.apply({**kind, "metadata": {"name": f"rail{n}"}, "spec": spec})
        rails.append(network({"type": "macvlan", "master": f"eth{n}", "ipam": {"type": "ippool"}}, name=f"net{n}"))

    def create(name, entries, **more):
        notes = {"ipam.spidernet.io/ippools": json.dumps(entries), **more}
        return lab.pods.create(lab.host("node1"), name, rails, annotations=notes)

    routes = [{"dst": "10.7.0.0/16", "gw": "10.0.10.1"}, {"dst": "10.8.0.0/16", "gw": "10.0.20.1"}]
    ordered = [{"ipv4": ["rail1"]}, {"ipv4": ["rail2"], "cleangateway": True}]
    pod = create("web", ordered, **{"ipam.spidernet.io/routes": json.dumps(routes)})
    assert [str(end.address().ip) for end in pod.interfaces.values()] == ["10.0.10.50", "10.0.20.50"]
    found = {route["dst"]: route["dev"] for route in json.loads(pod.run("ip", "-j", "route").stdout)}
    assert (found["default"], found["10.7.0.0/16"], found["10.8.0.0/16"]) == ("eth0", "eth0", "net1")

    with pytest.raises(CniError, match="interface eth0 must be specified"):
        create("one", [{"interface": "net1", "ipv4": ["rail2"]}])
    with pytest.raises(InputError, match="duplicate interface eth0"):
        create("two", [{"interface": "eth0", "ipv4": ["rail1"]}, {"interface": "eth0", "ipv4": ["rail2"]}])
    with pytest.raises(InputError, match=r"ipam\.spidernet\.io/ippol: Unknown annotation: nothing reads it on a pod"):
        lab.pods.create(lab.host("node1"), "three", rails, annotations={"ipam.spidernet.io/ippol": "{}"})


@pytest.mark.topology(ROUTED)
def test_a_pod_of_a_stateful_set_has_the_same_address_again_until_it_is_wanted_no_more(lab):
    lab.objects.apply("pools.yaml")
    node = lab.host("node1")

    def web(number):
        return lab.pods.create(node, f"web-{number}", [of_cluster()], owner="StatefulSet/web")

    first, second = web(0), web(1)
    assert (address(first), address(second)) == ("10.0.10.50", "10.0.10.51")
    second.delete(), first.delete()
    second, lost = web(1), web(0)
    lost.lose()
    lab.pods.collect(node, [of_cluster()])
    other = lab.pods.create(node, "other", [of_cluster()])
    again = web(0)
    assert (address(second), address(again)) == ("10.0.10.51", "10.0.10.50")
    other.delete()
    stop = lab.pods.reclaim(grace=0, every=1)
    second.delete()
    lab.scheduler.sleep(2.5)
    assert address(web(1)) == "10.0.10.51"
    lab.pods.delete_all([again, lab["web-1"]])
    lab.objects.apply({**lab.objects.get("StatefulSet", "web"), "spec": {"replicas": 0}})
    lab.scheduler.sleep(2.5)
    stop()
    with Store(lab.directory / "cluster/addresses.sqlite") as store:
        assert store.leases() == []
    lab.pods.collect(node, [of_cluster()])


@pytest.mark.topology(ROUTED)
def test_what_a_lost_pod_had_is_given_back_after_the_grace(lab):
    pod = make(lab, "web", ippool(10, last=100))
    lab.pods.reclaim(grace=30, every=10)
    lab.scheduler.sleep(60)
    pod.lose()
    lab.scheduler.sleep(25)
    with pytest.raises(CniError) as said:
        make(lab, "early", ippool(10, last=100))
    assert str(said.value) == f"{failed(who='pod early')}no address is free in net10 (code 100)"
    lab.scheduler.sleep(20)
    assert address(make(lab, "late", ippool(10, last=100))) == "10.0.10.100"
    lab.pods.collect(lab.host("node1"), [macvlan(ippool(10, last=100))])
