"""What CNI 1.1.0 demands of plugins, asked of the real ones.

docs/cni-conformance.md has the table of the demands with their tests.
"""

import json
import subprocess

import pytest
from networks import FAILS, ROUTED, calls, failed, ipam, ippool, macvlan, make_pod, network, recorder

from testbed.cni.runtime import libcni, plugin_call
from testbed.cni.runtime.plugin_call import CniError, Limit, Place
from testbed.kernel import netns
from testbed.kernel.mounts import Isolated

MASTER = {"master": "eth1"}
PLUGINS = {
    "bridge": {"bridge": "cni0"},
    "macvlan": MASTER,
    "ipvlan": MASTER,
    "vlan": {**MASTER, "vlanId": 7},
    "ptp": {},
    "host-device": {"device": "vf0"},
}
"""Those that make an interface, with the least that they need beside an IPAM."""
IPAM = ["host-local", "ippool", "static"]
ALL = [*PLUGINS, *IPAM, "tuning", "bandwidth", "sbr", "portmap", "coordinator", "ifacer", "rxe"]


class Direct:
    """Calls a plugin of node1 as a runtime does, in a pod without networks."""

    def __init__(self, lab, directory):
        self.lab, self.node = lab, lab.host("node1")
        self.pod = lab.pods.create(self.node, "web", [])
        for name in "lib", "run":
            (directory / name).mkdir()
        binds = {libcni.STATE: directory / "lib", libcni.VOLATILE: directory / "run"}
        self._isolated = Isolated(netns.path(self.node.namespace), binds)
        self.node.defer(self._isolated.close)
        self._place = Place(self._isolated, directory / "log")
        path = libcni.search_path()
        self._find = lambda kind: plugin_call.find(kind, path, "test")
        self.variables = {
            "CNI_CONTAINERID": "c0ffee",
            "CNI_NETNS": str(netns.path(self.pod.namespace)),
            "CNI_IFNAME": "eth0",
            "CNI_PATH": libcni.joined(path),
        }

    def make_vf(self):
        self.node.add_vf("vf0", "eth1")

    def run(self, kind, stdin, **variables):
        """The program with any bytes as its input."""
        command = [self._find(kind)]
        options = {"input": stdin, "stdout": subprocess.PIPE, "env": {**self.variables, **variables}}
        return self._isolated.run(lambda: subprocess.run(command, check=False, **options))

    def __call__(self, command, kind, config=None, version="1.0.0", **variables):
        own = {**PLUGINS.get(kind, {}), "ipam": ippool(10) if kind == "ippool" else ipam(10)}
        stdin = {"cniVersion": version, "name": "net", "type": kind, **(own if config is None else config)}
        given = {**self.variables, "CNI_COMMAND": command, **variables}
        job = plugin_call.call(self._find(kind), given, stdin, self._place, Limit(), "test")
        return self.lab.scheduler.run(job)

    def interfaces(self):
        return {
            line.split(":")[1].strip().split("@")[0] for line in self.pod.run("ip", "-o", "link").stdout.splitlines()
        }


@pytest.fixture
def direct(lab, tmp_path, request):
    made = Direct(lab, tmp_path)
    if "host-device" in request.node.name:
        made.make_vf()
    return made


@pytest.mark.topology(ROUTED)
def test_version_lists_the_versions(direct):
    for kind in ALL:
        answer = direct("VERSION", kind)
        assert answer["cniVersion"], kind
        assert {"0.4.0", "1.0.0"} <= set(answer["supportedVersions"]), kind


@pytest.mark.topology(ROUTED)
def test_a_missing_variable_is_code_4_and_named(direct):
    for kind in ALL:
        for missing in "CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME":
            with pytest.raises(CniError, match=missing) as said:
                direct("ADD", kind, **{missing: ""})
            assert said.value.code == 4, kind


@pytest.mark.topology(ROUTED)
def test_an_unknown_version_is_code_1(direct):
    for kind in ALL:
        with pytest.raises(CniError) as said:
            direct("ADD", kind, version="7.0.0")
        assert said.value.code == 1, kind


@pytest.mark.topology(ROUTED)
def test_malformed_configuration_is_code_6(direct):
    for kind in ALL:
        done = direct.run(kind, b"{", CNI_COMMAND="ADD")
        assert done.returncode, kind
        assert json.loads(done.stdout)["code"] == 6, kind


@pytest.mark.parametrize("kind", PLUGINS)
@pytest.mark.topology(ROUTED)
def test_add_makes_the_interface_and_del_takes_it(direct, kind):
    result = direct("ADD", kind)
    (inside,) = [entry for entry in result["interfaces"] if entry.get("sandbox")]
    assert (inside["name"], inside["sandbox"]) == ("eth0", direct.variables["CNI_NETNS"])
    assert result["ips"][0]["address"] == "10.0.10.100/24"
    assert direct.interfaces() == {"lo", "eth0"}
    direct("DEL", kind)
    assert direct.interfaces() == {"lo"}


