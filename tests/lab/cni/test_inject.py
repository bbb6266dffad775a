"""Networks and devices that are injected into pods, and what happens when a node has no more of them."""

import json
import time
from pathlib import Path

import pytest
from networks import bridge, ipam, network

from testbed.cni.runtime.plugin_call import CniError
from testbed.errors import InputError
from testbed.lab.pods import Caller, UnschedulableError
from testbed.workload import Traffic, connected

pytestmark = pytest.mark.topology("rails.clab.yml")
HCAS = Path(__file__).with_name("rails.clab.yml").read_text().replace("host: {rdma: false}", "host: {}")
"""The same nodes with an RDMA device on each NIC."""
INSUFFICIENT = "0/1 nodes are available: 1 Insufficient spidernet.io/"


@pytest.fixture
def make(lab):
    lab.objects.apply("inject.yaml")

    def create(name, node="node1", *networks, **keys):
        given = {"namespace": "ai", "owner": "Deployment/trainer", **keys}
        return lab.pods.create(lab.host(node), name, networks or [bridge()], **given)

    return create


def test_rdma_works_on_all_networks_that_were_injected(lab, make):
    one, two = make("one"), make("two", "node2")
    assert list(one.interfaces) == ["eth0", "net1", "net2"]
    known = lab.objects.get("Pod", "one", "ai")
    assert known["metadata"]["annotations"]["k8s.v1.cni.cncf.io/networks"] == (
        "spiderpool/gpu1-macvlan,spiderpool/gpu2-sriov"
    )
    limits = {"memory": "1Gi", "spidernet.io/gpu2sriov": 1, "spidernet.io/shared_cx5_gpu1": 1}
    assert known["spec"]["containers"] == [{"name": "trainer", "resources": {"limits": limits}}]
    for name, subnet in (("net1", "10.0.10"), ("net2", "10.0.20")):
        assert str(one[name].address().ip) == f"{subnet}.100"
        with connected(one[name], two[name]) as (here, _):
            assert here.write(4096, within=5).ok
    one.delete(), two.delete()


@pytest.mark.slow
def test_a_third_pod_of_a_node_is_refused_or_waits(lab, make):
    first, _ = make("first"), make("second")
    before = lab.resources()
    with pytest.raises(UnschedulableError) as said:
        make("third")
    assert said.value.message == f"pod third: {INSUFFICIENT}gpu2sriov, 1 Insufficient spidernet.io/shared_cx5_gpu1."
    assert "node1 has 2 of spidernet.io/gpu2sriov; holders: first 1, second 1." in said.value.hint
    assert "third" not in lab.nodes
    assert lab.resources() == before
    make("elsewhere", "node2")

    phases = []
    lab.scheduler.after(2, lambda: phases.append(lab.objects.get("Pod", "third", "ai")["status"]["phase"]))
    lab.scheduler.after(3, first.delete)
    third = make("third", caller=Caller(pending=10))
    assert phases == ["Pending"]
    assert lab.objects.get("Pod", "third", "ai")["status"]["phase"] == "Running"
    assert third["net2"].rdma


ISOLATED = """
apiVersion: spiderpool.spidernet.io/v2beta1
kind: SpiderMultusConfig
metadata: {name: isolated, namespace: ai}
spec:
  cniType: sriov
  sriov: {resourceName: spidernet.io/gpu2sriov, rdmaIsolation: true, ippools: {ipv4: [rail2]}}
"""


@pytest.mark.fresh
@pytest.mark.parametrize(
    "mode",
    [
        pytest.param(mode, marks=pytest.mark.topology("rails.clab.yml", rdma_mode=mode))
        for mode in ("shared", "exclusive")
    ],
)
def test_isolated_vfs_need_the_exclusive_mode_as_rdma_cni_has_it(lab, make, tmp_path, mode):
    (tmp_path / "isolated.yaml").write_text(ISOLATED)
    lab.objects.apply(str(tmp_path / "isolated.yaml"))
    annotations = {"k8s.v1.cni.cncf.io/networks": "isolated"}
    given = {"namespace": "ai", "annotations": annotations, "resources": {"spidernet.io/gpu2sriov": 1}}
    if mode == "exclusive":
        assert lab.pods.create(lab.host("node1"), "one", [bridge()], **given)["net1"].rdma
        return
    with pytest.raises(CniError, match="RDMA subsystem namespace awareness mode is set to shared"):
        lab.pods.create(lab.host("node1"), "one", [bridge()], **given)


@pytest.mark.topology(HCAS, rdma_mode="shared")
def test_a_pod_with_a_shared_device_and_no_network_on_it_sends_as_its_node(lab, make):
    """Upstream, no part of the kernel asks whether a process may use a GID: rdma_dev_access_netns allows every network
    namespace in shared mode, and the packets leave by the GID's interface."""
    node, far = lab.host("node1"), lab.host("node2")
    resources = {"spidernet.io/shared_cx5_gpu1": 1}
    other = network({"type": "macvlan", "master": "eth2", "ipam": ipam(20)})
    pod = lab.pods.create(node, "alone", [other], namespace="ai", resources=resources)
    assert pod.run("ibv_devices").stdout.split()[-2] == "node1-eth1"
    traffic = Traffic(node["eth1"])
    options = ("ibv_rc_pingpong", "-g", "1", "-n", "10", "-d")
    server = far.spawn(*options, "node2-eth1")
    lab.scheduler.sleep(0.5)
    pod.run(*options, "node1-eth1", str(far["eth2"].address().ip))
    assert server.wait(5) == 0
    assert traffic.bytes()["roce_out"] > 10 * 4096
    without = lab.pods.create(node, "without", [other], namespace="ai")
    assert "node1" not in without.run("ibv_devices").stdout


