"""Distributed jobs: ranks on hosts or pods, started by mpirun or torchrun, each a fork of a process with torch."""
