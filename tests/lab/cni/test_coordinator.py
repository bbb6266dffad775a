"""The plugin `coordinator`: detection, announcement, routes of several interfaces, the node's way to a pod."""

import json
import time
from ipaddress import ip_interface
from typing import Any

import pytest
from networks import ipam, ippool, network

from testbed import Caller, Lab
from testbed.cni.ipam.address_store import Store
from testbed.cni.plugins.contract import Call, Refusal
from testbed.cni.plugins.coordinator import call
from testbed.cni.plugins.coordinator.detection import CONFLICT, UNREACHABLE, probe
from testbed.cni.runtime.plugin_call import CniError
from testbed.kernel import netns
from testbed.workload.verbs import connect_pair, open_endpoint

pytestmark = pytest.mark.topology("rails.clab.yml")


def rail(number: int = 1, *, last: int = 109, gateway: str = "", first: int = 100, **keys: Any) -> dict[str, Any]:
    """A network: macvlan on eth<number> in 10.0.<number>0.0/24, coordinator with these keys, rxe."""
    addresses = ippool(10 * number, first, last)
    if gateway:
        addresses["pools"][0]["gateway"] = gateway
    main = {"type": "macvlan", "master": f"eth{number}", "capabilities": {"mac": True}, "ipam": addresses}
    return network(main, {"type": "coordinator", **keys}, {"type": "rxe"}, name=f"rail{number}")


def create(lab: Lab, name: str, *networks: dict[str, Any], node: str = "node1") -> Any:
    return lab.pods.create(lab.host(node), name, list(networks))


def shown(node: Any, *words: str) -> list[dict[str, Any]]:
    return json.loads(node.run("ip", "-j", *words).stdout or "[]")


# Who has the address


@pytest.mark.fresh
@pytest.mark.slow
def test_an_owner_that_answers_is_found_by_both_methods_and_a_slow_one_by_rfc5227_only(lab):
    owner = lab.host("node2")["eth1"]
    taken = str(owner.address().ip)
    last = int(taken.rpartition(".")[2])

    def attempt(method):
        return create(lab, "web", rail(first=last, last=last, detectIPConflict=method))

    for method in "spiderpool", "rfc5227":
        with pytest.raises(CniError, match=f"eth0: address {taken} is in use by {owner.mac}") as said:
            attempt(method)
        assert said.value.code == CONFLICT
        assert "web" not in lab.nodes

    owner.node.run("tc", "qdisc", "add", "dev", "eth1", "root", "netem", "delay", "150ms")
    attempt("spiderpool").delete()
    with pytest.raises(CniError, match=f"in use by {owner.mac}"):
        attempt("rfc5227")


@pytest.mark.fresh
@pytest.mark.slow
def test_a_fixed_address_in_conflict_is_refused_at_every_attempt_and_kept(lab):
    """A pod of a StatefulSet gets no other address, whatever the policy."""
    owner = lab.host("node2")["eth1"]
    taken = owner.address().ip
    first = taken.packed[-1]
    list_ = rail(first=first, last=first + 1, detectIPConflict=True)
    list_["plugins"][0]["ipam"]["policy"] = "round-robin"
    stateful = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "web"}, "spec": {"replicas": 1}}
    lab.objects.apply(stateful)
    twice = Caller(attempts=2, pause=1)

    def start(name, **keys):
        return lab.pods.create(lab.host("node1"), name, [list_], twice, **keys)

    for _ in range(2):
        with pytest.raises(CniError, match=f"address {taken} is in use by {owner.mac}") as said:
            start("web-0", owner="StatefulSet/web")
        assert said.value.code == CONFLICT
        with Store(lab.directory / "cluster/addresses.sqlite") as store:
            assert [(lease.address, lease.holder.pod) for lease in store.leases()] == [(taken, "web-0")]

    assert start("another")["eth0"].address().ip == taken + 1
    owner.remove_address()
    assert start("web-0", owner="StatefulSet/web")["eth0"].address().ip == taken


