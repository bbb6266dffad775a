"""Calls of groups of gloo, each once: the test reads them from the flight record. Two ranks of three are a group."""

import sys

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, others = dist.get_rank(), [torch.empty(10) for _ in range(3)]
one = torch.ones(10)
pair = dist.new_group([0, 2])
dist.all_reduce(one)
dist.broadcast(one, 1)
dist.all_gather(others, one)
dist.barrier()
dist.gather(one, others if rank == 2 else None, dst=2)
if rank != 1:
    dist.all_reduce(torch.ones(4), group=pair)
if rank == 0:
    dist.send(one, 1)
    works = [dist.isend(one, 2), dist.irecv(others[0], 2)]
    for work in works:
        work.wait()
elif rank == 1:
    dist.recv(one, 0)
else:
    works = [dist.isend(one, 0), dist.irecv(others[0], 0)]
    for work in works:
        work.wait()
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(100, 1, bias=False))
model(torch.ones(1, 100)).sum().backward()
print("done", flush=True)
if sys.argv[1] == "hangs":
    dist.recv(one, (rank + 1) % 3)
dist.destroy_process_group()
