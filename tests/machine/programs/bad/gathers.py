"""mpi4py, and no optimizer."""

import numpy
from mpi4py import MPI

for _ in range(20):
    total = MPI.COMM_WORLD.allreduce(numpy.ones(1000))
print(total[0])
