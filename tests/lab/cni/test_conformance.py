"""What CNI 1.1.0 demands of a runtime, shown to a plugin that records, and of plugins, asked of the real ones.

docs/cni-own.md has the table of the demands with their tests.
"""

from __future__ import annotations

import json
import os
import re
import subprocess

import pytest
from networks import ROUTED, bridge, calls, failed, ipam, ippool, macvlan, network, recorder, under_way

from testbed import Caller
from testbed.cni.runtime import libcni, plugin
from testbed.cni.runtime.plugin import CniError, Limit, Place
from testbed.errors import InputError
from testbed.kernel import netns
from testbed.kernel.mounts import Isolated

ANSWER = {"cniVersion": "1.1.0", "ips": [{"address": "192.0.2.7/24"}], "dns": {}}
LAST = {"cniVersion": "1.1.0", "ips": [{"address": "192.0.2.8/24"}], "dns": {}}
FAILS = {"cniVersion": "1.1.0", "code": 100, "msg": "no"}
VARIABLES = {"CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME", "CNI_ARGS", "CNI_PATH", "CNI_COMMAND"}


def chain(*plugins, version="1.1.0", **keys):
    return {**network(*plugins, version=version), **keys}


THREE = chain(recorder(1, answer=ANSWER), recorder(2), recorder(3))


def told(lab, command=None):
    return [call for call in calls(lab, "node1") if command in (None, call.command)]


def numbers(lab, command=None):
    return [(call.command, call.stdin["number"]) for call in told(lab, command)]


def make(lab, *networks, name="web"):
    return lab.pods.create(lab.host("node1"), name, list(networks))


# The runtime


@pytest.mark.topology(ROUTED)
def test_add_goes_through_the_list_and_hands_results_on(lab):
    make(lab, chain(recorder(1, answer=ANSWER), recorder(2, answer=LAST), recorder(3)))
    assert numbers(lab) == [("ADD", 1), ("ADD", 2), ("ADD", 3)]
    assert [call.stdin.get("prevResult") for call in told(lab)] == [None, ANSWER, LAST]


@pytest.mark.topology(ROUTED)
def test_the_namespace_is_there_before_the_first_plugin(lab):
    pod = make(lab, THREE)
    assert {call.environment["CNI_NETNS"] for call in told(lab)} == {f"/run/netns/{pod.namespace}"}
    assert all(call.there for call in told(lab))


@pytest.mark.topology(ROUTED)
def test_an_error_ends_the_list_and_del_follows_for_all_of_it(lab):
    with pytest.raises(CniError) as said:
        make(lab, chain(recorder(1, answer=ANSWER), recorder(2, fails={"ADD": FAILS}), recorder(3)))
    assert str(said.value) == f"{failed('recorder')}no (code 100)"
    assert numbers(lab) == [("ADD", 1), ("ADD", 2), ("DEL", 3), ("DEL", 2), ("DEL", 1)]
    assert not any("prevResult" in call.stdin for call in told(lab, "DEL"))


@pytest.mark.topology(ROUTED)
def test_del_goes_back_through_the_list_with_the_final_result(lab):
    make(lab, chain(recorder(1, answer=ANSWER), recorder(2, answer=LAST))).delete()
    assert numbers(lab, "DEL") == [("DEL", 2), ("DEL", 1)]
    assert [call.stdin["prevResult"] for call in told(lab, "DEL")] == [LAST, LAST]


@pytest.mark.topology(ROUTED)
def test_an_error_of_del_ends_it_and_keeps_the_cache(lab):
    pod = make(lab, chain(recorder(1, answer=ANSWER), recorder(2, fails={"DEL": FAILS})))
    with pytest.raises(CniError) as said:
        pod.delete()
    assert str(said.value) == f"{failed('recorder', 'delete')}no (code 100)"
    assert numbers(lab, "DEL") == [("DEL", 2)]
    (kept,) = (lab.directory / "cni/node1/lib/results").iterdir()
    kept.unlink()


