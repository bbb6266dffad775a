"""Distributed jobs: ranks on hosts or pods, started by mpirun or torchrun, each forked from a process that has torch
imported."""
