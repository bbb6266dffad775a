"""
Interfaces of this very kernel that a lab has for a while: NICs with their RDMA devices, and what their cables lead to.

Each has the mark of its run as its alias, and the run's record says how it was before (kernel/ownership.py): so it is
found again wherever it is, also by another process. The kernel itself hands a physical interface back to the first
network namespace when the one that it is in ends, and an RDMA device, too (net/core/dev.c, default_device_exit_net;
drivers/infiniband/core/device.c, rdma_dev_exit_net), but under the name that it has then.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass

from testbed.errors import TestbedError, UnsupportedError
from testbed.kernel import netns, ownership
from testbed.kernel.links import End
from testbed.kernel.ownership import Run
from testbed.kernel.rdma import Rdma
from testbed.kernel.rtnetlink import Rtnetlink
from testbed.kernel.syscalls import closing_fd

HOME = "/proc/thread-self/ns/net"
"""The network namespace of this machine, for a thread that has entered no other."""


@dataclass(frozen=True)
class Before:
    """An interface as it was before it was taken, and where it is now."""

    name: str
    mac: str
    mtu: int
    up: bool
    alias: str
    device: str
    """The RDMA device that came with it; empty if none did."""
    namespace: str


def take(name: str, device: str, namespace: str, end: End, index: int) -> None:
    """Give a node's namespace the interface `name` of this machine, or that of the RDMA device `device` with the
    device. There it is `end` with this index, and down. UnsupportedError for what is not there, or is in use."""
    run, name = _run(name, device), _unused(name, device)
    with Rdma() as system, Rtnetlink() as links:
        number = links.index(name)
        before = Before(
            name, links.mac(number), links.mtu(number), links.is_up(number), links.alias(number), device, namespace
        )
        ownership.claim_interface(run, name, asdict(before))
        with _explained(f"{name} cannot be given to {namespace}"):
            links.set_alias(number, _mark(run, name))  # before anything is changed
            links.set_link(number, up=False)
            with closing_fd(os.open(netns.path(namespace), os.O_RDONLY)) as there:
                links.move(number, there, end.name, index)
            with netns.entered(namespace), Rtnetlink() as inside:
                inside.set_link(index, mac=end.mac, mtu=end.mtu)
            if device and system.exclusive:
                system.move(device, netns.path(namespace))


def require(name: str, device: str) -> None:
    """UnsupportedError if `take` would raise it."""
    _run(name, device)
    _unused(name, device)


def _run(name: str, device: str) -> Run:
    """Return the run of this process, which takes hardware. UnsupportedError in a micro-VM."""
    run = ownership.current()
    if run is None:
        what = f"RDMA device {device}" if device else f"interface {name}"
        hint = "A lab with hardware is run on your own kernel: --machine local."
        raise UnsupportedError(f"a micro-VM does not have the {what} of your machine", hint=hint)
    return run


def _unused(name: str, device: str) -> str:
    """Return the interface of that name, or of that RDMA device. UnsupportedError for what is not there, or is in
    use."""
    with Rdma() as system, Rtnetlink() as links:
        name = _interface_of(system, device) if device else name
        _check_unused(links, name)
    return name


def _interface_of(system: Rdma, device: str) -> str:
    known = system.devices()
    if device not in known:
        hint = f"It has: {', '.join(known)}." if known else "It has none: see `rdma link`."
        raise UnsupportedError(f"this machine has no RDMA device {device}", hint=hint)
    for pair in system.queue_pairs(known[device]):
        if pair.pid:
            raise UnsupportedError(f"RDMA device {device} is in use: process {pair.pid} has a queue pair on it")
    interface = system.interface(known[device])
    if interface is None:
        raise UnsupportedError(f"RDMA device {device} has no interface of this machine: it is no RoCE device")
    return interface


def _check_unused(links: Rtnetlink, name: str) -> None:
    try:
        index = links.index(name)
    except OSError:
        raise UnsupportedError(f"this machine has no interface {name}", hint="See `ip link`.") from None
    addresses = [str(address) for number, address in links.addresses() if number == index and not address.is_link_local]
    use = f"has the address {addresses[0]}" if addresses else ""
    if not use and (user := links.user(index)):
        use = f"is used by {user}"
    if use:
        hint = "A lab takes interfaces that nothing else uses."
        raise UnsupportedError(f"interface {name} of this machine {use}", hint=hint)


def give_back(run: Run, name: str) -> None:
    """Return an interface and its RDMA device to this machine, as they were."""
    before, mark = Before(**run.interfaces[name]), _mark(run, name)
    with _explained(f"{name} cannot be given back"), closing_fd(os.open(HOME, os.O_RDONLY)) as home:
        if netns.path(before.namespace).exists():
            with netns.entered(before.namespace), Rtnetlink() as there, Rdma() as system:
                if before.device and system.exclusive and before.device in system.devices():
                    system.move(before.device, f"/proc/self/fd/{home}")
                for index in _with_alias(there, mark):
                    there.set_link(index, up=False)
                    there.move(index, home, name)
        with Rtnetlink() as links:
            for index in _with_alias(links, mark):
                links.set_link(index, up=False)
                links.move(index, home, name)  # the kernel may have brought it, under its name in the lab
                links.set_link(index, mac=before.mac, mtu=before.mtu)
                links.set_link(index, up=before.up)
                links.set_alias(index, before.alias)  # after all else has been undone
    ownership.release_interface(run, name)


def give_back_all(namespace: str) -> None:
    """Return what a node of this process's run has of this machine."""
    if run := ownership.current():
        for name in [name for name, before in run.interfaces.items() if before["namespace"] == namespace]:
            give_back(run, name)


def _mark(run: Run, name: str) -> str:
    return f"{ownership.ALIAS}{run.name} {name}"


def _with_alias(links: Rtnetlink, alias: str) -> list[int]:
    return [index for index, found in links.aliases().items() if found == alias]


@contextmanager
def _explained(what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise TestbedError(f"{what}: {error.strerror}") from error
