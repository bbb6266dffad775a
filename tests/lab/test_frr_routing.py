"""FRR on the switches: routes over all spines, found anew when a link goes, the same way every time."""

import os
import signal
from collections.abc import Iterator
from ipaddress import IPv6Network
from itertools import pairwise
from pathlib import Path

import pytest

from testbed import Lab
from testbed.errors import DeadlineError, InputError, TestbedError
from testbed.faults import ExactPacket, LinkMtu, injected
from testbed.scenario.event_log import EventLog
from testbed.switch import frr
from testbed.topology import Topology
from testbed.topology.fabrics import leaf_spine

LEAF_SPINE = leaf_spine(leaves=2, spines=2, hosts=1, routing="frr").topology()
DUAL_STACK = """
name: dual
topology:
  routing: frr
  defaults: {kind: host, rdma: false}
  nodes:
    near: {kind: switch, vlans: {10: [10.0.10.1/24, "2001:db8:10::1/64"]}}
    far: {kind: switch, vlans: {20: [10.0.20.1/24, "2001:db8:20::1/64"]}}
    a:
    b:
  links:
    - {endpoints: ["near:e1", "a:eth1"], vlan: 10}
    - {endpoints: ["far:e1", "b:eth1"], vlan: 20}
    - {endpoints: ["near:e2", "far:e2"]}
    - {endpoints: ["near:e3", "far:e3"]}
"""
HOST_ROUTES = """
name: racks
topology:
  routing: frr
  defaults: {kind: host, rdma: false}
  nodes:
    spine: {kind: switch}
    leaf1: {kind: switch, vlans: {10: [10.0.0.1/24, "2001:db8::1/64"]}, host_routes: true}
    leaf2: {kind: switch, vlans: {10: [10.0.0.1/24, "2001:db8::1/64"]}, host_routes: true}
    a:
    b:
  links:
    - {endpoints: ["leaf1:up", "spine:e1"]}
    - {endpoints: ["leaf2:up", "spine:e2"]}
    - {endpoints: ["leaf1:e1", "a:eth1"], vlan: 10}
    - {endpoints: ["leaf2:e1", "b:eth1"], vlan: 10}
"""
ONE_SUBNET_TWICE = """
name: twice
topology:
  routing: frr
  defaults: {kind: host, rdma: false}
  nodes:
    spine: {kind: switch}
    leaf1:
      kind: switch
      vlans: {10: 10.0.10.1/24, 20: 10.0.20.1/24}
      host_routes: true
      profile_values: {autostate: vlan}
    leaf2: {kind: switch, vlans: {10: 10.0.10.1/24}, host_routes: true}
    a:
    b:
    c:
  links:
    - {endpoints: ["leaf1:up", "spine:e1"]}
    - {endpoints: ["leaf2:up", "spine:e2"]}
    - {endpoints: ["leaf1:e1", "a:eth1"], vlan: 10}
    - {endpoints: ["leaf1:e2", "b:eth1"], vlan: 20}
    - {endpoints: ["leaf2:e1", "c:eth1"], vlan: 10}
"""
TO_LEAF2 = "10.1.2.0/24"
SOON = 2.0


def ports(lab: Lab, switch: str, to: str) -> list[str]:
    """By which the kernel of a switch sends to a subnet; in which order it lists them depends on FRR."""
    lines = lab[switch].run("ip", "-6" if ":" in to else "-4", "route", "show", to).stdout.splitlines()
    words = [line.split() for line in lines]
    return sorted(after for line in words for before, after in pairwise(line) if before == "dev")


def reaches(lab: Lab, source: str, target: str) -> bool:
    return lab[source].ping(str(lab.host(target)["eth1"].address().ip), within=1)


def events(log: EventLog) -> Iterator[tuple[str, str, str, list[str]]]:
    for event in log.events:
        if event["kind"] in ("route.installed", "route.lost"):
            yield event["kind"], event["node"], event["data"]["to"], event["data"]["ports"]


