"""What Spiderpool's webhooks refuse: each rule has cases, whose answers were read in the sources that it names."""

from collections.abc import Mapping, Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
import yaml

from testbed.cni.ipam.address_store import ADDRESSES, Holder, Store
from testbed.cni.objects import autopools, manifests
from testbed.cni.objects.kinds import IPPool
from testbed.cni.objects.lab_objects import Cluster
from testbed.cni.objects.webhook import annotations, coordinator, networks, pools
from testbed.cni.objects.webhook.review import Denied, Review, Rule
from testbed.cni.objects.webhook.rules import RULES
from testbed.errors import InputError

SPIDERPOOL = "spiderpool.spidernet.io/v2beta1"


def an_object(kind: str, name: str = "p", metadata: Mapping[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": SPIDERPOOL, "kind": kind, "metadata": {"name": name, **(metadata or {})}, "spec": spec}


def pool(name: str = "p", metadata: Mapping[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    base = {"subnet": "10.6.0.0/16", "ips": ["10.6.0.10-10.6.0.20"]}
    return an_object("SpiderIPPool", name, metadata, **{**base, **spec})


def subnet(name: str = "s", **spec: Any) -> dict[str, Any]:
    return an_object("SpiderSubnet", name, **{"subnet": "10.6.0.0/16", "ips": ["10.6.0.10-10.6.0.200"], **spec})


def config(notes: Mapping[str, str] | None = None, name: str = "m", **spec: Any) -> dict[str, Any]:
    metadata = {"annotations": dict(notes or {}), "namespace": "ai"}
    return an_object("SpiderMultusConfig", name, metadata, **spec)


def macvlan(**nic: Any) -> dict[str, Any]:
    return {"cniType": "macvlan", "macvlan": {"master": ["eth1"], **nic}}


def common(**spec: Any) -> dict[str, Any]:
    return an_object("SpiderCoordinator", "default", **{"podCIDRType": "auto", **spec})


def reserved(**spec: Any) -> dict[str, Any]:
    return an_object("SpiderReservedIP", "r", **spec)


def workload(
    notes: Mapping[str, str], kind: str = "Deployment", own: Mapping[str, str] | None = None
) -> dict[str, Any]:
    template = {"metadata": {"annotations": dict(notes)}}
    metadata = {"name": "w", "annotations": dict(own or {})}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": metadata, "spec": {"template": template}}


def core(kind: str, notes: Mapping[str, str]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": "n", "annotations": dict(notes)}}


CR, VERSION = "multus.spidernet.io/cr-name", "multus.spidernet.io/cni-version"
RDMA, ANY = "cni.spidernet.io/rdma-resource-inject", "cni.spidernet.io/network-resource-inject"
IPAM = "ipam.spidernet.io"
OTHER = {"matchExpressions": [{"key": "a", "operator": "Exists"}]}

REFUSED: list[tuple[Rule, Sequence[dict[str, Any]], str]] = [
    (
        pools.a_terminating_pool_stays,
        [pool(metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}), pool()],
        "Forbidden: cannot update a terminating IPPool",
    ),
    (
        pools.subnet_and_version_stay,
        [pool(), pool(subnet="10.7.0.0/16", ips=[])],
        "spec.subnet: Forbidden: is not chan",
    ),
    (pools.subnet_and_version_stay, [pool(ipVersion=4), pool(ipVersion=6)], "spec.ipVersion: Forbidden: is not chang"),
    (pools.subnet_and_version_stay, [subnet(), subnet(subnet="10.6.0.0/17")], "spec.subnet: Forbidden: is not chang"),
    (pools.subnet_is_a_cidr, [pool(subnet="10.6.0.0")], "invalid CIDR format in IPv4 '10.6.0.0'"),
    (pools.subnet_is_a_cidr, [pool(subnet="10.6.0.0/255.255.0.0")], "invalid CIDR format in IPv4"),
    (
        pools.subnet_is_a_cidr,
        [pool(subnet="10.6.0.1/16")],
        "unformatted subnet 10.6.0.1/16, please change it to 10.6.0",
    ),
    (pools.subnet_is_a_cidr, [pool(ipVersion=6)], "invalid CIDR format in IPv6 '10.6.0.0/16'"),
    (pools.subnet_is_a_cidr, [subnet(subnet="fd00::1/64", ips=[])], "please change it to fd00::/64"),
    (
        pools.pools_have_one_subnet_or_disjoint_ones,
        [pool("a"), pool(subnet="10.6.1.0/24", ips=["10.6.1.1"])],
        "spec.subnet: Invalid value: \"10.6.1.0/24\": overlap with IPPool a which 'spec.subnet' is 10.6.0.0/16",
    ),
    (
        pools.subnets_are_disjoint,
        [subnet("a"), subnet("b")],
        "overlap with Subnet a which 'spec.subnet' is 10.6.0.0/16",
    ),
    (
        pools.ranges_are_of_the_subnet,
        [pool(ips=["10.6.1.0/24"])],
        'spec.ips[0]: Invalid value: "10.6.0.0/16": invalid range',
    ),
    (pools.ranges_are_of_the_subnet, [pool(ips=["10.7.0.1"])], "not match base subnet: 10.7.0.1"),
    (pools.ranges_are_of_the_subnet, [pool(ips=["10.6.0.1 - 10.6.0.2"])], "invalid IP address: 10.6.0.1 "),
    (pools.ranges_are_of_the_subnet, [pool(ips=["10.6.0.1-10.6.0.2-10.6.0.3"])], "invalid range: 10.6.0.1-10.6.0.2-10"),
    (pools.ranges_are_of_the_subnet, [pool(excludeIPs=["fd00::1"])], "spec.excludeIPs[0]: Invalid value"),
    (
        pools.ranges_are_of_the_subnet,
        [pool(ips=["10.6.0.9-10.6.0.5", "10.6.0.6"])],
        "range 10.6.0.6 overlaps with 10.6.0.9",
    ),
    (
        pools.an_address_is_of_one_pool,
        [pool("a"), pool("b", ips=["10.6.0.1", "10.6.0.20-10.6.0.30"])],
        "spec.ips: Forbidden: overlap with IPPool a in IP ranges [10.6.0.10-10.6.0.20], total IP addresses of an "
        "IPPool are jointly determined by 'spec.ips' and 'spec.excludeIPs'",
    ),
    (
        pools.the_gateway_is_nobody_elses,
        [pool(gateway="10.6.0.15")],
        'spec.ips[0]: Invalid value: "10.6.0.10-10.6.0.20"',
    ),
    (
        pools.the_gateway_is_nobody_elses,
        [pool(gateway="10.7.0.1")],
        'spec.gateway: Invalid value: "10.7.0.1": not pertains',
    ),
    (pools.the_gateway_is_nobody_elses, [pool(gateway="fd00::1")], "invalid IP format in IPv4 'fd00::1'"),
    (pools.the_gateway_is_nobody_elses, [subnet(gateway="10.6.0.10")], "conflicts with 'spec.gateway' 10.6.0.10"),
    (
        pools.routes_are_of_the_subnet,
        [pool(routes=[{"dst": "10.7.0.0/16", "gw": "10.6.0.1"}, {"dst": "10.7.0.0/16", "gw": "10.6.0.2"}])],
        'spec.routes[1].dst: Invalid value: "10.7.0.0/16": duplicate route with the same dst',
    ),
    (
        pools.routes_are_of_the_subnet,
        [pool(routes=[{"dst": "0.0.0.0/0", "gw": "10.6.0.1"}])],
        "please specify 'spec.gateway'",
    ),
    (pools.routes_are_of_the_subnet, [pool(routes=[{"dst": "10.7.0.0", "gw": "10.6.0.1"}])], "invalid CIDR format"),
    (
        pools.routes_are_of_the_subnet,
        [subnet(routes=[{"dst": "10.7.0.0/16", "gw": "10.8.0.1"}])],
        "routes[0].gw: Invalid",
    ),
    (pools.pod_affinity_selects, [pool(podAffinity={})], "empty podAffinity is invalid for SpiderIPPool"),
    (
        pools.pod_affinity_selects,
        [pool(podAffinity={"matchExpressions": [{"key": "a", "operator": "In"}]})],
        "matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'",
    ),
    (
        pools.pod_affinity_selects,
        [pool(podAffinity={"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["1"]}]})],
        "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
    ),
    (
        pools.pod_affinity_selects,
        [pool(podAffinity={"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]})],
        "not a valid selector operator",
    ),
    (pools.pod_affinity_selects, [pool(podAffinity={"matchLabels": {"-a": "1"}})], "name part must consist of"),
    (
        pools.pod_affinity_selects,
        [pool(podAffinity={"matchLabels": {"A b/a": "1"}})],
        "prefix part must be a lowercase",
    ),
    (
        pools.pod_affinity_selects,
        [pool(podAffinity={"matchLabels": {"a": "x y"}})],
        "a valid label must be an empty string",
    ),
    (
        pools.addresses_of_pods_stay,
        [pool(), pool(ips=["10.6.0.11"])],
        "remove an IP address 10.6.0.10 that is being used",
    ),
    (
        pools.pools_are_of_their_subnet,
        [subnet(), pool(ips=["10.6.0.5-10.6.0.12"])],
        "add some IP ranges [10.6.0.5-10.6.0.9] that are not contained in controller Subnet s",
    ),
    (
        pools.pools_that_are_there_fit_in,
        [pool(), subnet(ips=["10.6.0.11"])],
        "owns some IP addresses that SpiderSubnet",
    ),
    (
        pools.pools_that_are_there_fit_in,
        [pool(), subnet(subnet="10.6.0.0/17")],
        "overlap with SpiderIPPool 'p' resource",
    ),
    (
        pools.ranges_are_in_order,
        [subnet(ips=["10.6.0.9-10.6.0.5"])],
        "invalid IP range format in IPv4 '10.6.0.9-10.6.0.5'",
    ),
    (pools.ranges_are_in_order, [subnet(ips=["10.7.0.9"])], "not pertains to the 'spec.subnet' 10.6.0.0/16"),
    (
        pools.addresses_of_pools_stay,
        [subnet(), pool(), subnet(ips=["10.6.0.12-10.6.0.20"])],
        "remove some IP ranges [10.6.0.10-10.6.0.11] that is being used by IPPool p",
    ),
    (pools.reserved_addresses_have_a_version, [reserved()], "'spec.ips' is empty or 'spec.ips[0]' may be invalid"),
    (
        pools.reserved_addresses_have_a_version,
        [reserved(ips=["x"])],
        "spec.ipVersion: Invalid value: null: is not genera",
    ),
    (
        pools.reserved_addresses_have_a_version,
        [reserved(ips=["10.6.0.1"], ipVersion=4), reserved(ips=["fd00::1"], ipVersion=6)],
        "spec.ipVersion: Forbidden: is not changeable",
    ),
    (
        pools.reserved_addresses_are_ranges,
        [reserved(ips=["10.6.0.1", "fd00::1"])],
        'spec.ips[1]: Invalid value: "fd00::1"',
    ),
    (
        coordinator.values_are_right,
        [common(podCIDRType=None)],
        'spec.podCIDRType: Unsupported value: "": supported values',
    ),
    (coordinator.values_are_right, [common(hijackCIDR=["10.0.0.1/33"])], "spec.hijackCIDR[0]: Invalid value"),
    (
        coordinator.values_are_right,
        [common(podMACPrefix="01:0a")],
        "not a unicast MAC: the lowest bit of the first byte",
    ),
    (coordinator.values_are_right, [common(podMACPrefix="0a")], "not a valid MAC prefix"),
    (coordinator.values_are_right, [common(txQueueLen=-1)], "txQueueLen can't be less than 0"),
    (
        coordinator.values_are_right,
        [common(podRPFilter=3)],
        'spec.podRPFilter: Unsupported value: 3: supported values: "0"',
    ),
    (coordinator.values_are_right, [common(vethLinkAddress="x")], "vethLinkAddress is an invalid IP address"),
    (
        coordinator.values_are_right,
        [common(policyRoutes=[{"dst": "10.0.0.0/8", "gw": "fd00::1"}])],
        "must use the same IP fa",
    ),
    (
        coordinator.values_are_right,
        [common(policyRoutes=[{"dst": "10.0.0.0/8", "gw": "x"}])],
        "gw is an invalid IP address",
    ),
    (
        coordinator.values_are_right,
        [common(policyRoutes=[{"dst": "x", "gw": "10.6.0.1"}])],
        "policyRoutes[0].dst: Invalid",
    ),
    (
        networks.the_definitions_name_stays,
        [config(**macvlan()), config({CR: "n"}, **macvlan())],
        "to customized name 'n'",
    ),
    (
        networks.the_definitions_name_stays,
        [config({CR: "n"}, **macvlan()), config({CR: "o"}, **macvlan())],
        "it's unsupported to change customized Multus net-attach-def resource name from 'n' to 'o'",
    ),
    (
        networks.the_definition_is_its_own,
        [config({CR: "N"}, **macvlan())],
        "invalid custom net-attach-def resource name",
    ),
    (
        networks.the_definition_is_its_own,
        [config(**macvlan()), config({CR: "m"}, "other", **macvlan())],
        "the net-attach-def ai/m already exists and is managed by SpiderMultusConfig ai/m.",
    ),
    (
        networks.the_version_is_one_of_the_plugins,
        [config({VERSION: "1.1.0"}, **macvlan())],
        "unsupported CNI version 1.1.0",
    ),
    (
        networks.there_is_the_part_of_its_type,
        [config(cniType="macvlan")],
        "spec.macvlan: Required value: no spec.macvlan",
    ),
    (
        networks.there_is_the_part_of_its_type,
        [config(**macvlan(), ipvlan={"master": ["eth1"]})],
        "spec.cniType: Forbidden: the cniType macvlan only supports spec.macvlan, please remove other CNI configs",
    ),
    (networks.several_masters_are_a_bond, [config(**macvlan(master=[]))], "master can't be empty"),
    (
        networks.several_masters_are_a_bond,
        [config(**macvlan(master=["a", "b"]))],
        "the bond property is nil with multiple",
    ),
    (
        networks.several_masters_are_a_bond,
        [config(**macvlan(master=["a", "b"], bond={"name": "", "mode": 1}))],
        "bond name can't be empty",
    ),
    (
        networks.several_masters_are_a_bond,
        [config(**macvlan(ippools={"matchMasterSubnet": True}))],
        "MatchMasterSubnet feature is not supported for macvlan",
    ),
    (
        networks.a_vf_has_a_resource_and_rates_in_order,
        [config(cniType="sriov", sriov={})],
        "spec.sriov.resourceName: Required",
    ),
    (
        networks.what_is_injected_has_pools,
        [config({RDMA: "a"}, **macvlan(ippools={"ipv4": ["p"]}))],
        "can not empty for spider",
    ),
    (
        networks.what_is_injected_has_pools,
        [config({RDMA: "a"}, **macvlan(rdmaResourceName="x/y"))],
        "No any ippools configured",
    ),
    (
        networks.what_is_injected_has_pools,
        [config({ANY: "a"}, **macvlan(rdmaResourceName="x/y"))],
        "No any ippools configured",
    ),
    (
        networks.what_is_injected_has_pools,
        [config({ANY: "a"}, cniType="custom")],
        "the cniType custom does not support RDMA resource or network resource injected",
    ),
    (
        networks.a_configuration_of_the_users_is_json,
        [config(customCNI="{")],
        "customCniConfig isn't a valid JSON encoding",
    ),
    (
        networks.chained_plugins_have_a_type,
        [config(**macvlan(), chainCNIJsonData=['{"x":1}'])],
        "parsing configuration: missing 't",
    ),
    (
        networks.chained_plugins_have_a_type,
        [config(**macvlan(), chainCNIJsonData=["{"])],
        "spec.chainCNIJsonData[0]: Forbidden",
    ),
    (
        networks.its_coordinator_is_right,
        [config(**macvlan(), coordinator={"txQueueLen": -1})],
        "spec.coordinator.txQueueLen",
    ),
    (
        networks.it_becomes_a_definition,
        [config(customCNI='{"cniVersion": "9", "type": "x"}')],
        "cniVersion '9' is not suppor",
    ),
    (
        annotations.annotations_of_pods,
        [core("Pod", {f"{IPAM}/ippol": "{}"})],
        "nothing reads it on a pod; did you mean 'ipam",
    ),
    (annotations.annotations_of_pods, [core("Pod", {f"{IPAM}/dns": "{}"})], "nothing reads it on a pod"),
    (
        annotations.annotations_of_pods,
        [core("Pod", {f"{IPAM}/routes": '[{"dst": "a", "gw": "b"}]'})],
        "invalid route format",
    ),
    (
        annotations.annotations_of_pods,
        [core("Pod", {f"{IPAM}/ippool": "[]"})],
        f"annotation {IPAM}/ippool:1:1: it must be a",
    ),
    (
        annotations.annotations_of_pods,
        [core("Pod", {"k8s.v1.cni.cncf.io/networks": "a/b/c"})],
        "'a/b/c' is not a network",
    ),
    (
        annotations.annotations_of_templates,
        [workload({f"{IPAM}/ippools": '[{"interface": "eth0"}, {"interface": "eth0"}]'})],
        f"annotation {IPAM}/ippools: duplicate interface eth0",
    ),
    (
        annotations.annotations_of_templates,
        [workload({}, own={f"{IPAM}/ippool": "{}"})],
        "on a Deployment, only on its templ",
    ),
    (
        annotations.annotations_of_namespaces,
        [core("Namespace", {f"{IPAM}/default-ipv4-pool": "[]"})],
        "did you mean 'ipam.spid",
    ),
    (
        annotations.annotations_of_namespaces,
        [core("Namespace", {f"{IPAM}/default-ipv4-ippool": "x"})],
        "not valid JSON",
    ),
]


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path / "cluster" / "o", tmp_path, lambda *_, **__: None)


def reviewed(objects: Sequence[dict[str, Any]]) -> Review:
    """The review of the last object, with those before it there, and a pod with the first address of pool p."""
    *there, new = map(manifests.make, objects)
    old = next((one for one in there if str(one) == str(new)), None)
    others = [one for one in there if str(one) != str(new)]
    return Review(new, old, others, {"p": {ip_address("10.6.0.10"): "ai/web"}})


@pytest.mark.parametrize(("rule", "objects", "said"), REFUSED)
def test_a_rule_refuses(rule: Rule, objects: Sequence[dict[str, Any]], said: str) -> None:
    review = reviewed(objects)
    assert rule in RULES[review.new.kind]
    with pytest.raises(Denied) as refusal:
        rule(review)
    assert said in str(refusal.value)


def test_each_rule_has_a_case() -> None:
    named = {rule for rules in RULES.values() for rule in rules if rule.__name__ != "<lambda>"}
    assert {rule for rule, *_ in REFUSED} == named


REFUSED += [
    (pools.a_lab_holds_them, [pool(subnet="10.0.0.0/8", ips=["10.0.0.1-10.9.0.1"])], "more than 65536 addresses"),
    (pools.a_lab_holds_them, [reserved(ips=["fd00::-fd00::1:0"])], "has more than 65536 addresses"),
]
UNREAD = [
    pool(metadata={"annotations": {f"{IPAM}/ippool": "{}"}}),
    config({"multus.spidernet.io/crname": "x"}, **macvlan()),
]


@pytest.mark.parametrize("one", UNREAD)
def test_an_annotation_that_nothing_reads_is_refused_on_other_kinds_too(cluster: Cluster, one: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=f"nothing reads it on a {one['kind']}"):
        cluster.apply(one)


ACCEPTED: list[Sequence[dict[str, Any]]] = [
    [pool("a", excludeIPs=["10.6.0.10"]), pool("b", ips=["10.6.0.10"])],
    [pool("a"), pool("b", subnet="fd00::/64", ips=["fd00::1-fd00::9"])],
    [pool("a"), pool("b", ips=["10.6.0.30"]), pool("a", ips=["10.6.0.10-10.6.0.29"])],
    [pool(gateway="10.6.0.10", excludeIPs=["10.6.0.10"])],
    [pool(ips=["10.6.0.1-10.6.0.9", "10.6.0.5-10.6.0.20"])],
    [pool(routes=[{"dst": "10.7.0.1/16", "gw": "10.6.0.1"}])],
    [pool(nodeName=["n1"], nodeAffinity={}, namespaceAffinity={"matchExpressions": [{"key": "a", "operator": "Gt"}]})],
    [pool(podAffinity=OTHER)],
    [subnet(), pool(), pool("q", ips=["10.6.0.21-10.6.0.200"])],
    [reserved(ips=[], ipVersion=4)],
    [reserved(ips=["fd00::1-fd00::9", "fd00::20"])],
    [common(podRPFilter=-5, vethLinkAddress="fe80::1", hijackCIDR=["1.2.3.4", "fd00::/8"], txQueueLen=1000)],
    [common(policyRoutes=[{"dst": "10.0.0.1", "gw": "10.6.0.1"}], vethMTU=1400, mode="disabled")],
    [config(cniType="custom")],
    [config()],
    [config(customCNI='{"cniVersion":"0.3.0","name":"x","type":"macvlan","master":"eth1"}')],
    [config(**macvlan(mtu=0), chainCNIJsonData=['{"type":"tuning","sysctl":{}}'])],
    [config({ANY: "a"}, **macvlan())],
    [workload({f"{IPAM}/ippools": '[{"ipv4": ["p"]}, {"ipv4": ["q"]}]', f"{IPAM}/default-route-nic": "net1"})],
    [
        workload(
            {"example.com/mine": "x", "kubernetes.io/egress-bandwidth": "1M"}, own={"deployment.kubernetes.io/x": "1"}
        )
    ],
]


@pytest.mark.parametrize("objects", ACCEPTED)
def test_what_is_right_is_accepted(cluster: Cluster, objects: Sequence[dict[str, Any]]) -> None:
    for one in objects:
        cluster.apply(one)


def test_an_error_has_its_place_in_the_file(cluster: Cluster, tmp_path: Path) -> None:
    both = [pool("a"), pool("b", ips=["10.6.0.30"], routes=[{"dst": "10.7.0.0/16", "gw": "10.8.0.1"}])]
    (tmp_path / "pools.yaml").write_text("---\n".join(map(yaml.safe_dump, both)))
    with pytest.raises(InputError) as said:
        cluster.apply("pools.yaml")
    lines = (tmp_path / "pools.yaml").read_text().splitlines()
    place, line, column = str(said.value.where).rsplit(":", 2)
    assert place == f"{tmp_path}/pools.yaml"
    assert lines[int(line) - 1][int(column) - 1 :] == "10.8.0.1"
    assert cluster.list("SpiderIPPool") == [], "all of a file or nothing"


def test_a_pool_keeps_the_addresses_that_pods_have(cluster: Cluster, tmp_path: Path) -> None:
    cluster.apply(pool())
    with Store(tmp_path / "cluster" / ADDRESSES) as store:
        store.put(IPPool.model_validate(pool()["spec"]).made("p"))
        store.allocate(Holder("net", "c1", "eth0", "ai", "web", "node1"), [["p"]], "lowest-free")
    with pytest.raises(InputError, match=r"remove an IP address 10\.6\.0\.10 that is being used by Pod ai/web"):
        cluster.apply(pool(excludeIPs=["10.6.0.10"]))
    cluster.apply(pool(ips=["10.6.0.10"]))


def test_a_pool_that_was_to_go_is_gone_when_its_addresses_are_free(cluster: Cluster, tmp_path: Path) -> None:
    cluster.apply(pool())
    holder = Holder("net", "c1", "eth0", "ai", "web", "node1")
    with Store(tmp_path / "cluster" / ADDRESSES) as store:
        store.put(IPPool.model_validate(pool()["spec"]).made("p"))
        store.allocate(holder, [["p"]], "lowest-free")
        cluster.delete("SpiderIPPool", "p")
        with pytest.raises(InputError, match="cannot update a terminating IPPool"):
            cluster.apply(pool())
        store.give_back(holder)
    assert cluster.apply(pool()) == ["SpiderIPPool/p"]


def test_a_pool_has_its_subnets_gateway_and_routes_unless_it_has_its_own(cluster: Cluster) -> None:
    routes = [{"dst": "10.7.0.0/16", "gw": "10.6.0.1"}]
    cluster.apply(subnet(gateway="10.6.0.1", routes=routes))
    cluster.apply(pool())
    assert (
        cluster.get("SpiderIPPool", "p")["spec"] | {"gateway": "10.6.0.1", "routes": routes}
        == cluster.get("SpiderIPPool", "p")["spec"]
    )
    cluster.apply(pool(gateway="10.6.0.2", routes=[]))
    assert cluster.get("SpiderIPPool", "p")["spec"]["gateway"] == "10.6.0.2"
    assert cluster.get("SpiderIPPool", "p")["spec"]["routes"] == []


def test_an_address_that_is_hijacked_becomes_a_subnet(cluster: Cluster) -> None:
    cluster.apply(common(hijackCIDR=["1.2.3.4", "fd00::1"]))
    assert cluster.get("SpiderCoordinator", "default")["spec"]["hijackCIDR"] == ["1.2.3.4/32", "fd00::1/128"]


def test_a_configuration_of_the_users_may_be_empty(cluster: Cluster) -> None:
    cluster.apply(config(cniType="custom"))
    assert cluster.get("NetworkAttachmentDefinition", "m", "ai")["spec"] == {}


def test_pools_of_applications_have_no_affinities_of_users() -> None:
    labels = {"labels": {autopools.OWNER: "s"}}
    for affinity in ({"matchLabels": {"mine": "x"}}, OTHER):
        with pytest.raises(Denied, match="it's invalid to add additional podAffinity"):
            pools.pod_affinity_selects(reviewed([pool(metadata=labels, podAffinity=affinity)]))
    own = {"matchLabels": {f"{IPAM}/app-name": "web"}}
    pools.pod_affinity_selects(reviewed([pool(metadata=labels, podAffinity=own)]))
