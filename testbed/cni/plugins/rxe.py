"""The CNI plugin `rxe`: it gives the interface that the plugins before it made a soft-RoCE device.

It stands last in a chain, behind macvlan, host-device or another one::

    {"type": "rxe"}

With ``"exclusive": true`` ADD fails in RDMA's shared mode, as rdma-cni's does.

ADD makes the device in the pod, CHECK looks whether it is there, DEL takes it away and returns when it is gone from
sysfs.
"""

import os
import struct
from collections.abc import Mapping
from typing import Any

from testbed.cni.plugins.contract import Call, Refusal
from testbed.cni.spec import OWN
from testbed.kernel import rdma
from testbed.kernel.link_readings import kind_of
from testbed.kernel.links import Links
from testbed.kernel.netns import turn
from testbed.kernel.syscalls import CLONE_NEWNET, enter

IFLA_IPVLAN_MODE, IPVLAN_L2 = 1, 0
SHARED = (
    "RDMA subsystem namespace awareness mode is set to shared, expecting it to be set to exclusive, "
    "invalid system configurations"
)
"""rdma-cni's words."""
KEY = "rdma-device"
"""The key in a result for an interface that has a device."""


def device_name(container: str, interface: str) -> str:
    """Name an interface's device: it uses the start of the container's hash, as UCX finds no device with a name longer
    than 15 characters."""
    return f"{container[:9]}-{interface}"


def call(asked: Call) -> Mapping[str, Any] | None:
    """Execute a call, see `contract.Plugin`. The calling thread stays in the pod's namespace."""
    if asked.command in ("GC", "STATUS"):  # a device ends with its pod; the kernel is always ready
        return None
    device = device_name(asked.container, asked.interface)
    if asked.command == "DEL":
        delete(asked.namespace, device)
        return None
    result = asked.chained("rxe")
    if asked.command == "CHECK":
        check(asked.namespace, asked.interface, device)
        return None
    add(asked.namespace, asked.interface, device, exclusive=asked.config.get("exclusive") is True)
    return naming(result, asked, device)


def naming(result: Mapping[str, Any], asked: Call, device: str) -> dict[str, Any]:
    """Return the result with the device in the entry of its interface. CNI has no key for it; this one is from the
    Device Information Specification, which has it for PCI devices only."""
    entries = [dict(entry) for entry in result.get("interfaces", [])]
    for entry in entries:
        if (entry.get("name"), entry.get("sandbox")) == (asked.interface, asked.namespace):
            entry[KEY] = device
    return {**result, "interfaces": entries} if entries else dict(result)


def check_kind(interface: str) -> None:
    """Refuse interfaces that cannot carry RoCE: a VLAN device, on which the kernel makes no soft-RoCE device, and
    ipvlan in its layer-3 modes, where a soft-RoCE device does not work."""
    with Links() as kernel:
        _, _, link = kernel.read(interface)
    found, data = kind_of(link)
    if found == "vlan":
        message = f"{interface} is a VLAN device; the kernel creates no soft-RoCE device on one"
        raise Refusal(OWN, message, "use macvlan with the node's VLAN device as its master")
    if found == "ipvlan":
        (mode,) = struct.unpack("=H", data[IFLA_IPVLAN_MODE])
        if mode != IPVLAN_L2:
            raise Refusal(OWN, f"{interface} is an ipvlan in a layer-3 mode, which does not carry RoCE: use mode l2")


def add(namespace: str, interface: str, device: str, *, exclusive: bool) -> None:
    enter(namespace, CLONE_NEWNET)
    check_kind(interface)
    with turn(), rdma.Rdma() as here:
        if exclusive and not here.exclusive:
            raise Refusal(OWN, SHARED, "the lab needs `rdma_mode: exclusive`")
        here.add(device, interface)
        if not here.exclusive:
            return
        try:  # the kernel makes it in the first namespace, and moves it from there only
            enter("/proc/1/ns/net", CLONE_NEWNET)
            with rdma.Rdma() as initial:
                initial.move(device, namespace)
        except BaseException:
            with rdma.Rdma() as initial:
                initial.delete(device)
            raise


def check(namespace: str, interface: str, device: str) -> None:
    enter(namespace, CLONE_NEWNET)
    with rdma.Rdma() as here:
        found = here.links().get(interface)
    if found != device:
        raise Refusal(OWN, f"{interface} has no RDMA device {device}", f"it has {found}" if found else "")


def delete(namespace: str, device: str) -> None:
    """Delete a device. If the namespace has gone, the device has gone or will go with it."""
    if namespace and os.path.exists(namespace):
        enter(namespace, CLONE_NEWNET)
    with turn(), rdma.Rdma() as here:
        here.delete(device)
        here.wait_gone([device])
