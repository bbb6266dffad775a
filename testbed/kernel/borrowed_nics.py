"""
Interfaces of this machine that a lab uses for a time: NICs with their RDMA devices, and the peers of their cables.

Each has its run's mark as alias, and the run's record has its state before (kernel/ownership.py): another process can
find it too, wherever it is. When a namespace ends, the kernel itself returns physical interfaces to the first network
namespace (net/core/dev.c, default_device_exit_net), and RDMA devices too (drivers/infiniband/core/device.c,
rdma_dev_exit_net), but under their current names.
"""

import os
from dataclasses import asdict, dataclass

from testbed.errors import UnsupportedError
from testbed.kernel import netns, ownership
from testbed.kernel.links import End
from testbed.kernel.ownership import Run
from testbed.kernel.rdma import Rdma
from testbed.kernel.rtnetlink import Rtnetlink
from testbed.kernel.syscalls import closing_fd, explained

HOME = "/proc/thread-self/ns/net"
"""This machine's network namespace, for a thread that has entered no other."""


@dataclass(frozen=True)
class Before:
    """The state of an interface before it was taken, and its place now."""

    name: str
    mac: str
    mtu: int
    up: bool
    alias: str
    device: str
    """Its RDMA device; empty if it had none."""
    namespace: str


def borrow(name: str, device: str, namespace: str, end: End, index: int) -> None:
    """Move this machine's interface `name`, or that of the RDMA device `device` with the device, into a node's
    namespace. It becomes `end` with this index, and is down. UnsupportedError if it does not exist or is in use."""
    run, name = _run(name, device), _unused(name, device)
    with Rdma() as system, Rtnetlink() as links:
        number = links.index(name)
        before = Before(
            name, links.mac(number), links.mtu(number), links.is_up(number), links.alias(number), device, namespace
        )
        ownership.claim_interface(run, name, asdict(before))
        with explained(f"{name} cannot be moved to {namespace}"):
            links.set_alias(number, _mark(run, name))  # before anything is changed
            links.set_link(number, up=False)
            with closing_fd(os.open(netns.path(namespace), os.O_RDONLY)) as there:
                links.move(number, there, end.name, index)
            with netns.entered(namespace), Rtnetlink() as inside:
                inside.set_link(index, mac=end.mac, mtu=end.mtu)
            if device and system.exclusive:
                system.move(device, netns.path(namespace))


def require(name: str, device: str) -> None:
    """Raise UnsupportedError if `take` would."""
    _run(name, device)
    _unused(name, device)


def _run(name: str, device: str) -> Run:
    """Return this process's run, which takes hardware. UnsupportedError in a micro-VM."""
    run = ownership.current()
    if run is None:
        what = f"RDMA device {device}" if device else f"interface {name}"
        hint = "Run a lab with hardware on your own kernel: --machine local."
        raise UnsupportedError(f"a micro-VM does not have the {what} of your machine", hint=hint)
    return run


def _unused(name: str, device: str) -> str:
    """Return the interface of that name or RDMA device. UnsupportedError if it does not exist or is in use."""
    with Rdma() as system, Rtnetlink() as links:
        name = _interface_of(system, device) if device else name
        _check_unused(links, name)
    return name


def _interface_of(system: Rdma, device: str) -> str:
    known = system.devices()
    if device not in known:
        hint = f"It has: {', '.join(known)}." if known else "It has no RDMA device: see `rdma link`."
        raise UnsupportedError(f"this machine has no RDMA device {device}", hint=hint)
    for pair in system.queue_pairs(known[device]):
        if pair.pid:
            raise UnsupportedError(f"RDMA device {device} is in use: process {pair.pid} has a queue pair on it")
    interface = system.interface(known[device])
    if interface is None:
        raise UnsupportedError(f"RDMA device {device} belongs to no interface of this machine: it is not a RoCE device")
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
        hint = "Choose interfaces that nothing else uses."
        raise UnsupportedError(f"interface {name} of this machine {use}", hint=hint)


def give_back(run: Run, name: str) -> None:
    """Return an interface and its RDMA device to this machine, in their former state."""
    before, mark = Before(**run.interfaces[name]), _mark(run, name)
    with explained(f"{name} cannot be moved back"), closing_fd(os.open(HOME, os.O_RDONLY)) as home:
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
                links.move(index, home, name)  # the kernel may have returned it, under its name in the lab
                links.set_link(index, mac=before.mac, mtu=before.mtu)
                links.set_link(index, up=before.up)
                links.set_alias(index, before.alias)  # last, after all else is undone
    ownership.release_interface(run, name)


def give_back_all(namespace: str) -> None:
    """Return all interfaces of this machine that a node of this process's run has."""
    if run := ownership.current():
        for name in [name for name, before in run.interfaces.items() if before["namespace"] == namespace]:
            give_back(run, name)


def _mark(run: Run, name: str) -> str:
    return f"{ownership.ALIAS}{run.name} {name}"


def _with_alias(links: Rtnetlink, alias: str) -> list[int]:
    return [index for index, found in links.aliases().items() if found == alias]
