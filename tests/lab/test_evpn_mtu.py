"""Large packets in VXLAN: as large as the fabric's links let them be, and lost where one is too small."""

from pathlib import Path

import pytest

from testbed.lab import Host, Lab
from testbed.workload.attributes import Attributes
from testbed.workload.verbs import connected

JUMBO = Path(__file__).with_name("evpn.clab.yml").read_text().replace("{kind: host}", "{kind: host, nic: hardware}")
for vlan in "10", "20":
    JUMBO = JUMBO.replace(f", vlan: {vlan}}}", f", vlan: {vlan}, mtu: 9000}}")
pytestmark = [pytest.mark.topology(JUMBO), pytest.mark.fresh]


def write(source: Host, to: Host, size: int) -> bool:
    """Write with new queue pairs whose packets have `size` bytes, and return whether that works."""
    with connected(source["eth1"], to["eth1"], Attributes(path_mtu=size, retry_cnt=1)) as (near, _):
        return near.write(2 * size, within=5).ok


@pytest.mark.parametrize("other", ["b", "c"])
def test_jumbo_frames_pass_tunnels_of_both_kinds(lab: Lab, other: str) -> None:
    """Beside a VLAN with smaller ones."""
    a, there = lab.host("a"), lab.host(other)
    ip = str(there["eth1"].address().ip)
    assert a.ping(ip, within=2)
    assert " 0% packet loss" in a.run("ping", "-c", "1", "-W", "1", "-M", "do", "-s", str(9000 - 28), ip).stdout
    assert write(a, there, 4096)


@pytest.mark.parametrize("end", ["leaf2:u{}", "spine{}:d2"])
def test_a_link_that_is_too_small_for_the_outer_packets_drops_them_until_it_is_mended(lab: Lab, end: str) -> None:
    a, b = lab.host("a"), lab.host("b")
    assert a.ping(str(b["eth1"].address().ip), within=2)
    ends = [end.format(number).split(":") for number in (1, 2)]
    for node, port in ends:
        lab[node].run("ip", "link", "set", port, "mtu", "4100")
    for source, to in (a, b), (b, a):
        assert write(source, to, 2048)
        assert not write(source, to, 4096)
    for node, port in ends:
        lab[node].run("ip", "link", "set", port, "mtu", "9100")
    assert write(a, b, 4096)
    assert write(b, a, 4096)


def test_packets_of_a_network_are_as_large_as_its_largest_uplink_carries(lab: Lab) -> None:
    leaf = lab["leaf2"]

    def comes_to(mtu: int) -> bool:
        names = "vni10020", "vni4001"
        there = "/sys/class/net/{}/mtu"
        return lab.scheduler.wait(
            lambda: {leaf.run("cat", there.format(name)).stdout.strip() for name in names} == {str(mtu)}, 2
        )

    assert comes_to(9050)
    for port, mtu, largest in ("u1", 4100, 9050), ("u2", 4100, 4050), ("u2", 9600, 9550), ("u1", 9100, 9550):
        leaf.run("ip", "link", "set", port, "mtu", str(mtu))
        assert comes_to(largest)
    leaf.run("ip", "link", "set", "u2", "mtu", "9100")
    assert comes_to(9050)
