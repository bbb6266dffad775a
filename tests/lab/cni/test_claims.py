"""Claims of pods (DRA): which NIC a pod gets, what it has of it, and what is left."""

import pytest

from testbed.errors import InputError
from testbed.workload import connected

RAILS = """\
name: claims
topology:
  kinds: {host: {nic: %s}}
  rdma_mode: %s
  nodes:
    mgmt: {kind: switch, vlans: {1: 10.0.0.1/24}}
    rail1: {kind: switch, vlans: {10: 10.0.10.1/24}}
    rail2: {kind: switch, vlans: {20: 10.0.20.1/24}}
    node1: {kind: host}
    node2: {kind: host}
  links:
    - {endpoints: ["mgmt:e1", "node1:eth0"], vlan: 1}
    - {endpoints: ["mgmt:e2", "node2:eth0"], vlan: 1}
    - {endpoints: ["rail1:e1", "node1:eth1"], vlan: 10}
    - {endpoints: ["rail2:e1", "node1:eth2"], vlan: 20}
    - {endpoints: ["rail1:e2", "node2:eth1"], vlan: 10}
    - {endpoints: ["rail2:e2", "node2:eth2"], vlan: 20}
"""
pytestmark = pytest.mark.topology(RAILS % ("hardware", "shared"))
DRA = "resource.k8s.io/v1"
MAC = "02:00:00:00:00:77"
ROOT = "resource.kubernetes.io/pcieRoot"
RDMA = [{"cel": {"expression": 'device.driver == "dra.net" && device.attributes["dra.net"].rdma'}}]
GPU = [{"cel": {"expression": 'device.driver == "gpu.nvidia.com"'}}]


def made(kind, name, spec, version=DRA, **metadata):
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, **metadata}, "spec": spec}


def gpus(node, *roots):
    """GPUs, and the PCIe roots of the node's NICs, which no kernel here can tell."""
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}

    def device(name, root):
        return {"name": name, "attributes": {ROOT: {"string": root}}}

    cards = [device(f"gpu-{number}", root) for number, root in enumerate(roots)]
    nics = [device(f"eth{number}", f"pci{number}") for number in (1, 2)]
    return [
        made(
            "ResourceSlice",
            f"{node}-gpus",
            {"driver": "gpu.nvidia.com", "nodeName": node, "pool": pool, "devices": cards},
        ),
        made("ResourceSlice", f"{node}-roots", {"driver": "dra.net", "nodeName": node, "pool": pool, "devices": nics}),
    ]


def request(name, kind, **more):
    return {"name": name, "exactly": {"deviceClassName": kind, **more}}


def template(name, *requests, **more):
    return made("ResourceClaimTemplate", name, {"spec": {"devices": {"requests": list(requests), **more}}})


def pod(name, claim="nic", node="", **spec):
    claims = [{"name": "net", "resourceClaimTemplateName": claim}]
    selector = {"nodeSelector": {"kubernetes.io/hostname": node}} if node else {}
    return made("Pod", name, {"containers": [{"name": "main"}], "resourceClaims": claims, **selector, **spec}, "v1")


@pytest.fixture(autouse=True)
def classes(lab):
    for name, selectors in (("rdma", RDMA), ("gpu", GPU)):
        lab.pods.apply(made("DeviceClass", name, {"selectors": selectors}))
    yield
    for kind in ("Deployment", "Pod", "ResourceClaim", "ResourceClaimTemplate", "DeviceClass", "ResourceSlice"):
        for one in lab.objects.list(kind):
            lab.pods.delete_object(kind, one["metadata"]["name"])
    for node in (lab.host(name) for name in ("node1", "node2")):
        for end in [end for end in node.interfaces.values() if end.plan]:
            end.up()
            for address in [one for one in end.plan.addresses if one not in end.all_addresses]:
                end.add_address(address)


def apply(lab, *objects):
    for one in objects:
        done = lab.pods.apply(one)
    return done


def test_a_pod_has_the_nic_of_its_claim_with_its_rdma_and_gives_it_back(lab):
    node = lab.host("node1")
    had = {"mac": node["eth1"].mac, "address": node["eth1"].address(), "rdma": node["eth1"].rdma}
    done = apply(lab, template("nic", request("nic", "rdma")), pod("a", node="node1"), pod("b", node="node2"))
    assert done.waiting == {}
    a, b = lab.nodes["a"], lab.nodes["b"]
    assert (a["eth1"].mac, a["eth1"].address(), a["eth1"].rdma) == tuple(had.values())
    assert "eth1" not in [link.name for link in node.now().links.values()]
    with connected(a["eth1"], b["eth1"]) as (here, _):
        assert here.write(4096, within=3).ok
    (claim,) = [one for one in lab.objects.list("ResourceClaim") if one["metadata"]["name"].startswith("a-net-")]
    (result,) = claim["status"]["allocation"]["devices"]["results"]
    assert result == {"request": "nic", "driver": "dra.net", "pool": "node1", "device": "eth1"}
    (network,) = [one["networkData"] for one in claim["status"]["devices"]]
    assert network == {"interfaceName": "eth1", "hardwareAddress": had["mac"], "ips": [str(had["address"])]}
    assert claim["status"]["reservedFor"][0]["name"] == "a"
    lab.pods.delete_object("Pod", "a")
    assert node["eth1"].mac == had["mac"]
    assert node["eth1"].is_up
    assert node["eth1"].all_addresses == [], "DraNet gives none back"
    assert node["eth1"].rdma == had["rdma"]
    lab.pods.delete_object("Pod", "b")
    assert lab.objects.list("ResourceClaim") == []


