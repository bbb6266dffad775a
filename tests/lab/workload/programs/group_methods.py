"""Every collective of torch.distributed over MPI, also in types that MPI does not have, compared with its result."""

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional

dist.init_process_group()
rank, size = dist.get_rank(), dist.get_world_size()
assert dist.get_backend() == "mpi"
WHOLE = (torch.float32, torch.float64, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
ALL = (*WHOLE, torch.bfloat16, torch.float16)


def numbers(of: int, kind: torch.dtype, count: int = 4) -> torch.Tensor:
    """What a rank gives: small numbers, which each type has."""
    return (torch.arange(count) + of).to(kind)


def same(what: str, found: torch.Tensor, wanted: torch.Tensor) -> None:
    assert found.dtype == wanted.dtype, (what, found.dtype, wanted.dtype)
    assert torch.equal(found, wanted), (what, found, wanted)


def reduced(op: object, kind: torch.dtype, count: int = 4) -> torch.Tensor:
    every = torch.stack([numbers(of, kind, count).to(torch.float64) for of in range(size)])
    if op == dist.ReduceOp.AVG:
        average = every.mean(0)
        return average.to(kind) if kind.is_floating_point else average.trunc().to(kind)
    return {
        dist.ReduceOp.SUM: every.sum(0), dist.ReduceOp.MAX: every.max(0).values, dist.ReduceOp.MIN: every.min(0).values,
        dist.ReduceOp.PRODUCT: every.prod(0),
    }[op].to(kind)  # fmt: skip


for kind in ALL:
    for op in (dist.ReduceOp.SUM, dist.ReduceOp.AVG, dist.ReduceOp.MAX, dist.ReduceOp.MIN, dist.ReduceOp.PRODUCT):
        if op == dist.ReduceOp.PRODUCT and kind.itemsize == 1:
            continue
        tensor = numbers(rank, kind)
        dist.all_reduce(tensor, op)
        same(f"all_reduce {op}", tensor, reduced(op, kind))

        tensor = numbers(rank, kind)
        dist.reduce(tensor, 1, op)
        if rank == 1:
            same(f"reduce {op}", tensor, reduced(op, kind))

        whole, part = numbers(rank, kind, 2 * size), torch.empty(2, dtype=kind)
        dist.reduce_scatter_tensor(part, whole, op)
        same(f"reduce_scatter_tensor {op}", part, reduced(op, kind, 2 * size)[2 * rank : 2 * rank + 2])

    part = torch.empty(2, dtype=kind)
    dist.reduce_scatter(part, list(numbers(rank, kind, 2 * size).chunk(size)))
    same("reduce_scatter", part, reduced(dist.ReduceOp.SUM, kind, 2 * size)[2 * rank : 2 * rank + 2])

    column = torch.zeros(size, 2, dtype=kind).T[0]
    part = torch.empty(1, dtype=kind)
    dist.reduce_scatter_tensor(part, column + numbers(rank, kind, size))
    same("reduce_scatter_tensor of a column", part, reduced(dist.ReduceOp.SUM, kind, size)[rank : rank + 1])

for kind in (*ALL, torch.bool, torch.complex64):
    every = torch.cat([numbers(of, kind) for of in range(size)])
    whole = torch.empty(4 * size, dtype=kind)
    dist.all_gather_into_tensor(whole, numbers(rank, kind))
    same("all_gather_into_tensor", whole, every)
    across = torch.empty(4, 2 * size, dtype=kind)[:, ::2].T
    dist.all_gather_into_tensor(across, numbers(rank, kind))
    same("all_gather_into_tensor into columns", across.reshape(-1), every)

    parts = list(torch.empty(size, 4, dtype=kind).unbind())
    dist.all_gather(parts, numbers(rank, kind))
    same("all_gather", torch.cat(parts), every)

    tensor = numbers(rank, kind)
    dist.broadcast(tensor, 2)
    same("broadcast", tensor, numbers(2, kind))

    mine = torch.empty(4, dtype=kind)
    dist.scatter(mine, [numbers(of, kind) for of in range(size)] if rank == 0 else None, src=0)
    same("scatter", mine, numbers(rank, kind))

    turned = torch.empty(size, dtype=kind)
    dist.all_to_all_single(turned, numbers(10 * rank, kind, size))
    same("all_to_all_single", turned, torch.stack([numbers(10 * of, kind, size)[rank] for of in range(size)]))

    received = torch.empty(4, dtype=kind)
    works = dist.batch_isend_irecv(
        [
            dist.P2POp(dist.isend, numbers(rank, kind), (rank + 1) % size),
            dist.P2POp(dist.irecv, received, (rank - 1) % size),
        ]
    )
    for work in works:
        work.wait()
    same("batch_isend_irecv", received, numbers((rank - 1) % size, kind))

# Several at once, in flight together with others of MPI's own.
parts = [torch.empty(2) for _ in range(3)]
sums = [numbers(rank, torch.float32) for _ in range(3)]
works = []
for part, one in zip(parts, sums, strict=True):
    works.append(dist.reduce_scatter_tensor(part, numbers(rank, torch.float32, 2 * size), async_op=True))
    works.append(dist.all_reduce(one, async_op=True))
for work in works:
    work.wait()
for part, one in zip(parts, sums, strict=True):
    same("in flight", part, reduced(dist.ReduceOp.SUM, torch.float32, 2 * size)[2 * rank : 2 * rank + 2])
    same("in flight", one, reduced(dist.ReduceOp.SUM, torch.float32))

together = [torch.empty(2), torch.empty(2)]
with dist.distributed_c10d._coalescing_manager():
    for part in together:
        dist.reduce_scatter_tensor(part, numbers(rank, torch.float32, 2 * size))
for part in together:
    same("coalesced", part, reduced(dist.ReduceOp.SUM, torch.float32, 2 * size)[2 * rank : 2 * rank + 2])

pairs = [dist.new_group([first, first + 1]) for first in range(0, size, 2)]
mine = pairs[rank // 2]
part = torch.empty(1)
dist.reduce_scatter_tensor(part, numbers(rank, torch.float32, 2), group=mine)
first = rank // 2 * 2
same("a group", part, (numbers(first, torch.float32, 2) + numbers(first + 1, torch.float32, 2))[rank % 2 :][:1])

given = numbers(rank, torch.float32, 2 * size)
same(
    "functional",
    functional.all_reduce(given, "avg", dist.group.WORLD),
    reduced(dist.ReduceOp.AVG, torch.float32, 2 * size),
)
part = functional.reduce_scatter_tensor(given, "sum", 0, dist.group.WORLD)
same("functional", part, reduced(dist.ReduceOp.SUM, torch.float32, 2 * size)[2 * rank : 2 * rank + 2])
whole = functional.all_gather_tensor(numbers(rank, torch.bfloat16), 0, dist.group.WORLD)
same("functional", whole, torch.cat([numbers(of, torch.bfloat16) for of in range(size)]))

try:
    dist.reduce_scatter_tensor(torch.empty(3), torch.empty(size))
except (ValueError, RuntimeError) as error:
    print(f"refused: {error}")
else:
    raise AssertionError("a wrong size is accepted")
dist.barrier()
if rank == 0:
    print("all as they must be")
