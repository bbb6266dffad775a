"""The leak check: a lab's, pod's or plugin's leftovers, by inventories made before and after."""

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

from testbed.kernel import netns, rdma
from testbed.kernel.rtnetlink import Rtnetlink
from testbed.lab.docker.client import containers

PF_KTHREAD = 0x200000
CNI_AGENT = "cni-agent"
"""The process of each node's agent, which exists until the lab ends."""


def inventory(files: Path | None = None) -> set[str]:
    """Return a line for each namespace, interface, address, RDMA device, container, process of ours or of CNI, file in
    `files`."""
    found = {f"process {name}" for name in processes()}
    for namespace in [None, *netns.names()]:
        if namespace:
            found.add(f"namespace {namespace}")
        with netns.entered(namespace) if namespace else contextlib.nullcontext():
            where = f"{namespace or 'the machine'}: "
            found |= {f"{where}interface {name}" for _, name in socket.if_nameindex()}
            with Rtnetlink() as links:
                addresses = [(str(address), socket.if_indextoname(index)) for index, address in links.addresses()]
            found |= {f"{where}address {address} on {name}" for address, name in addresses}
            with rdma.Rdma() as here:
                found |= {f"RDMA device {name}" for name in here.devices()}
    found |= {f"container {name}" for name in containers()}
    if files and files.exists():
        found |= {f"file {path.relative_to(files)}" for path in files.rglob("*") if not path.is_dir()}
    return found


def processes() -> Iterator[str]:
    """Yield ``tcpdump (17)`` for each descendant of this process and each CNI plugin, identified by its environment."""
    parents, plugins = {}, set()
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            _, parent, *_, flags = _read(name, "stat").rpartition(b")")[2].split(maxsplit=7)[:7]
            parents[int(name)] = int(parent)
            if not int(flags) & PF_KTHREAD and b"CNI_COMMAND=" in _read(name, "environ"):
                plugins.add(int(name))
    ours = {os.getpid()}
    while more := {process for process, parent in parents.items() if parent in ours} - ours:
        ours |= more
    for process in sorted((ours | plugins) - {os.getpid()}):
        with contextlib.suppress(OSError):
            yield f"{_read(process, 'comm').decode().strip()} ({process})"


def _read(process: int | str, name: str) -> bytes:
    with open(f"/proc/{process}/{name}", "rb", 0) as file:
        return file.read()