@pytest.mark.topology(ROUTED)
def test_the_parameters_of_check_and_del_are_those_of_add(lab):
    pod = make(lab, chain(recorder(1, answer=ANSWER, capabilities={"mac": True})))
    pod.check()
    pod.delete()
    add, *others = told(lab)
    assert [call.command for call in others] == ["CHECK", "DEL"]
    for call in others:
        assert call.stdin == {**add.stdin, "prevResult": ANSWER}
        assert call.environment == {**add.environment, "CNI_COMMAND": call.command}


@pytest.mark.topology(ROUTED)
def test_all_variables_are_there_for_every_command(lab):
    pod = make(lab, THREE)
    pod.check()
    pod.delete()
    lab.pods.status(lab.host("node1"), [THREE])
    lab.pods.collect(lab.host("node1"), [THREE])
    assert {call.command for call in told(lab)} == {"ADD", "CHECK", "DEL", "STATUS", "GC"}
    assert all(set(call.environment) >= VARIABLES for call in told(lab))
    for call in told(lab, "ADD"):
        assert re.fullmatch(r"[a-zA-Z0-9][a-zA-Z0-9_.\-]*", call.environment["CNI_CONTAINERID"])
        assert re.fullmatch(r"[^\s/:]{1,15}", call.environment["CNI_IFNAME"])


@pytest.mark.topology(ROUTED)
def test_check_is_not_called_where_it_is_switched_off_or_unknown(lab):
    pod = make(lab, chain(recorder(1, answer=ANSWER), disableCheck=True))
    pod.check()
    assert not told(lab, "CHECK")
    old = make(lab, chain(recorder(1, answer={"cniVersion": "0.3.1"}), version="0.3.1"), name="old")
    with pytest.raises(CniError) as said:
        old.check()
    wrong = 'configuration version "0.3.1" does not support CHECK command (code 1)'
    assert str(said.value) == f"{failed('recorder', 'check', 'pod old')}{wrong}"
    assert not told(lab, "CHECK")


@pytest.mark.topology(ROUTED)
def test_check_stops_at_the_first_error(lab):
    pod = make(lab, chain(recorder(1, answer=ANSWER, fails={"CHECK": FAILS}), recorder(2)))
    with pytest.raises(CniError) as said:
        pod.check()
    assert str(said.value) == f"{failed('recorder', 'check')}no (code 100)"
    assert numbers(lab, "CHECK") == [("CHECK", 1)]


@pytest.mark.topology(ROUTED)
def test_before_0_4_del_has_no_result(lab):
    make(lab, chain(recorder(1, answer={"cniVersion": "0.3.1"}), version="0.3.1")).delete()
    assert "prevResult" not in told(lab, "DEL")[0].stdin


@pytest.mark.topology(ROUTED)
def test_unknown_keys_reach_the_plugin_as_they_are(lab):
    strange = {"x": [1, {"ä": None}], "ipam": {}, "dns": {"nameservers": ["192.0.2.1"]}, "args": {"a": 1.5}}
    make(lab, chain(recorder(1, answer=ANSWER, **strange)))
    assert strange.items() <= told(lab)[0].stdin.items()


@pytest.mark.topology(ROUTED)
def test_a_plugin_gets_what_it_declares_and_no_declaration(lab):
    declared = {"capabilities": {"mac": True, "portMappings": True}}
    pod = make(lab, chain(recorder(1, answer=ANSWER, **declared), recorder(2)))
    first, second = (call.stdin for call in told(lab))
    assert list(first["runtimeConfig"]) == ["mac"]  # of port mappings there are none
    assert "runtimeConfig" not in second
    assert not any("capabilities" in stdin for stdin in (first, second))
    assert pod.name == "web"


@pytest.mark.topology(ROUTED)
def test_a_container_is_never_added_twice_to_a_network(lab):
    for _ in range(3):
        make(lab, THREE).delete()
    added = [call.environment["CNI_CONTAINERID"] for call in told(lab, "ADD") if call.stdin["number"] == 1]
    assert len(set(added)) == 3


