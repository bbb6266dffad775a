"""Files of SR-IOV's and NVIDIA's operators, of whereabouts and bond-cni: what their pods have in the kernel."""

import json

import pytest
from networks import ROUTED, bridge, ipam, macvlan, network

from testbed import Pod
from testbed.cni.runtime.plugin_call import CniError
from testbed.errors import InputError
from testbed.lab.pods import UnschedulableError
from testbed.workload import connected

TRUNK = "trunk.clab.yml"
NETWORKS = "k8s.v1.cni.cncf.io/networks"


def policy(**spec):
    return {
        "apiVersion": "sriovnetwork.openshift.io/v1",
        "kind": "SriovNetworkNodePolicy",
        "metadata": {"name": "p", "namespace": "sriov-network-operator"},
        "spec": {
            "resourceName": "rail1",
            "nodeSelector": {"kubernetes.io/os": "linux"},
            "numVfs": 4,
            "nicSelector": {"vendor": "15b3", "pfNames": ["eth1"]},
            "isRdma": True,
            **spec,
        },
    }


def sriov_network(**spec):
    return {
        "apiVersion": "sriovnetwork.openshift.io/v1",
        "kind": "SriovNetwork",
        "metadata": {"name": "rail1", "namespace": "sriov-network-operator"},
        "spec": {"networkNamespace": "default", "resourceName": "rail1", **spec},
    }


@pytest.fixture(autouse=True)
def emptied(lab):
    yield
    for pod in [node for node in lab.nodes.values() if isinstance(node, Pod)]:
        pod.delete()
    for kind in ("SriovNetwork", "SriovNetworkNodePolicy", "MacvlanNetwork", "HostDeviceNetwork", "NicClusterPolicy"):
        for one in lab.objects.list(kind):
            lab.objects.delete(kind, one["metadata"]["name"], one["metadata"].get("namespace", "default"))


@pytest.mark.topology(ROUTED)
def test_an_sriov_network_gives_pods_vfs_without_being_asked(lab):
    """Its operator injects the resource; the metaPlugins follow, and the VF's RDMA device."""
    addresses = {
        "type": "whereabouts",
        "range": "10.0.10.0/24",
        "range_start": "10.0.10.100",
        "range_end": "10.0.10.120",
        "exclude": ["10.0.10.100/31"],
    }
    lab.objects.apply(policy(mtu=1450))
    tuning = json.dumps({"type": "tuning", "sysctl": {"net.ipv4.conf.IFNAME.rp_filter": "2"}})
    lab.objects.apply(sriov_network(ipam=json.dumps(addresses), metaPlugins=tuning, spoofChk="off", trust="on"))
    node = lab.host("node1")
    pods = [lab.pods.create(node, name, [], annotations={NETWORKS: "rail1"}) for name in ("a", "b")]
    assert [str(pod["net1"].address()) for pod in pods] == ["10.0.10.102/24", "10.0.10.103/24"]
    assert {pod["net1"].mtu for pod in pods} == {node["eth1"].mtu} == {1450}
    assert pods[0].read_sysctl("net/ipv4/conf/net1/rp_filter") == "2"
    limits = lab.objects.get("Pod", "a")["spec"]["containers"][0]["resources"]["limits"]
    assert limits == {"openshift.io/rail1": 1}
    with connected(pods[0]["net1"], pods[1]["net1"]) as (here, _):
        assert here.write(4096, within=2).ok
    other = {"spidernet.io/rail1": 3}
    with pytest.raises(UnschedulableError, match=r"Insufficient spidernet\.io/rail1"):
        lab.pods.create(node, "c", [], resources=other)
    node["eth1"].set_mtu(1500)


