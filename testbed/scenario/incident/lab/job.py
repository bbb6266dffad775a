"""A rank of a job that trains without end.

DistributedDataParallel over MPI, with a checkpoint every ten steps, from which it goes on when it is started again.
"""

import os
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

CHECKPOINT, EVERY, COMPUTE_S = "checkpoint.pt", 10, 0.9
dist.init_process_group("mpi")
torch.manual_seed(1)
model = DistributedDataParallel(torch.nn.Linear(158, 158))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
step = 0
if os.path.exists(CHECKPOINT):
    saved = torch.load(CHECKPOINT)
    model.module.load_state_dict(saved["model"])
    step = saved["step"]
while True:
    began = time.monotonic()
    time.sleep(COMPUTE_S)  # the rest of the model
    optimizer.zero_grad()
    model(torch.randn(4, 158)).square().mean().backward()
    optimizer.step()
    step += 1
    if dist.get_rank() == 0:
        print(f"{time.strftime('%Y-%m-%d %H:%M:%S')} step {step} took {time.monotonic() - began:.3f} s", flush=True)
        if step % EVERY == 0:
            torch.save({"model": model.module.state_dict(), "step": step}, CHECKPOINT + ".new")
            os.replace(CHECKPOINT + ".new", CHECKPOINT)
