"""A network that cannot be had: one error that names plugin, network and pod, and nothing left behind."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from networks import ROUTED, bridge, ipam, macvlan, network, write_plugin

from testbed import Lab
from testbed.cni.runtime.plugin_call import CniError
from testbed.errors import InputError, TestbedError
from testbed.lab.leaks import inventory

pytestmark = pytest.mark.usefixtures("plugins")
FAILED = 'pod web: plugin type="broken" name="rdma" failed (add): '
NOT_CALLED = 'pod web: plugin type="{}" name="rdma" failed (version): '
RESULTS = "0.1.0, 0.2.0, 0.3.0, 0.3.1, 0.4.0, 1.0.0, 1.1.0"
DEFAULT_PATH = "/usr/lib/cni"


@pytest.fixture
def broken(plugins: Path) -> Callable[..., None]:
    """Makes a plugin called `broken`."""
    return lambda add, delete=":": write_plugin(plugins, "broken", add, delete)


def refused(lab: Lab, *networks: Any) -> TestbedError:
    """The error of a pod on node1. It left nothing: neither what it has itself nor what the networks before it gave."""
    before = lab.resources()
    with pytest.raises(TestbedError) as said:
        lab.pods.create(lab.host("node1"), "web", list(networks))
    left = {line for line in lab.resources() - before if not line.endswith(("/lock", "last_reserved_ip.0"))}
    assert left <= {"routed-node1: interface cni0", "routed-node1: address 10.244.1.1/24 on cni0"}
    assert "web" not in lab.nodes
    return said.value


@pytest.mark.topology(ROUTED)
def test_an_exhausted_pool(lab):
    lab.pods.create(lab.host("node1"), "first", [macvlan(ipam(10, last=100))])

    error = refused(lab, bridge(), macvlan(ipam(10, last=100)))

    assert str(error) == (
        'pod web: plugin type="macvlan" name="rdma" failed (add): failed to allocate for range 0: '
        "no IP addresses available in range set: 10.0.10.100-10.0.10.100 (code 999)"
    )
    assert isinstance(error, CniError)
    assert error.code == 999


@pytest.mark.topology(ROUTED)
def test_the_networks_before_are_taken_away_last_one_first(lab, log):
    refused(lab, bridge(), macvlan(ipam(10)), network({"type": "host-device", "device": "none"}, name="third"))
    commands = [(event["data"]["command"], event["data"]["network"]) for event in log.find("cni")]
    assert commands == [
        ("ADD", "metadata"),
        ("ADD", "rdma"),
        ("ADD", "third"),
        ("DEL", "third"),
        ("DEL", "rdma"),
        ("DEL", "metadata"),
    ]
    (failed,) = [event for event in log.find("cni", command="ADD") if "error" in event["data"]]
    assert (
        failed["text"].startswith('ADD third on eth0 by host-device fails: pod web: plugin type="host-device"') is False
    )
    assert "failed (add): failed to find host device" in failed["text"]


@pytest.mark.topology(ROUTED)
def test_an_unknown_plugin_is_found_before_anything_is_made(lab, log):
    error = refused(lab, bridge(), network({"type": "macvlen", "ipam": ipam(10)}))
    assert isinstance(error, InputError)
    assert error.message == f'{NOT_CALLED.format("macvlen")}failed to find plugin "macvlen" (code 7)'
    assert error.hint.startswith("Did you mean macvlan? There are: bandwidth, beside, bond, bridge, ")
    assert "rxe" in error.hint
    assert not log.find("cni")


@pytest.mark.topology(ROUTED)
def test_an_unknown_ipam_plugin_is_found_too(lab):
    error = refused(lab, network({"type": "macvlan", "ipam": {"type": "calico-ipam"}}))
    assert error.message == f'{NOT_CALLED.format("calico-ipam")}failed to find plugin "calico-ipam" (code 7)'


@pytest.mark.topology(ROUTED)
def test_a_plugin_without_an_execute_bit_is_found_too(lab, broken, plugins, log):
    broken(":")
    (plugins / "broken").chmod(0o644)
    error = refused(lab, bridge(), network({"type": "broken"}))
    assert error.message == f"{NOT_CALLED.format('broken')}it cannot be executed (code 5)"
    assert error.hint == "chmod +x plugins/broken"
    assert not log.find("cni")


@pytest.mark.topology(ROUTED)
def test_a_version_that_a_plugin_does_not_speak(lab, log):
    error = refused(lab, macvlan(ipam(10), version="1.1.0"))
    assert error.message == f"{NOT_CALLED.format('macvlan')}it does not support cniVersion 1.1.0 (code 1)"
    assert error.hint == "It supports 0.1.0, 0.2.0, 0.3.0, 0.3.1, 0.4.0, 1.0.0."
    assert not log.find("cni")


@pytest.mark.topology(ROUTED)
def test_versions_of_which_no_one_is_spoken_by_all(lab, broken, log):
    broken(":")  # 1.0.0 only
    mixed = {**network({"type": "broken"}, {"type": "rxe"}, version="0.4.0"), "cniVersions": ["1.1.0"]}
    error = refused(lab, mixed)
    assert error.message == f"{NOT_CALLED.format('broken')}it does not support cniVersion 0.4.0 or 1.1.0 (code 1)"
    assert error.hint == "It supports 1.0.0."
    after = {**network({"type": "macvlan"}, {"type": "broken"}, version="0.4.0"), "cniVersions": ["1.1.0"]}
    assert refused(lab, after).message == (
        f"{NOT_CALLED.format('broken')}it does not support cniVersion 0.4.0; "
        "the plugins before it do not support 1.1.0 (code 1)"
    )
    assert not log.find("cni")


@pytest.mark.topology(ROUTED)
def test_a_version_that_nobody_speaks(lab):
    error = refused(lab, macvlan(ipam(10), version="7.0.0"))
    assert error.message == "pod web: cniVersion '7.0.0' is not supported"
    assert error.where == "conflist rdma: cniVersion"


def test_malformed_json_is_told_with_its_place(tmp_path, log, request):
    from testbed import Topology
    from testbed.cni.runtime.pod_networks import PodNetworks

    (tmp_path / "bad.conflist").write_text('{"cniVersion": "1.0.0",\n "name": "rdma"\n "plugins": []}')
    topology = Topology.load(request.path.parent / ROUTED)
    with Lab(topology, tmp_path / "out", log.emit, networks=PodNetworks(tmp_path)) as lab:
        error = refused(lab, "bad.conflist")
    assert error.where == f"{tmp_path}/bad.conflist:3:2"
    assert error.message == "pod web: not valid JSON: Expecting ',' delimiter"


@pytest.mark.topology(ROUTED)
def test_a_plugin_that_hangs_is_killed_with_what_it_started(lab, broken, log):
    broken("echo about to hang >&2; sleep 3600")
    begin = log.now

    error = refused(lab, bridge(), network({"type": "broken"}))

    assert error.message == f"{FAILED}it was still running after 30 s and has been killed (code 5)"
    assert error.code == 5
    assert error.hint == "On stderr: about to hang"
    assert 30 < (log.now - begin) / 1e9 < 32
    assert "about to hang" in (lab.directory / "node1-cni.log").read_text()


@pytest.mark.parametrize(
    ("add", "message", "hint"),
    [
        ("echo '<html>'", "its answer is not a JSON object: '<html>\\n' (code 6)", ""),
        ("echo '[1]'", "its answer is not a JSON object: '[1]\\n' (code 6)", ""),
        (":", "it succeeded without a result (code 6)", ""),
        ("exit 3", "it ended with status 3 and no error object (code 6)", ""),
        ("echo none >&2; exit 3", "it ended with status 3 and no error object (code 6)", "On stderr: none"),
        ("kill -SEGV $$", "it ended with signal 11 and no error object (code 6)", ""),
        ("echo oops; exit 1", "it ended with status 1 and, instead of an error object: 'oops\\n' (code 6)", ""),
        ("echo '{}'; exit 1", "it ended with status 1 and, instead of an error object: '{}\\n' (code 6)", ""),
        ('echo \'{"code": 7, "msg": "bad", "details": "very"}\'; exit 1', "bad (code 7): very", ""),
        ('echo \'{"cniVersion": "9.0"}\'', f"its result has version 9.0; supported: {RESULTS} (code 1)", ""),
        ("echo '{\"ips\": 5}'", "its result is malformed (code 6)", ""),
    ],
)
@pytest.mark.topology(ROUTED)
def test_a_plugin_that_does_not_obey_the_contract(lab, broken, add, message, hint):
    broken(add)
    error = refused(lab, bridge(), network({"type": "broken"}))
    assert (error.message, error.hint) == (FAILED + message, hint)
    assert isinstance(error, CniError)
    assert f"(code {error.code})" in message


@pytest.mark.topology(ROUTED)
def test_a_plugin_that_does_not_say_its_versions(lab, broken, plugins):
    broken(":")
    (plugins / "broken").write_text("#!/bin/sh\necho '{}'\n")
    error = refused(lab, bridge(), network({"type": "broken"}))
    assert error.message == f"{NOT_CALLED.format('broken')}its answer has no supportedVersions (code 6)"


@pytest.mark.topology(ROUTED)
def test_an_interface_that_the_pod_has_not(lab, broken):
    sandbox = '{"name": "eth7", "mac": "06:00:00:00:00:01", "sandbox": "\'$CNI_NETNS\'"}'
    broken(f"echo '{{\"interfaces\": [{sandbox}]}}'")
    error = refused(lab, network({"type": "broken"}))
    assert str(error) == f"{FAILED}its result has an interface eth7, which the pod does not have (code 7)"


@pytest.mark.topology(ROUTED)
def test_an_address_of_an_interface_that_the_result_has_not(lab, broken):
    broken('echo \'{"ips": [{"address": "10.0.10.7/24", "interface": 1}]}\'')
    error = refused(lab, network({"type": "broken"}))
    assert str(error) == f"{FAILED}its result is malformed: ips names interface 1 of 0 (code 6)"


@pytest.fixture
def gives(broken: Callable[..., None]) -> Callable[..., dict[str, Any]]:
    """Makes an IPAM plugin that gives an address, and maybe a gateway and routes; its configuration."""

    def make(address: str, gateway: str = "", *routes: str) -> dict[str, Any]:
        given = {"address": address, **({"gateway": gateway} if gateway else {})}
        answer = {"cniVersion": "1.0.0", "ips": [given], "routes": [{"dst": route} for route in routes]}
        broken(f"echo '{json.dumps(answer)}'")
        return {"type": "broken"}

    return make


@pytest.mark.parametrize(
    ("address", "gateway", "wrong"),
    [
        (
            "10.0.99.7/24",
            "10.0.10.1",
            "10.0.99.7/24 with the gateway 10.0.10.1, which is not in 10.0.99.0/24, and to which net1 has no route",
        ),
        ("10.0.10.255/24", "", "10.0.10.255/24, the broadcast address of 10.0.10.0/24"),
        ("10.0.10.0/24", "", "10.0.10.0/24, the network address of 10.0.10.0/24"),
        ("fd00:10::/64", "", "fd00:10::/64, the anycast address of the routers of fd00:10::/64"),
        ("224.0.0.7/24", "", "224.0.0.7/24, which is not a unicast address"),
    ],
)
@pytest.mark.topology(ROUTED)
def test_an_address_that_no_host_can_have_or_that_does_not_reach_its_gateway(lab, gives, address, gateway, wrong):
    error = refused(lab, bridge(), macvlan(gives(address, gateway)))
    assert str(error) == f"{FAILED}it gave {wrong} (code 7)"
    assert isinstance(error, CniError)
    assert error.code == 7


@pytest.mark.topology(ROUTED)
def test_a_gateway_outside_the_subnet_fails_at_the_plugin_that_makes_its_route(lab, gives):
    error = refused(lab, bridge(), macvlan(gives("10.0.99.7/24", "10.0.10.1", "0.0.0.0/0")))
    assert error.message.startswith('pod web: plugin type="macvlan" name="rdma" failed (add): failed to add route ')
    assert error.message.endswith("network is unreachable (code 999)")


@pytest.mark.parametrize(
    ("main", "address", "gateway"),
    [
        ("macvlan", "10.0.10.50/32", "169.254.1.1"),  # as Calico
        ("macvlan", "10.0.10.50/31", "10.0.10.51"),
        ("macvlan", "fd00:10::/127", "fd00:10::1"),
        ("macvlan", "fd00:10::7/64", "fe80::1"),
        ("ptp", "10.77.0.2/24", "10.88.0.1"),  # which has a route to its gateway
    ],
)
@pytest.mark.topology(ROUTED)
def test_addresses_and_gateways_that_are_legal(lab, gives, main, address, gateway):
    given = gives(address, gateway)
    keys = {"master": "eth1"} if main == "macvlan" else {}
    pod = lab.pods.create(lab.host("node1"), "web", [network({"type": main, **keys, "ipam": given})])
    assert [str(one) for one in pod["eth0"].addresses.values()] == [address]
    pod.delete()


@pytest.mark.topology(ROUTED)
def test_a_chained_plugin_that_reports_another_address_than_the_pod_has(lab, broken):
    broken(r"""sed 's/.*"prevResult": \({.*}\)}$/\1/; s/10.0.10.100/10.0.10.177/'""")
    error = refused(lab, bridge(), macvlan(ipam(10), {"type": "broken"}))
    assert str(error) == f"{FAILED}its result has 10.0.10.177/24 on net1, but the kernel has 10.0.10.100/24 (code 7)"


@pytest.mark.topology(ROUTED)
def test_a_plugin_that_cannot_be_started(lab, broken, plugins):
    broken(":")
    (plugins / "broken").write_text("#!/no/such/shell\n")
    error = refused(lab, network({"type": "broken"}))
    assert error.message == f"{NOT_CALLED.format('broken')}it cannot be started: No such file or directory (code 5)"


@pytest.mark.topology(ROUTED)
def test_a_failing_del_does_not_hide_why_the_pod_failed(lab, broken, log):
    broken('echo \'{"code": 11, "msg": "try later"}\'; exit 1', "exit 5")
    error = refused(lab, bridge(), network({"type": "broken"}))
    assert error.message == f"{FAILED}try later (code 11)"
    deleted = [event["data"].get("error") for event in log.find("cni", command="DEL")]
    assert deleted == [f"{FAILED.replace('add', 'delete')}it ended with status 5 and no error object (code 6)", None]


@pytest.mark.topology(ROUTED)
def test_a_del_that_never_comes_to_rxe_leaves_no_rdma_device(lab, broken):
    broken('cat | sed \'s/.*\\("prevResult": {.*}\\)}$/\\1/; s/^"prevResult": //\'', "exit 5")
    pod = lab.pods.create(lab.host("node1"), "web", [macvlan(ipam(10), {"type": "broken"})])
    device = pod["eth0"].device
    with pytest.raises(CniError) as said:
        pod.delete()
    assert said.value.message == f"{FAILED.replace('add', 'delete')}it ended with status 5 and no error object (code 6)"
    assert f"RDMA device {device}" not in inventory()
    state = lab.directory / "cni/node1/lib"
    assert (state / "networks/rdma/10.0.10.100").exists()  # as under libcni, until kubelet tries again
    shutil.rmtree(state)


@pytest.mark.fresh
@pytest.mark.topology(ROUTED)
def test_rdma_where_soft_roce_cannot_be(lab):
    vlan = network({"type": "vlan", "master": "eth1", "vlanId": 7, "ipam": ipam(10)}, {"type": "rxe"})
    assert refused(lab, vlan).message == (
        'pod web: plugin type="rxe" name="rdma" failed (add): eth0 is a VLAN device; the kernel creates no '
        "soft-RoCE device on one (code 100): use macvlan with the node's VLAN device as its master"
    )

    layer3 = network({"type": "ipvlan", "master": "eth1", "mode": "l3", "ipam": ipam(10)}, {"type": "rxe"})
    assert refused(lab, layer3).message == (
        'pod web: plugin type="rxe" name="rdma" failed (add): '
        "eth0 is an ipvlan in a layer-3 mode, which does not carry RoCE: use mode l2 (code 100)"
    )


def test_the_plugins_of_the_distribution_are_there():
    assert {
        "macvlan",
        "ipvlan",
        "bridge",
        "host-local",
        "static",
        "tuning",
        "sbr",
        "host-device",
        "vlan",
        "ptp",
    } <= set(os.listdir(DEFAULT_PATH))
