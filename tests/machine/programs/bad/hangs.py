"""Rank 0 waits for a message that nobody sends."""

from mpi4py import MPI

if MPI.COMM_WORLD.rank == 0:
    MPI.COMM_WORLD.recv(source=1)
MPI.COMM_WORLD.barrier()
