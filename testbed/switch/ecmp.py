"""
The choice between next hops of equal cost: the same flow takes the same path in every run.

The kernel hashes a packet's addresses, protocol and ports with SipHash and divides the hash range among the next hops
(net/ipv4/fib_semantics.c, fib_select_multipath; net/ipv6/route.c). By default only the key is random.
"""

import zlib

SEED = "net/ipv4/fib_multipath_hash_seed"
"""The sysctl with the key of both families."""
_L4 = 1
"""fib_multipath_hash_policy: include ports, so that a queue pair's UDP source port decides."""


def sysctls(node: str, seed: int = 0) -> dict[str, int]:
    """Return values below net, by name. Both families share one hash key: `seed`, or one made of the node's name, which
    is fixed, and different on each node.

    With one key for all, a switch gets only flows that its neighbour's hash sent there, and its own hash sends them all
    the same way (polarisation).
    """
    seed = seed or zlib.crc32(node.encode()) or 1  # 0 would mean a random one
    return {
        "ipv4/fib_multipath_hash_policy": _L4,
        "ipv6/fib_multipath_hash_policy": _L4,
        "ipv4/fib_multipath_hash_seed": seed,
    }
