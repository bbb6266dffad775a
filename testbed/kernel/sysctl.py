"""Sysctls of the calling thread's network namespace and of the machine, by path."""

import zlib
from collections.abc import Mapping
from pathlib import Path

ROOT = Path("/proc/sys")
_L4 = 1
"""fib_multipath_hash_policy: include ports, so that a queue pair's UDP source port decides."""


def read(path: str) -> str:
    """Return a value; `path` is below /proc/sys, for example ``net/ipv4/ip_forward``."""
    return (ROOT / path).read_text().strip()


def write(path: str, value: int | str) -> None:
    """Set a value. OSError if no sysctl has this name, or it refuses the value."""
    (ROOT / path).write_text(f"{value}\n")


def write_all(below: str, values: Mapping[str, int | str]) -> None:
    """Set several values whose paths have a common prefix."""
    for name, value in values.items():
        write(f"{below}/{name}", value)


def multipath(node: str) -> dict[str, int]:
    """Return values below net, by name, for the choice between next hops of equal cost: the same flow takes the same
    path in every run.

    The kernel hashes a packet's addresses, protocol and ports with SipHash and divides the hash range among the next
    hops (net/ipv4/fib_semantics.c, fib_select_multipath; net/ipv6/route.c). By default only the key is random.
    Both families share one hash key, made of the node's name: fixed, and different
    on each node.

    With one key for all, a switch gets only flows that its neighbour's hash sent there, and its own hash sends them all
    the same way (polarisation).
    """
    seed = zlib.crc32(node.encode()) or 1  # 0 would mean a random one
    return {
        "ipv4/fib_multipath_hash_policy": _L4,
        "ipv6/fib_multipath_hash_policy": _L4,
        "ipv4/fib_multipath_hash_seed": seed,
    }