@pytest.mark.topology(TRUNK)
def test_a_vf_in_a_vlan_is_in_it_on_the_wire(lab):
    lab.objects.apply(policy())
    lab.objects.apply(sriov_network(vlan=20, ipam=json.dumps(ipam(20))))
    pod = lab.pods.create(lab.host("node1"), "v", [], annotations={NETWORKS: "rail1"})
    peer = lab.pods.create(lab.host("node2"), "w", [macvlan(ipam(20, 200, 209))])
    with connected(pod["net1"], peer["eth0"]) as (here, _):
        assert here.write(4096, within=2).ok
    assert lab.switch("leaf").fdb_table()[pod["net1"].mac] == "e1"
    pod.delete()
    lab.objects.apply(sriov_network(ipam=json.dumps(ipam(10))))
    again = lab.pods.create(lab.host("node1"), "v", [], annotations={NETWORKS: "rail1"})
    assert again.ping("10.0.10.1", within=2), "without a VLAN it is in the port's own"


@pytest.mark.topology(ROUTED)
def test_a_pool_of_the_subnet_of_the_vf_s_nic_is_used(lab):
    """matchMasterSubnet of Spiderpool 1.2: one SpiderMultusConfig for nodes in several subnets."""
    version = {"apiVersion": "spiderpool.spidernet.io/v2beta1"}
    for number in (10, 20):
        spec = {"subnet": f"10.0.{number}.0/24", "ips": [f"10.0.{number}.230-10.0.{number}.239"]}
        lab.objects.apply({**version, "kind": "SpiderIPPool", "metadata": {"name": f"zone-{number}"}, "spec": spec})
    lab.objects.apply(policy())
    sriov = {"resourceName": "spidernet.io/rail1", "ippools": {"ipv4": ["zone-*"], "matchMasterSubnet": True}}
    spec = {"cniType": "sriov", "enableCoordinator": False, "sriov": sriov}
    lab.objects.apply({**version, "kind": "SpiderMultusConfig", "metadata": {"name": "zones"}, "spec": spec})
    for node, subnet in (("node2", 20), ("node1", 10)):
        pod = lab.pods.create(
            lab.host(node), f"p{subnet}", [], annotations={NETWORKS: "zones"}, resources={"spidernet.io/rail1": 1}
        )
        assert str(pod["net1"].address()) == f"10.0.{subnet}.230/24"
    lab.host("node1")["eth1"].remove_address()
    with pytest.raises(CniError, match=r"zone-10 has subnet 10\.0\.10\.0/24, which is not on the pod's PF eth1"):
        lab.pods.create(
            lab.host("node1"), "q", [], annotations={NETWORKS: "zones"}, resources={"spidernet.io/rail1": 1}
        )
    lab.host("node1")["eth1"].add_address("10.0.10.2/24")
    lab.host("node1").add_route("0.0.0.0/0", "10.0.10.1")


@pytest.mark.topology(ROUTED)
def test_the_kinds_of_nvidia_s_operator(lab):
    kind = {"apiVersion": "mellanox.com/v1alpha1"}
    addresses = {"type": "whereabouts", "range": "10.0.10.193/27"}
    mac = {
        "networkNamespace": "default",
        "master": "eth1",
        "mode": "bridge",
        "mtu": 1400,
        "ipam": json.dumps(addresses),
    }
    lab.objects.apply({**kind, "kind": "MacvlanNetwork", "metadata": {"name": "mac"}, "spec": mac})
    shared = {
        "configList": [
            {"resourceName": "hca", "rdmaHcaMax": 63, "selectors": {"vendors": ["15b3"], "ifNames": ["eth1"]}}
        ]
    }
    vfs = {"resourceList": [{"resourcePrefix": "nvidia.com", "resourceName": "hostdev",
                             "selectors": {"vendors": ["15b3"], "pfNames": ["eth1#0-1"], "isRdma": True}}]}  # fmt: skip
    spec = {
        "ofedDriver": {"image": "doca-driver"},
        "rdmaSharedDevicePlugin": {"config": json.dumps(shared)},
        "sriovDevicePlugin": {"config": json.dumps(vfs)},
    }
    lab.objects.apply({**kind, "kind": "NicClusterPolicy", "metadata": {"name": "nic-cluster-policy"}, "spec": spec})
    host = {"resourceName": "hostdev", "ipam": json.dumps(ipam(10))}
    lab.objects.apply({**kind, "kind": "HostDeviceNetwork", "metadata": {"name": "dev"}, "spec": host})
    node = lab.host("node1")
    pod = lab.pods.create(
        node, "p", [], annotations={NETWORKS: "mac,dev"}, resources={"rdma/hca": 1, "nvidia.com/hostdev": 1}
    )
    assert str(pod["net1"].address()) == "10.0.10.193/27", "the first of the subnet is not given"
    assert pod["net1"].mtu == 1400
    assert pod["net1"].rdma, "of the shared device plugin"
    assert pod["net2"].rdma, "of the VF"
    with pytest.raises(InputError, match="a network of InfiniBand is not supported: the lab's NICs are Ethernet"):
        lab.objects.apply({**kind, "kind": "IPoIBNetwork", "metadata": {"name": "ib"}, "spec": {"master": "ib0"}})


