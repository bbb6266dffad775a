"""An Allreduce with mpi4py; each rank prints the sum."""

import numpy as np
from mpi4py import MPI

mine = np.full(1000, float(MPI.COMM_WORLD.rank + 1))
total = np.zeros_like(mine)
MPI.COMM_WORLD.Allreduce(mine, total)
print("sum", total[0], "of", MPI.COMM_WORLD.size, flush=True)
