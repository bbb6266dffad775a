"""A job as torchrun's elastic ones are: it loads the last checkpoint, and saves one at every fifth step."""

import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

STEPS, EACH = 30, 5
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(64, 64))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
done = 0
if os.path.exists("state.pt"):
    state = torch.load("state.pt")
    model.load_state_dict(state["model"])
    done = state["done"]
print(f"rank {rank} of {dist.get_world_size()} goes on after {done} steps", flush=True)
for step in range(done, STEPS):
    loss = (model(torch.randn(8, 64)) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if rank == 0 and (step + 1) % EACH == 0:
        torch.save({"model": model.state_dict(), "done": step + 1}, "state.new")
        os.replace("state.new", "state.pt")
dist.destroy_process_group()
