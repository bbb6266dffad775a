"""
Labs with hardware, run in a machine that plays the user's VM. It has no NIC: soft-RoCE on a pair of veth plays one, and
the other end of the pair is where its cable ends. One thing a NIC does and soft-RoCE does not: its RDMA device stays
when its interface moves to another network namespace. So here it is made again then.
"""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.enums import IBV_QPT_UD
from pyverbs.pd import PD
from pyverbs.qp import QP, QPCap, QPInitAttr
from test_this_kernel import Run, _the_users_vm, _this_kernel_is_as_before, left, state, until  # noqa: F401 - fixtures

from testbed.errors import TestbedError
from testbed.kernel import borrowed_nics, netns, sysctl
from testbed.kernel.rdma import Rdma

CABLES = {"nic0": "port0", "nic1": "port1"}
IPV6 = "net/ipv6/conf/default/disable_ipv6"
DEVICES = {"nic0": "roce0", "nic1": "roce1"}


def ip(*words: str) -> str:
    return subprocess.run(["ip", *words], check=True, capture_output=True, text=True).stdout


def looks() -> list[object]:
    """What a user sees of the hardware, but for the numbers of interfaces."""
    found = {link["ifname"]: link for link in json.loads(ip("-j", "link"))}
    links = [found[name] for pair in CABLES.items() for name in pair]
    return [(link["mtu"], link["address"], "UP" in link["flags"], link.get("ifalias")) for link in links]


def make_again(system: Rdma, device: str, interface: str) -> None:
    """Returns when the device is on the interface, and no longer the one that the kernel has begun to delete."""

    def made() -> bool:
        try:
            system.add(device, interface)
        except TestbedError:  # its name, or the interface's place for one, is taken
            return False
        return True

    until(made)


@pytest.fixture(autouse=True)
def moved(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Connects the hardware. The RDMA devices that this process hands to other namespaces."""
    names: list[str] = []
    sysctl.write(IPV6, 1)  # a link that is up again has a new link-local address
    for nic, port in CABLES.items():
        ip("link", "add", nic, "type", "veth", "peer", "name", port)
        with Rdma() as system:
            system.add(DEVICES[nic], nic)
    ip("link", "set", "nic0", "up", "mtu", "4000", "alias", "rack 7, left")
    move, give_back = Rdma.move, borrowed_nics.give_back

    def move_what_stayed(self: Rdma, device: str, namespace: Path | str) -> None:
        if netns.RUN in Path(namespace).parents:  # where its interface is already
            with netns.entered(str(namespace)), Rdma() as there:
                make_again(there, device, "eth1")
        move(self, device, namespace)
        names.append(device)

    def give_back_with_device(run: borrowed_nics.Run, name: str) -> None:
        give_back(run, name)
        with Rdma() as system:
            if name in DEVICES:
                make_again(system, DEVICES[name], name)

    monkeypatch.setattr(Rdma, "move", move_what_stayed)
    monkeypatch.setattr(borrowed_nics, "give_back", give_back_with_device)
    before = looks()
    yield names
    assert looks() == before
    for nic in CABLES:
        ip("link", "del", nic)
    with Rdma() as system:
        system.wait_gone(list(DEVICES.values()))
    sysctl.write(IPV6, 0)


def test_a_lab_of_nics_and_of_ports_where_their_cables_end() -> None:
    message = Run("end", lab="nics").end()
    assert "response" in message, message
    outcome = message["response"]
    assert outcome["failures"] == []
    assert outcome["observed"] == "healthy"
    evidence = outcome["evidence"]
    assert evidence == {
        "lossy": "ETIMEDOUT",  # nobody answered ARP
        "devices": ["roce0", "roce1"],
        "seen": ["/dev/infiniband:", "rdma_cm", "uverbs0", "/sys/class/infiniband:", "roce0"],
        "mtu": 4200,
        "modelled": False,
        "passed": True,
    }


@pytest.mark.parametrize("ended", [False, True], ids=["namespace is there", "namespace has ended"])
def test_gc_gives_back_what_a_killed_run_took(ended: bool, moved: list[str]) -> None:
    run = Run(lab="nics")
    run.wait_until_up()
    assert "RDMA device roce0" in state()
    run.kill()
    if ended:
        ip("-n", "mine-a", "link", "set", "eth1", "netns", "1")  # as the kernel does, under the name that it has
    assert [one["name"] for one in left(dry_run=True) if one["kind"] == "interface"] == [*CABLES, *CABLES.values()]
    assert not [one for one in left(dry_run=True) if one["kind"] == "RDMA device"]
    done = left()
    assert [one["name"] for one in done if one["kind"] == "interface"] == [*CABLES, *CABLES.values()]
    assert not [one for one in done if one["problem"]]
    assert moved == (["roce1"] if ended else ["roce0", "roce1"])


@pytest.mark.parametrize(
    ("use", "undo", "message"),
    [
        ("addr add 192.0.2.1/24 dev nic1", "addr del 192.0.2.1/24 dev nic1", "nic1 of this machine has the address"),
        ("link add link port1 name port1.5 type vlan id 5", "link del port1.5", "port1 of this machine is used by"),
        ("link set port1 name port9", "link set port9 name port1", "this machine has no interface port1"),
    ],
)
def test_what_is_in_use_or_is_not_there_is_not_taken(use: str, undo: str, message: str) -> None:
    ip(*use.split())
    try:
        refuses(message)
    finally:
        ip(*undo.split())


def refuses(message: str) -> None:
    found = Run("end", lab="nics").end()
    assert "error" in found, found
    assert (message in found["error"]["message"], found["error"]["status"]) == (True, 3)


def test_a_device_with_a_queue_pair_of_somebody_s_is_not_taken() -> None:
    with Context(name="roce1") as context, PD(context) as domain, CQ(context, 1) as queue:
        wanted = QPInitAttr(qp_type=IBV_QPT_UD, scq=queue, rcq=queue, cap=QPCap(max_send_wr=1, max_recv_wr=1))
        with QP(domain, wanted):
            refuses(f"RDMA device roce1 is in use: process {os.getpid()} has a queue pair on it")


def test_a_device_without_an_interface_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Rdma, "interface", lambda *_: None)  # as of InfiniBand, which no software device here plays
    refuses("RDMA device roce0 belongs to no interface of this machine")
