"""What CNI 1.1.0 demands of a runtime, shown to a plugin that records.

docs/cni-conformance.md has the table of the demands with their tests.
"""

import json
import os
import re

import pytest
from networks import FAILS, ROUTED, bridge, calls, failed, ipam, macvlan, make_pod, network, recorder, under_way

from testbed import Caller
from testbed.cni.runtime.plugin_call import CniError
from testbed.errors import InputError
from testbed.kernel import netns

ANSWER = {"cniVersion": "1.1.0", "ips": [{"address": "192.0.2.7/24"}], "dns": {}}
LAST = {"cniVersion": "1.1.0", "ips": [{"address": "192.0.2.8/24"}], "dns": {}}
VARIABLES = {"CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME", "CNI_ARGS", "CNI_PATH", "CNI_COMMAND"}


def chain(*plugins, version="1.1.0", **keys):
    return {**network(*plugins, version=version), **keys}


THREE = chain(recorder(1, answer=ANSWER), recorder(2), recorder(3))


def told(lab, command=None):
    return [call for call in calls(lab, "node1") if command in (None, call.command)]


def numbers(lab, command=None):
    return [(call.command, call.stdin["number"]) for call in told(lab, command)]


@pytest.mark.topology(ROUTED)
def test_add_goes_through_the_list_and_hands_results_on(lab):
    make_pod(lab, chain(recorder(1, answer=ANSWER), recorder(2, answer=LAST), recorder(3)))
    assert numbers(lab) == [("ADD", 1), ("ADD", 2), ("ADD", 3)]
    assert [call.stdin.get("prevResult") for call in told(lab)] == [None, ANSWER, LAST]


@pytest.mark.topology(ROUTED)
def test_the_namespace_is_there_before_the_first_plugin(lab):
    pod = make_pod(lab, THREE)
    assert {call.environment["CNI_NETNS"] for call in told(lab)} == {f"/run/netns/{pod.namespace}"}
    assert all(call.there for call in told(lab))


@pytest.mark.topology(ROUTED)
def test_an_error_ends_the_list_and_del_follows_for_all_of_it(lab):
    with pytest.raises(CniError) as said:
        make_pod(lab, chain(recorder(1, answer=ANSWER), recorder(2, fails={"ADD": FAILS}), recorder(3)))
    assert str(said.value) == f"{failed('recorder')}no (code 100)"
    assert numbers(lab) == [("ADD", 1), ("ADD", 2), ("DEL", 3), ("DEL", 2), ("DEL", 1)]
    assert not any("prevResult" in call.stdin for call in told(lab, "DEL"))


@pytest.mark.topology(ROUTED)
def test_del_goes_back_through_the_list_with_the_final_result(lab):
    make_pod(lab, chain(recorder(1, answer=ANSWER), recorder(2, answer=LAST))).delete()
    assert numbers(lab, "DEL") == [("DEL", 2), ("DEL", 1)]
    assert [call.stdin["prevResult"] for call in told(lab, "DEL")] == [LAST, LAST]


@pytest.mark.topology(ROUTED)
def test_an_error_of_del_ends_it_and_keeps_the_cache(lab):
    pod = make_pod(lab, chain(recorder(1, answer=ANSWER), recorder(2, fails={"DEL": FAILS})))
    with pytest.raises(CniError) as said:
        pod.delete()
    assert str(said.value) == f"{failed('recorder', 'delete')}no (code 100)"
    assert numbers(lab, "DEL") == [("DEL", 2)]
    (kept,) = (lab.directory / "cni/node1/lib/results").iterdir()
    kept.unlink()


@pytest.mark.topology(ROUTED)
def test_the_parameters_of_check_and_del_are_those_of_add(lab):
    pod = make_pod(lab, chain(recorder(1, answer=ANSWER, capabilities={"mac": True})))
    pod.check()
    pod.delete()
    add, *others = told(lab)
    assert [call.command for call in others] == ["CHECK", "DEL"]
    for call in others:
        assert call.stdin == {**add.stdin, "prevResult": ANSWER}
        assert call.environment == {**add.environment, "CNI_COMMAND": call.command}


@pytest.mark.topology(ROUTED)
def test_all_variables_are_there_for_every_command(lab):
    pod = make_pod(lab, THREE)
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
    pod = make_pod(lab, chain(recorder(1, answer=ANSWER), disableCheck=True))
    pod.check()
    assert not told(lab, "CHECK")
    old = make_pod(lab, chain(recorder(1, answer={"cniVersion": "0.3.1"}), version="0.3.1"), name="old")
    with pytest.raises(CniError) as said:
        old.check()
    wrong = 'configuration version "0.3.1" does not support CHECK command (code 1)'
    assert str(said.value) == f"{failed('recorder', 'check', 'pod old')}{wrong}"
    assert not told(lab, "CHECK")


