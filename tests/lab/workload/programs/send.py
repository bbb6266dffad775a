"""Sends BYTES from rank FROM to rank TO: ``send.py BYTES FROM TO``. All ranks meet before and after."""

import sys

import numpy as np
from mpi4py import MPI

size, source, target = map(int, sys.argv[1:])
world = MPI.COMM_WORLD
data = np.zeros(size, np.uint8)
world.Barrier()
if world.rank == source:
    data[:] = 7
    world.Send(data, target)
if world.rank == target:
    world.Recv(data, source)
    assert (data == 7).all()
world.Barrier()
print("done", flush=True)
