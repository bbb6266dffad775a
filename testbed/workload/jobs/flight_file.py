"""The layout of a flight recorder's file: a head, the groups of ranks, and a ring of calls. It is that of flight.c.

This file stands alone: it is also in the snapshot below the one that has testbed.
"""

import struct

HEAD = struct.Struct("=qii")
"""Calls, groups, and 1 + the index of the GID; 0 where that is not told."""
GROUP = struct.Struct("=ii62i")
"""Its size, its collectives so far, and its ranks."""
MEMBERS = 62
GROUPS = 64
CALL = struct.Struct("=qqqqqii24s")
"""Number, begin and end in nanoseconds, bytes, sequence, group, peer, operation."""
CALLS = 2048


def place_of_group(number: int) -> int:
    return HEAD.size + number * GROUP.size


def place_of_call(number: int) -> int:
    """Return the place of a call that `number` calls came before; of `CALLS` the end of the file."""
    return place_of_group(GROUPS) + number * CALL.size
