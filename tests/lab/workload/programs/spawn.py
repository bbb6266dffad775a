"""Wants one more process of MPI."""

from mpi4py import MPI

MPI.COMM_WORLD.Spawn("hostname")
