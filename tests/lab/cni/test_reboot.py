"""Nodes that reboot, with the pods on them."""

import json
import time

import pytest
from networks import FLAT, ROUTED, bridge, ipam, ippool, macvlan

from testbed.cni.ipam.address_store import Store
from testbed.errors import InputError
from testbed.workload import connected

pytestmark = pytest.mark.topology(FLAT)
MANIFEST = "workloads.yaml"


@pytest.fixture(autouse=True)
def emptied(lab):
    """A lab without workloads after each test: tests share it."""
    yield
    lab.pods.reconcile()
    for kind in ("Deployment", "StatefulSet", "DaemonSet", "Job", "Pod"):
        for one in lab.objects.list(kind):
            lab.pods.delete_object(kind, one["metadata"]["name"])


def leases(lab):
    with Store(lab.directory / "cluster/addresses.sqlite") as store:
        return store.leases()


def carries(interface):
    return interface.node.kernel.carry([interface.index])


def test_a_host_has_what_the_file_says_and_nothing_else(lab):
    host = lab.host("node1")
    address = host["eth1"].address()
    host.use("ip", "link", "add", "dummy7", "type", "dummy")
    host.use("ip", "address", "add", "10.9.9.9/24", "dev", "eth1")
    host.use("ip", "rule", "add", "from", "10.9.9.9", "table", "9")
    host["eth1"].set_neighbour("10.0.20.77", "02:00:00:00:00:77")
    program = host.spawn("sleep", "1000")
    switch = host["eth1"].peer
    seen = []
    lab.scheduler.after(5, lambda: seen.append(carries(switch)))
    began = time.monotonic()
    assert lab.reboot("node1", down=30).pods == []
    assert seen == [False]
    assert 30 <= time.monotonic() - began < 40
    assert carries(switch)
    assert not program.running
    assert host["eth1"].all_addresses == [address]
    assert list(host.interfaces) == ["eth1"]
    assert "dummy7" not in [link.name for link in host.now().links.values()]
    assert "10.9.9.9" not in host.use("ip", "rule").stdout
    assert host["eth1"].neighbour("10.0.20.77") is None
    assert host["eth1"].ping_gateway(within=2)


def test_pods_start_again_with_their_addresses_and_other_macs(lab):
    applied = lab.pods.apply(MANIFEST)
    before = {pod.name: pod for pod in applied.pods}
    had = {name: (str(pod["eth0"].address()), pod["eth0"].mac) for name, pod in before.items() if name != "agent"}
    assert lab.reboot("node1", "node2").waiting == {}
    after = {name: lab.nodes[name] for name in before}
    assert all(after[name] is not pod for name, pod in before.items())
    for name, (address, mac) in had.items():
        assert str(after[name]["eth0"].address()) == address
        assert after[name]["eth0"].mac != mac
        assert after[name].uid == before[name].uid
    assert len(lab.objects.held()["rail1"]) == 4
    web = [name for name in had if after[name].host.name == "node1"]
    others = [name for name in had if after[name].host.name == "node2"]
    with connected(after[web[0]]["eth0"], after[others[0]]["eth0"]) as (here, _):
        assert here.write(4096, within=2).ok


@pytest.mark.parametrize("late", [True, False])
def test_a_pod_of_the_reference_ipam_plugin_has_another_address(lab, late):
    """host-local keeps its addresses in /var/lib/cni, which stays: without DEL they are lost to it."""
    node = lab.host("node1")
    lab.pods.create(node, "a", [macvlan(ipam(20, last=101))])
    done = lab.reboot("node1", late_del=late)
    (pod,) = done.pods
    assert str(pod["eth0"].address().ip) == "10.0.20.101", "it goes on from the last one"
    again = lab.reboot("node1", late_del=late)
    assert bool(again.waiting) is not late
    if not late:
        assert "no IP addresses available" in again.waiting["a"]
        lab.pods.collect(node, [macvlan(ipam(20, last=101))])


def test_a_late_del_has_no_namespace(lab):
    node = lab.host("node1")
    lab.pods.create(node, "a", [bridge(), macvlan(ippool(20, 150, 159))])
    assert [lease.holder.container for lease in leases(lab)] != []
    (pod,) = lab.reboot("node1").pods
    assert list(pod.interfaces) == ["eth0", "net1"]
    (lease,) = leases(lab)
    assert lease.holder.uid == pod.uid
    pod.delete()
    assert leases(lab) == []


def test_what_is_deleted_while_its_node_is_down_does_not_come_back(lab):
    lab.pods.apply(MANIFEST)
    lab.scheduler.after(10, lambda: lab.pods.delete_object("Deployment", "web"))
    done = lab.reboot("node1", "node2")
    assert [pod.name for pod in done.pods] == ["agent"]
    assert lab.objects.held() == {}


def test_pods_of_a_node_that_is_down_for_long_are_replaced_elsewhere(lab):
    """340 s by default; of a StatefulSet none comes until the node says that the pod has ended."""
    lab.pods.apply(MANIFEST)
    web = lab.objects.get("Deployment", "web")
    sets = {**web, "kind": "StatefulSet", "metadata": {"name": "db"}, "spec": {**web["spec"], "replicas": 2}}
    before = {pod.name: pod.host.name for pod in lab.pods.apply(sets).pods}
    early, late = [], []
    lab.scheduler.after(330, lambda: early.extend(lab.nodes))
    lab.scheduler.after(360, lambda: late.extend(lab.nodes))
    done = lab.reboot("node1", down=400)
    mine = {name for name, host in before.items() if host == "node1"}
    assert not mine & {*early, *late}
    assert len([name for name in early if name.startswith("web-")]) == 2
    (new,) = {name for name in late if name.startswith("web-")} - {*before}
    assert new in lab.nodes, "it has the pool's fifth address: the pods that have not ended keep theirs"
    assert len([pod for pod in done.pods if pod.name.startswith("web-")]) == 4
    assert {pod.name for pod in done.pods} >= {"db-0", "db-1"}
    assert not {name for name in mine if name.startswith("web-")} & {pod.name for pod in done.pods}