PAIR = [request("gpu", "gpu"), request("nic", "rdma")]


def nics(lab, *names):
    return {name: [end for end in lab.nodes[name].interfaces if end != "lo"] for name in names}


def test_nics_are_given_beside_their_gpus_only_if_the_claim_says_so(lab):
    """The second GPU is on the first NIC's root: first fit gives it the other rail's NIC."""
    roots = gpus("node1", "pci2", "pci1")
    apply(lab, *roots, template("loose", *PAIR), pod("a", "loose"))
    assert nics(lab, "a") == {"a": ["eth1"]}, "the GPU of pci2 has the NIC of pci1"
    lab.pods.delete_object("Pod", "a")
    apply(lab, template("aligned", *PAIR, constraints=[{"matchAttribute": ROOT}]))
    apply(lab, pod("a", "aligned"), pod("b", "aligned"))
    assert nics(lab, "a", "b") == {"a": ["eth2"], "b": ["eth1"]}
    assert lab.nodes["a"]["eth2"].address().ip.packed[2] == 20
    done = apply(lab, pod("c", "aligned"))
    assert done.waiting == {"c": "0/2 nodes are available: 2 cannot allocate all claims."}
    lab.pods.delete_object("Pod", "a")
    assert nics(lab, "c") == {"c": ["eth2"]}


def test_a_claim_gets_all_or_several_or_the_first_that_is_there(lab):
    two = template("two", request("nics", "rdma", allocationMode="All"))
    apply(lab, two, pod("a", "two", node="node1"))
    assert nics(lab, "a") == {"a": ["eth1", "eth2"]}
    first = [{"name": "three", "deviceClassName": "rdma", "count": 3}, {"name": "one", "deviceClassName": "rdma"}]
    apply(lab, template("first", {"name": "nic", "firstAvailable": first}), pod("b", "first", node="node2"))
    assert nics(lab, "b") == {"b": ["eth1"]}
    assert (
        apply(lab, pod("c", "first", node="node1"))
        .waiting["c"]
        .endswith("1 cannot allocate all claims, 1 node(s) didn't match Pod's node affinity/selector.")
    )


def test_the_parameters_of_a_claim_are_what_the_nic_has_in_the_pod(lab):
    opaque = {
        "driver": "dra.net",
        "parameters": {
            "interface": {
                "name": "rdma0",
                "addresses": ["10.0.10.77/24"],
                "mtu": 1400,
                "hardwareAddr": "02:00:00:00:00:77",
            },
            "routes": [{"destination": "10.0.99.0/24", "gateway": "10.0.10.1"}],
            "neighbors": [{"destination": "10.0.10.9", "hardwareAddr": "02:00:00:00:00:09"}],
            "rules": [{"source": "10.0.10.77/32", "table": 100, "priority": 50}],
        },
    }
    node = lab.host("node1")
    mac = node["eth1"].mac
    done = apply(lab, template("nic", request("nic", "rdma"), config=[{"opaque": opaque}]), pod("a", node="node1"))
    assert "Invalid prefsrc address" in done.waiting["a"], "the driver copies the route of the node's own address"
    assert "Invalid prefsrc address" in lab.pods.reconcile().waiting["a"], "what was prepared stays"
    lab.pods.delete_object("Pod", "a")
    assert apply(lab, pod("a", node="node1")).waiting == {}, "the NIC came back without the address"
    a = lab.nodes["a"]
    end = a["rdma0"]
    assert (str(end.address()), end.mtu, end.mac) == ("10.0.10.77/24", 1400, MAC)
    assert "10.0.99.0/24 via 10.0.10.1 dev rdma0" in a.run("ip", "route").stdout
    assert "lladdr 02:00:00:00:00:09 PERMANENT" in a.run("ip", "neigh").stdout
    assert "50:\tfrom 10.0.10.77 lookup 100" in a.run("ip", "rule").stdout
    with connected(end, lab.host("node2")["eth1"]) as (here, _):
        assert here.write(4096, within=3).ok
    lab.pods.delete_object("Pod", "a")
    assert node["eth1"].mtu == 1400, "what a claim has set stays, as with the driver"
    node["eth1"].set_mtu(1500)
    node.use("ip", "link", "set", "eth1", "address", mac)