class TestALabThatIsUp:
    """None of these tests changes it."""

    @pytest.fixture(scope="class")
    @classmethod
    def log(cls) -> EventLog:
        return EventLog(lambda _: None)

    @pytest.fixture(scope="class")
    @classmethod
    def lab(cls, tmp_path_factory: pytest.TempPathFactory, log: EventLog) -> Iterator[Lab]:
        with Lab(LEAF_SPINE, tmp_path_factory.mktemp("lab"), log.emit) as running:
            yield running

    def test_it_is_so_when_routes_go_over_all_spines_and_all_sessions_are(self, lab, log):
        assert ports(lab, "leaf1", TO_LEAF2) == ["e2", "e3"]
        assert "via inet6 fe80::" in lab["leaf1"].run("ip", "route", "show", TO_LEAF2).stdout
        assert reaches(lab, "host1", "host2")
        here, there = (lab.host(name)["eth1"].address().ip for name in ("host1", "host2"))
        assert set(lab.switch("leaf1").uplinks(here, there, range(50000, 50016))) == {"e2", "e3"}
        assert "ttl=61" in lab["host1"].run("ping", "-c1", "-W1", str(lab.host("host2")["eth1"].address().ip)).stdout
        assert [event["data"]["seconds"] > 0 for event in log.find("routing.converged")] == [True]
        assert ("route.installed", "leaf1", TO_LEAF2, ["e2", "e3"]) in list(events(log))

    def test_a_routed_port_has_no_ipv4_address_and_is_in_no_bridge(self, lab):
        target = str(lab.host("host2")["eth1"].address().ip)
        assert "From 192.0.0.8" in lab["host1"].run("sh", "-c", f"ping -c1 -W1 -t2 {target} || true").stdout
        fault = ExactPacket(end="leaf1:e2", action="drop", number=1)
        with pytest.raises(InputError, match="leaf1:e2 is a routed port, which is not in"), injected(lab, fault):
            pass

    def test_routing_that_does_not_converge_says_what_is_missing(self, lab):
        with pytest.raises(
            DeadlineError, match=r"not converge within 1 s: spine1 reaches 10\.1\.1\.0/24 by e1, not by e2"
        ):
            lab.routing.converged(within=1, without=["leaf1:e2"])


@pytest.mark.fresh
@pytest.mark.topology(LEAF_SPINE)
def test_a_link_that_goes_down_is_routed_around_and_used_again_when_it_is_back(lab, log):
    lab["leaf1"]["e2"].down()
    assert lab.routing.converged(within=SOON) < 1
    assert ports(lab, "leaf1", TO_LEAF2) == ["e3"]
    assert ports(lab, "leaf2", "10.1.1.0/24") == ["e3"]
    assert reaches(lab, "host1", "host2")

    lab["leaf1"]["e2"].up()
    lab.routing.converged(within=15)
    assert ports(lab, "leaf1", TO_LEAF2) == ["e2", "e3"]
    assert [kind for kind, node, to, found in events(log) if (node, to, found) == ("leaf1", TO_LEAF2, ["e3"])]


@pytest.mark.fresh
@pytest.mark.topology(LEAF_SPINE)
def test_bfd_finds_a_link_that_is_up_and_carries_nothing(lab):
    for end in "leaf1:e2", "spine1:e1":
        lab.interface(end).sends.change(loss=100)
    seconds = lab.routing.converged(within=SOON, without=["leaf1:e2"])

    assert frr.DETECTION_S / 2 < seconds < frr.DETECTION_S + 0.2
    assert ports(lab, "leaf1", TO_LEAF2) == ["e3"]
    assert ports(lab, "leaf2", "10.1.1.0/24") == ["e3"]


@pytest.mark.fresh
@pytest.mark.topology(LEAF_SPINE)
def test_without_any_link_a_route_is_lost(lab, log):
    for port in "e2", "e3":
        lab["leaf1"][port].down()
    lab.routing.converged(within=5)

    assert ports(lab, "leaf1", TO_LEAF2) == []
    assert ("route.lost", "leaf1", TO_LEAF2, []) in list(events(log))


@pytest.mark.topology(DUAL_STACK)
def test_the_mtu_of_routed_ports_lets_small_packets_pass(lab):
    near, far = lab.host("a"), lab.host("b")["eth1"].address().ip
    cut = LinkMtu(end="near:e2", mtu=600), LinkMtu(end="near:e3", mtu=600)
    with injected(lab, cut[0]), injected(lab, cut[1]):
        passed = [
            near.run("ping", "-c1", "-W1", "-s", size, str(far), check=False).returncode for size in ("500", "900")
        ]
        assert passed == [0, 1]
        assert sum(fault.hits(lab) for fault in cut) == 1
    assert near.ping(far, within=2.0)


@pytest.mark.topology(DUAL_STACK)
def test_both_families_are_routed_over_parallel_links(lab):
    assert ports(lab, "near", "10.0.20.0/24") == ["e2", "e3"]
    b = lab.host("b")
    assert lab["a"].ping(str(b["eth1"].address().ip), within=SOON)
    assert lab["a"].ping(str(b["eth1"].address(6).ip), within=SOON)
    assert b["eth1"].address(6).network == IPv6Network("2001:db8:20::/64")


