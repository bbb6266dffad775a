"""Sweeps: many runs of a scenario, with other seeds and values, and the one file that has their results."""
