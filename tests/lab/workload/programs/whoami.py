"""A rank of torchrun that says who it is; the one that the argument names goes wrong then."""

import os
import sys

import torch.distributed

torch.distributed.init_process_group("gloo")
rank = torch.distributed.get_rank()
print("rank", rank, "of", torch.distributed.get_world_size(), "local", os.environ["LOCAL_RANK"], flush=True)
if sys.argv[1:] == [str(rank)]:
    sys.exit(3)
torch.distributed.destroy_process_group()