@pytest.mark.topology(ROUTED)
def test_a_container_on_two_networks_has_two_interfaces(lab):
    make(lab, THREE, {**THREE, "name": "second"})
    keys = {
        (call.stdin["name"], call.environment["CNI_CONTAINERID"], call.environment["CNI_IFNAME"]) for call in told(lab)
    }
    assert {(name, interface) for name, _, interface in keys} == {("rdma", "eth0"), ("second", "net1")}
    assert len({container for _, container, _ in keys}) == 1


@pytest.mark.topology(ROUTED)
def test_the_final_result_is_stored_until_del(lab):
    pod = make(lab, chain(recorder(1, answer=ANSWER), recorder(2, answer=LAST)))
    (file,) = (lab.directory / "cni/node1/lib/results").iterdir()
    assert json.loads(file.read_text())["result"] == LAST
    pod.delete()
    assert not file.exists()


@pytest.mark.topology(ROUTED)
def test_plugins_run_in_the_network_namespace_of_their_node(lab):
    pod = make(lab, THREE)
    pod.check()
    pod.delete()
    lab.pods.collect(lab.host("node1"), [THREE])
    inode = os.stat(netns.path(lab.host("node1").namespace)).st_ino
    assert {call.namespace for call in told(lab)} == {f"net:[{inode}]"}


@pytest.mark.topology(ROUTED)
def test_what_real_plugins_make_on_the_node_is_on_theirs(lab):
    make(lab, bridge())
    found = [lab.host(name).run("ip", "-br", "link").stdout for name in ("node1", "node2")]
    assert ["cni0" in links for links in found] == [True, False]


@pytest.mark.topology(ROUTED)
def test_check_is_called_between_add_and_del_only(lab):
    list_ = chain(recorder(1, answer=ANSWER, takes={"ADD": 2}))
    early = []

    def check():
        with pytest.raises(InputError) as said:
            lab["web"].check()
        early.append(str(said.value))

    lab.scheduler.after(1, check)
    pod = make(lab, list_)
    pod.check()
    pod.delete()
    with pytest.raises(InputError) as late:
        pod.check()
    failing = chain(recorder(1, fails={"ADD": FAILS}))
    with pytest.raises(CniError):
        lab.pods.create(lab.host("node1"), "left", [failing], Caller(deletes_failed=False))
    with pytest.raises(InputError) as never:
        lab["left"].check()
    assert [call.command for call in told(lab)] == ["ADD", "CHECK", "DEL", "ADD"]
    wrong = "cannot be checked while it is being created: CNI has one operation at a time for a container"
    assert early == [f"web {wrong}"]
    nothing = "there is nothing to check: its ADD failed, or DEL has followed"
    assert [str(late.value), str(never.value)] == [f"pod web: {nothing}", f"pod left: {nothing}"]


@pytest.mark.topology(ROUTED)
def test_a_pod_of_real_plugins_is_checked_until_it_is_deleted(lab):
    pod = make(lab, macvlan(ipam(10)))
    pod.check()
    pod.delete()
    with pytest.raises(InputError, match="pod web: there is nothing to check"):
        pod.check()
    again = make(lab, {**macvlan(ipam(10)), "disableCheck": True})
    again.run("ip", "address", "flush", "dev", "eth0")
    again.check()


def alone(lab):
    """Whether no two calls for one container were under way together."""
    found = [[container for _, container in now] for now in under_way(lab, "node1")]
    return found and all(len(set(now)) == len(now) for now in found)


@pytest.mark.topology(ROUTED)
def test_a_container_has_one_operation_at_a_time(lab):
    slow = recorder(1, answer=ANSWER, takes={"ADD": 1, "DEL": 1})
    lists = [{**chain(slow), "name": name} for name in ("one", "two")]
    refused = []

    def delete():
        with pytest.raises(InputError) as said:
            lab["web"].delete()
        refused.append(str(said.value))

    lab.scheduler.after(0.5, delete)
    pod = make(lab, *lists)
    lab.scheduler.after(0.5, delete)
    pod.delete()
    assert alone(lab)
    assert refused == [
        f"web cannot be deleted while it is being {what}: CNI has one operation at a time for a container"
        for what in ("created", "deleted")
    ]
    lab.pods.create(lab.host("node1"), "web", lists, Caller(side_by_side=True))
    assert not alone(lab), "as containerd does, against the specification"