@pytest.mark.parametrize(
    ("parameters", "reason"),
    [
        ({"interface": {"nme": "x"}}, "unknown field \"interface.nme\"; did you mean 'name'?"),
        ({"interface": {"dhcp": True}}, "a lab has no DHCP server"),
        ({"routes": [{"destination": "10.0.0.0/8"}]}, "routes[0].gateway: must be specified for Universe scope routes"),
    ],
)
def test_a_driver_refuses_parameters_and_the_pod_waits(lab, parameters, reason):
    config = [{"opaque": {"driver": "dra.net", "parameters": parameters}}]
    done = apply(lab, template("nic", request("nic", "rdma"), config=config), pod("a", node="node1"))
    assert reason in done.waiting["a"]
    assert lab.host("node1")["eth1"].address()


def test_why_a_pod_waits_for_its_claim(lab):
    missing = 'resourceclaimtemplate.resource.k8s.io "nic" not found'
    assert apply(lab, pod("a")).waiting == {"a": missing}
    apply(lab, template("nic", request("nic", "nothing")))
    assert 'deviceclass.resource.k8s.io "nothing" not found' in lab.pods.reconcile().waiting["a"]
    wrong = [{"cel": {"expression": 'device.attributes["dra.net"].speed == 400'}}]
    lab.pods.apply(made("DeviceClass", "nothing", {"selectors": wrong}))
    assert "no such key: speed" in lab.pods.reconcile().waiting["a"]
    lab.pods.apply(made("DeviceClass", "nothing", {"selectors": RDMA}))
    assert lab.pods.reconcile().waiting == {}


def test_pods_that_no_scheduler_sees_and_those_in_the_host_s_network_get_none(lab):
    done = apply(lab, template("nic", request("nic", "rdma")), pod("a", nodeName="node1"))
    assert "kube-scheduler does not see it" in done.waiting["a"]
    assert "using host network can not claim host devices" in apply(lab, pod("b", hostNetwork=True)).waiting["b"]


def test_a_named_claim_outlives_its_pod_and_stays_while_it_is_used(lab):
    claim = made("ResourceClaim", "mine", {"devices": {"requests": [request("nic", "rdma")]}})
    named = pod("a")
    named["spec"]["resourceClaims"] = [{"name": "net", "resourceClaimName": "mine"}]
    assert apply(lab, claim, named).waiting == {}
    with pytest.raises(InputError, match=r"spec\.devices: Forbidden: the field is immutable"):
        lab.pods.apply(made("ResourceClaim", "mine", {"devices": {"requests": []}}))
    assert lab.pods.apply(claim).waiting == {}
    assert lab.objects.get("ResourceClaim", "mine")["status"]["reservedFor"]
    lab.pods.delete_object("Pod", "a")
    assert "status" not in lab.objects.get("ResourceClaim", "mine")
    assert apply(lab, named).waiting == {}
    assert "ResourceClaim/default/mine" in lab.pods.delete_object("ResourceClaim", "mine").waiting
    lab.pods.delete_object("Pod", "a")
    assert lab.objects.list("ResourceClaim") == []


def test_a_nic_of_a_lost_sandbox_comes_back_as_hardware_does(lab):
    node = lab.host("node1")
    rdma = node["eth1"].rdma
    apply(lab, template("nic", request("nic", "rdma")), pod("a", node="node1"))
    lab.nodes["a"].lose()
    assert (node["eth1"].is_up, node["eth1"].rdma, node["eth1"].all_addresses) == (False, rdma, [])


def test_after_a_reboot_the_pod_has_its_nic_again(lab):
    done = apply(lab, template("nic", request("nic", "rdma")), pod("a", node="node1"), pod("b", node="node2"))
    before = lab.nodes["a"]
    done = lab.reboot("node1")
    assert done.waiting == {}
    assert lab.nodes["a"] is not before
    with connected(lab.nodes["a"]["eth1"], lab.nodes["b"]["eth1"]) as (here, _):
        assert here.write(4096, within=3).ok


def test_what_a_node_offers_is_observed(lab):
    node = lab.host("node1")
    node.use("ip", "link", "add", "dummy7.1", "type", "dummy")
    apply(lab, template("nic", request("nic", "rdma")), pod("a", node="node2"))
    (one,) = [one for one in lab.objects.list("ResourceSlice") if one["spec"]["nodeName"] == "node1"]
    there = {device["name"]: device["attributes"] for device in one["spec"]["devices"]}
    assert sorted(there) == ["eth1", "eth2", "net-mr2w23lzg4xdc"], "the uplink, eth0, is hidden"
    eth1 = {key.partition("/")[2]: next(iter(value.values())) for key, value in there["eth1"].items()}
    expected = {"ifName": "eth1", "mac": node["eth1"].mac, "mtu": node["eth1"].mtu, "ipv4": str(node["eth1"].address())}
    assert {key: eth1[key] for key in expected} == expected
    assert {key: eth1[key] for key in ("rdma", "virtual", "type", "state")} == {
        "rdma": True,
        "virtual": False,
        "type": "device",
        "state": "up",
    }
    node.use("ip", "link", "del", "dummy7.1")


