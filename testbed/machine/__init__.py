"""Machines that labs run on: the image and its layers, the micro-VM with its snapshots and clocks, and this very
kernel. Runs outside the guest only."""
