"""Ranks that use communicators of their own, and then do as the argument says."""

import os
import sys
import time

from mpi4py import MPI

world, way = MPI.COMM_WORLD, sys.argv[1]
own = world.Split(world.rank)
own.Barrier()
world.Dup().Barrier()
if way == "crashes":
    if world.rank == 1:
        world.Send(bytearray(8), 0)
        os.kill(os.getpid(), 9)
    world.Allreduce(bytearray(8), bytearray(8))
until = time.monotonic() + 10
while way == "goes-on" and time.monotonic() < until:
    world.Allreduce(bytearray(80), bytearray(80))
    time.sleep(0.05)
