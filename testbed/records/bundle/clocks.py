"""Clocks of nodes that are not in step: how far each is ahead of the others.

A node's transcript has the time of whoever asked for it, once. What happened to two nodes at once says it better: the
ends of a collective that no rank leaves before the last one has entered, and the two ends of a link that goes down.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import median

from testbed.protocol.flight import Call

TOGETHER = frozenset({"Allreduce", "Allgather", "Alltoall", "Barrier", "Reduce_scatter_block"})
"""Collectives that every rank leaves after the last one has entered."""
APART_NS = 600 * 10**9
"""The most that two clocks are apart."""


def ahead(
    asked: Mapping[str, int],
    calls: Iterable[Call],
    changes: Mapping[tuple[str, str], Sequence[tuple[int, bool]]],
    peers: Mapping[tuple[str, str], tuple[str, str]],
) -> dict[str, int]:
    """Return by node the nanoseconds by which its clock is ahead, as far as that is known. `asked` is that by its
    transcript, `changes` are the times at which ends of links went down or up."""
    found = dict(asked)
    pairs: dict[tuple[str, str], list[int]] = defaultdict(list)
    ends: dict[tuple[str, int], dict[str, int]] = defaultdict(dict)
    for call in calls:
        if call.operation in TOGETHER and call.ended is not None:
            ends[call.communicator, call.sequence][call.host] = call.ended
    for left in ends.values():
        first, *others = sorted(left)
        for other in others:
            pairs[first, other].append(left[other] - left[first])
    for end, times in changes.items():
        other_times = changes.get(peers.get(end, ("", "")), ())
        for (t, up), (then, also) in zip(times, other_times, strict=False):
            if up == also and abs(t - then) < APART_NS and end[0] != peers[end][0]:
                pairs[end[0], peers[end][0]].append(then - t)
    for (one, other), apart in sorted(pairs.items()):
        if one not in found and other not in found:
            found[one] = 0
        if one in found:
            found[other] = found[one] + round(median(apart))
        else:
            found[one] = found[other] - round(median(apart))
    return found
