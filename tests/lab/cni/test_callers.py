"""What stands above the plugins: attempts, limits of time, networks and pods side by side."""

import shutil
import time
from dataclasses import replace

import pytest
from networks import ROUTED, calls, failed, ipam, macvlan, network, write_plugin

from testbed import Caller, PodRequest, kubelet
from testbed.cni.runtime.plugin_call import CniError
from testbed.errors import InputError, TestbedError

pytestmark = pytest.mark.usefixtures("plugins")
EXHAUSTED = r'type="macvlan" name="rdma" failed \(add\): .*: no IP addresses available in range set: .* \(code 999\)$'
NO_ANSWER = "it ended with status 3 and no error object (code 6)"
SLOW = 'sleep 2; echo \'{"cniVersion": "1.0.0"}\''


@pytest.fixture
def plugin(plugins):
    """Makes a plugin called `slow`."""
    return lambda add, delete=":": write_plugin(plugins, "slow", add, delete)


def slow(name="one"):
    return network({"type": "slow"}, name=name)


@pytest.mark.topology(ROUTED)
def test_kubelet_tries_again_with_another_container(lab, log):
    node = lab.host("node1")
    taken = lab.pods.create(node, "taken", [macvlan(ipam(10, last=100))])
    lab.scheduler.after(25, taken.delete)
    began = log.now

    pod = lab.pods.create(node, "web", [macvlan(ipam(10, last=100))], kubelet())

    assert str(pod["eth0"].address().ip) == "10.0.10.100"
    assert 30 <= (log.now - began) / 1e9 < 32
    added = [event for event in log.find("cni", command="ADD") if event["node"] == "web"]
    assert ["error" in event["data"] for event in added] == [True, True, True, False]
    assert [event["data"]["attempt"] for event in log.find("pod.refused")] == [1, 2, 3]
    deleted = [event for event in log.find("cni", command="DEL") if event["node"] == "web"]
    assert len(deleted) == 3


@pytest.mark.topology(ROUTED)
def test_the_last_attempt_s_error_is_the_pod_s(lab, log):
    lab.pods.create(lab.host("node1"), "taken", [macvlan(ipam(10, last=100))])
    with pytest.raises(CniError, match=EXHAUSTED):
        lab.pods.create(lab.host("node1"), "web", [macvlan(ipam(10, last=100))], replace(kubelet(2), pause=0.5))
    assert "web" not in lab.nodes
    with pytest.raises(InputError, match="failed to find plugin"):  # which no attempt mends
        lab.pods.create(lab.host("node1"), "web", [network({"type": "none"})], kubelet())


@pytest.mark.topology(ROUTED)
def test_a_pod_s_limit_is_for_all_its_plugins(lab, plugin, log):
    plugin(SLOW)
    began = log.now
    with pytest.raises(CniError) as said:
        lab.pods.create(lab.host("node1"), "web", [slow("one"), slow("two"), slow("three")], Caller(pod_limit=5))
    assert str(said.value) == (
        'pod web: plugin type="slow" name="three" failed (add): '
        "it was still running after the pod's limit of 5 s and has been killed (code 5)"
    )
    assert 5 <= (log.now - began) / 1e9 < 5.5


@pytest.mark.topology(ROUTED)
def test_containerd_adds_its_networks_side_by_side(lab, plugin, log):
    plugin(SLOW)
    began = log.now
    lab.pods.create(lab.host("node1"), "web", [slow("one"), slow("two"), slow("three")], Caller(side_by_side=True))
    assert 2 <= (log.now - began) / 1e9 < 2.5
    assert [event["data"]["interface"] for event in log.find("cni", command="ADD")] == ["eth0", "net1", "net2"]


@pytest.mark.topology(ROUTED)
def test_side_by_side_one_error_takes_all_away(lab, plugin, log):
    plugin('[ $CNI_IFNAME = net1 ] && exit 3; echo \'{"cniVersion": "1.0.0"}\'')
    with pytest.raises(CniError) as said:
        lab.pods.create(lab.host("node1"), "web", [slow("one"), slow("two"), slow("three")], Caller(side_by_side=True))
    assert said.value.message == f"{failed('slow', network='two')}{NO_ANSWER}"
    assert [event["data"]["interface"] for event in log.find("cni", command="DEL")] == ["net2", "net1", "eth0"]


