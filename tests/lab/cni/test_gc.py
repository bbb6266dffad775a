"""GC and STATUS: what the plugins hold for pods that are no more is given back, and whether they can take one now."""

import pytest
from networks import ROUTED, calls, ipam, macvlan, network, recorder, under_way

from testbed.cni.runtime.plugin_call import CniError

pytestmark = pytest.mark.fresh

ANSWER = {"cniVersion": "1.1.0", "dns": {}}
FIRST, SECOND = recorder(1, ANSWER), recorder(2)
BUSY = {"cniVersion": "1.1.0", "code": 50, "msg": "no addresses"}


def chain(*plugins, **keys):
    return {**network(*plugins, version="1.1.0"), **keys}


@pytest.mark.topology(ROUTED)
def test_a_lost_pod_is_deleted_by_gc_and_the_others_stay(lab, log):
    node, other = lab.host("node1"), lab.host("node2")
    rdma = macvlan(ipam(10))
    before = lab.resources()
    lost = lab.pods.create(node, "lost", [rdma])
    address = lost["eth0"].address()
    lost.lose()
    assert "lost" not in lab.nodes
    held = lab.directory / f"cni/node1/lib/networks/rdma/{address.ip}"
    assert held.exists()
    stays, elsewhere = lab.pods.create(node, "stays", [rdma]), lab.pods.create(other, "elsewhere", [rdma])
    began = len(log.find("cni"))

    lab.pods.collect(node, [rdma])

    assert not held.exists()
    assert [event["text"] for event in log.find("cni")[began:]] == ["GC rdma by macvlan, rxe"]
    stays.check(), elsewhere.check()
    for pod in stays, elsewhere:
        pod.delete()
    assert not {line for line in lab.resources() - before if "/networks/rdma/" not in line}
    assert not list((lab.directory / "cni/node1/lib/results").iterdir())


@pytest.mark.topology(ROUTED)
def test_gc_tells_each_plugin_which_attachments_are_valid(lab):
    node = lab.host("node1")
    pods = [lab.pods.create(node, name, [chain(FIRST, SECOND)]) for name in ("one", "two", "three")]
    added = [call.environment["CNI_CONTAINERID"] for call in calls(lab, "node1") if call.stdin["number"] == 1]
    pods[1].lose()
    began = len(calls(lab, "node1"))

    lab.pods.collect(node, [chain(FIRST, SECOND)])

    deleted, collected = calls(lab, "node1")[began:][:2], calls(lab, "node1")[began:][2:]
    assert [(call.command, call.stdin["number"]) for call in deleted] == [("DEL", 2), ("DEL", 1)]
    assert {call.environment["CNI_CONTAINERID"] for call in deleted} == {added[1]}
    assert [(call.command, call.stdin["number"]) for call in collected] == [("GC", 1), ("GC", 2)]
    valid = [{"containerID": container, "ifname": "eth0"} for container in sorted([added[0], added[2]])]
    for call in collected:
        assert call.stdin["cni.dev/valid-attachments"] == valid
        assert call.stdin["cni.dev/attachments"] == valid
        assert "prevResult" not in call.stdin
        assert {name for name, value in call.environment.items() if value} == {"CNI_COMMAND", "CNI_PATH"}


@pytest.mark.topology(ROUTED)
def test_gc_goes_on_after_an_error_and_tells_all(lab):
    error = {"cniVersion": "1.1.0", "code": 11, "msg": "busy"}
    both = chain({**FIRST, "fails": {"GC": error}}, {**SECOND, "fails": {"GC": {**error, "msg": "busy, too"}}})
    with pytest.raises(CniError) as said:
        lab.pods.collect(lab.host("node1"), [both])
    assert str(said.value) == (
        'node node1: plugin type="recorder" name="rdma" failed (gc): busy (code 11); '
        'node node1: plugin type="recorder" name="rdma" failed (gc): busy, too (code 11)'
    )


@pytest.mark.topology(ROUTED)
def test_without_gc_and_before_1_1_no_plugin_is_called(lab):
    node = lab.host("node1")
    off = chain(FIRST, disableGC=True)
    lab.pods.create(node, "lost", [off]).lose()
    began = len(calls(lab, "node1"))
    lab.pods.collect(node, [off])
    old = {**network(SECOND, version="1.0.0"), "name": "other"}
    lab.pods.collect(node, [old])
    lab.pods.status(node, [old])
    assert calls(lab, "node1")[began:] == []
    for file in (lab.directory / "cni/node1/lib/results").iterdir():
        file.unlink()


@pytest.mark.topology(ROUTED)
def test_status_asks_until_a_plugin_says_no(lab, log):
    lab.pods.status(lab.host("node1"), [chain(FIRST, SECOND)])
    asked = calls(lab, "node1")
    assert [(call.command, call.stdin["number"]) for call in asked] == [("STATUS", 1), ("STATUS", 2)]
    assert {name for name, value in asked[0].environment.items() if value} == {"CNI_COMMAND", "CNI_PATH"}

    with pytest.raises(CniError, match=r"^node node1: plugin .* failed \(status\): no addresses \(code 50\)$") as said:
        lab.pods.status(lab.host("node1"), [chain({**FIRST, "fails": {"STATUS": BUSY}}, SECOND)])
    assert said.value.code == 50
    assert len(calls(lab, "node1")) == 3
    assert [event["node"] for event in log.find("cni", command="STATUS")] == ["node1", "node1"]


SLOW = [{**FIRST, "takes": {command: 2}} for command in ("ADD", "DEL", "GC")]


