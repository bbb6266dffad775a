"""torchrun as a program that ranks.py can run."""

from torch.distributed.run import main

main()
