"""The flight recorder of a rank whose groups are gloo's: the calls that flight.c records of MPI, under the same names.

PyTorch's own flight recorder is NCCL's. All calls of a group, those of DistributedDataParallel's reducer too, pass
PyTorch's dispatcher: here one kernel for each stands before gloo's. A collective has ended when gloo's future has. A
message between two ranks is one that returns at once, and becomes a call that waits when the program waits for it.

This file stands alone: it is in the snapshot below the one that has testbed.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from flight_file import CALL, CALLS, GROUP, GROUPS, HEAD, MEMBERS, place_of_call, place_of_group  # type: ignore[import-not-found]

NOBODY = -1
CPU = torch.device("cpu")
MOST_WORKS = 1024
"""The most messages that are kept until a program waits for them; it may never wait."""
Bytes = Callable[[Any], int]


def begin(path: str) -> None:
    """Record the calls of this process into a file."""
    recorder = _Recorder(path)
    for name, (operation, sized, root) in COLLECTIVES.items():
        _before(name, recorder.collective(operation, sized, root))
    for name, operation in MESSAGES.items():
        _before(name, recorder.message(operation))
    original = dist.Work.wait

    def wait(work: Any, *arguments: Any, **named: Any) -> Any:
        ended = recorder.waits(work)
        try:
            return original(work, *arguments, **named)
        finally:
            ended()

    dist.Work.wait = wait


_library = torch.library.Library("c10d", "IMPL")


def _before(name: str, record: Callable[[Any, dict[str, Any]], Callable[[Any], None]]) -> None:
    """Have a call of a group recorded. `record` gets its arguments by their names, and returns what is done with its
    work."""
    operation = getattr(torch.ops.c10d, name).default
    names = [argument.name for argument in operation._schema.arguments]

    def recorded(keys: Any, *arguments: Any, **named: Any) -> Any:
        given = dict(zip(names, arguments, strict=False)) | named
        group = dist.ProcessGroup.unbox(given["process_group"])
        done = None if isinstance(group._get_backend(CPU), dist.ProcessGroupMPI) else record(group, given)
        result = operation.redispatch(keys & torch._C._after_autograd_keyset, *arguments, **named)
        if done:
            last = result[-1] if isinstance(result, tuple) else result
            done(None if last is None else dist.Work.unbox(last))
        return result

    _library.impl(name, recorded, "AutogradCPU", with_keyset=True)


class _Recorder:
    def __init__(self, path: str) -> None:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        os.ftruncate(file, place_of_call(CALLS))
        self._file = mmap.mmap(file, place_of_call(CALLS))
        os.close(file)
        self._calls = 0
        self._groups: list[str] = []
        """Their names, which are PyTorch's."""
        self._collectives: list[int] = []
        self._works: dict[int, tuple[Any, int]] = {}
        """Works of messages for which the program has not waited, by their identity, with the numbers of their calls:
        while it is here, a work is the same object wherever PyTorch gives it out."""

    def collective(self, operation: str, sized: Bytes, root: str) -> Callable[..., Callable[[Any], None]]:
        def record(group: Any, given: dict[str, Any]) -> Callable[[Any], None]:
            number = self._group(group)
            sequence = 0
            if number >= 0:
                self._collectives[number] += 1
                sequence = self._collectives[number]
            peer = given[root] if root else NOBODY
            call = self._begun(_named(operation, given), sized(given), number, peer, sequence)

            def done(work: Any) -> None:
                if work is None:
                    self._end(call)
                else:
                    work.get_future().add_done_callback(lambda future: self._done(call, future))

            return done

        return record

    def _done(self, call: int, future: Any) -> None:
        """Record the end of a collective. One that failed has none, as the last call of a rank that was killed."""
        with contextlib.suppress(RuntimeError):
            future.value()
            self._end(call)

    def message(self, operation: str) -> Callable[..., Callable[[Any], None]]:
        def record(group: Any, given: dict[str, Any]) -> Callable[[Any], None]:
            peer = given.get("dst", given.get("src", NOBODY))
            call = self._begun(f"I{operation.lower()}", _size(given["tensors"]), self._group(group), peer)

            def done(work: Any) -> None:
                self._end(call)
                self._works[id(work)] = work, call
                if len(self._works) > MOST_WORKS:
                    del self._works[next(iter(self._works))]

            return done

        return record

    def waits(self, work: Any) -> Callable[[], None]:
        """Record that the program waits for a message; return what is done at the end. Waiting for it right away is one
        call with its beginning. Waiting for a collective is none: that is recorded until its end."""
        _, call = self._works.pop(id(work), (None, 0))
        if not call:
            return lambda: None
        if call == self._calls:
            number, began, _, size, sequence, group, peer, operation = CALL.unpack_from(self._file, _place(call))
            self._write(call, (number, began, 0, size, sequence, group, peer, operation[1:].capitalize()))
        else:
            call = self._begun("Wait", 0, NOBODY, NOBODY)
        return lambda: self._end(call)

    def _group(self, group: Any) -> int:
        if group.group_name in self._groups:
            return self._groups.index(group.group_name)
        if len(self._groups) == GROUPS:
            return NOBODY
        members = dist.get_process_group_ranks(group)
        shown = [*members[:MEMBERS], *([0] * (MEMBERS - len(members)))]
        GROUP.pack_into(self._file, place_of_group(len(self._groups)), len(members), 0, *shown)
        self._groups.append(group.group_name)
        self._collectives.append(0)
        self._count()
        return len(self._groups) - 1

    def _begun(self, operation: str, size: int, group: int, peer: int, sequence: int = 0) -> int:
        call = self._calls + 1
        self._write(call, (call, time.monotonic_ns(), 0, size, sequence, group, peer, operation.encode()))
        self._calls = call
        self._count()
        return call

    def _write(self, call: int, values: tuple[Any, ...]) -> None:
        CALL.pack_into(self._file, _place(call), *values)

    def _count(self) -> None:
        HEAD.pack_into(self._file, 0, self._calls, len(self._groups), 0)

    def _end(self, call: int) -> None:
        if call > self._calls - CALLS:  # the ring still has it
            number, began, _, *others = CALL.unpack_from(self._file, _place(call))
            self._write(call, (number, began, time.monotonic_ns(), *others))


