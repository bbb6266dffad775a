"""What PyTorch's process group of MPI lacks, so that FSDP, DTensor and what stands on them train over MPI as they do
over NCCL: reduce-scatter and all-gather of whole tensors, several at once, averages, and bfloat16 and float16.

PyTorch 2.6 has MPI's collectives but these (its later versions have some: pull request 150162 of PyTorch). The groups
stay PyTorch's own. An operation that MPI's group refuses becomes one that it has; a reduce-scatter is an order in a
tensor that the group broadcasts: its thread calls MPI_Bcast, and orders.c calls MPI_Reduce_scatter_block in its place.
So it waits its turn, and its work is the group's.

A script that asks for gloo, or for nothing, gets MPI's group where mpirun started it without the address of a store.

This file stands alone: it is in the snapshot below the one that has testbed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d
from torch.distributed.fsdp._fully_shard import _fsdp_collectives

MAGIC = int.from_bytes(b"testbed!", "little")
"""The first word of an order. Its structure and numbers are those of orders.c."""
REDUCE_SCATTER, ALLGATHER = range(2)
OPERATIONS = ("SUM", "PRODUCT", "MIN", "MAX")
TYPES = (torch.float32, torch.float64, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
"""The types that MPI has."""
WIDER = {torch.float16: torch.float32, torch.bfloat16: torch.float32, torch.bool: torch.uint8}
"""The types in which those are reduced that MPI does not have."""
OF_SIZE = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""The types as which those are moved that MPI does not have, by their bytes."""
MOST = (1 << 31) - 1
"""The most elements of a call of MPI."""
CPU = torch.device("cpu")
Finish = Callable[[], None]


class Pending(dist.Work):  # type: ignore[misc]
    """Works of a group, with what is to be done at their end. It keeps the tensors that MPI reads and writes."""

    def __init__(self, works: Sequence[Any], result: Sequence[Any], finish: Sequence[Finish], kept: Any = None) -> None:
        super().__init__()
        self._works, self._result, self._finish, self._kept = works, list(result), list(finish), kept

    def wait(self, timeout: Any = None) -> bool:
        for work in self._works:
            work.wait()
        while self._finish:
            self._finish.pop(0)()
        self._kept = None
        return True

    def is_completed(self) -> bool:
        return all(work.is_completed() for work in self._works)

    def is_success(self) -> bool:
        return all(work.is_success() for work in self._works)

    def result(self) -> list[Any]:
        return self._result

    def get_future(self) -> Any:
        self.wait()
        future = torch.futures.Future()
        future.set_result(self._result)
        return future


def install() -> None:
    """Complete the groups of MPI in this process and its forks."""
    for name in MOVING:
        _replace(name, _moved)
    for name, method in METHODS.items():
        _replace(name, method)
    for name, function in FUNCTIONAL.items():
        _library.impl(name, function, "CPU")
    original = c10d.init_process_group
    _everywhere(original, lambda backend=None, *arguments, **named: original(_backend(backend), *arguments, **named))
    # A CPU does all in its order. PyTorch 2.6 lacks what fully_shard (FSDP2) needs of one; later versions have it.
    torch.cpu.Stream.record_event = lambda stream, event=None: event or torch.cpu.Event()
    torch.cpu.Stream.wait_event = lambda stream, event: None
    _everywhere(_fsdp_collectives.foreach_all_gather_copy_out, _copy_out)


def _everywhere(original: Callable[..., Any], function: Callable[..., Any]) -> None:
    """Replace a function of torch in all modules that have it."""
    for name, module in list(sys.modules.items()):
        if name.startswith("torch.") and getattr(module, original.__name__, None) is original:
            setattr(module, original.__name__, function)


_all_gather_copy_out = _fsdp_collectives.foreach_all_gather_copy_out
_allreduce_of_one = dist.ProcessGroup.allreduce


def _copy_out(gathered: Any, parameters: Any, group: Any) -> None:
    """What is gathered again into the same tensors is no change of them: autograd takes those of a CPU for one."""
    before = [(tensor, tensor._version) for parameter in parameters for tensor in parameter.all_gather_outputs]
    _all_gather_copy_out(gathered, parameters, group)
    for tensor, version in before:
        torch._C._autograd._unsafe_set_version_counter(tensor, version)


_library = torch.library.Library("_c10d_functional", "IMPL")


def _backend(wanted: str | None) -> str | None:
    by_mpirun = "OMPI_COMM_WORLD_RANK" in os.environ and "MASTER_ADDR" not in os.environ
    return "mpi" if by_mpirun and wanted in (None, "gloo", "cpu:gloo") else wanted