@pytest.mark.parametrize("kind", PLUGINS)
@pytest.mark.topology(ROUTED)
def test_a_name_that_is_taken_is_an_error(direct, kind):
    direct.pod.run("ip", "link", "add", "eth0", "type", "dummy")
    with pytest.raises(CniError, match="test: "):
        direct("ADD", kind)
    assert "dummy" in direct.pod.run("ip", "-d", "link", "show", "eth0").stdout
    direct.pod.run("ip", "link", "del", "eth0")
    if kind not in NO_SECOND_DEL:
        direct("DEL", kind)


NO_SECOND_DEL = ("host-device",)
"""Plugins 1.1.1 that want the interface to be there."""


@pytest.mark.topology(ROUTED)
def test_host_device_wants_its_interface_to_be_there(direct):
    """Known of 1.1.1, and no conformance."""
    with pytest.raises(CniError, match='failed to find "eth0": Link not found'):
        direct("DEL", "host-device")


@pytest.mark.parametrize("kind", sorted({*PLUGINS, *IPAM, "tuning", "coordinator", "ifacer", "rxe"} - {*NO_SECOND_DEL}))
@pytest.mark.topology(ROUTED)
def test_del_of_what_is_gone_or_never_was_is_no_error(direct, kind):
    for _ in range(2):
        assert direct("DEL", kind) is None
    assert direct("DEL", kind, CNI_NETNS="") is None
    assert direct("DEL", kind, CNI_NETNS="/run/netns/nobody") is None


@pytest.mark.parametrize("kind", ["host-local", "ippool"])
@pytest.mark.topology(ROUTED)
def test_an_ipam_plugin_answers_without_interfaces_and_gives_back(direct, kind):
    first = direct("ADD", kind)
    assert "interfaces" not in first
    assert first["ips"] == [{"address": "10.0.10.100/24", "gateway": "10.0.10.1"}]
    assert direct("ADD", kind, CNI_CONTAINERID="other")["ips"][0]["address"] == "10.0.10.101/24"
    for container in "c0ffee", "other":
        direct("DEL", kind, CNI_CONTAINERID=container)
    again = [direct("ADD", kind, CNI_CONTAINERID=str(n))["ips"][0]["address"] for n in range(10)]
    assert len(set(again)) == 10
    with pytest.raises(CniError):
        direct("ADD", kind, CNI_CONTAINERID="one more")
    for number in range(10):
        direct("DEL", kind, CNI_CONTAINERID=str(number))


@pytest.mark.parametrize("kind", ["tuning", "sbr", "coordinator", "rxe"])
@pytest.mark.topology(ROUTED)
def test_a_chained_plugin_hands_the_result_on(direct, kind):
    before = direct("ADD", "macvlan")
    no_veth = {"steps": ["conflict", "announce", "routes"]} if kind == "coordinator" else {}
    answer = direct("ADD", kind, {"prevResult": before, **no_veth})
    named = [entry.pop("rdma-device") for entry in answer["interfaces"] if "rdma-device" in entry]
    assert len(named) == (kind == "rxe")
    assert answer == before
    direct("DEL", kind, {"prevResult": before})
    direct("DEL", "macvlan")


@pytest.mark.parametrize("kind", ["bandwidth", "sbr", "portmap", "coordinator", "rxe"])
@pytest.mark.topology(ROUTED)
def test_a_chained_plugin_refuses_to_be_first(direct, kind):
    needs = {"bandwidth": {"ingressRate": 1000, "ingressBurst": 1000}}
    ports = {"runtimeConfig": {"portMappings": [{"hostPort": 80, "containerPort": 80, "protocol": "tcp"}]}}
    with pytest.raises(CniError, match=r"(?i)chain|prevResult|previous"):
        direct("ADD", kind, {**needs.get(kind, {}), **(ports if kind == "portmap" else {})})


@pytest.mark.parametrize("kind", ["macvlan", "bridge", "tuning", "coordinator", "rxe"])
@pytest.mark.topology(ROUTED)
def test_check_finds_an_interface_that_is_gone(direct, kind):
    alone = {**PLUGINS.get(kind, {}), "ipam": ipam(10)}
    before = direct("ADD", kind if kind in PLUGINS else "macvlan")
    if kind == "tuning":
        alone = {"sysctl": {"net.ipv4.conf.eth0.arp_announce": "2"}}  # CHECK of 1.1.1 does not know IFNAME
    if kind not in PLUGINS:
        direct("ADD", kind, {**alone, "prevResult": before})
    direct("CHECK", kind, {**alone, "prevResult": before})
    direct.pod.run("ip", "link", "del", "eth0")
    with pytest.raises(CniError):
        direct("CHECK", kind, {**alone, "prevResult": before})
    direct("DEL", kind if kind in PLUGINS else "macvlan")


@pytest.mark.parametrize("version", ["0.3.1", "0.4.0", "1.0.0"])
@pytest.mark.topology(ROUTED)
def test_a_result_is_of_the_version_that_was_asked_for(direct, version):
    static = {"ipam": {"type": "static", "addresses": [{"address": "10.0.10.7/24"}]}}
    for kind in IPAM:
        answer = direct("ADD", kind, static if kind == "static" else None, version)
        assert answer["cniVersion"] == version, kind
        assert ("version" in answer["ips"][0]) == (version < "1"), kind
        direct("DEL", kind, static if kind == "static" else None, version)
    for kind in ("macvlan", "bridge"):
        answer = direct("ADD", kind, version=version)
        assert answer["cniVersion"] == version, kind
        direct("DEL", kind, version=version)