def test_who_probes_for_the_same_address_is_a_conflict_for_rfc5227(lab):
    rival = lab.host("node2")["eth1"]
    frame = probe(rival.mac, ip_interface("10.0.10.100").ip)
    lab.scheduler.every(0.02, lambda: rival.send(frame))
    create(lab, "web", rail(detectIPConflict="spiderpool")).delete()
    with pytest.raises(CniError, match=f"address 10.0.10.100 is in use by {rival.mac}"):
        create(lab, "web", rail(detectIPConflict="rfc5227"))


@pytest.mark.slow
def test_of_two_pods_that_start_with_one_address_rfc5227_refuses_one_at_least(lab):
    """host-local keeps its addresses on each node."""
    main = {"type": "macvlan", "master": "eth1", "ipam": ipam(10, 100, 100)}
    for method, codes in ("spiderpool", set()), ("rfc5227", {CONFLICT}):
        list_ = network(main, {"type": "coordinator", "detectIPConflict": method})
        pods = lab.pods.create_all([(lab.host(node), f"of-{node}", [list_]) for node in ("node1", "node2")])
        refused = [pod for pod in pods if isinstance(pod, CniError)]
        assert {error.code for error in refused} == codes
        lab.pods.delete_all(pod for pod in pods if not isinstance(pod, CniError))


@pytest.mark.fresh
def test_a_gateway_that_answers_for_all_addresses_is_a_false_conflict(lab):
    gateway = lab.host("node2")["eth1"]
    gateway.node.kernel.set_address(gateway.index, ip_interface("10.0.10.100/24"))
    list_ = {"gateway": str(gateway.address().ip), "detectIPConflict": True}
    with pytest.raises(CniError, match=f"in use by {gateway.mac}"):
        create(lab, "web", rail(**list_))
    create(lab, "web", rail(**list_, detectOptions={"ignoreGateway": True}))


@pytest.mark.fresh
def test_a_gateway_that_does_not_answer_is_an_error_and_one_that_comes_is_waited_for(lab):
    node = lab.host("node2")
    with pytest.raises(CniError, match=r"gateway 10\.0\.10\.9 does not answer") as said:
        create(lab, "web", rail(gateway="10.0.10.9", detectGateway=True))
    assert said.value.code == UNREACHABLE

    lab.scheduler.after(1.5, lambda: node.kernel.set_address(node["eth1"].index, ip_interface("10.0.10.9/24")))
    create(lab, "web", rail(gateway="10.0.10.9", detectGateway=True, detectOptions={"retries": 3, "interval": "1s"}))


def test_the_gateway_asked_before_the_conflict_is_known_poisons_the_switch(lab):
    """With a plugin that does not announce the address itself."""
    owner, leaf = lab.host("node2")["eth1"], lab.switch("leaf")
    taken = owner.address().ip
    last = int(str(taken).rpartition(".")[2])
    assert owner.ping_gateway()
    lab.host("node1").add_vf("vf0", "eth1")

    def refused(*steps):
        keys = {"detectIPConflict": True, "detectGateway": True, "steps": list(steps)}
        main = {"type": "host-device", "device": "vf0", "ipam": ippool(10, last, last)}
        with pytest.raises(CniError, match="is in use by"):
            create(lab, "web", network(main, {"type": "coordinator", **keys}))
        return leaf.neighbour(taken)

    assert refused("conflict", "gateway") == owner.mac
    assert refused("gateway", "conflict") != owner.mac