@pytest.mark.topology(HOST_ROUTES)
def test_a_neighbour_is_announced_as_a_host_route_while_the_switch_has_its_entry(lab):
    a, leaf = lab.host("a"), lab.switch("leaf1")
    one, one6 = (str(a["eth1"].address(family).ip) for family in (4, 6))
    assert ports(lab, "spine", one) == ports(lab, "spine", one6) == []

    for gateway in "10.0.0.1", "2001:db8::1":
        assert a.ping(gateway, within=SOON)
    lab.routing.converged(within=SOON)
    assert ports(lab, "spine", one) == ports(lab, "spine", one6) == ["e1"]
    assert ports(lab, "leaf2", one) == ports(lab, "leaf2", one6) == ["up"]
    assert ports(lab, "leaf1", one) == []

    leaf["e1"].down()
    lab.routing.converged(within=SOON)
    assert ports(lab, "spine", one) == []
    leaf["e1"].up()
    lab.routing.converged(within=SOON)
    assert ports(lab, "spine", one) == []  # Linux forgets the neighbours of an interface without a carrier
    for gateway in "10.0.0.1", "2001:db8::1":
        assert a.ping(gateway, within=SOON)
    lab.routing.converged(within=SOON)
    assert ports(lab, "spine", one) == ports(lab, "spine", one6) == ["e1"]

    lab.switch("leaf1").clear_arp()
    lab.switch("leaf1").clear_nd()
    lab.routing.converged(within=SOON)
    assert ports(lab, "spine", one) == ports(lab, "spine", one6) == []


@pytest.mark.fresh
@pytest.mark.topology(ONE_SUBNET_TWICE)
def test_autostate_withdraws_a_subnet_and_the_switch_itself_goes_by_the_other_one(lab):
    leaf = lab.switch("leaf1")
    assert ports(lab, "spine", "10.0.10.0/24") == ["e1", "e2"]
    assert "dev vlan10" in leaf.run("ip", "route", "get", "10.0.10.77").stdout

    leaf["e1"].down()
    lab.routing.converged(within=SOON)
    assert ports(lab, "spine", "10.0.10.0/24") == ["e2"]
    assert "dev up" in leaf.run("ip", "route", "get", "10.0.10.77").stdout
    assert reaches(lab, "b", "c")

    undo = leaf.change_profile(autostate="bridge")
    lab.routing.converged(within=SOON)
    assert ports(lab, "spine", "10.0.10.0/24") == ["e1", "e2"]
    undo()
    lab.routing.converged(within=SOON)
    assert ports(lab, "spine", "10.0.10.0/24") == ["e2"]


@pytest.mark.parametrize("daemon", ["zebra", "bgpd"])
def test_a_daemon_that_is_killed_is_an_error_and_the_lab_ends(tmp_path: Path, daemon: str):
    with Lab(Topology.parse(DUAL_STACK), tmp_path, EventLog(lambda _: None).emit) as lab:
        pid = int(Path("/run/frr", lab["near"].namespace, f"{daemon}.pid").read_text())
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(TestbedError, match=f"near: FRR's {daemon} was ended by signal 9"):
            lab.scheduler.sleep(3600)
    assert not Path("/run/frr/dual-near").exists()


@pytest.mark.fresh
@pytest.mark.topology(DUAL_STACK)
def test_a_daemon_may_end_in_a_lab_that_lives(lab, log):
    """The others withdraw the routes by way of its switch, which keeps its own. It is reported once."""
    lab.control_planes.daemons_may_end = True
    before = ports(lab, "far", "10.0.10.0/24")
    pid = int(Path("/run/frr", lab["near"].namespace, "bgpd.pid").read_text())
    os.kill(pid, signal.SIGKILL)
    assert lab.scheduler.wait(lambda: ports(lab, "far", "10.0.10.0/24") != before, 30)
    lab.scheduler.sleep(60)
    [ended] = log.find("program.ended", status=-signal.SIGKILL)
    assert (ended["node"], ended["text"]) == ("near", "FRR's bgpd was ended by signal 9")
    assert log.now - ended["t"] > 60e9


@pytest.mark.topology(leaf_spine(leaves=2, spines=1, hosts=1).topology())
def test_static_routes_have_no_convergence(lab):
    with pytest.raises(InputError, match="the lab's routes are static"):
        lab.routing.converged()
