"""Does what a network has of data-parallel training: each step computes, then adds up the gradients of all ranks.

``train.py BYTES…``, with mpi4py: a step for each number, with a gradient of so many bytes. A sum that is wrong ends the
job.
"""

import sys
import time
from array import array

from mpi4py import MPI

COMPUTE_S = 0.1
"""Seconds of a step without communication."""


def main() -> None:
    world = MPI.COMM_WORLD
    expected = world.size * (world.size + 1) / 2
    for step, size in enumerate(map(int, sys.argv[1:]), 1):
        gradient, total = array("f", [world.rank + 1.0]) * (size // 4), array("f", bytes(size))
        time.sleep(COMPUTE_S)
        world.Allreduce(gradient, total)
        if set(total) != {expected}:
            sys.exit(f"step {step}: the sum of the gradients is wrong")


main()
