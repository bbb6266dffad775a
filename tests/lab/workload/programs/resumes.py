"""A GPT that FSDP shards over all ranks, with checkpoints: python3 resumes.py DIRECTORY STEPS [DIES_AFTER].

Each rank saves its part by torch.distributed.checkpoint after every second step, and the job goes on from the last
checkpoint that is complete. Rank 5 is killed after DIES_AFTER steps of a job that begins at the first. At the end each
rank prints a digest of the whole model.
"""

import hashlib
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoints
from gpt import WORDS, Gpt
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard

directory, steps = Path(sys.argv[1]), int(sys.argv[2])
dies_after = int(sys.argv[3]) if sys.argv[3:] else None
dist.init_process_group()
rank, ranks = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = Gpt()
for module in (*model.blocks, model):
    fully_shard(module)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
done = max((int(path.parent.name) for path in directory.glob("*/.metadata")), default=0)
if done:
    weights, state = get_state_dict(model, optimizer)
    saved = {"model": weights, "optimizer": state}
    checkpoints.load(saved, checkpoint_id=directory / str(done))
    set_state_dict(model, optimizer, model_state_dict=saved["model"], optim_state_dict=saved["optimizer"])
for step in range(done, steps):
    tokens = torch.randint(WORDS, (ranks, 16), generator=torch.Generator().manual_seed(step)).chunk(ranks)[rank]
    loss = nn.functional.cross_entropy(model(tokens)[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(f"step {step + 1} of {steps}", flush=True)
    if (step + 1) % 2 == 0:
        weights, state = get_state_dict(model, optimizer)
        checkpoints.save({"model": weights, "optimizer": state}, checkpoint_id=directory / str(step + 1))
    if rank == 5 and not done and step + 1 == dies_after:
        os.kill(os.getpid(), 9)
digest = hashlib.sha256()
for parameter in model.parameters():
    digest.update(parameter.full_tensor().detach().numpy().tobytes())
print(f"model {digest.hexdigest()}", flush=True)