@pytest.mark.topology("rails.clab.yml", rdma_mode="exclusive")
def test_nothing_is_shared_in_exclusive_mode_and_the_refusal_says_why(lab, make):
    with pytest.raises(UnschedulableError) as said:
        make("first")
    assert said.value.message == f"pod first: {INSUFFICIENT}shared_cx5_gpu1."
    assert "does not start in RDMA's exclusive mode" in said.value.hint


def test_a_pod_that_has_waited_long_enough_is_refused_and_leaves_nothing(lab, make):
    make("first"), make("second")
    began = time.monotonic()
    with pytest.raises(UnschedulableError, match=INSUFFICIENT):
        make("third", caller=Caller(pending=5))
    assert 5 <= time.monotonic() - began < 6
    assert [one["metadata"]["name"] for one in lab.objects.list("Pod")] == ["first", "second"]


def test_a_lost_pod_gives_its_vf_back(lab):
    """On a network that the user defines: its plugin gets the VF that its resource stands for."""
    lab.objects.apply("inject.yaml")
    annotations = {"k8s.v1.cni.cncf.io/resourceName": "spidernet.io/gpu2sriov"}
    definition = {"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition"}
    config = json.dumps({"cniVersion": "1.0.0", "type": "host-device"})
    metadata = {"name": "vf", "annotations": annotations}
    lab.objects.apply({**definition, "metadata": metadata, "spec": {"config": config}})

    def make(name):
        given = {"annotations": {"k8s.v1.cni.cncf.io/networks": "vf"}, "resources": {"spidernet.io/gpu2sriov": 1}}
        return lab.pods.create(lab.host("node1"), name, **given)

    first = make("first")
    first.lose()
    second, third = make("second"), make("third")
    assert second["net1"].mac == first["net1"].mac != third["net1"].mac
    with pytest.raises(UnschedulableError):
        make("fourth")
    second.delete(), third.delete()
    for file in (lab.directory / "cni/node1/lib/results").iterdir():  # of the lost one
        file.unlink()


def test_devices_may_be_asked_for_by_hand(lab, make):
    """A VF's network without a VF is host-device's error; a macvlan child has RDMA if its master's device is shared."""
    lab.objects.apply(
        {
            "apiVersion": "spiderpool.spidernet.io/v2beta1",
            "kind": "SpiderMultusConfig",
            "metadata": {"name": "plain", "namespace": "ai"},
            "spec": {"cniType": "macvlan", "macvlan": {"master": ["eth1"], "ippools": {"ipv4": ["rail1"]}}},
        }
    )
    networks = {"k8s.v1.cni.cncf.io/networks": "plain"}
    without = make("without", owner="", annotations=networks)
    assert without["net1"].rdma is None
    shared = {"spidernet.io/shared_cx5_gpu1": 1}
    assert make("with", owner="", annotations=networks, resources=shared)["net1"].rdma
    with pytest.raises(UnschedulableError, match=f"{INSUFFICIENT}shared_cx5_gpu1"):
        make("greedy", owner="", resources={"spidernet.io/shared_cx5_gpu1": 2})
    with pytest.raises(UnschedulableError) as said:
        make("foreign", owner="", resources={"nvidia.com/gpu": 1})
    assert said.value.hint.startswith("Nothing offers nvidia.com/gpu:")


def test_an_annotation_that_no_config_has_is_refused_before_anything_is_made(lab, make):
    before = lab.resources()
    with pytest.raises(InputError, match="pod web: no SpiderMultusConfig has the annotation"):
        make("web", annotations={"cni.spidernet.io/rdma-resource-inject": "rail"})
    assert lab.resources() == before


def test_a_pool_follows_its_application(lab, make):
    """Of a SpiderSubnet; the deployment's pods have a network without pools of its own."""

    def deploy(replicas):
        annotations = {
            "k8s.v1.cni.cncf.io/networks": "rail",
            "ipam.spidernet.io/subnet": '{"interface": "net1", "ipv4": ["own"]}',
            "ipam.spidernet.io/ippool-ip-number": "+0",
        }
        spec = {"replicas": replicas, "template": {"metadata": {"annotations": annotations}}}
        metadata = {"name": "web", "namespace": "ai"}
        lab.objects.apply({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec})

    lab.objects.apply("subnet.yaml")
    deploy(1)
    one = make("one", owner="Deployment/web")
    with pytest.raises(CniError, match="no address is free in auto4-web-net1-"):
        make("two", owner="Deployment/web")
    deploy(2)
    two = make("two", "node2", owner="Deployment/web")
    assert [str(pod["net1"].address().ip) for pod in (one, two)] == ["10.0.10.200", "10.0.10.201"]
    one.delete()
    deploy(1)
    assert next(pool["spec"]["ips"] for pool in lab.objects.list("SpiderIPPool")) == ["10.0.10.201"]
    two.delete()
    lab.objects.delete("Deployment", "web", "ai")
    assert [pool["metadata"]["name"] for pool in lab.objects.list("SpiderIPPool")] == ["rail1", "rail2"]
