"""A pingmesh: probes between all pairs of NICs, by RDMA datagrams and by TCP, and where the network has them last.

Source of the idea: Guo et al., "Pingmesh" (SIGCOMM 2015); Liu et al., "R-Pingmesh" (SIGCOMM 2024).
"""
