"""What there is on this kernel that a lab, a pod or a plugin makes: taken before and after, it shows what is left."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path

from testbed.kernel import netlink, netns, rdma

RTM_GETADDR = 22
IFA_ADDRESS, IFA_LOCAL = 1, 2
ADDRESS = struct.Struct("=BBBBi")  # family, prefix length, flags, scope, interface


def census(files: Path | None = None) -> set[str]:
    """Namespaces, their interfaces and addresses, RDMA devices, the processes that we or a CNI plugin started, and the
    files below `files`; each in words."""
    found = {f"process {name}" for name in processes()}
    for namespace in [None, *namespaces()]:
        if namespace:
            found.add(f"namespace {namespace}")
        with netns.entered(namespace) if namespace else contextlib.nullcontext():
            where = f"{namespace or 'the machine'}: "
            found |= {f"{where}interface {name}" for _, name in socket.if_nameindex()}
            found |= {f"{where}address {address}" for address in addresses()}
            with rdma.Rdma() as here:
                found |= {f"RDMA device {name}" for name in here.devices()}
    if files and files.exists():
        found |= {f"file {path.relative_to(files)}" for path in files.rglob("*") if not path.is_dir()}
    return found


def namespaces() -> list[str]:
    return sorted(os.listdir(netns.RUN)) if netns.RUN.exists() else []


def addresses() -> Iterator[str]:
    """``10.0.10.2/24 on eth1``, of the namespace of the caller."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as route:
        route.send(netlink.request(RTM_GETADDR, ADDRESS.pack(socket.AF_UNSPEC, 0, 0, 0, 0), netlink.DUMP))
        while True:
            for kind, body in netlink.messages(route.recv(1 << 20)):
                if kind in (netlink.DONE, netlink.ERROR):
                    return
                _, length, _, _, interface = ADDRESS.unpack_from(body)
                known = dict(netlink.attributes(body, ADDRESS.size))
                address = ip_address(known.get(IFA_LOCAL) or known[IFA_ADDRESS])
                yield f"{address}/{length} on {socket.if_indextoname(interface)}"


def processes() -> Iterator[str]:
    """``tcpdump (17)``: those that descend from this one, and plugins, by the environment that a runtime gives them."""
    parents, plugins = {}, set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):  # it has ended meanwhile
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                if b"CNI_COMMAND=" in (entry / "environ").read_bytes():
                    plugins.add(int(entry.name))
    ours = {os.getpid()}
    while more := {process for process, parent in parents.items() if parent in ours} - ours:
        ours |= more
    for process in sorted((ours | plugins) - {os.getpid()}):
        with contextlib.suppress(OSError):
            yield f"{Path(f'/proc/{process}/comm').read_text().strip()} ({process})"