def _place(call: int) -> int:
    place: int = place_of_call((call - 1) % CALLS)
    return place


def _size(tensors: Any) -> int:
    """Return the bytes of tensors, in lists of lists too."""
    size: int = tensors.nbytes if isinstance(tensors, torch.Tensor) else sum(map(_size, tensors))
    return size


def _of(name: str) -> Bytes:
    return lambda given: _size(given[name])


def _block(given: dict[str, Any]) -> int:
    """Return the bytes of an all-to-all for one rank; all of them where ranks get different ones."""
    size = _size(given["input"])
    return size if given["input_split_sizes"] else size // dist.ProcessGroup.unbox(given["process_group"]).size()


def _named(operation: str, given: dict[str, Any]) -> str:
    return "Alltoallv" if given.get("input_split_sizes") else operation


COLLECTIVES: dict[str, tuple[str, Bytes, str]] = {
    "allreduce_": ("Allreduce", _of("tensors"), ""),
    "allreduce_coalesced_": ("Allreduce", _of("tensors"), ""),
    "broadcast_": ("Bcast", _of("tensors"), "root_rank"),
    "reduce_": ("Reduce", _of("tensors"), "root_rank"),
    "allgather_": ("Allgather", _of("input_tensors"), ""),
    "allgather_coalesced_": ("Allgather", _of("input_list"), ""),
    "allgather_into_tensor_coalesced_": ("Allgather", _of("inputs"), ""),
    "_allgather_base_": ("Allgather", _of("input_tensor"), ""),
    "reduce_scatter_": ("Reduce_scatter", _of("input_tensors"), ""),
    "_reduce_scatter_base_": ("Reduce_scatter_block", _of("output_tensor"), ""),
    "reduce_scatter_tensor_coalesced_": ("Reduce_scatter_block", _of("outputs"), ""),
    "gather_": ("Gather", _of("input_tensors"), "root_rank"),
    "scatter_": ("Scatter", _of("output_tensors"), "root_rank"),
    "alltoall_": ("Alltoallv", _of("input_tensors"), ""),
    "alltoall_base_": ("Alltoall", _block, ""),
    "barrier": ("Barrier", lambda _: 0, ""),
    "monitored_barrier_": ("Barrier", lambda _: 0, ""),
}
"""PyTorch's collectives: MPI's name, the bytes of a rank as flight.c counts them, and the argument with the root."""
MESSAGES = {"send": "Send", "recv_": "Recv", "recv_any_source_": "Recv"}
