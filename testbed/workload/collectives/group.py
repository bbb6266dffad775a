"""A group of ranks on NICs, which do collectives together."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Self

from testbed.errors import DeadlineError, InputError, TestbedError
from testbed.lab import HostInterface
from testbed.protocol.events import COLLECTIVE
from testbed.topology import Family
from testbed.workload.attributes import Attributes
from testbed.workload.collectives.algorithms import Shape, Step, between, steps_of, volume
from testbed.workload.collectives.engine import CollectiveError, Combine, Engine, Rank
from testbed.workload.collectives.lanes import SLOTS, Lane, Memory, QueuePair
from testbed.workload.collectives.results import CollectiveResult, Progress
from testbed.workload.verbs import connect_pair, open_endpoint

if TYPE_CHECKING:
    import numpy as np

    Arrays = Sequence[np.ndarray]

Op = Literal["sum", "prod", "min", "max"]
UFUNCS = {"sum": "add", "prod": "multiply", "min": "minimum", "max": "maximum"}
"""numpy's names."""
MESSAGE = 1 << 16
ITEM = 16
"""Bytes that divide a message, so that it has whole elements of every type."""
WITHIN_S = 60.0


class Group:
    """Ranks, one on each of the interfaces, in their order. Ranks of one host use its memory, in place of NVLink.

    Queue pairs between two ranks are opened and connected when a collective first needs them, before its time is taken,
    and stay until `close`. Arrays are numpy's, of one dimension, with elements of one type; a collective takes one from
    each rank and does not change them. All methods raise InputError for wrong arguments, ConnectError where ranks
    cannot connect, CollectiveError at the first message that fails, DeadlineError after `within` seconds.
    """

    def __init__(
        self,
        nics: Sequence[HostInterface],
        attributes: Attributes | None = None,
        *,
        queue_pairs: int = 1,
        message: int = MESSAGE,
        family: Family = 4,
        flow_label: Callable[[int, int, int], int] | None = None,
    ) -> None:
        """`queue_pairs` between two ranks carry messages of `message` bytes in turns. `flow_label(low, high, number)`
        chooses the flow label of a queue pair between two ranks, and so its UDP source port; without it they have that
        of `attributes`."""
        if len(nics) < 2:
            raise InputError(f"a group needs at least two ranks, not {len(nics)}")
        if queue_pairs < 1:
            raise InputError(f"queue_pairs is {queue_pairs}; at least 1 is needed")
        if message < ITEM or message % ITEM:
            raise InputError(f"message is {message} bytes; it must be a multiple of {ITEM}")
        self._nics = list(nics)
        self._attributes = attributes or Attributes()
        self._queue_pairs, self._message, self._family, self._flow_label = queue_pairs, message, family, flow_label
        self._lanes: list[dict[int, list[Lane]]] = [{} for _ in nics]
        self._failed = ""
        self._open = contextlib.ExitStack()

    def __len__(self) -> int:
        return len(self._nics)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all queue pairs."""
        self._open.close()

    def name(self, rank: int) -> str:
        """Return the name of a rank, such as ``rank 3 on n3``."""
        return f"rank {rank} on {self._nics[rank].node.name}"

    # Each of the collectives

    def allreduce(
        self, arrays: Arrays, op: Op = "sum", algorithm: str = "ring", *, within: float = WITHIN_S
    ) -> CollectiveResult:
        """Combine the arrays of all ranks, element by element; each rank has the result. Algorithms: ring,
        halving-doubling, tree."""
        self._check(arrays)
        work = [array.copy() for array in arrays]
        return self._run("allreduce", algorithm, work, work, work, op=op, within=within)

    def reduce(self, arrays: Arrays, root: int = 0, op: Op = "sum", *, within: float = WITHIN_S) -> CollectiveResult:
        """Combine the arrays of all ranks, element by element; only the root has the result."""
        self._check(arrays, root)
        work = [array.copy() for array in arrays]
        outputs = [array if rank == root else array[:0] for rank, array in enumerate(work)]
        return self._run("reduce", "tree", work, work, outputs, op=op, root=root, within=within)

    def broadcast(self, array: np.ndarray, root: int = 0, *, within: float = WITHIN_S) -> CollectiveResult:
        """Give each rank the root's array."""
        self._check([array] * len(self), root)
        work = [array.copy() if rank == root else _zeros(len(array), array) for rank in range(len(self))]
        return self._run("broadcast", "tree", work, work, work, root=root, within=within)

    def gather(self, arrays: Arrays, root: int = 0, *, within: float = WITHIN_S) -> CollectiveResult:
        """Give the root the arrays of all ranks, one behind the other."""
        work = self._blocks_of(arrays, root)
        outputs = [array if rank == root else array[:0] for rank, array in enumerate(work)]
        return self._run("gather", "direct", work, work, outputs, root=root, within=within)

    def allgather(self, arrays: Arrays, *, within: float = WITHIN_S) -> CollectiveResult:
        """Give each rank the arrays of all ranks, one behind the other."""
        work = self._blocks_of(arrays)
        return self._run("allgather", "ring", work, work, work, within=within)

    def reduce_scatter(self, arrays: Arrays, op: Op = "sum", *, within: float = WITHIN_S) -> CollectiveResult:
        """Combine the arrays of all ranks; rank r has block r of the result, one of as many blocks as ranks."""
        self._check(arrays, divisible=True)
        work = [array.copy() for array in arrays]
        blocks = [self._block(array, rank) for rank, array in enumerate(work)]
        return self._run("reduce-scatter", "ring", work, work, blocks, op=op, within=within)

    def scatter(self, array: np.ndarray, root: int = 0, *, within: float = WITHIN_S) -> CollectiveResult:
        """Give rank r block r of the root's array, one of as many blocks as ranks."""
        self._check([array] * len(self), root, divisible=True)
        work = [array.copy() if rank == root else _zeros(len(array), array) for rank in range(len(self))]
        blocks = [self._block(one, rank) for rank, one in enumerate(work)]
        return self._run("scatter", "direct", work, work, blocks, root=root, within=within)

    def alltoall(self, arrays: Arrays, *, within: float = WITHIN_S) -> CollectiveResult:
        """Give block j of rank i to rank j, as its block i."""
        self._check(arrays, divisible=True)
        targets = [array.copy() for array in arrays]  # with its own block, which stays
        return self._run("alltoall", "pairwise", arrays, targets, targets, within=within)

    def barrier(self, *, within: float = WITHIN_S) -> CollectiveResult:
        """Return when all ranks have begun: none ends before that."""
        import numpy as np

        nothing = [np.zeros(0, np.uint8)] * len(self)
        return self._run("barrier", "dissemination", nothing, nothing, nothing, within=within)

    def carry_out(self, steps: Sequence[Sequence[Step]], what: str, *, within: float) -> Progress:
        """Carry out the steps of each rank, such as those of `Training.steps`, on meaningless bytes. `what` names them
        in the event log."""
        import numpy as np

        if len(steps) != len(self):
            raise InputError(f"{what} has steps for {len(steps)} ranks, but the group has {len(self)}")
        size = max((send.span.stop for each in steps for step in each for send in step.sends), default=0)
        work = [np.zeros(size, np.uint8) for _ in steps]
        return self._carry_out(what, steps, work, work, "sum", within)

    # What they have in common

    def _run(
        self,
        collective: str,
        algorithm: str,
        sources: Arrays,
        targets: Arrays,
        outputs: Arrays,
        *,
        op: Op | Literal[""] = "",
        root: int = 0,
        within: float,
    ) -> CollectiveResult:
        if op and op not in UFUNCS:
            raise InputError(f"operation {op!r} does not exist", hint=f"It is one of {', '.join(UFUNCS)}.")
        array, count = targets[0], len(self)
        steps = steps_of(collective, algorithm, [Shape(rank, count, len(array), root) for rank in range(count)])
        what = f"{collective} ({algorithm}) of {array.nbytes} bytes"
        progress = self._carry_out(what, steps, sources, targets, op or "sum", within)
        times = progress.elapsed_s, progress.finished_s, progress.sent
        kind = str(array.dtype)
        return CollectiveResult(*times, collective, algorithm, count, array.nbytes, kind, op, root, outputs)

    def _carry_out(
        self, what: str, steps: Sequence[Sequence[Step]], sources: Arrays, targets: Arrays, op: Op, within: float
    ) -> Progress:
        if self._failed:
            raise InputError(f"the group has failed: {self._failed}", hint="Close it and create a new one.")
        self._connect(steps)
        works = zip(steps, sources, targets, self._lanes, strict=True)
        ranks = [Rank(self.name(number), *work) for number, work in enumerate(works)]
        engine = Engine(what, ranks, self._message, _combine(op, targets[0]))
        context = self._nics[0].node.context
        hosts, devices = [nic.node.name for nic in self._nics], [nic.device for nic in self._nics]
        began = time.monotonic()
        try:
            elapsed = engine.run(context.scheduler.ready, within)
        except TestbedError as error:
            self._failed = what
            failed = partial(COLLECTIVE, ok=False, operation=what, late=isinstance(error, DeadlineError))
            if isinstance(error, CollectiveError):
                failed = partial(failed, rank=error.rank, peer=error.peer, status=error.status)
            data = failed(
                elapsed_s=time.monotonic() - began,
                finished_s=[rank.finished_s for rank in ranks],
                computed_s=[rank.computed_s for rank in ranks],
                hosts=hosts,
                devices=devices,
            )
            context.emit(data, "", str(error))
            raise
        finished = [rank.finished_s or 0.0 for rank in ranks]
        text = f"{what} over {len(self)} ranks takes {elapsed * 1e3:.1f} ms"
        matrix = [(*pair, count * targets[0].itemsize) for pair, count in between(steps).items()]
        data = COLLECTIVE(
            ok=True,
            operation=what,
            elapsed_s=elapsed,
            finished_s=[*finished],
            matrix=matrix,
            computed_s=[rank.computed_s for rank in ranks],
            hosts=hosts,
            devices=devices,
        )
        context.emit(data, "", text)
        return Progress(elapsed, finished, [volume(one) * targets[0].itemsize for one in steps])

    def _connect(self, steps: Sequence[Sequence[Step]]) -> None:
        """Open and connect the missing queue pairs of these steps, in the order of the ranks."""
        wanted = {
            (min(rank, send.to), max(rank, send.to))
            for rank, each in enumerate(steps)
            for step in each
            for send in step.sends
        }
        for low, high in sorted(wanted):
            if high in self._lanes[low]:
                continue
            if self._nics[low].node is self._nics[high].node:
                pairs: Sequence[tuple[Lane, Lane]] = [(Memory(low, high), Memory(high, low))]
            else:
                pairs = [self._queue_pair(low, high, number) for number in range(self._queue_pairs)]
            for here, there in pairs:
                here.far, there.far = there, here
            self._lanes[low][high], self._lanes[high][low] = map(list, zip(*pairs, strict=True))
            for lane in (lane for pair in pairs for lane in pair if isinstance(lane, QueuePair)):
                lane.begin()

    def _queue_pair(self, low: int, high: int, number: int) -> tuple[Lane, Lane]:
        memory = 2 * SLOTS * self._message
        near, far = (
            self._open.enter_context(open_endpoint(self._nics[rank], self._family, memory=memory))
            for rank in (low, high)
        )
        attributes = self._attributes
        if self._flow_label:
            attributes = dataclasses.replace(attributes, flow_label=self._flow_label(low, high, number))
        connect_pair(near, far, attributes)
        return QueuePair(low, high, near, self._message), QueuePair(high, low, far, self._message)

    def _check(self, arrays: Arrays, root: int = 0, *, divisible: bool = False) -> None:
        if len(arrays) != len(self):
            raise InputError(f"{len(arrays)} arrays are given for {len(self)} ranks")
        if not 0 <= root < len(self):
            raise InputError(f"rank {root} does not exist", hint=f"The ranks are 0 to {len(self) - 1}.")
        first = arrays[0]
        for rank, array in enumerate(arrays):
            if array.ndim != 1 or array.dtype.kind not in "iuf":
                raise InputError(
                    f"{self.name(rank)} has an array of {array.dtype} and {array.ndim} dimensions",
                    hint="It must have one dimension, of integers or floats.",
                )
            if (len(array), array.dtype) != (len(first), first.dtype):
                here, there = (f"{len(one)} elements of {one.dtype}" for one in (array, first))
                raise InputError(f"{self.name(rank)} has {here}, but {self.name(0)} has {there}")
        if not len(first):
            raise InputError(f"{self.name(0)} has no element")
        if divisible and len(first) % len(self):
            raise InputError(f"{len(first)} elements cannot be divided evenly among {len(self)} ranks")

    def _blocks_of(self, arrays: Arrays, root: int = 0) -> list[np.ndarray]:
        """Return for each rank an array with room for the blocks of all, and its own block in it."""
        self._check(arrays, root)
        work = [_zeros(len(array) * len(self), array) for array in arrays]
        for rank, array in enumerate(arrays):
            self._block(work[rank], rank)[:] = array
        return work

    def _block(self, array: np.ndarray, rank: int) -> np.ndarray:
        size = len(array) // len(self)
        return array[rank * size : (rank + 1) * size]


def _zeros(length: int, like: np.ndarray) -> Any:
    import numpy as np

    return np.zeros(length, like.dtype)


def _combine(op: Op, like: np.ndarray) -> Combine:
    import numpy as np

    ufunc, dtype = getattr(np, UFUNCS[op]), like.dtype

    def combine(into: memoryview, other: memoryview) -> None:
        elements = np.frombuffer(into, dtype)
        ufunc(elements, np.frombuffer(other, dtype), out=elements)

    return combine
