"""`nic: hardware`: queue pairs keep the destination MAC of their RTR, and their traffic causes no ARP."""

import contextlib
import socket
import time
from collections.abc import Iterator
from contextlib import closing

import pytest
from wire_lab import Host, Wire

from testbed.errors import InputError, TestbedError
from testbed.kernel import netns, rdma
from testbed.nic import HardwareNic, HardwareNics, connections
from testbed.switch import frames
from testbed.workload.attributes import Attributes
from testbed.workload.verbs import Endpoint, connect_pair

SOON = 1.0
ELSEWHERE = "02:00:00:00:00:99"
"""The MAC of nobody: what is sent there is lost."""
ONCE = Attributes(retry_cnt=0)


@pytest.fixture
def nics() -> Iterator[HardwareNics]:
    with closing(HardwareNics()) as nics:
        yield nics


@contextlib.contextmanager
def connected(
    wire: Wire, left: HardwareNic | None = None, right: HardwareNic | None = None
) -> Iterator[tuple[Endpoint, Endpoint]]:
    with wire.left.endpoint(left) as a, wire.right.endpoint(right) as b:
        connect_pair(a, b, ONCE)
        yield a, b


def announce(host: Host, mac: str) -> None:
    """A gratuitous ARP request for the host's address with another MAC, from its port."""
    arp = frames.Arp(frames.REQUEST, mac, host.ip, frames.NO_MAC, host.ip)
    with host.entered(), socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as port:
        port.bind((host.interface, frames.ETH_P_ARP))
        port.send(frames.pack(frames.BROADCAST, mac, arp))


@pytest.mark.parametrize("wire", ["shared", "exclusive"], indirect=True)
def test_an_old_queue_pair_keeps_the_mac_and_a_new_one_takes_the_new(wire: Wire, nics: HardwareNics) -> None:
    nic = nics.add(wire.left.entered, "eth1", wire.left.device)
    sniffer = wire.sniff(wire.left)
    with connected(wire, nic) as (old, old_peer):
        wire.left.set_neighbour(wire.right.ip, ELSEWHERE)
        with connected(wire, nic) as (new, new_peer):
            sniffer.frames()

            assert old.write(5000, within=SOON).ok
            assert new.write(5000, within=SOON).status == "RETRY_EXC_ERR"
            assert old.read(5000, within=SOON).ok

            sent = {(frame.dest_qpn, frame.dst) for frame in sniffer.frames() if frame.kind == "roce"}
            assert sent == {(old_peer.address.qpn, wire.right.mac), (new_peer.address.qpn, ELSEWHERE)}
            assert [nic.pins[pair.address.qpn].mac for pair in (old, new)] == [wire.right.mac, ELSEWHERE]
            assert old_peer.load(0, 5000) == old.load(0, 5000)


def test_plain_rxe_follows_the_neighbour_table(wire: Wire) -> None:
    sniffer = wire.sniff(wire.left)
    with connected(wire) as (old, _):
        wire.left.set_neighbour(wire.right.ip, ELSEWHERE)
        sniffer.frames()

        assert old.write(64, within=SOON).status == "RETRY_EXC_ERR"

        assert {frame.dst for frame in sniffer.frames() if frame.kind == "roce"} == {ELSEWHERE}


@pytest.mark.parametrize("model", ["rxe", "hardware"])
def test_acknowledgements_and_read_responses_are_pinned_too(wire: Wire, nics: HardwareNics, model: str) -> None:
    nic = nics.add(wire.right.entered, "eth1", wire.right.device) if model == "hardware" else None
    with connected(wire, right=nic) as (requester, _):
        wire.right.set_neighbour(wire.left.ip, ELSEWHERE)

        written = requester.write(5000, within=SOON).status
        read = requester.read(5000, within=SOON).status

    assert (written, read) == (("SUCCESS", "SUCCESS") if model == "hardware" else ("RETRY_EXC_ERR", "WR_FLUSH_ERR"))