@pytest.mark.topology(ROUTED)
def test_without_del_a_failed_pod_keeps_what_the_plugins_made(lab, plugin, log):
    plugin("exit 3")
    node, chain = lab.host("node1"), macvlan(ipam(10, last=100), {"type": "slow"})
    with pytest.raises(CniError) as said:
        lab.pods.create(node, "web", [chain], Caller(deletes_failed=False))
    assert said.value.message == f"{failed('slow')}{NO_ANSWER}"
    assert not log.find("cni", command="DEL")
    assert "10.0.10.100/24" in lab.host("web").run("ip", "-br", "addr", "show", "eth0").stdout
    assert "netdev eth0" in lab.host("web").run("rdma", "link").stdout
    with pytest.raises(InputError, match="failed to find plugin"):
        lab.pods.create(node, "next", [network({"type": "none"})], Caller(deletes_failed=False))
    lab.pods.collect(node, [chain])
    with pytest.raises(CniError, match=EXHAUSTED):
        lab.pods.create(node, "next", [chain])
    shutil.rmtree(lab.directory / "cni/node1/lib/networks")


def test_a_failed_pod_that_stays_has_one_attempt():
    with pytest.raises(InputError, match="only one attempt is possible"):
        Caller(attempts=2, deletes_failed=False)


@pytest.mark.topology(ROUTED)
@pytest.mark.slow
def test_pods_start_and_end_side_by_side(lab, log):
    wanted = [PodRequest(lab.host(f"node{1 + n % 2}"), f"p{n}", [macvlan(ipam(10 + 10 * (n % 2)))]) for n in range(8)]
    pods = lab.pods.create_all(wanted, at_once=4)
    assert [pod.name for pod in pods] == [f"p{n}" for n in range(8)]
    assert len({str(pod["eth0"].address().ip) for pod in pods}) == 8
    assert len({pod["eth0"].mac for pod in pods}) == 8
    assert pods[0].ping(pods[7]["eth0"].address().ip, within=1)
    lab.pods.delete_all(pods, at_once=4)
    assert {"node1", "node2", "leaf"} == set(lab.nodes)


@pytest.mark.topology(ROUTED)
def test_of_several_pods_each_has_its_own_end(lab):
    node = lab.host("node1")
    first, second, third = lab.pods.create_all(
        [(node, name, [macvlan(ipam(10, last=101))]) for name in ("one", "two", "three")]
    )
    refused = [pod for pod in (first, second, third) if isinstance(pod, TestbedError)]
    assert len(refused) == 1
    assert "no IP addresses available" in str(refused[0])
    assert len(lab.nodes) == 5


@pytest.mark.topology(ROUTED)
def test_what_is_due_happens_while_a_plugin_runs(lab, plugin):
    plugin(SLOW)
    seen = []
    began = time.monotonic()
    lab.scheduler.after(1, lambda: seen.append(time.monotonic() - began))
    lab.pods.create(lab.host("node1"), "web", [slow()])
    assert 1 <= seen[0] < 1.1


@pytest.mark.topology(ROUTED)
def test_a_daemon_that_keeps_its_output_open_is_waited_for(lab, plugin, log):
    """As libcni does, which reads a plugin's output to its end."""
    plugin('sleep 3 & echo \'{"cniVersion": "1.0.0"}\'')
    began = log.now
    lab.pods.create(lab.host("node1"), "web", [slow()])
    assert (log.now - began) / 1e9 >= 3
    plugin('sleep 3 >&- 2>&- & echo \'{"cniVersion": "1.0.0"}\'')
    began = log.now
    lab.pods.create(lab.host("node1"), "other", [slow()])
    assert (log.now - began) / 1e9 < 1
    lab.scheduler.sleep(3)


@pytest.mark.topology(ROUTED)
def test_an_interrupt_ends_the_plugin_that_runs(lab, plugin):
    plugin("sleep 3600")

    class InterruptError(Exception):
        pass

    def interrupt():
        raise InterruptError

    lab.scheduler.after(1, interrupt)
    with pytest.raises(InterruptError):
        lab.pods.create(lab.host("node1"), "web", [slow()])
    assert not calls(lab, "node1")
    assert "web" not in lab.nodes
    assert not [name for name in lab.resources() if name.startswith("process sleep")]
