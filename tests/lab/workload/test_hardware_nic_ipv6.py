"""`nic: hardware` over IPv6: queue pairs keep their MAC, hosts are silent, and a switch's stale entry is felt."""

from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import IPv6Address

import pytest

from testbed.lab import Host
from testbed.switch import nd
from testbed.topology import link_local
from testbed.workload.attributes import Attributes
from testbed.workload.verbs import Endpoint, connect_pair

PAIR = """
name: pair
topology:
  nodes:
    hub: {{kind: bridge}}
    a: {{kind: host, nic: {nic}}}
    b: {{kind: host, nic: {nic}}}
  links:
    - {{endpoints: ["hub:p1", "a:eth1"], ipv6: [null, "2001:db8:10::1/64"]}}
    - {{endpoints: ["hub:p2", "b:eth1"]}}
"""
HARDWARE, RXE = PAIR.format(nic="hardware"), PAIR.format(nic="rxe")
SOON = 1.0
ELSEWHERE = "02:00:00:00:00:99"
"""The MAC of nobody: what is sent there is lost."""
ONCE = Attributes(retry_cnt=0)


@contextmanager
def connected(left: Host, right: Host, ip: IPv6Address | None = None) -> Iterator[tuple[Endpoint, Endpoint]]:
    """Queue pairs over IPv6; `ip` is the address of `right`, if not its own."""
    with (
        Endpoint(left["eth1"].device, left.namespace, left["eth1"].address(6).ip, nic=left["eth1"].nic) as near,
        Endpoint(
            right["eth1"].device, right.namespace, ip or right["eth1"].address(6).ip, nic=right["eth1"].nic
        ) as far,
    ):
        connect_pair(near, far, ONCE)
        yield near, far


@pytest.mark.topology(HARDWARE)
def test_an_old_queue_pair_keeps_the_mac_and_a_new_one_takes_the_new(lab):
    a, b = lab.host("a"), lab.host("b")
    with connected(a, b) as (old, old_peer):
        a["eth1"].set_neighbour(b["eth1"].address(6).ip, ELSEWHERE)
        with connected(a, b) as (new, _):
            wire = lab["hub"]["p1"].capture("udp port 4791")

            assert old.write(5000, within=SOON).ok
            assert old.read(5000, within=SOON).ok
            assert new.write(5000, within=SOON).status == "RETRY_EXC_ERR"

            pins = [a["eth1"].nic.pins[pair.address.qpn] for pair in (old, new)]
            assert [(pin.remote_ip, pin.mac) for pin in pins] == [
                (b["eth1"].address(6).ip, b["eth1"].mac),
                (b["eth1"].address(6).ip, ELSEWHERE),
            ]
            assert old_peer.load(0, 5000) == old.load(0, 5000)
    wire.stop()
    sent = [frame for frame in wire.frames() if frame.src == a["eth1"].mac]
    assert all(frame.roce for frame in sent)
    assert {frame.dst for frame in sent} == {b["eth1"].mac, ELSEWHERE}


@pytest.mark.topology(RXE)
def test_plain_rxe_follows_the_neighbour_table(lab):
    a, b = lab.host("a"), lab.host("b")
    with connected(a, b) as (old, _):
        a["eth1"].set_neighbour(b["eth1"].address(6).ip, ELSEWHERE)
        assert old.write(64, within=SOON).status == "RETRY_EXC_ERR"


@pytest.mark.parametrize(
    "silent",
    [
        pytest.param(True, id="hardware", marks=pytest.mark.topology(HARDWARE)),
        pytest.param(False, id="rxe", marks=pytest.mark.topology(RXE)),
    ],
)
def test_five_minutes_of_rdma_cause_no_neighbour_discovery(lab, silent):
    with connected(lab.host("a"), lab.host("b")) as (left, _):
        wires = [lab["hub"][port].capture("icmp6") for port in ("p1", "p2")]
        for _ in range(75):
            assert left.write(64, within=SOON).ok
            lab.scheduler.sleep(4)

    seen = 0
    for wire in wires:
        wire.stop()
        seen += sum(nd.parse(frame.data) is not None for frame in wire.frames())
    assert seen == 0 if silent else seen >= 5


@pytest.mark.fresh
@pytest.mark.topology("hardware.clab.yml")
@pytest.mark.parametrize("asks", [False, True])
def test_who_takes_over_an_address_is_not_reached_before_it_says_so(lab, asks):
    """The IPv6 twin of ip-reuse: a pod dies, another one gets its address, and the switch knows the first one's MAC.

    Where a pod asks for its gateway, ARP tells the switch who asks. Not so here: for a queue pair the kernel asks from
    the link-local address, which is another one.
    """
    a, b, c = (lab.host(name) for name in "abc")
    address = b["eth1"].address(6)
    if not asks:
        gateway = c["eth1"].gateway(6)
        c["eth1"].set_neighbour(gateway, lab.switch("leaf").svi_mac())
    with connected(a, b) as (near, _):
        assert near.write(64, within=SOON).ok
    assert lab.switch("leaf").nd_table()[str(address.ip)] == b["eth1"].mac
    near_c = str(link_local(c["eth1"].mac))

    b["eth1"].remove_address(6)
    c["eth1"].add_address(address)
    with connected(a, c) as (near, _):
        assert near.write(64, within=SOON).status == "RETRY_EXC_ERR"
    assert (near_c in lab.switch("leaf").nd_table()) == asks

    c["eth1"].announce(6)
    assert lab.scheduler.wait(lambda: lab.switch("leaf").nd_table()[str(address.ip)] == c["eth1"].mac, within=SOON)
    with connected(a, c) as (near, far):
        assert near.write(64, within=SOON).ok
        assert far.load(0, 64) == near.load(0, 64)
