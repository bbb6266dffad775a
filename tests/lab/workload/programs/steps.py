"""Three steps of an optimizer, the second one slow, with what is in a file of the working directory."""

import time
from pathlib import Path

import torch
import torch.distributed

torch.distributed.init_process_group("mpi")
weight = torch.nn.Parameter(torch.zeros(1))
optimiser = torch.optim.SGD([weight], lr=float(Path("rate.txt").read_text()))
for step in range(3):
    time.sleep(2 if step == 1 else 0)
    weight.grad = torch.ones(1)
    torch.distributed.all_reduce(weight.grad)
    optimiser.step()
print(weight.item(), flush=True)
