"""
The choice between next hops of equal cost, so that the same flow takes the same path in every run.

The kernel hashes a packet's addresses, protocol and ports with SipHash and shares the range of the hash out to the next
hops (net/ipv4/fib_semantics.c, fib_select_multipath; net/ipv6/route.c). What is random in it by default is the key.
"""

from __future__ import annotations

import zlib

_L4 = 1
"""fib_multipath_hash_policy: the ports count, so that the UDP source port of a queue pair decides."""


def sysctls(node: str) -> dict[str, int]:
    """
    Return values below net, by name. The key of the hash, one for both families, is made of the node's name: fixed, and
    another one on each node.

    With one key for all, a switch gets only flows that its neighbour's hash sent there, and its own hash sends them all
    the same way on (polarisation).
    """
    seed = zlib.crc32(node.encode()) or 1  # 0 would be a random one
    return {
        "ipv4/fib_multipath_hash_policy": _L4,
        "ipv6/fib_multipath_hash_policy": _L4,
        "ipv4/fib_multipath_hash_seed": seed,
    }
