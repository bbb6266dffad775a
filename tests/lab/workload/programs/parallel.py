"""Trains a small model that is shared out as Megatron does it: tensor, pipeline, data and expert parallel.

A stage is an MLP, its hidden features shared out to the tensor parallel ranks, and a mixture of experts, one on each
data parallel rank: token i is for expert i mod their number. `parallel.py TENSOR PIPELINE DATA`; one process trains the
same model, with all its stages and experts, by `parallel.py PIPELINE`.
"""

import json
import sys

import torch
import torch.distributed as dist
from torch.autograd import Function

WIDTH, HIDDEN, TOKENS, MICRO_BATCHES, STEPS, RATE = 32, 64, 256, 2, 4, 1.5
SHARES = 2
"""Of the data, and so the number of experts, whoever trains."""


def made(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) / shape[0] ** 0.5


class Entered(Function):
    """What all ranks of a tensor parallel group have; their gradients for it are added."""

    @staticmethod
    def forward(ctx, values, group):
        ctx.group = group
        return values

    @staticmethod
    def backward(ctx, gradient):
        return added(gradient, ctx.group), None


class Left(Function):
    """The sum of what the ranks of a tensor parallel group have."""

    @staticmethod
    def forward(ctx, values, group):
        return added(values, group)

    @staticmethod
    def backward(ctx, gradient):
        return gradient, None


class Exchanged(Function):
    """The tokens of each rank's n-th part at rank n."""

    @staticmethod
    def forward(ctx, values, group):
        ctx.group = group
        return exchanged(values, group)

    @staticmethod
    def backward(ctx, gradient):
        return exchanged(gradient, ctx.group), None


def added(values, group):
    total = values.clone(memory_format=torch.contiguous_format)
    if group:
        dist.all_reduce(total, group=group)
    return total


def exchanged(values, group):
    if not group:
        return values
    found = torch.empty(values.shape)
    dist.all_to_all_single(found, values.contiguous(), group=group)
    return found


class Stage:
    def __init__(self, number, tensor, tensors, experts):
        """`experts` are the numbers of those that are here."""
        features = slice(tensor * HIDDEN // tensors, (tensor + 1) * HIDDEN // tensors)
        self.inner = made(10 + number, WIDTH, HIDDEN)[:, features].clone().requires_grad_()
        self.outer = made(20 + number, HIDDEN, WIDTH)[features].clone().requires_grad_()
        self.experts = [made(30 + 10 * number + one, WIDTH, WIDTH).requires_grad_() for one in experts]

    def forward(self, values, tensor_group, expert_group):
        hidden = torch.relu(Entered.apply(values, tensor_group) @ self.inner)
        values = values + Left.apply(hidden @ self.outer, tensor_group)
        parts = torch.stack([values[one::SHARES] for one in range(SHARES)])
        mine = Exchanged.apply(parts, expert_group)
        if expert_group:
            done = mine @ self.experts[0]
        else:
            done = torch.stack([part @ expert for part, expert in zip(mine, self.experts, strict=True)])
        back = Exchanged.apply(done, expert_group)
        return values + back.transpose(0, 1).reshape(values.shape)

    @property
    def parameters(self):
        return [self.inner, self.outer, *self.experts]


def loss_of(outputs, inputs):
    return ((outputs - inputs.flip(1)) ** 2).mean() / MICRO_BATCHES


def batches(share):
    data = made(1, TOKENS, WIDTH)
    return data[share * TOKENS // SHARES : (share + 1) * TOKENS // SHARES].chunk(MICRO_BATCHES)


def alone(stages):
    """One process with all stages and experts: the mean of the losses of the shares."""
    loss = torch.zeros(())
    for share in range(SHARES):
        for inputs in batches(share):
            values = inputs
            for stage in stages:
                values = stage.forward(values, None, None)
            loss = loss + loss_of(values, inputs) / SHARES
    loss.backward()
    return loss.item()


def together(stage, share, place, groups):
    """One rank: all micro-batches forward, then all backward. The loss of its share, on the last stage."""
    pipeline, position = place
    loss, kept = 0.0, []
    for inputs in batches(share):
        values = inputs
        if position > 0:
            values = torch.empty(inputs.shape)
            dist.recv(values, pipeline[position - 1])
            values.requires_grad_()
        outputs = stage.forward(values, *groups)
        if position < len(pipeline) - 1:
            dist.send(outputs.detach().contiguous(), pipeline[position + 1])
        else:
            outputs = loss_of(outputs, inputs)
            loss += outputs.item()
        kept.append((values, outputs))
    for values, outputs in kept:
        gradient = None
        if position < len(pipeline) - 1:
            gradient = torch.empty(outputs.shape)
            dist.recv(gradient, pipeline[position + 1])
        outputs.backward(gradient)
        if position > 0:
            dist.send(values.grad.contiguous(), pipeline[position - 1])
    return loss


def update(parameters):
    with torch.no_grad():
        for parameter in parameters:
            parameter.sub_(RATE * parameter.grad)
            parameter.grad = None


def main():
    sizes = [int(word) for word in sys.argv[1:]]
    if len(sizes) == 1:
        every = [Stage(number, 0, 1, range(SHARES)) for number in range(*sizes)]
        for step in range(STEPS):
            print(json.dumps({"step": step, "loss": alone(every)}), flush=True)
            update([parameter for stage in every for parameter in stage.parameters])
        return
    tensors, stages, shares = sizes
    dist.init_process_group("mpi")
    rank = dist.get_rank()
    tensor, share, number = rank % tensors, rank // tensors % shares, rank // tensors // shares
    of_tensor = [[(p * shares + d) * tensors + t for t in range(tensors)] for p in range(stages) for d in range(shares)]
    of_data = [[(p * shares + d) * tensors + t for d in range(shares)] for p in range(stages) for t in range(tensors)]
    made_groups = [{tuple(ranks): dist.new_group(ranks) for ranks in found} for found in (of_tensor, of_data)]
    tensor_group, data_group = (next(group for ranks, group in found.items() if rank in ranks) for found in made_groups)
    pipeline = [(p * shares + share) * tensors + tensor for p in range(stages)]
    stage = Stage(number, tensor, tensors, [share])
    for step in range(STEPS):
        loss = together(stage, share, (pipeline, number), (tensor_group, data_group))
        for parameter in stage.parameters[:2]:
            parameter.grad = added(parameter.grad, data_group)
        for parameter in stage.parameters:
            parameter.grad /= shares
        if number == stages - 1:
            total = torch.tensor(loss)
            dist.all_reduce(total, group=data_group)
            print(json.dumps({"step": step, "loss": total.item() / shares}), flush=True)
        update(stage.parameters)
    dist.destroy_process_group()


main()
