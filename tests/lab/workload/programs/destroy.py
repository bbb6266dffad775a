"""Destroys its groups while their thread waits for the GIL, to free the tensor that it added up."""

import sys
import time

import torch
import torch.distributed as dist

ADDED_S = 0.5
dist.init_process_group(sys.argv[1])
work = dist.all_reduce(torch.ones(4), async_op=True)
del work  # only the thread has the tensor now
sys.setswitchinterval(1000)
end = time.monotonic() + ADDED_S
while time.monotonic() < end:
    pass
dist.destroy_process_group()
print("destroyed")
