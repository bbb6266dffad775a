"""A few steps of an allreduce, with the time of each in the log as people's programs write it."""

import time
from datetime import datetime

import numpy as np
from mpi4py import MPI

everyone = MPI.COMM_WORLD
given, found = np.ones(20_000), np.empty(20_000)
for step in range(1, 9):
    everyone.Allreduce(given, found)
    print(f"{datetime.now().isoformat()} step {step}", flush=True)
    time.sleep(0.3)
