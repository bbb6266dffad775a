"""A soft-RoCE device in a network namespace, from its creation to its end."""

from collections.abc import Iterable, Mapping, Sequence

from testbed.errors import InputError
from testbed.kernel import netns
from testbed.kernel.rdma import QueuePair, Rdma


def add(namespace: str, interface: str, device: str) -> None:
    """Create the device of a namespace's interface, in either RDMA mode. Call it in the first namespace, where the
    kernel creates every device; it is moved from there."""
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
    """Delete devices and return when they are gone: only then may their names and the namespace be used again."""
    with netns.entered(namespace), Rdma() as here:
        for device in devices:
            here.delete(device)
        here.wait_gone(devices)


def counters(device: str, namespace: str) -> dict[str, int]:
    """Return the counters of `device`, which is in `namespace`; see `Rdma.counters`."""
    found = counters_of({namespace: [device]})
    if device not in found:
        raise InputError(f"there is no RDMA device {device} in {namespace}")
    return found[device]


def counters_of(places: Mapping[str, Sequence[str]]) -> dict[str, dict[str, int]]:
    """Return the counters of devices, given by namespace; omit devices that do not exist."""
    with Rdma() as initial:
        if not initial.exclusive:
            return _counters(initial, [device for devices in places.values() for device in devices])
    found: dict[str, dict[str, int]] = {}
    for namespace, devices in places.items():
        with netns.entered(namespace), Rdma() as here:
            found |= _counters(here, devices)
    return found


def _counters(here: Rdma, devices: Iterable[str]) -> dict[str, dict[str, int]]:
    known = here.devices()
    return {device: here.counters(known[device]) for device in devices if device in known}


def queue_pairs(device: str, namespace: str) -> list[QueuePair]:
    """Return the queue pairs of `device`, which is in `namespace`; none if the device is gone."""
    with netns.entered(namespace), Rdma() as here:
        index = here.devices().get(device)
        return [] if index is None else here.queue_pairs(index)
