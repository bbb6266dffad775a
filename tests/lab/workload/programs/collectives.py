"""Calls the eight collectives of MPI with numpy arrays, one after the other, and checks each result.

Each is called once, so that all queue pairs are there, and again when a file ``go-<name>`` appears. What the ranks wait
for is not a message, so the wire has that one collective and nothing else.
"""

import time
from pathlib import Path

import numpy as np
from mpi4py import MPI

BLOCK = 8192
"""Elements that one rank has for another, of 8 bytes."""

comm = MPI.COMM_WORLD
rank, ranks = comm.rank, comm.size
root = rank == 0
arrays = [np.arange(BLOCK * ranks) * (number + 1) for number in range(ranks)]
vector, block = arrays[rank], arrays[rank][:BLOCK]
mine = slice(BLOCK * rank, BLOCK * (rank + 1))
total = np.sum(arrays, axis=0)
blocks = np.concatenate([array[:BLOCK] for array in arrays])
whole, part, message = np.zeros_like(vector), np.zeros_like(block), np.zeros_like(vector)
COLLECTIVES = {
    "allreduce": (lambda: comm.Allreduce(vector, whole), whole, total),
    "reduce": (lambda: comm.Reduce(vector, whole), whole, total if root else None),
    "broadcast": (lambda: comm.Bcast(arrays[0] if root else message), message, None if root else arrays[0]),
    "gather": (lambda: comm.Gather(block, whole), whole, blocks if root else None),
    "allgather": (lambda: comm.Allgather(block, whole), whole, blocks),
    "reduce-scatter": (lambda: comm.Reduce_scatter(vector, part), part, total[mine]),
    "scatter": (lambda: comm.Scatter(arrays[0] if root else None, part), part, arrays[0][mine]),
    "alltoall": (lambda: comm.Alltoall(vector, whole), whole, np.concatenate([array[mine] for array in arrays])),
}
"""Of each the call, the array that it fills, and what that has then; None at a rank that receives nothing."""


def call(name: str) -> None:
    collective, filled, wanted = COLLECTIVES[name]
    filled[:] = -1
    collective()
    assert wanted is None or np.array_equal(filled, wanted), name


for name in COLLECTIVES:
    call(name)
for name in COLLECTIVES:
    print("ready for", name, flush=True)
    while not Path(f"go-{name}").exists():
        comm.Iprobe()  # a peer may still need an acknowledgement, which is sent within MPI calls only
        time.sleep(0.01)
    call(name)
    print("did", name, flush=True)
