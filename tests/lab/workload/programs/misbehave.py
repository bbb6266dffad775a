"""A job whose rank 1 goes wrong as the argument says, before or after it met the others."""

import os
import sys
import time

way = sys.argv[1]
bad = os.environ["RANK"] == "1"
if bad and way == "exits":
    sys.exit(3)
if bad and way == "raises":
    raise ValueError("the user's mistake")
if bad and way == "is-killed":
    os.kill(os.getpid(), 9)
if bad and way == "leaves":
    sys.exit()
if "OMPI_COMM_WORLD_RANK" not in os.environ:  # torchrun: waits for the one that is gone
    time.sleep(1e6)
from mpi4py import MPI  # noqa: E402

if bad and way == "raises-later":
    raise ValueError("the user's later mistake")
if way == "hangs":
    time.sleep(1e6)
MPI.COMM_WORLD.Barrier()