@pytest.mark.fresh
def test_ipv6_conflicts_and_gateways(lab):
    """Called in this process, on a node in the place of a pod: there the kernel detects no duplicates itself."""
    one, two = (lab.host(node)["eth1"] for node in ("node1", "node2"))
    for end, address in (one, "fd00:10::100/64"), (two, "fd00:10::100/64"), (two, "fd00:10::1/64"):
        end.add_address(ip_interface(address))
    result = {"cniVersion": "1.0.0", "ips": [{"address": "fd00:10::100/64", "gateway": "fd00:10::1"}]}

    def add(**keys):
        config = {"cniVersion": "1.0.0", "name": "six", "prevResult": result, "steps": ["conflict", "gateway"], **keys}
        began = time.monotonic()
        with one.node.entered():
            answer = call(Call("ADD", "c0ffee", str(netns.path(one.node.namespace)), "eth1", {}, config))
        return answer, time.monotonic() - began

    for method in "spiderpool", "rfc5227":
        with pytest.raises(Refusal, match=f"address fd00:10::100 is in use by {two.mac}"):
            add(detectIPConflict=method)
    two.node.kernel.delete_address(two.index, ip_interface("fd00:10::100/64"))
    assert add(detectIPConflict="spiderpool", detectGateway=True)[0] == result
    answer, took = add(detectIPConflict="rfc5227")
    assert answer == result
    assert 1 < took < 2.1
    two.node.kernel.delete_address(two.index, ip_interface("fd00:10::1/64"))
    with pytest.raises(Refusal, match="gateway fd00:10::1 does not answer"):
        add(detectGateway=True)


# Announcement


@pytest.mark.fresh
@pytest.mark.slow
def test_it_announces_the_addresses_of_its_interface_or_those_of_the_pod(lab):
    wire = lab.switch("leaf")["e3"].capture("arp")
    quick = {"count": 2, "interval": "10ms"}
    pod = create(lab, "web", rail(1), rail(2, announce=quick))
    other = create(lab, "all", rail(1), rail(2, announce={"addresses": "pod"}))
    lab.scheduler.sleep(0.1)
    wire.stop()

    def announced(of):
        frames = [frame for frame in wire.frames() if frame.src == of["net1"].mac and frame.data[32:38] == b"\xff" * 6]
        assert all(frame.data[28:32] == frame.data[38:42] for frame in frames)
        return [str(ip_interface(frame.data[28:32]).ip) for frame in frames]

    assert announced(pod) == ["10.0.20.100"] * 2
    assert sorted(announced(other)) == ["10.0.10.101", "10.0.20.101"]


# Several interfaces


def rules(pod: Any) -> dict[str, str]:
    return {rule["src"]: rule["table"] for rule in shown(pod, "rule") if rule["src"] != "all"}


def default_over(pod: Any, table: str = "main") -> list[str]:
    return [route["dev"] for route in shown(pod, "route", "show", "table", table) if route["dst"] == "default"]


@pytest.mark.slow
def test_rdma_of_a_later_interface_goes_across_subnets_by_its_own_routes(lab):
    """Its peer is in the subnet of eth0. A strict reverse path filter drops what would be answered over eth0."""
    peer = create(lab, "peer", rail(1), node="node2")

    def pod_and_write(name, **keys):
        pod = create(lab, name, rail(1, podRPFilter=1, **keys), rail(2, podRPFilter=1, **keys))
        with open_endpoint(pod["net1"]) as near, open_endpoint(peer["eth0"]) as far:
            connect_pair(near, far)
            written = near.write(4096, within=10).ok
        pod.check()
        return pod, written

    pod, written = pod_and_write("without", tunePodRoutes=False)
    assert (written, rules(pod)) == (False, {})
    pod, written = pod_and_write("with")
    ip = str(pod["net1"].address().ip)
    assert (written, rules(pod)) == (True, {ip: "101"})
    assert (default_over(pod), default_over(pod, "101")) == (["eth0"], ["net1"])
    pod.run("ip", "rule", "del", "from", ip)
    with pytest.raises(CniError, match=f"net1: the rule from {ip} is missing"):
        pod.check()


