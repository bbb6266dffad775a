"""torchrun as a program that fork_server.py can run."""

from torch.distributed.run import main

main()
