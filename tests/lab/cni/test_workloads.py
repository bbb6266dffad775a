"""Pods that Deployments, StatefulSets and the other kinds of manifests make."""

import contextlib
import copy
import json
import os
import signal
import time

import pytest
import yaml
from networks import FLAT

from testbed.errors import InputError

pytestmark = pytest.mark.topology(FLAT)
MANIFEST = "workloads.yaml"


@pytest.fixture
def objects(request):
    text = (request.path.parent / MANIFEST).read_text()
    return {one["metadata"]["name"]: one for one in yaml.safe_load_all(text) if one["kind"] in ("Deployment", "Pod")}


@pytest.fixture(autouse=True)
def emptied(lab):
    """A lab without workloads after each test: tests share it."""
    yield
    lab.pods.reconcile()
    for kind in ("Deployment", "StatefulSet", "Pod", "Node"):
        for one in lab.objects.list(kind):
            lab.pods.delete_object(kind, one["metadata"]["name"], one["metadata"].get("namespace", "default"))


def addresses(pods):
    return sorted(str(pod["eth0"].address().ip) for pod in pods if pod["eth0"].address())


def test_a_deployment_s_pods_have_names_nodes_owners_and_addresses(lab):
    applied = lab.pods.apply(MANIFEST)
    assert applied.objects[-2:] == ["Deployment/default/web", "Pod/default/agent"]
    assert applied.waiting == {}
    agent, *web = applied.pods
    assert [pod.host.name for pod in web] == ["node1", "node2", "node1", "node2"]
    assert addresses(web) == [f"10.0.20.{number}" for number in range(100, 104)]
    assert web[0].run("printenv", "WORLD_SIZE").stdout == "4\n"
    (replicas,) = lab.objects.list("ReplicaSet")
    assert replicas["metadata"]["ownerReferences"][0]["name"] == "web"
    there = lab.objects.get("Pod", web[0].name)
    assert there["metadata"]["ownerReferences"][0]["name"] == replicas["metadata"]["name"]
    assert there["spec"]["nodeName"] == "node1"
    assert agent["eth1"].address() == lab.host("node2")["eth1"].address()
    assert agent.run("ip", "-br", "link").stdout == lab.host("node2").run("ip", "-br", "link").stdout
    assert web[0].ping(agent["eth1"].address().ip, within=2)
    assert lab.pods.apply(MANIFEST).pods == applied.pods
    lab.pods.delete_object("Pod", "agent")
    assert lab.host("node2")["eth1"].address(), "its namespace is the node's"
    assert lab.pods.delete_object("Deployment", "web").pods == []
    assert lab.objects.list("Pod") == lab.objects.list("ReplicaSet") == []
    assert lab.objects.held() == {}


def test_a_rolling_update_needs_an_address_more_than_pods(lab, objects):
    """The pool has five. With one pod more than wanted an update ends; with none more there is no room for two."""
    before = lab.pods.apply(MANIFEST).pods
    web = objects["web"]
    web["spec"]["template"]["spec"]["containers"][0]["image"] = "registry.example/web:2"
    after = lab.pods.apply(web)
    assert after.waiting == {}
    assert not {pod.name for pod in before[1:]} & {pod.name for pod in after.pods}
    web["spec"]["replicas"] = 6
    grown = lab.pods.apply(web)
    assert len(addresses(pod for pod in grown.pods if pod.name != "agent")) == 5
    ((name, reason),) = grown.waiting.items()
    assert "no address is free in rail1" in reason
    assert name in [one["metadata"]["name"] for one in lab.objects.list("Pod")]
    web["spec"]["replicas"] = 5
    assert lab.pods.apply(web).waiting == {}


def test_a_pod_that_waits_is_tried_again_when_time_passes(lab, objects):
    lab.pods.apply(MANIFEST)
    web = objects["web"]
    web["spec"]["replicas"] = 6
    ((name, _),) = lab.pods.apply(web).waiting.items()
    pool = lab.objects.get("SpiderIPPool", "rail1")
    lab.objects.apply({**pool, "spec": {**pool["spec"], "ips": ["10.0.20.100-10.0.20.105"]}})
    assert lab.scheduler.wait(lambda: name in lab.nodes, within=15)
    assert lab.pods.reconcile().waiting == {}