def test_addresses_of_evicted_pods_are_free_after_a_while_though_no_del_comes(lab):
    """spiderpool-controller: of a pod that terminates on a silent node after its grace, of one that is gone later."""
    lab.pods.apply(MANIFEST)
    free = []
    lab.scheduler.after(360, lambda: free.append(len(lab.objects.held()["rail1"])))
    lab.scheduler.after(390, lambda: free.append(len(lab.objects.held()["rail1"])))
    lab.reboot("node1", down=400, late_del=False)
    assert free == [5, 3], "the pool's fifth address lets one of two start elsewhere; the next attempt comes later"
    assert lab.scheduler.wait(lambda: len(lab.objects.held()["rail1"]) == 4, within=1)
    assert lab.pods.reconcile().waiting == {}
    config = json.loads(lab.objects.get("NetworkAttachmentDefinition", "rail1", "kube-system")["spec"]["config"])
    lab.pods.collect(lab.host("node1"), [{**config, "name": "rail1"}])


def test_a_pod_that_is_never_restarted_has_failed_and_its_job_makes_another(lab):
    template = {"restartPolicy": "Never", "nodeName": "node1", "containers": [{"name": "main", "image": "none"}]}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "once"}}
    job["spec"] = {"template": {"spec": template}}
    (before,) = lab.pods.apply(job, [macvlan(ippool(20, 150, 159))]).pods
    lab.reboot("node1")
    assert lab.scheduler.wait(lambda: any(name.startswith("once-") for name in lab.nodes), within=60)
    (after,) = lab.pods.reconcile().pods
    assert after.name != before.name
    assert lab.objects.get("Pod", before.name)["status"]["phase"] == "Failed"
    assert lab.objects.get("Job", "once")["status"]["failed"] == 1
    (lease,) = leases(lab)
    assert lease.holder.pod == after.name, "the address of the other one is free"


def test_pods_of_a_daemon_set_stay_on_a_node_that_is_down(lab):
    lab.pods.apply(MANIFEST)
    web = lab.objects.get("Deployment", "web")
    spec = {key: value for key, value in web["spec"].items() if key != "replicas"}
    template = {**spec["template"], "spec": {**spec["template"]["spec"], "hostNetwork": True}}
    daemons = {**web, "kind": "DaemonSet", "metadata": {"name": "agents"}, "spec": {**spec, "template": template}}
    before = {pod.name: pod.uid for pod in lab.pods.apply(daemons).pods if pod.name.startswith("agents-")}
    assert len(before) == 2
    lab.scheduler.after(
        20, lambda: lab.pods.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}})
    )
    done = lab.reboot("node1", down=400)
    assert {pod.name: pod.uid for pod in done.pods if pod.name.startswith("agents-")} == before


def test_a_pod_in_the_network_of_its_node_changes_nothing_there(lab):
    """The node's view goes on after it, and programs of the node survive its end."""
    node = lab.host("node2")
    program = node.spawn("sleep", "1000")
    lab.pods.apply(MANIFEST)
    assert lab.nodes["agent"].run("true").returncode == 0
    lab.pods.delete_object("Pod", "agent")
    assert program.running
    node.use("ip", "link", "add", "dummy8", "type", "dummy")
    assert "dummy8" in [link.name for link in node.now().links.values()]
    node.use("ip", "link", "del", "dummy8")
    program.stop()


def test_a_pod_is_no_host(lab):
    lab.pods.create(lab.host("node1"), "a", [macvlan(ippool(20, 150, 159))])
    with pytest.raises(InputError, match="a is a pod"):
        lab.reboot("a")
    lab["a"].delete()


@pytest.mark.topology(ROUTED)
def test_vfs_and_rdma_devices_come_back(lab):
    policy = {
        "apiVersion": "sriovnetwork.openshift.io/v1",
        "kind": "SriovNetworkNodePolicy",
        "metadata": {"name": "p"},
        "spec": {"resourceName": "rail1", "numVfs": 2, "nicSelector": {"pfNames": ["eth1"]}, "isRdma": True},
    }
    lab.objects.apply(policy)
    config = {"cniVersion": "1.0.0", "plugins": [{"type": "host-device", "ipam": ipam(10)}]}
    definition = {
        "apiVersion": "k8s.cni.cncf.io/v1",
        "kind": "NetworkAttachmentDefinition",
        "metadata": {"name": "rail1", "annotations": {"k8s.v1.cni.cncf.io/resourceName": "spidernet.io/rail1"}},
        "spec": {"config": json.dumps(config)},
    }
    lab.objects.apply(definition)
    annotations = {"k8s.v1.cni.cncf.io/networks": "rail1"}
    resources = {"spidernet.io/rail1": 1}
    pod = lab.pods.create(lab.host("node1"), "v", [], annotations=annotations, resources=resources)
    had = pod["net1"].mac
    (again,) = lab.reboot("node1").pods
    assert again is not pod
    assert again["net1"].mac == had
    assert again["net1"].rdma
    again.delete()
