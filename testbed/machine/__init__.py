"""Where labs run: the image, the micro-VM with its snapshots and clocks, and this very kernel. Runs outside the guest
only."""