def test_the_table_learns_from_an_announcement_and_only_new_queue_pairs_follow_it(
    wire: Wire, nics: HardwareNics
) -> None:
    nic = nics.add(wire.left.entered, "eth1", wire.left.device)
    with connected(wire, nic) as (old, _):
        announce(wire.right, ELSEWHERE)

        assert ELSEWHERE in wire.left.command("ip", "neigh", "show", str(wire.right.ip))
        assert old.write(64, within=SOON).ok
        with connected(wire, nic) as (new, _):
            assert new.write(64, within=SOON).status == "RETRY_EXC_ERR"


@pytest.mark.parametrize("model", ["rxe", "hardware"])
def test_five_minutes_of_rdma_cause_no_arp(wire: Wire, nics: HardwareNics, model: str) -> None:
    hosts = wire.left, wire.right
    cards = [nics.add(host.entered, "eth1", host.device) if model == "hardware" else None for host in hosts]
    with connected(wire, *cards) as (left, _):
        sniffers = [wire.sniff(host) for host in hosts]
        end = time.monotonic() + 300
        while time.monotonic() < end:
            assert left.write(64, within=SOON).ok
            time.sleep(4)
        seen = [[frame.kind for frame in sniffer.frames()] for sniffer in sniffers]

    assert all(kinds.count("roce") >= 74 for kinds in seen)
    requests = sum(kinds.count("arp") for kinds in seen)
    assert requests == 0 if model == "hardware" else requests >= 5


def test_a_queue_pair_that_was_never_ready_has_no_pin(wire: Wire, nics: HardwareNics) -> None:
    nic = nics.add(wire.left.entered, "eth1", wire.left.device)
    with wire.left.endpoint() as endpoint, pytest.raises(InputError, match="has not been in RTR"):
        nic.pin(endpoint.address.qpn)


def test_a_namespace_with_a_hardware_nic_can_go(wire: Wire, nics: HardwareNics) -> None:
    nic = nics.add(wire.right.entered, "eth1", wire.right.device)
    with connected(wire, right=nic) as (left, right):
        netns.delete("right")
        nics.remove(wire.right.device)
        with rdma.Rdma() as system:
            system.wait_gone([wire.right.device])
        assert left.write(64, within=SOON).status == "RETRY_EXC_ERR"
        right.close()
    with wire.left.endpoint() as a, wire.left.endpoint() as b:
        connect_pair(a, b)
        nics.settle()


def test_what_was_armed_by_half_is_armed_again_and_disarmed_at_the_end(wire: Wire) -> None:
    connections.disarm()
    connections.INSTANCE.mkdir()
    with closing(HardwareNics()) as nics:
        nic = nics.add(wire.left.entered, "eth1", wire.left.device)
        with connected(wire, nic) as (left, _):
            assert nic.pins[left.address.qpn] == left.connection
    assert not connections.INSTANCE.exists()
    assert connections.EVENT not in (connections.TRACEFS / "dynamic_events").read_text()


def test_a_second_lab_on_the_kernel_is_refused(nics: HardwareNics) -> None:
    with pytest.raises(TestbedError, match="Another lab is running on this kernel"):
        HardwareNics()


def test_records_from_before_that_nobody_read_do_not_end_a_lab(wire: Wire) -> None:
    armed = connections.arm()
    for _ in range(2000):  # more than the buffer holds
        (connections.INSTANCE / "trace_marker").write_text("x" * 100)
    with closing(HardwareNics()) as nics:
        nic = nics.add(wire.left.entered, "eth1", wire.left.device)
        with connected(wire, nic) as (near, _):
            assert near.write(5000, within=SOON).ok
    if armed:
        connections.disarm()


def test_what_the_watcher_failed_at_is_told_at_the_end(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    nics = HardwareNics()
    nics.add(wire.left.entered, "eth1", wire.left.device)
    monkeypatch.setattr(HardwareNic, "write", _refuse)
    with connected(wire):  # as a third-party program does, which asks for no pin
        pass
    with pytest.raises(TestbedError, match="no pin"):
        nics.close()


def _refuse(*_: object) -> None:
    raise TestbedError("no pin")
