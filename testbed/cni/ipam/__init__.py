"""Addresses for pods: pools, which address of a pool is next, and the store of who has which."""