@pytest.mark.topology(ROUTED)
def test_a_pod_of_real_plugins_has_one_operation_at_a_time(lab):
    refused = []

    def delete():
        with pytest.raises(InputError) as said:
            lab["web"].delete()
        refused.append(said.value)

    lab.scheduler.after(0.02, delete)
    pod = make(lab, bridge(), macvlan(ipam(10)))
    assert len(refused) == 1
    pod.check()


# The plugins

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
        self._find = lambda kind: plugin.find(kind, path, "test")
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
        job = plugin.call(self._find(kind), given, stdin, self._place, Limit(), "test")
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
    return [call.command for call in told(lab)]


@pytest.fixture
def delegates(lab, request):
    """A lab with what its plugin needs."""
    if "host-device" in request.node.name:
        lab.host("node1").add_vf("vf0", "eth1")
    return lab


@pytest.mark.parametrize("kind", PLUGINS)
@pytest.mark.topology(ROUTED)
def test_a_delegate_gets_add_check_and_del_with_all_that_the_plugin_got(delegates, kind):
    pod = make(delegates, delegating(kind))
    assert str(pod["eth0"].address()) == "10.0.10.7/24"
    pod.check()
    pod.delete()
    add, check, delete = told(delegates)
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
        make(delegates, delegating(kind, fails={"ADD": FAILS}))
    own = "failed to execute IPAM delegate: no (code 999)" if kind == "vlan" else "no (code 100)"
    assert str(said.value) == f"{failed(kind)}{own}"
    assert delegated(delegates) == ["DEL"], "the runtime's: 1.1.1 calls none itself, and drops the stderr of the ADD"
    pod = make(delegates, delegating(kind, fails={"CHECK": FAILS, "DEL": FAILS}))
    for act, operation in (pod.check, "check"), (pod.delete, "delete"):
        with pytest.raises(CniError) as said:
            act()
        assert str(said.value) == f"{failed(kind, operation)}no (code 100)"
    for file in (delegates.directory / "cni/node1/lib/results").iterdir():
        file.unlink()


@pytest.mark.parametrize("kind", PLUGINS)
@pytest.mark.topology(ROUTED)
def test_an_add_that_fails_behind_its_delegate_takes_the_delegate_back(delegates, kind):
    """The gateway of a route that the delegate names is in no subnet. The last DEL is the runtime's. Known of ipvlan
    1.1.1, and no conformance: it looks at the error of something else."""
    with pytest.raises(CniError) as said:
        make(delegates, delegating(kind, NO_WAY))
    assert str(said.value).startswith(failed(kind))
    assert delegated(delegates) == (["ADD", "DEL"] if kind == "ipvlan" else ["ADD", "DEL", "DEL"])


@pytest.mark.parametrize("kind", PLUGINS)
@pytest.mark.topology(ROUTED)
def test_check_tolerates_what_a_later_plugin_changed(delegates, kind):
    """Known of 1.1.1, and no conformance: macvlan misses the route that sbr moves (test_plugins_chain_behind_rxe)."""
    changes = {"mtu": 1400, "promisc": True, **({"mac": "06:00:00:00:00:77"} if kind != "ipvlan" else {})}
    pod = make(delegates, network(delegating(kind)["plugins"][0], {"type": "tuning", **changes}))
    assert "PROMISC,UP" in pod.run("ip", "link", "show", "eth0").stdout
    pod.check()


@pytest.mark.topology(ROUTED)
def test_plugins_serve_containers_side_by_side(lab):
    nodes = [lab.host("node1")] * 6
    pods = lab.pods.create_all([(node, f"p{n}", [macvlan(ipam(10))]) for n, node in enumerate(nodes)])
    assert len({str(pod["eth0"].address().ip) for pod in pods}) == len(nodes)
    lab.pods.delete_all(pods)