def test_behind_bridge_the_first_interface_answers_by_its_own_table(lab):
    main = {"type": "bridge", "bridge": "cni0", "isGateway": True}
    addresses = {"type": "host-local", "ranges": [[{"subnet": "10.244.1.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}
    pod = create(lab, "web", network({**main, "ipam": addresses}, name="metadata"), rail(1))
    assert rules(pod) == {"10.244.1.2": "100", "10.0.10.100": "101"}
    assert (default_over(pod), default_over(pod, "100"), default_over(pod, "101")) == (["eth0"], ["eth0"], ["net1"])
    assert "veth0" not in pod.interfaces
    pod.check()


# The node's way to its pod


@pytest.mark.slow
def test_the_node_reaches_its_pods_by_a_veth_of_each(lab):
    node = lab.host("node1")
    bare = create(lab, "bare", rail(1, steps=["routes"]))
    assert not node.ping(bare["eth0"].address().ip, within=0.5)  # a macvlan child of its own interface
    bare.delete()

    pod = create(lab, "web", rail(1, vethLinkAddress="169.254.100.1"), rail(2))
    other = create(lab, "other", rail(1))
    for end in pod["eth0"], pod["net1"], other["eth0"]:
        assert node.ping(end.address().ip, within=1)
        assert pod.ping(lab.host("node2")["eth1"].address().ip, within=1)
    assert "169.254.100.1" in pod.run("ip", "-br", "addr", "show", "veth0").stdout
    pod.check()
    assert len(shown(node, "route", "show", "table", "500")) == 3

    pod.delete()
    assert [route["dst"] for route in shown(node, "route", "show", "table", "500")] == ["10.0.10.101"]
    other.run("ip", "link", "del", "veth0")
    with pytest.raises(CniError, match=r"the veth from veth0 to the node's veth[0-9a-f]{11} is missing"):
        other.check()
    other.delete()
    assert not [rule for rule in shown(node, "rule") if rule["table"] == "500"]
    assert not [entry for entry in shown(node, "neigh") if "PERMANENT" in entry["state"]]


def test_what_a_refused_add_made_is_undone(lab):
    """The last step fails, so all others were carried out."""
    node, keys = lab.host("node1"), {"detectGateway": True, "podMACPrefix": "0a:1b", "podRPFilter": 2}
    pod = create(lab, "web", rail(1))
    end = pod["eth0"]
    result = {"ips": [{"address": str(end.address()), "gateway": "10.0.10.9"}]}
    steps = ["mac", "rp_filter", "veth", "gateway"]
    pod.run("ip", "link", "del", "veth0")
    pod.run("rdma", "link", "delete", end.rdma)
    config = {"cniVersion": "1.0.0", "name": "n", "prevResult": result, "steps": steps, **keys}
    with node.entered(), pytest.raises(Refusal, match="does not answer"):
        call(Call("ADD", "c0ffee", str(netns.path(pod.namespace)), "eth0", {}, config))
    assert pod.kernel.read("eth0")[2][1].hex(":") == end.mac
    assert pod.read_sysctl("net/ipv4/conf/all/rp_filter") == "0"
    assert "veth" not in node.run("ip", "-br", "link").stdout
    assert shown(node, "route", "show", "table", "500") == []


def test_mac_reverse_path_filter_and_default_route_are_as_configured(lab):
    """CHECK of macvlan compares the MAC with the result."""
    keys = {"podMACPrefix": "0a:1b", "podRPFilter": 2}
    pod = create(lab, "web", rail(1, **keys), rail(2, podDefaultRouteNIC="net1", **keys))
    assert (pod["eth0"].mac, pod["net1"].mac) == ("0a:1b:0a:00:0a:64", "0a:1b:0a:00:14:64")
    assert (default_over(pod), default_over(pod, "101")) == (["net1"], ["eth0"])
    assert rules(pod) == {"10.0.10.100": "101"}
    pod.check()
    pod.sysctl("net/ipv4/conf/all/rp_filter", 1)
    with pytest.raises(CniError, match=r"net\.ipv4\.conf\.all\.rp_filter is 1, not 2"):
        pod.check()


def test_queue_length_policy_routes_and_the_veth_are_as_configured(lab):
    """`policyRoutes` are in the table of their interface; of the first one they are in the main table."""
    routes = [{"dst": "10.99.0.0/16", "gw": "10.0.10.1"}, {"dst": "fd00:99::/64", "gw": "fd00:10::1"}]
    keys = {"txQueueLen": 77, "vethMTU": 1400, "vethLinkAddress": "fe80::9", "policyRoutes": routes}
    second = [{"dst": "10.98.0.7", "gw": "10.0.20.1"}]
    pod = create(lab, "web", rail(1, **keys), rail(2, policyRoutes=second))

    def to(target: str, table: str = "main") -> list[tuple[str, str]]:
        found = shown(pod, "route", "show", "table", table)
        return [(route["dev"], route["gateway"]) for route in found if route["dst"] == target]

    (end,), (veth,) = shown(pod, "link", "show", "eth0"), shown(pod, "addr", "show", "veth0")
    assert (end["txqlen"], veth["mtu"]) == (77, 1400)
    assert "fe80::9" in [one["local"] for one in veth["addr_info"]]
    assert to("10.99.0.0/16") == [("eth0", "10.0.10.1")]
    assert (to("10.98.0.7", "101"), to("10.98.0.7")) == ([("net1", "10.0.20.1")], [])
    pod.check()
    pod.run("ip", "route", "del", "10.98.0.7", "table", "101")
    with pytest.raises(CniError, match=r"net1: the route to 10\.98\.0\.7/32 by 10\.0\.20\.1 is missing"):
        pod.check()
    pod.run("ip", "link", "set", "eth0", "txqueuelen", "5")
    with pytest.raises(CniError, match="eth0: its txqueuelen is 5, not 77"):
        pod.check()


def test_the_default_route_is_the_annotation_s_before_the_cluster_s_and_after_the_configuration_s(lab):
    common = {"apiVersion": "spiderpool.spidernet.io/v2beta1", "kind": "SpiderCoordinator"}
    spec = {"podCIDRType": "auto", "podDefaultRouteNIC": "net1"}
    lab.objects.apply({**common, "metadata": {"name": "default"}, "spec": spec})

    def default(name: str, nic: str = "", **keys: Any) -> list[str]:
        notes = {"annotations": {"ipam.spidernet.io/default-route-nic": nic}} if nic else {}
        pod = lab.pods.create(lab.host("node1"), name, [rail(1), rail(2, **keys)], **notes)
        return default_over(pod)

    assert default("cluster") == ["net1"]
    assert default("annotated", "eth0") == ["eth0"]
    assert default("configured", "eth0", podDefaultRouteNic="net1") == ["net1"]


@pytest.mark.fresh
def test_both_families(lab):
    node, addresses = lab.host("node1"), ippool(10)
    node["eth1"].add_address(ip_interface("fd00:10::2/64"))
    lab.host("node2")["eth1"].add_address(ip_interface("fd00:10::3/64"))
    six = {
        "subnet": "fd00:10::/64",
        "ips": ["fd00:10::100-fd00:10::1ff"],
        "routes": [{"dst": "::/0", "gw": "fd00:10::3"}],
    }
    addresses["pools"].append({"name": "six", **six})
    main = {"type": "macvlan", "master": "eth1", "ipam": addresses}
    pod = create(lab, "web", network(main, {"type": "coordinator"}))
    lab.scheduler.sleep(2)  # macvlan does not wait for the kernel's duplicate address detection
    for ip in pod["eth0"].addresses.values():
        assert node.ping(ip.ip, within=1)
    pod.check()
    pod.delete()
    assert not [rule for rule in shown(node, "-6", "rule") if rule["table"] == "500"]
