"""A rank of a job that trains without end: a mixture of experts.

Each rank has an expert; tokens go to experts and back (all-to-all). The rest is DistributedDataParallel over MPI. There
is a checkpoint every ten steps, from which the job goes on when it is started again.
"""

import os
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

CHECKPOINT, EVERY, COMPUTE_S = "checkpoint.pt", 10, 1.4
TOKENS, WIDTH = 32, 128
dist.init_process_group("mpi")
torch.manual_seed(1)
model = DistributedDataParallel(torch.nn.Linear(WIDTH, WIDTH))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
step = 0
if os.path.exists(CHECKPOINT):
    saved = torch.load(CHECKPOINT)
    model.module.load_state_dict(saved["model"])
    step = saved["step"]
while True:
    began = time.monotonic()
    time.sleep(COMPUTE_S)  # the rest of the model
    tokens = torch.randn(TOKENS * dist.get_world_size(), WIDTH)
    of_experts = torch.empty_like(tokens)
    dist.all_to_all_single(of_experts, tokens)
    optimizer.zero_grad()
    model(of_experts).square().mean().backward()
    optimizer.step()
    step += 1
    if dist.get_rank() == 0:
        print(f"{time.strftime('%Y-%m-%d %H:%M:%S')} step {step} took {time.monotonic() - began:.3f} s", flush=True)
        if step % EVERY == 0:
            torch.save({"model": model.module.state_dict(), "step": step}, CHECKPOINT + ".new")
            os.replace(CHECKPOINT + ".new", CHECKPOINT)