def test_a_deleted_pod_is_replaced_and_a_stateful_one_keeps_its_address(lab, objects):
    lab.pods.apply(MANIFEST)
    sets = copy.deepcopy(objects["web"])
    sets["kind"], sets["metadata"]["name"] = "StatefulSet", "db"
    there = {pod.name: pod for pod in lab.pods.apply(sets).pods}
    had = there["db-1"]["eth0"].address()
    again = {pod.name: pod for pod in lab.pods.delete_object("Pod", "db-1").pods}
    assert again["db-1"] is not there["db-1"]
    assert again["db-1"]["eth0"].address() == had
    web = next(name for name in there if name.startswith("web-"))
    assert web not in {pod.name for pod in lab.pods.delete_object("Pod", web).pods}
    there["db-0"].lose()
    assert {pod.name for pod in lab.pods.reconcile().pods if pod not in there.values()} >= {"db-0", "db-1"}
    config = json.loads(lab.objects.get("NetworkAttachmentDefinition", "rail1", "kube-system")["spec"]["config"])
    lab.pods.collect(there["db-0"].host, [{**config, "name": "rail1"}])
    lab.pods.delete_object("StatefulSet", "db")
    assert lab.objects.list("ControllerRevision") == []


def test_devices_and_selectors_choose_the_node(lab, objects):
    lab.objects.apply(
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": "node2"},
            "status": {"allocatable": {"nvidia.com/gpu": 2}},
        }
    )
    lab.pods.apply(MANIFEST)
    web = objects["web"]
    web["metadata"]["name"] = "gpu"
    web["spec"]["template"]["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": 1}}
    web["spec"]["replicas"] = 3
    applied = lab.pods.apply(web)
    no_address, no_gpu = applied.waiting.values()
    assert "no address is free in rail1" in no_address, "the pool had one left"
    assert no_gpu == "0/2 nodes are available: 2 Insufficient nvidia.com/gpu."
    assert [pod.host.name for pod in applied.pods if pod.name.startswith("gpu-")] == ["node2"]


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        (lambda spec: spec.update(selector={"matchLabels": {"app": "other"}}), "`selector` does not match"),
        (lambda spec: spec.pop("selector"), "spec.selector is missing"),
        (lambda spec: spec["template"]["spec"].update(containers=[]), "spec.template.spec.containers"),
        (lambda spec: spec.update(strategy={"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 0}}), "may not be 0"),
    ],
)
def test_a_wrong_workload_changes_nothing(lab, objects, change, wrong):
    change(objects["web"]["spec"])
    with pytest.raises(InputError, match=wrong):
        lab.pods.apply(objects["web"])
    assert lab.objects.list("Deployment") == []


def test_a_killed_agent_loses_no_address_and_gives_none_twice(lab):
    """Each kill ends the ADDs that are under way on the node; the pods are tried again."""
    node = lab.host("node1")
    agent = lab.pods.networks.runtime(node).agent
    killed = []

    def kill():
        with contextlib.suppress(ProcessLookupError):
            os.kill(agent.pid, signal.SIGKILL)
            killed.append(agent.pid)

    cancel = lab.scheduler.every(0.25, kill)
    applied = lab.pods.apply(MANIFEST)
    cancel()
    assert killed
    while applied.waiting:
        lab.scheduler.sleep(10)
        applied = lab.pods.reconcile()
    given = addresses(pod for pod in applied.pods if pod.name != "agent")
    assert len(set(given)) == 4
    assert {str(address) for address in lab.objects.held()["rail1"]} == set(given)


def test_a_pod_whose_name_is_taken_waits_and_leaves_the_other_alone(lab, objects):
    lab.pods.apply(MANIFEST)
    agent = {**objects["agent"], "metadata": {"name": "db-0"}}
    (mine,) = [pod for pod in lab.pods.apply(agent).pods if pod.name == "db-0"]
    sets = copy.deepcopy(objects["web"])
    sets["kind"], sets["metadata"]["name"], sets["spec"]["replicas"] = "StatefulSet", "db", 1
    applied = lab.pods.apply(sets)
    assert lab.nodes["db-0"] is mine
    assert lab.objects.get("Pod", "db-0")["metadata"]["uid"] == mine.uid
    assert "db-0" in [pod.name for pod in applied.pods]


def test_what_webhooks_inject_counts_for_the_choice_of_the_node(lab, objects):
    """The first node has no devices of the networks that are injected."""
    lab.pods.apply(MANIFEST)
    lab.pods.delete_object("Deployment", "web")
    version = {"apiVersion": "spiderpool.spidernet.io/v2beta1"}
    metadata = {"name": "vf", "annotations": {"cni.spidernet.io/rdma-resource-inject": "rails"}}
    spec = {"cniType": "sriov", "enableCoordinator": False, "sriov": {"resourceName": "spidernet.io/rail1"}}
    spec["sriov"]["ippools"] = {"ipv4": ["rail1"]}
    lab.objects.apply({**version, "kind": "SpiderMultusConfig", "metadata": metadata, "spec": spec})
    policy = {"resourceName": "rail1", "numVfs": 2, "nicSelector": {"pfNames": ["eth1"]}}
    policy["nodeSelector"] = {"kubernetes.io/hostname": "node2"}
    kind = {"apiVersion": "sriovnetwork.openshift.io/v1", "kind": "SriovNetworkNodePolicy"}
    lab.objects.apply({**kind, "metadata": {"name": "p"}, "spec": policy})
    web = objects["web"]
    web["metadata"]["name"], web["spec"]["replicas"] = "vf", 1
    web["spec"]["template"]["metadata"]["annotations"] = {"cni.spidernet.io/rdma-resource-inject": "rails"}
    applied = lab.pods.apply(web)
    (pod,) = [pod for pod in applied.pods if pod.name.startswith("vf-")]
    assert pod.host.name == "node2"
    lab.objects.delete("SpiderMultusConfig", "vf")
    lab.objects.delete("SriovNetworkNodePolicy", "p")


def test_a_taint_drives_pods_off_at_once_or_when_they_tolerate_it_no_longer(lab, objects):
    web = objects["web"]
    lab.pods.apply(MANIFEST)
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node1"}}
    node["spec"] = {"taints": [{"key": "broken", "effect": "NoExecute"}]}
    done = lab.pods.apply(node)
    assert {pod.host.name for pod in done.pods if pod.name.startswith("web-")} == {"node2"}
    assert done.waiting == {}
    lab.pods.delete_object("Node", "node1")
    toleration = {"key": "broken", "operator": "Exists", "tolerationSeconds": 30}
    web["spec"]["template"]["spec"]["tolerations"] = [toleration]
    there = {pod.name for pod in lab.pods.apply(web).pods if pod.host.name == "node1"}
    began = time.monotonic()
    assert there
    assert there <= {pod.name for pod in lab.pods.apply(node).pods}
    assert lab.scheduler.wait(lambda: not there & {*lab.nodes}, within=60)
    assert 30 <= time.monotonic() - began < 32


def pods_of(lab, prefix):
    return [node for name, node in lab.nodes.items() if name.startswith(prefix)]


def test_a_namespace_takes_all_that_is_in_it_along(lab, objects):
    lab.pods.apply(MANIFEST)
    for kind, name in (("Deployment", "web"), ("Pod", "agent")):
        lab.pods.delete_object(kind, name)
    lab.objects.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ai"}})
    web = objects["web"]
    web["metadata"]["namespace"] = "ai"
    assert len(lab.pods.apply(web).pods) == 4
    done = lab.pods.delete_object("Namespace", "ai")
    assert {"Namespace/ai", "Deployment/ai/web"} <= {*done.objects}
    assert (done.pods, lab.objects.list("Pod"), lab.objects.held()) == ([], [], {})
    with pytest.raises(InputError, match="this namespace may not be deleted"):
        lab.pods.delete_object("Namespace", "kube-system")


def test_a_pod_s_own_export_is_the_same_pod_and_labels_change(lab, objects):
    lab.pods.apply(MANIFEST)
    there = lab.objects.get("Pod", "agent")
    pod = lab.nodes["agent"]
    there["metadata"]["labels"] = {"new": "1"}
    assert pod in lab.pods.apply(there).pods
    assert lab.objects.get("Pod", "agent")["metadata"]["labels"]["new"] == "1"
    assert lab.objects.get("Pod", "agent")["status"]["phase"] == "Running"
    there["spec"]["containers"][0]["image"] = "other"
    with pytest.raises(InputError, match=r"spec\.containers: Forbidden: a lab does not change a pod that is there"):
        lab.pods.apply(there)


def test_a_pool_in_use_goes_with_its_last_pod(lab, objects):
    lab.pods.apply(MANIFEST)
    done = lab.pods.delete_object("SpiderIPPool", "rail1")
    assert done.waiting == {"SpiderIPPool/rail1": "its addresses are in use"}
    web = objects["web"]
    web["spec"]["replicas"] = 5
    ((_, reason),) = lab.pods.apply(web).waiting.items()
    assert "rail1" in reason
    lab.pods.delete_object("Deployment", "web")
    assert [one["metadata"]["name"] for one in lab.objects.list("SpiderIPPool")] == ["sets"]


def test_variables_come_from_the_pod_and_from_other_objects(lab, objects):
    lab.pods.apply(MANIFEST)
    web = objects["web"]
    web["spec"]["replicas"] = 1
    container = web["spec"]["template"]["spec"]["containers"][0]
    container["env"] = [
        {"name": "MY_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "URL", "value": "http://$(MY_IP):80"},
        {"name": "FROM", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "a"}}},
    ]
    ((_, reason),) = lab.pods.apply(web).waiting.items()
    assert 'configmap "settings" not found' in reason
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}, "data": {"a": "b"}}
    assert lab.pods.apply(config).waiting == {}
    (one,) = pods_of(lab, "web-")
    address = one["eth0"].address().ip
    assert one.run("sh", "-c", "echo $MY_IP $URL $FROM").stdout == f"{address} http://{address}:80 b\n"
