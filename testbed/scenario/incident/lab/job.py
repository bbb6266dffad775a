"""A rank of a job that trains without end: a mixture of experts.

Each rank has an expert; tokens go to experts and back (all-to-all). The rest is DistributedDataParallel over MPI. There
is a checkpoint every ten steps, from which the job goes on when it is started again.
"""

import argparse
import os
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

CHECKPOINT, EVERY = "checkpoint.pt", 10
TOKENS, WIDTH = 32, 128
LEARNED = 4
"""Tokens of which an expert learns. The work on all others is in the sleep."""
parser = argparse.ArgumentParser()
parser.add_argument("--compute", type=float, default=1.4, help="seconds of the rest of the model")
parser.add_argument("--repeat", type=int, default=1, help="times that a token has its numbers on the wire")
parser.add_argument("--hot", type=int, nargs="+", help="experts that get the tokens; default: all")
options = parser.parse_args()
dist.init_process_group("mpi")
torch.manual_seed(1)
model = DistributedDataParallel(torch.nn.Linear(WIDTH, WIDTH))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
ranks = range(dist.get_world_size())
tokens_of = [TOKENS if options.hot is None or rank in options.hot else 1 for rank in ranks]
received = [tokens_of[dist.get_rank()] for _ in ranks]
tokens = torch.randn(sum(tokens_of), WIDTH).repeat(1, options.repeat)
of_experts = torch.empty(sum(received), tokens.size(1))
step = 0
if os.path.exists(CHECKPOINT):
    saved = torch.load(CHECKPOINT)
    model.module.load_state_dict(saved["model"])
    step = saved["step"]
while True:
    began = time.monotonic()
    time.sleep(options.compute)  # the rest of the model
    dist.all_to_all_single(of_experts, tokens, received, tokens_of)
    optimizer.zero_grad()
    model(of_experts[:LEARNED, :WIDTH]).square().mean().backward()
    optimizer.step()
    step += 1
    if dist.get_rank() == 0:
        print(f"{time.strftime('%Y-%m-%d %H:%M:%S')} step {step} took {time.monotonic() - began:.3f} s", flush=True)
        if step % EVERY == 0:
            torch.save({"model": model.module.state_dict(), "step": step}, CHECKPOINT + ".new")
            os.replace(CHECKPOINT + ".new", CHECKPOINT)