@pytest.mark.topology(ROUTED)
def test_pools_of_whereabouts_are_of_the_cluster(lab):
    given = {"type": "whereabouts", "range": "10.0.10.50-10.0.10.51/24", "network_name": "two"}
    child = {"type": "macvlan", "master": "eth1", "ipam": given}
    pods = [
        lab.pods.create(lab.host(node), name, [network(child, name=name)])
        for node, name in (("node1", "a"), ("node2", "b"))
    ]
    assert [str(pod["eth0"].address().ip) for pod in pods] == ["10.0.10.50", "10.0.10.51"]
    with pytest.raises(CniError, match="no address is free in whereabouts-two-"):
        lab.pods.create(lab.host("node1"), "c", [network(child)])


@pytest.mark.topology("rails.clab.yml")
@pytest.mark.parametrize("addresses", [ipam(10), {"type": "whereabouts", "range": "10.0.10.128/25"}])
def test_a_bond_of_two_networks_of_the_pod(lab, addresses):
    """The example of bond-cni: two links that Multus has added, and an IPAM plugin that the bond calls."""
    links = [network({"type": "macvlan", "master": "eth1"}, name=name) for name in ("one", "two")]
    bond = {
        "type": "bond",
        "mode": "active-backup",
        "failOverMac": 1,
        "linksInContainer": True,
        "miimon": "100",
        "mtu": 1400,
        "links": [{"name": "net1"}, {"name": "net2"}],
        "ipam": addresses,
    }
    pod = lab.pods.create(lab.host("node1"), "p", [bridge(), *links, network(bond, name="bonded")])
    state = json.loads(pod.use("ip", "-d", "-j", "link", "show").stdout)
    masters = {link["ifname"]: link.get("master") for link in state}
    assert (masters["net1"], masters["net2"]) == ("net3", "net3")
    details = next(link for link in state if link["ifname"] == "net3")
    assert (details["linkinfo"]["info_data"]["mode"], details["mtu"]) == ("active-backup", 1400)
    peer = lab.pods.create(lab.host("node2"), "q", [macvlan(ipam(10, 200, 209))])
    assert pod.ping(peer["eth0"].address().ip, within=3)
    pod.check()
    pod.delete()
    assert lab.objects.held() == {}


@pytest.mark.topology(ROUTED)
@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        ("ib-sriov", "the lab's NICs are Ethernet"),
        ("calico", "write `ptp` or `bridge` with host-local"),
        ("sriov", "LoadConf(): VF pci addr is required"),
    ],
)
def test_what_is_not_there_has_a_name_of_what_to_write(lab, kind, wrong):
    with pytest.raises(CniError) as said:
        lab.pods.create(lab.host("node1"), "p", [network({"type": kind})])
    assert wrong in str(said.value)
