"""Adds a number of this job over its ranks again and again, for some seconds; prints a line for each sum."""

import sys
import time

import torch
import torch.distributed

number, times = int(sys.argv[1]), int(sys.argv[2])
torch.distributed.init_process_group("gloo")
for _ in range(times):
    value = torch.tensor(float(number))
    torch.distributed.all_reduce(value)
    print("sum", value.item(), flush=True)
    time.sleep(0.5)
torch.distributed.destroy_process_group()
