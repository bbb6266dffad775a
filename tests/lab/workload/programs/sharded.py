"""A small GPT, sharded over ranks: python3 sharded.py HOW. It prints the loss of each step, of the whole batch.

HOW is fsdp, fsdp2, mixed (bfloat16), hybrid (sharded in pairs, replicated between them), tensor (DTensor), pipeline, or
alone: one process without a network.
"""

import json
import os
import sys

import torch
import torch.distributed as dist
from gpt import WORDS, Block, Gpt
from torch import nn

STEPS, BATCH, TOKENS = 4, 8, 16
how = sys.argv[1]


def loss_of(output, tokens):
    return nn.functional.cross_entropy(output[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())


torch.manual_seed(0)
model = Gpt()
rank, size, parts = 0, 1, 1
if how != "alone":
    dist.init_process_group()
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    assert (rank, size) == (dist.get_rank(), dist.get_world_size())
    parts = size
if how in ("fsdp", "hybrid"):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy

    whole = {"sharding_strategy": ShardingStrategy.HYBRID_SHARD, "device_mesh": init_device_mesh("cpu", (size // 2, 2))}
    model = FullyShardedDataParallel(
        model,
        auto_wrap_policy=ModuleWrapPolicy({Block}),
        device_id=torch.device("cpu"),
        **(whole if how == "hybrid" else {}),
    )
elif how in ("fsdp2", "mixed"):
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    policy = {"mp_policy": MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)}
    for module in (*model.blocks, model):
        fully_shard(module, **(policy if how == "mixed" else {}))
elif how == "tensor":
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    columns = {name: ColwiseParallel() for name in ("query", "key", "value", "up")}
    for block in model.blocks:
        parallelize_module(
            block, init_device_mesh("cpu", (size,)), {**columns, "mixed": RowwiseParallel(), "down": RowwiseParallel()}
        )
    parts = 1
elif how == "pipeline":
    from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

    assert size == 2
    if rank == 0:
        model.blocks, model.head = model.blocks[:1], nn.Identity()
    else:
        model.words, model.blocks = nn.Identity(), model.blocks[1:]
    stage = PipelineStage(model, rank, size, torch.device("cpu"))
    schedule = ScheduleGPipe(stage, n_microbatches=4, loss_fn=lambda *pair: loss_of(*pair) / 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
for step in range(STEPS):
    tokens = torch.randint(WORDS, (BATCH, TOKENS), generator=torch.Generator().manual_seed(step))
    if how == "pipeline":
        losses = []
        schedule.step(*([tokens] if rank == 0 else []), target=tokens if rank else None, losses=losses)
        loss = torch.stack(losses).sum() if rank else None
    else:
        mine = tokens.chunk(parts)[rank % parts]
        loss = loss_of(model(mine), mine)
        loss.backward()
        if how not in ("alone", "tensor"):
            loss = loss.detach()
            dist.all_reduce(loss, dist.ReduceOp.AVG)
    optimizer.step()
    optimizer.zero_grad()
    if loss is not None:
        print(json.dumps({"step": step, "loss": loss.item()}), flush=True)