def _replace(name: str, method: Callable[..., Any]) -> None:
    """Replace a method of process groups for those of MPI; it gets the original one first."""
    original = getattr(dist.ProcessGroup, name)

    def replaced(group: Any, *arguments: Any, **named: Any) -> Any:
        if isinstance(group._get_backend(CPU), dist.ProcessGroupMPI):
            return method(original, group, *arguments, **named)
        return original(group, *arguments, **named)

    setattr(dist.ProcessGroup, name, replaced)


def _plain(given: Any) -> Any:
    """Return tensors of types that MPI has as they are, others as such of the same bytes."""
    if isinstance(given, (list, tuple)):
        return [_plain(one) for one in given]
    if not isinstance(given, torch.Tensor) or given.dtype in TYPES:
        return given
    return torch.view_as_real(given) if given.is_complex() else given.view(OF_SIZE[given.dtype.itemsize])


def _moved(original: Callable[..., Any], group: Any, *arguments: Any, **named: Any) -> Any:
    return original(group, *map(_plain, arguments), **{key: _plain(value) for key, value in named.items()})


def _options(kind: type, op: Any) -> Any:
    made = kind()
    made.reduceOp = dist.ReduceOp.SUM if op == dist.ReduceOp.AVG else op
    return made


def _op(given: Any) -> Any:
    """Return the operation of options, or one that stands alone."""
    return dist.ReduceOp.SUM if given is None else getattr(given, "reduceOp", given)


def _reducible(tensor: Any, op: Any) -> bool:
    return tensor.dtype in TYPES and op != dist.ReduceOp.AVG


def _wide(tensor: Any) -> Any:
    """Return a tensor with its contents in which MPI can reduce; the tensor itself if it can."""
    return tensor.to(WIDER.get(tensor.dtype, tensor.dtype)).contiguous()


def _result(wide: Any, of: Any, op: Any, size: int) -> Finish:
    """Return what makes the result out of what MPI reduced."""

    def finish() -> None:
        if op == dist.ReduceOp.AVG:
            wide.div_(size, rounding_mode=None if wide.is_floating_point() else "trunc")
        if wide is not of:
            of.copy_(wide)

    return finish


def _allreduce(original: Callable[..., Any], group: Any, tensors: Any, opts: Any = None, **named: Any) -> Any:
    given = [tensors] if isinstance(tensors, torch.Tensor) else tensors
    op = _op(opts if opts is not None else named.get("op"))
    if len(given) == 1 and _reducible(given[0], op):
        return original(group, tensors, *([] if opts is None else [opts]), **named)
    return _allreduce_coalesced(original, group, given, op)


def _allreduce_coalesced(_: object, group: Any, tensors: Any, opts: Any = None) -> Any:
    op = _op(opts)
    wide = [_wide(tensor) for tensor in tensors]
    works = [_allreduce_of_one(group, [tensor], _options(dist.AllreduceOptions, op)) for tensor in wide]
    finish = [_result(one, of, op, group.size()) for one, of in zip(wide, tensors, strict=True)]
    return Pending(works, tensors, finish)


def _reduce(original: Callable[..., Any], group: Any, tensors: Any, *arguments: Any, **named: Any) -> Any:
    opts = arguments[0] if arguments else None
    if not isinstance(opts, dist.ReduceOptions) or _reducible(tensors[0], opts.reduceOp):
        return original(group, tensors, *arguments, **named)
    wide, op, root = _wide(tensors[0]), opts.reduceOp, opts.rootRank
    made = _options(dist.ReduceOptions, op)
    made.rootRank = root
    finish = [_result(wide, tensors[0], op, group.size())] if group.rank() == root else []
    return Pending([original(group, [wide], made)], tensors, finish, wide)


def _order(group: Any, operation: int, given: Any, result: Any, count: int, op: Any = None) -> Any:
    """Have a group's thread call MPI: it broadcasts the order."""
    if count > MOST:
        raise ValueError(f"MPI takes {MOST} elements in one call, not {count}")
    numbers = [i for i, name in enumerate(OPERATIONS) if op == getattr(dist.ReduceOp, name)]
    if op is not None and not numbers:
        raise ValueError(f"MPI has no such reduction: {op}")
    order = torch.empty(8, dtype=torch.int64)
    places = order.data_ptr(), operation, given.data_ptr(), result.data_ptr()
    order[:] = torch.tensor([MAGIC, *places, count, TYPES.index(given.dtype), *(numbers or [0])])
    options = dist.BroadcastOptions()
    options.rootRank = 0
    return Pending([group.broadcast([order], options)], [result], [], (order, given, result))


def _reduce_scatter_base(_: object, group: Any, output: Any, given: Any, opts: Any = None) -> Any:
    if given.numel() != output.numel() * group.size():
        raise ValueError(
            f"reduce_scatter: {given.numel()} elements for {group.size()} ranks with {output.numel()} each"
        )
    op, wide = _op(opts), _wide(given)
    same = output.is_contiguous() and output.dtype == wide.dtype
    result = output if same else torch.empty_like(output, dtype=wide.dtype, memory_format=torch.contiguous_format)
    of_mpi = dist.ReduceOp.SUM if op == dist.ReduceOp.AVG else op
    work = _order(group, REDUCE_SCATTER, wide, result, output.numel(), of_mpi)
    return Pending([work], [output], [_result(result, output, op, group.size())])


