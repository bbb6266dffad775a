"""The ranks of a job that trains without end: it computes for a second, and adds up what all have."""

import sys
import time

import numpy as np
from mpi4py import MPI

STEP_S, BYTES = 1.0, 100_000
world = MPI.COMM_WORLD
data, result = np.ones(BYTES, np.uint8), np.zeros(BYTES, np.uint8)
step = 0
while True:
    began = time.monotonic()
    time.sleep(STEP_S)
    world.Allreduce(data, result)
    step += 1
    if world.rank == 0:
        print(f"{time.strftime('%Y-%m-%d %H:%M:%S')} step {step} took {time.monotonic() - began:.3f} s", flush=True)
    else:
        sys.stdout.flush()
