"""The CNI plugin `rxe`: it gives the interface that the plugins before it made a soft-RoCE device.

It stands last in a chain, behind macvlan, host-device or another one, and has no configuration besides its type::

    {"type": "rxe"}

ADD makes the device in the pod, CHECK looks whether it is there, DEL takes it away and returns when it is gone from
sysfs. As a program, bin/rxe, it imports no more than it needs.
"""

from __future__ import annotations

import json
import os
import struct
import sys
from collections.abc import Mapping

from testbed.errors import TestbedError
from testbed.kernel import links, rdma
from testbed.kernel.links import Links
from testbed.kernel.netlink import attributes, text
from testbed.kernel.syscalls import CLONE_NEWNET, enter

SUPPORTED = ["0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"]
REQUIRED = {
    "ADD": ("CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME", "CNI_PATH"),
    "CHECK": ("CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME", "CNI_PATH"),
    "DEL": ("CNI_CONTAINERID", "CNI_IFNAME", "CNI_PATH"),
}
"""Variables that must be in the environment."""
VERSION, ENVIRONMENT, DECODE, CONFIG, NETNS, DEVICE = 1, 4, 6, 7, 8, 100
"""Codes of errors; from 100 on they are a plugin's own."""
IFLA_IPVLAN_MODE, IPVLAN_L2 = 1, 0


class Refusal(Exception):  # noqa: N818 (it is the answer, not an accident)
    def __init__(self, code: int, message: str, details: str = "") -> None:
        super().__init__(message)
        self.code, self.message, self.details = code, message, details


def device_name(container: str, interface: str) -> str:
    """Name an interface's device: such names have 63 bytes at most, of a container's hash the beginning will do."""
    return f"{container[:20]}-{interface}"


def check_kind(interface: str) -> None:
    """Refuse the interfaces that cannot carry RoCE: a VLAN device, on which the kernel makes no soft-RoCE device, and
    ipvlan in its layer-3 modes, where it makes one in vain."""
    with Links() as kernel:
        _, _, link = kernel.read(interface)
    information = attributes(link.get(links.IFLA_LINKINFO, b""))
    found = text(information.get(links.IFLA_INFO_KIND, b""))
    if found == "vlan":
        message = f"{interface} is a VLAN device, on which the kernel makes no soft-RoCE device"
        raise Refusal(DEVICE, message, "use macvlan with the node's VLAN device as its master")
    if found == "ipvlan":
        (mode,) = struct.unpack("=H", attributes(information[links.IFLA_INFO_DATA])[IFLA_IPVLAN_MODE])
        if mode != IPVLAN_L2:
            raise Refusal(DEVICE, f"{interface} is an ipvlan in a layer-3 mode, which carries no RoCE: use mode l2")


def add(namespace: str, interface: str, device: str) -> None:
    enter(namespace, CLONE_NEWNET)
    check_kind(interface)
    with rdma.Rdma() as here:
        here.add(device, interface)
        if not here.exclusive:
            return
        try:  # the kernel makes it in the first namespace, and hands it over from there only
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
        raise Refusal(DEVICE, f"{interface} has no RDMA device {device}", f"it has {found}" if found else "")


def delete(namespace: str, device: str) -> None:
    """Delete a device. With the namespace it is gone already, or about to go."""
    if namespace and os.path.exists(namespace):
        enter(namespace, CLONE_NEWNET)
    with rdma.Rdma() as here:
        here.delete(device)
        here.wait_gone([device])


def do(command: str, environment: Mapping[str, str], config: dict[str, object]) -> str:
    """Carry out a command and return what is to be printed."""
    if command not in REQUIRED:
        raise Refusal(ENVIRONMENT, f"unknown CNI_COMMAND: {command}")
    missing = [name for name in REQUIRED[command] if not environment.get(name)]
    if missing:
        raise Refusal(ENVIRONMENT, f"required env variables [{','.join(missing)}] missing")
    if not config.get("name"):
        raise Refusal(CONFIG, "the network's name is missing")
    version = config.get("cniVersion")
    if version not in SUPPORTED:
        details = f"config is {json.dumps(version)}, plugin supports {json.dumps(SUPPORTED)}"
        raise Refusal(VERSION, "incompatible CNI versions", details)
    interface, namespace = environment["CNI_IFNAME"], environment.get("CNI_NETNS", "")
    device = device_name(environment["CNI_CONTAINERID"], interface)
    if command == "DEL":
        delete(namespace, device)
        return ""
    if not isinstance(config.get("prevResult"), dict):
        raise Refusal(CONFIG, "rxe has to be chained: there is no result of a plugin before it")
    if not os.path.exists(namespace):
        raise Refusal(NETNS, f"there is no network namespace {namespace}")
    if command == "CHECK":
        check(namespace, interface, device)
        return ""
    add(namespace, interface, device)
    return json.dumps(config["prevResult"])


def read(stdin: bytes) -> dict[str, object]:
    try:
        config = json.loads(stdin)
    except ValueError as error:
        raise Refusal(DECODE, f"the configuration is no JSON: {error}") from None
    if not isinstance(config, dict):
        raise Refusal(DECODE, "the configuration is no JSON object")
    return config


def answer(environment: Mapping[str, str], stdin: bytes) -> tuple[int, str]:
    """Return exit status and standard output."""
    command, version = environment.get("CNI_COMMAND", ""), SUPPORTED[-1]
    if command == "VERSION":
        return 0, json.dumps({"cniVersion": version, "supportedVersions": SUPPORTED})
    try:
        config = read(stdin)
        if config.get("cniVersion") in SUPPORTED:
            version = str(config["cniVersion"])
        return 0, do(command, environment, config)
    except Refusal as refusal:
        code, message, details = refusal.code, refusal.message, refusal.details
    except TestbedError as error:
        code, message, details = DEVICE, error.message, error.hint
    except OSError as error:
        code, message, details = DEVICE, f"the kernel refused: {error.strerror}", ""
    return 1, json.dumps({"cniVersion": version, "code": code, "msg": message, "details": details})


def main() -> None:
    status, output = answer(os.environ, sys.stdin.buffer.read())
    sys.stdout.write(output)
    sys.exit(status)