@pytest.mark.topology(RAILS % ("rxe", "exclusive"))
def test_soft_roce_moves_in_exclusive_mode_too(lab):
    apply(lab, template("nic", request("nic", "rdma")), pod("a", node="node1"), pod("b", node="node2"))
    a, b = lab.nodes["a"], lab.nodes["b"]
    assert a.run("rdma", "link").stdout.count("link ") == 1
    with connected(a["eth1"], b["eth1"]) as (here, _):
        assert here.write(4096, within=3).ok


def two_nics(name):
    """A claim of two NICs, both with one name in the pod."""
    opaque = {"driver": "dra.net", "parameters": {"interface": {"name": name}}}
    both = request("nics", "rdma", count=2)
    return template("nic", both, config=[{"opaque": opaque}])


@pytest.mark.parametrize("name", ["net0", "lo"])
def test_a_nic_that_cannot_have_its_name_stays_with_its_node(lab, name):
    done = apply(lab, two_nics(name), pod("a", node="node1"), pod("b", node="none"))
    assert "which has an interface of this name" in done.waiting["a"]
    assert lab.nodes.get("a") is None
    node = lab.host("node1")
    assert [node[end].is_up for end in ("eth1", "eth2")] == [True, True]
    lab.pods.delete_object("Pod", "a")
    lab.reboot("node1")
    assert node["eth1"].address()


def test_what_the_kernel_refuses_of_a_nic_is_the_reason_of_its_pod_alone(lab):
    opaque = {"driver": "dra.net", "parameters": {"interface": {"mtu": 100_000}}}
    bad = template("nic", request("nic", "rdma"), config=[{"opaque": opaque}])
    lab.pods.apply(bad)
    lab.pods.apply(template("good", request("nic", "rdma")))
    done = apply(lab, pod("a", node="node1"), pod("b", "good", node="node2"))
    assert done.waiting == {"a": "error moving network device eth1 to namespace a: Invalid argument"}
    assert nics(lab, "b") == {"b": ["eth1"]}
    assert lab.host("node1")["eth1"].is_up


def test_a_feature_that_a_nic_does_not_have_is_refused_before_the_nic_moves(lab):
    node = lab.host("node1")
    before = node["eth1"].address()
    opaque = {"driver": "dra.net", "parameters": {"ethtool": {"features": {"tso": False, "warp-drive": True}}}}
    lab.pods.apply(template("nic", request("nic", "rdma"), config=[{"opaque": opaque}]))
    done = apply(lab, pod("a", node="node1"))
    assert done.waiting["a"].endswith(": feature warp-drive not supported by interface")
    assert node["eth1"].address() == before


def test_a_claim_is_for_one_pod_and_not_for_new_ones_while_it_is_deleted(lab):
    named = [pod(name, node="node1") for name in ("a", "b", "c")]
    for one in named:
        one["spec"]["resourceClaims"] = [{"name": "net", "resourceClaimName": "mine"}]
    apply(lab, made("ResourceClaim", "mine", {"devices": {"requests": [request("nic", "rdma")]}}), named[0])
    assert "driver only supports one pod per claim, got 2" in apply(lab, named[1]).waiting["b"]
    lab.pods.delete_object("Pod", "b")
    assert lab.pods.delete_object("ResourceClaim", "mine").waiting == {
        "ResourceClaim/default/mine": "its devices are in use"
    }
    assert apply(lab, named[2]).waiting == {"c": 'resourceclaim "mine" is being deleted'}
    lab.pods.delete_object("Pod", "a")
    assert lab.pods.reconcile().waiting == {"c": 'resourceclaim "mine" not found'}


def test_pods_without_a_workload_are_no_gang(lab):
    """Each of two pods in a queue, and one that is in none, is placed by itself."""
    notes = {"kueue.x-k8s.io/podset-required-topology": "kubernetes.io/hostname"}
    queue = {"kueue.x-k8s.io/queue-name": "training"}
    spec = {"containers": [{"name": "main"}]}
    queued = [made("Pod", name, spec, "v1", labels=queue, annotations=notes) for name in ("a", "b")]
    done = apply(lab, *queued, made("Pod", "c", spec, "v1"))
    assert done.waiting == {}
    assert [lab.nodes[name].host.name for name in ("a", "b", "c")] == ["node1", "node1", "node2"]
