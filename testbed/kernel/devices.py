"""A soft-RoCE device in a network namespace, from its making to the moment it is gone."""

from __future__ import annotations

from collections.abc import Sequence

from testbed.errors import InputError
from testbed.kernel import netns
from testbed.kernel.rdma import QueuePair, Rdma


def add(namespace: str, interface: str, device: str) -> None:
    """Give an interface of a namespace its device, in whichever RDMA mode the kernel is in. Called in the first
    namespace, where the kernel makes every device and hands it over from."""
    with netns.entered(namespace), Rdma() as here:
        here.add(device, interface)
    with Rdma() as initial:
        if not initial.exclusive:
            return
        try:
            initial.move(device, netns.path(namespace))
        except BaseException:
            initial.delete(device)
            raise


def delete(namespace: str, devices: Sequence[str]) -> None:
    """Return when they are gone: until then neither their names nor the namespace may be used again."""
    with netns.entered(namespace), Rdma() as here:
        for device in devices:
            here.delete(device)
        here.wait_gone(devices)


def counters(device: str, namespace: str) -> dict[str, int]:
    """Return the counters of `device`, which is in `namespace`; see `Rdma.counters`."""
    with netns.entered(namespace), Rdma() as here:
        index = here.devices().get(device)
        if index is None:
            raise InputError(f"there is no RDMA device {device} in {namespace}")
        return here.counters(index)


def queue_pairs(device: str, namespace: str) -> list[QueuePair]:
    """Return the queue pairs of `device`, which is in `namespace`; none if it has gone."""
    with netns.entered(namespace), Rdma() as here:
        index = here.devices().get(device)
        return [] if index is None else here.queue_pairs(index)