def _reduce_scatter(_: object, group: Any, outputs: Any, inputs: Any, opts: Any = None) -> Any:
    if isinstance(outputs, torch.Tensor):
        outputs, inputs = [outputs], [inputs]
    works = [
        _reduce_scatter_base(_, group, output, torch.cat([part.reshape(-1) for part in parts]), opts)
        for output, parts in zip(outputs, inputs, strict=True)
    ]
    return Pending(works, outputs, [])


def _allgather_base(_: object, group: Any, output: Any, given: Any, opts: Any = None) -> Any:
    if output.numel() != given.numel() * group.size():
        raise ValueError(f"all_gather: {output.numel()} elements for {given.numel()} of each of {group.size()} ranks")
    part = _plain(given.contiguous())
    same = output.is_contiguous() and output.dtype == given.dtype
    result = output if same else torch.empty_like(output, dtype=given.dtype, memory_format=torch.contiguous_format)
    work = _order(group, ALLGATHER, part, _plain(result), part.numel())
    return Pending([work], [output], [] if same else [lambda: output.copy_(result)], part)


def _several(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return the method for several tensors at once."""

    def coalesced(_: object, group: Any, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        works = [method(_, group, output, given, opts) for output, given in zip(outputs, inputs, strict=True)]
        return Pending(works, outputs, [])

    return coalesced


def _allgather_coalesced(_: object, group: Any, outputs: Any, inputs: Any, opts: Any = None) -> Any:
    works = [
        group.allgather([list(parts)], [given]) for parts, given in zip(zip(*outputs, strict=True), inputs, strict=True)
    ]
    return Pending(works, outputs, [])


MOVING = ("broadcast", "allgather", "gather", "scatter", "alltoall", "alltoall_base", "send", "recv", "recv_anysource")
"""Methods that move tensors and calculate nothing."""
METHODS: dict[str, Callable[..., Any]] = {
    "allreduce": _allreduce,
    "allreduce_coalesced": _allreduce_coalesced,
    "reduce": _reduce,
    "reduce_scatter": _reduce_scatter,
    "_reduce_scatter_base": _reduce_scatter_base,
    "reduce_scatter_tensor_coalesced": _several(_reduce_scatter_base),
    "_allgather_base": _allgather_base,
    "allgather_into_tensor_coalesced": _several(_allgather_base),
    "allgather_coalesced": _allgather_coalesced,
}


def _group(name: str) -> Any:
    return torch._C._distributed_c10d._resolve_process_group(name)


def _named(kind: type, op: str) -> Any:
    made = kind()
    made.reduceOp = getattr(dist.ReduceOp, op.upper())
    return made


def _all_reduce_(given: Any, op: str, group: str) -> Any:
    _group(group).allreduce([given], _named(dist.AllreduceOptions, op)).wait()
    return given


def _all_gather_out(given: Any, size: int, group: str, *, out: Any) -> Any:
    _group(group)._allgather_base(out, given).wait()
    return out


def _all_gather(given: Any, size: int, group: str) -> Any:
    return _all_gather_out(given, size, group, out=given.new_empty((given.shape[0] * size, *given.shape[1:])))


def _reduce_scatter_tensor(given: Any, op: str, size: int, group: str) -> Any:
    out = given.new_empty((given.shape[0] // size, *given.shape[1:]))
    _group(group)._reduce_scatter_base(out, given, _named(dist.ReduceScatterOptions, op)).wait()
    return out


def _contiguous(given: Any) -> Any:
    return given.clone(memory_format=torch.contiguous_format)


FUNCTIONAL: dict[str, Callable[..., Any]] = {
    "all_reduce": lambda given, op, group: _all_reduce_(_contiguous(given), op, group),
    "all_reduce_": _all_reduce_,
    "all_reduce_coalesced": lambda given, op, group: [_all_reduce_(_contiguous(one), op, group) for one in given],
    "all_reduce_coalesced_": lambda given, op, group: [_all_reduce_(one, op, group) for one in given],
    "all_gather_into_tensor": _all_gather,
    "all_gather_into_tensor_out": _all_gather_out,
    "all_gather_into_tensor_coalesced": lambda given, size, group: [_all_gather(one, size, group) for one in given],
    "reduce_scatter_tensor": _reduce_scatter_tensor,
    "reduce_scatter_tensor_coalesced": lambda given, op, size, group: [
        _reduce_scatter_tensor(one, op, size, group) for one in given
    ],
}
"""Functional collectives, by which DTensor works. They are done when they return."""
