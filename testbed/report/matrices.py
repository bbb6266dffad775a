"""Traffic matrices: bytes from rank to rank in the collectives over queue pairs."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from testbed.protocol import Event
from testbed.protocol.events import COLLECTIVE


def matrices(events: Sequence[Event]) -> Iterator[dict[str, Any]]:
    """Yield a matrix for each group of ranks, with the bytes of all its collectives that ended well."""
    found: dict[tuple[str, ...], Counter[tuple[int, int]]] = {}
    collectives: Counter[tuple[str, ...]] = Counter()
    for event in events:
        if (data := COLLECTIVE.of(event)) and data.matrix is not None:
            group = tuple(data.hosts)
            collectives[group] += 1
            of_group = found.setdefault(group, Counter())
            for sender, receiver, size in data.matrix:
                of_group[sender, receiver] += size
    for group, sizes in found.items():
        cells = [(*pair, size) for pair, size in sorted(sizes.items()) if size]
        yield {"ranks": group, "collectives": collectives[group], "cells": cells}