@pytest.mark.topology(ROUTED)
def test_check_stops_at_the_first_error(lab):
    pod = make_pod(lab, chain(recorder(1, answer=ANSWER, fails={"CHECK": FAILS}), recorder(2)))
    with pytest.raises(CniError) as said:
        pod.check()
    assert str(said.value) == f"{failed('recorder', 'check')}no (code 100)"
    assert numbers(lab, "CHECK") == [("CHECK", 1)]


@pytest.mark.topology(ROUTED)
def test_before_0_4_del_has_no_result(lab):
    make_pod(lab, chain(recorder(1, answer={"cniVersion": "0.3.1"}), version="0.3.1")).delete()
    assert "prevResult" not in told(lab, "DEL")[0].stdin


@pytest.mark.topology(ROUTED)
def test_unknown_keys_reach_the_plugin_as_they_are(lab):
    strange = {"x": [1, {"ä": None}], "ipam": {}, "dns": {"nameservers": ["192.0.2.1"]}, "args": {"a": 1.5}}
    make_pod(lab, chain(recorder(1, answer=ANSWER, **strange)))
    assert strange.items() <= told(lab)[0].stdin.items()


@pytest.mark.topology(ROUTED)
def test_a_plugin_gets_what_it_declares_and_no_declaration(lab):
    declared = {"capabilities": {"mac": True, "portMappings": True}}
    pod = make_pod(lab, chain(recorder(1, answer=ANSWER, **declared), recorder(2)))
    first, second = (call.stdin for call in told(lab))
    assert list(first["runtimeConfig"]) == ["mac"]  # of port mappings there are none
    assert "runtimeConfig" not in second
    assert not any("capabilities" in stdin for stdin in (first, second))
    assert pod.name == "web"


@pytest.mark.topology(ROUTED)
def test_a_container_is_never_added_twice_to_a_network(lab):
    for _ in range(3):
        make_pod(lab, THREE).delete()
    added = [call.environment["CNI_CONTAINERID"] for call in told(lab, "ADD") if call.stdin["number"] == 1]
    assert len(set(added)) == 3


@pytest.mark.topology(ROUTED)
def test_a_container_on_two_networks_has_two_interfaces(lab):
    make_pod(lab, THREE, {**THREE, "name": "second"})
    keys = {
        (call.stdin["name"], call.environment["CNI_CONTAINERID"], call.environment["CNI_IFNAME"]) for call in told(lab)
    }
    assert {(name, interface) for name, _, interface in keys} == {("rdma", "eth0"), ("second", "net1")}
    assert len({container for _, container, _ in keys}) == 1


@pytest.mark.topology(ROUTED)
def test_the_final_result_is_stored_until_del(lab):
    pod = make_pod(lab, chain(recorder(1, answer=ANSWER), recorder(2, answer=LAST)))
    (file,) = (lab.directory / "cni/node1/lib/results").iterdir()
    assert json.loads(file.read_text())["result"] == LAST
    pod.delete()
    assert not file.exists()


@pytest.mark.topology(ROUTED)
def test_plugins_run_in_the_network_namespace_of_their_node(lab):
    pod = make_pod(lab, THREE)
    pod.check()
    pod.delete()
    lab.pods.collect(lab.host("node1"), [THREE])
    inode = os.stat(netns.path(lab.host("node1").namespace)).st_ino
    assert {call.namespace for call in told(lab)} == {f"net:[{inode}]"}


@pytest.mark.topology(ROUTED)
def test_what_real_plugins_make_on_the_node_is_on_theirs(lab):
    make_pod(lab, bridge())
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
    pod = make_pod(lab, list_)
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
    wrong = "cannot be checked while it is being created: CNI allows one operation at a time for a container"
    assert early == [f"web {wrong}"]
    nothing = "nothing to check: its ADD failed, or DEL has followed"
    assert [str(late.value), str(never.value)] == [f"pod web: {nothing}", f"pod left: {nothing}"]


@pytest.mark.topology(ROUTED)
def test_a_pod_of_real_plugins_is_checked_until_it_is_deleted(lab):
    pod = make_pod(lab, macvlan(ipam(10)))
    pod.check()
    pod.delete()
    with pytest.raises(InputError, match="pod web: nothing to check"):
        pod.check()
    again = make_pod(lab, {**macvlan(ipam(10)), "disableCheck": True})
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
    pod = make_pod(lab, *lists)
    lab.scheduler.after(0.5, delete)
    pod.delete()
    assert alone(lab)
    assert refused == [
        f"web cannot be deleted while it is being {what}: CNI allows one operation at a time for a container"
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
    pod = make_pod(lab, bridge(), macvlan(ipam(10)))
    assert len(refused) == 1
    pod.check()
