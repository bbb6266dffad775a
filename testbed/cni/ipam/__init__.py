"""Addresses for pods: pools, the choice of the next address, and the store of address holders."""