def not_alone(lab):
    """The calls of `recorder` that ran beside a GC."""
    return [now for now in under_way(lab, "node1") if ("GC", "") in now and len(now) > 1]


@pytest.mark.topology(ROUTED)
def test_gc_waits_for_the_add_that_it_interrupts(lab, log):
    """The one thread waits in the ADD when the timer is due."""
    node, slow = lab.host("node1"), chain(SLOW[0], SECOND)
    lab.scheduler.after(1, lambda: lab.pods.collect(node, [slow]))

    pod = lab.pods.create(node, "web", [slow])

    assert [(call.command, call.stdin["number"]) for call in calls(lab, "node1")] == [
        ("ADD", 1),
        ("ADD", 2),
        ("GC", 1),
        ("GC", 2),
    ]
    assert not not_alone(lab)
    added, *_, collected = calls(lab, "node1")
    container = added.environment["CNI_CONTAINERID"]
    assert collected.stdin["cni.dev/valid-attachments"] == [{"containerID": container, "ifname": "eth0"}]
    assert [event["data"]["command"] for event in log.find("cni")] == ["ADD", "GC"]
    pod.check()


@pytest.mark.topology(ROUTED)
def test_gc_waits_for_the_del_that_it_interrupts(lab, log):
    node, slow = lab.host("node1"), chain(SLOW[1])
    pod = lab.pods.create(node, "web", [slow])
    lab.scheduler.after(1, lambda: lab.pods.collect(node, [slow]))
    pod.delete()
    assert [event["data"]["command"] for event in log.find("cni")] == ["ADD", "DEL", "GC"]
    assert not not_alone(lab)


@pytest.mark.topology(ROUTED)
def test_add_and_del_wait_for_the_gc_that_they_interrupt(lab, log):
    node, slow = lab.host("node1"), chain(SLOW[2])
    old = lab.pods.create(node, "old", [slow])
    lab.scheduler.after(0.5, lambda: lab.pods.create(node, "new", [slow]))
    lab.scheduler.after(1, old.delete)

    lab.pods.collect(node, [slow])

    done = [(event["data"]["command"], event["node"]) for event in log.find("cni")]
    assert done[:2] == [("ADD", "old"), ("GC", "node1")]
    assert {*done[2:]} == {("ADD", "new"), ("DEL", "old")}
    assert not not_alone(lab)
    assert "new" in lab.nodes


@pytest.mark.topology(ROUTED)
def test_of_many_pods_those_after_gc_wait_for_it(lab, log):
    node, slow = lab.host("node1"), chain({**FIRST, "takes": {"ADD": 2}})
    lab.scheduler.after(1, lambda: lab.pods.collect(node, [slow]))

    lab.pods.create_all([(node, name, [slow]) for name in "abcd"], at_once=2)

    order = [event["node"] for event in log.find("cni")]
    assert ({*order[:2]}, order[2], {*order[3:]}) == ({"a", "b"}, "node1", {"c", "d"})
    assert not not_alone(lab)
    (collected,) = [call for call in calls(lab, "node1") if call.command == "GC"]
    assert len(collected.stdin["cni.dev/valid-attachments"]) >= 2


@pytest.mark.topology(ROUTED)
@pytest.mark.slow
def test_gc_beside_pods_that_start_takes_only_what_the_lost_one_had(lab, log):
    node, rdma = lab.host("node1"), macvlan(ipam(10))
    lost = lab.pods.create(node, "lost", [rdma])
    address = lost["eth0"].address().ip
    lost.lose()
    lab.scheduler.after(0.05, lambda: lab.pods.collect(node, [rdma]))
    pods = lab.pods.create_all([(node, f"p{n}", [rdma]) for n in range(6)], at_once=3)
    for pod in pods:
        pod.check()
    assert not (lab.directory / f"cni/node1/lib/networks/rdma/{address}").exists()
    commands = [event["data"]["command"] for event in log.find("cni", network="rdma")]
    assert "ADD" in commands[1 : commands.index("GC")], "some were under way"
    assert "ADD" in commands[commands.index("GC") :], "others came later"


@pytest.mark.topology(ROUTED)
def test_gc_of_a_network_leaves_the_others_alone(lab):
    node = lab.host("node1")
    one, other = chain(FIRST), {**chain(FIRST), "name": "other"}
    lab.pods.create(node, "lost", [one, other]).lose()
    began = len(calls(lab, "node1"))
    lab.pods.collect(node, [one])
    asked = [(call.command, call.stdin["name"]) for call in calls(lab, "node1")[began:]]
    assert asked == [("DEL", "rdma"), ("GC", "rdma")]
    lab.pods.collect(node, [other])
    assert not list((lab.directory / "cni/node1/lib/results").iterdir())


@pytest.mark.topology(ROUTED)
def test_gc_of_real_plugins_is_of_one_network_and_can_be_switched_off(lab):
    node, one, other = lab.host("node1"), macvlan(ipam(10)), {**macvlan(ipam(10, 110, 119)), "name": "other"}
    lab.pods.create(node, "lost", [one, other]).lose()
    held = [lab.directory / f"cni/node1/lib/networks/{name}" for name in ("rdma/10.0.10.100", "other/10.0.10.110")]
    lab.pods.collect(node, [one])
    assert [file.exists() for file in held] == [False, True]
    lab.pods.collect(node, [{**other, "disableGC": True}])
    assert held[1].exists()
    lab.pods.collect(node, [other])
    assert not held[1].exists()