# The plugins that delegate to IPAM, with the plugin that records as their delegate

ADDRESS = {"cniVersion": "1.0.0", "ips": [{"address": "10.0.10.7/24", "gateway": "10.0.10.1"}]}
NO_WAY = {**ADDRESS, "routes": [{"dst": "10.9.0.0/16", "gw": "10.7.7.7"}]}


def delegating(kind, answer=ADDRESS, **keys):
    return network({"type": kind, **PLUGINS[kind], "ipam": recorder(1, answer=answer, **keys)})


def delegated(lab):
    return [call.command for call in calls(lab, "node1")]


@pytest.fixture
def delegates(lab, request):
    """A lab with what its plugin needs."""
    if "host-device" in request.node.name:
        lab.host("node1").add_vf("vf0", "eth1")
    return lab


@pytest.mark.parametrize("kind", PLUGINS)
@pytest.mark.topology(ROUTED)
def test_a_delegate_gets_add_check_and_del_with_all_that_the_plugin_got(delegates, kind):
    pod = make_pod(delegates, delegating(kind))
    assert str(pod["eth0"].address()) == "10.0.10.7/24"
    pod.check()
    pod.delete()
    add, check, delete = calls(delegates, "node1")
    assert [call.command for call in (add, check, delete)] == ["ADD", "CHECK", "DEL"]
    assert add.stdin == {"cniVersion": "1.0.0", "name": "rdma", **delegating(kind)["plugins"][0]}
    for call in check, delete:
        assert call.environment == {**add.environment, "CNI_COMMAND": call.command}
        assert call.stdin["prevResult"]["ips"][0]["address"] == "10.0.10.7/24"
    assert add.environment["CNI_NETNS"] == f"/run/netns/{pod.namespace}"
    assert len({call.namespace for call in (add, check, delete)}) == 1


@pytest.mark.parametrize("kind", PLUGINS)
@pytest.mark.topology(ROUTED)
def test_an_error_of_a_delegate_is_the_plugin_s(delegates, kind):
    with pytest.raises(CniError) as said:
        make_pod(delegates, delegating(kind, fails={"ADD": FAILS}))
    own = "failed to execute IPAM delegate: no (code 999)" if kind == "vlan" else "no (code 100)"
    assert str(said.value) == f"{failed(kind)}{own}"
    assert delegated(delegates) == ["DEL"], "the runtime's: 1.1.1 calls none itself, and drops the stderr of the ADD"
    pod = make_pod(delegates, delegating(kind, fails={"CHECK": FAILS, "DEL": FAILS}))
    for act, operation in (pod.check, "check"), (pod.delete, "delete"):
        with pytest.raises(CniError) as said:
            act()
        assert str(said.value) == f"{failed(kind, operation)}no (code 100)"
    if kind == "host-device":
        delegates.host("node1").claim_vf("vf0", "eth1")  # it came back under its name in the pod
    for file in (delegates.directory / "cni/node1/lib/results").iterdir():
        file.unlink()


@pytest.mark.parametrize("kind", PLUGINS)
@pytest.mark.topology(ROUTED)
def test_an_add_that_fails_behind_its_delegate_takes_the_delegate_back(delegates, kind):
    """The gateway of a route that the delegate names is in no subnet. The last DEL is the runtime's. Known of ipvlan
    1.1.1, and no conformance: it looks at the error of something else."""
    with pytest.raises(CniError) as said:
        make_pod(delegates, delegating(kind, NO_WAY))
    assert str(said.value).startswith(failed(kind))
    assert delegated(delegates) == (["ADD", "DEL"] if kind == "ipvlan" else ["ADD", "DEL", "DEL"])


@pytest.mark.parametrize("kind", PLUGINS)
@pytest.mark.topology(ROUTED)
def test_check_tolerates_what_a_later_plugin_changed(delegates, kind):
    """Known of 1.1.1, and no conformance: macvlan misses the route that sbr moves (test_plugins_chain_behind_rxe)."""
    changes = {"mtu": 1400, "promisc": True, **({"mac": "06:00:00:00:00:77"} if kind != "ipvlan" else {})}
    pod = make_pod(delegates, network(delegating(kind)["plugins"][0], {"type": "tuning", **changes}))
    assert "PROMISC,UP" in pod.run("ip", "link", "show", "eth0").stdout
    pod.check()


@pytest.mark.topology(ROUTED)
def test_plugins_serve_containers_side_by_side(lab):
    nodes = [lab.host("node1")] * 6
    pods = lab.pods.create_all([(node, f"p{n}", [macvlan(ipam(10))]) for n, node in enumerate(nodes)])
    assert len({str(pod["eth0"].address().ip) for pod in pods}) == len(nodes)
    lab.pods.delete_all(pods)
