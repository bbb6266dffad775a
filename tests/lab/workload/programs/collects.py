"""Four Allreduces with mpi4py, two seconds apart."""

import time
from array import array

from mpi4py import MPI

mine = array("f", [1.0]) * 10
for _ in range(4):
    MPI.COMM_WORLD.Allreduce(mine, array("f", mine))
    time.sleep(2)
