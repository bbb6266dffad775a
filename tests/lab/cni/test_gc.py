"""GC and STATUS: what the plugins hold for pods that are no more is given back, and whether they can take one now."""

from __future__ import annotations

import pytest
from networks import ROUTED, calls, ipam, macvlan, network, recorder

from testbed.cni.runtime.plugin import CniError

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
