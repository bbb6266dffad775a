"""Hosts that reboot, with bonds, RDMA devices and faults: what the topology file says is there again, and works."""

import pytest

from testbed.faults import Injection, NicDown
from testbed.workload import connected

BOTH_FAMILIES = """\
name: both
topology:
  nodes:
    leaf: {kind: switch, vlans: {10: [10.0.10.1/24, "fd00:10::1/64"], 20: [10.0.20.1/24, "fd00:20::1/64"]}}
    h1: {kind: host, nic: hardware}
    h2: {kind: host, nic: hardware}
  links:
    - {endpoints: ["leaf:e1", "h1:eth1"], vlan: 10, rate: 1gbit}
    - {endpoints: ["leaf:e2", "h2:eth1"], vlan: 20}
"""


@pytest.mark.topology("channels.clab.yml")
def test_bonds_are_made_again(lab):
    hosts, far = [lab.host(name) for name in ("lacp", "static", "backup")], lab.host("far")
    before = [(host["bond0"].address(), host["bond0"].mac, host["bond0"].peer) for host in hosts]
    lab.reboot("lacp", "static", "backup")
    assert [(host["bond0"].address(), host["bond0"].mac, host["bond0"].peer) for host in hosts] == before
    for host in hosts:
        if host["bond0"].peer.plan.bond:
            assert host["bond0"].peer.peer is host["bond0"]
        with connected(host["bond0"], far["eth1"]) as (here, _):
            assert here.write(1 << 16, within=5).ok


@pytest.mark.topology(BOTH_FAMILIES)
def test_rdma_works_in_both_families_and_a_fault_holds(lab):
    h1, h2 = lab.host("h1"), lab.host("h2")
    device, addresses = h1["eth1"].rdma, h1["eth1"].all_addresses
    lab.reboot("h1", "h2", down=5)
    assert h1["eth1"].rdma == device
    assert h1["eth1"].all_addresses == addresses
    for family in (4, 6):
        with connected(h1["eth1"], h2["eth1"], family=family) as (here, _):
            assert here.write(4096, within=5).ok
    fault = Injection(lab, NicDown(end="h1:eth1"))
    fault.inject()
    lab.reboot("h1", down=5)
    assert not h1["eth1"].is_up
    fault.recover()
    assert h1["eth1"].is_up


@pytest.mark.topology(BOTH_FAMILIES)
def test_a_host_that_lost_its_power_never_closes_a_connection(lab):
    h1, h2 = lab.host("h1"), lab.host("h2")
    h2.spawn("socat", "TCP4-LISTEN:7000,fork", "EXEC:cat")
    lab.scheduler.wait(lambda: "7000" in h2.run("ss", "-Hltn").stdout, 10)
    client = h1.launch("socat", "-u", f"TCP4:{h2['eth1'].address().ip}:7000", "OPEN:/dev/null")
    established = ("ss", "-Htn", "state", "established", "dport = :7000")
    lab.scheduler.wait(lambda: h1.run(*established).stdout, 10)
    power_on = lab.power_off("h2")
    lab.scheduler.sleep(5)
    power_on()
    lab.scheduler.sleep(120)
    assert h2.run("ss", "-Htan").stdout == "", "a kernel that has booted knows no connection"
    assert h1.run(*established).stdout, "nothing was sent, so nobody has told it"
    client.stop()
