"""Trains a small model with DistributedDataParallel: every rank has its share of one data set, known by heart.

Prints a line of JSON a step; leaves the parameters in parameters-<rank>.f32 (32-bit floats) in its directory.
``train.py --reference N`` does in one process what N ranks do: gradients of the N shares, added as recursive doubling
adds them, divided by N.
"""

import argparse
import json
import time
from pathlib import Path

import torch
import torch.distributed
from torch.nn.functional import mse_loss
from torch.nn.parallel import DistributedDataParallel

FEATURES, HIDDEN, SAMPLES = 64, 128, 256


def share(number: int, of: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(SAMPLES, FEATURES, generator=generator)
    targets = inputs[:, :8].sum(1, keepdim=True).tanh()
    return inputs[number::of], targets[number::of]


def make_model() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(FEATURES, HIDDEN), torch.nn.ReLU(), torch.nn.Linear(HIDDEN, 1))


def save(model: torch.nn.Module, name: str) -> None:
    data = b"".join(parameter.detach().numpy().tobytes() for parameter in model.parameters())
    Path(f"parameters-{name}.f32").write_bytes(data)


def train(backend: str, steps: int, rate: float) -> None:
    torch.distributed.init_process_group(backend)
    rank, ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()
    inputs, targets = share(rank, ranks)
    model = make_model()
    parallel = DistributedDataParallel(model)
    optimiser = torch.optim.SGD(parallel.parameters(), lr=rate)
    for step in range(steps):
        started = time.monotonic()
        optimiser.zero_grad()
        loss = mse_loss(parallel(inputs), targets)
        loss.backward()
        optimiser.step()
        print(json.dumps({"step": step, "loss": loss.item(), "seconds": time.monotonic() - started}), flush=True)
    save(model, str(rank))
    torch.distributed.destroy_process_group()


def reference(ranks: int, steps: int, rate: float) -> None:
    model = make_model()
    optimiser = torch.optim.SGD(model.parameters(), lr=rate)
    for _ in range(steps):
        gradients = [
            list(torch.autograd.grad(loss_of(model, rank, ranks), model.parameters())) for rank in range(ranks)
        ]
        while len(gradients) > 1:  # 0+1, 2+3, then both: the order of recursive doubling
            pairs = zip(gradients[::2], gradients[1::2], strict=True)
            gradients = [[a + b for a, b in zip(one, other, strict=True)] for one, other in pairs]
        for parameter, gradient in zip(model.parameters(), gradients[0], strict=True):
            parameter.grad = gradient / ranks
        optimiser.step()
    save(model, "reference")


def loss_of(model: torch.nn.Module, rank: int, ranks: int) -> torch.Tensor:
    inputs, targets = share(rank, ranks)
    return mse_loss(model(inputs), targets)


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--backend", choices=("mpi", "gloo"), default="mpi")
    options.add_argument("--steps", type=int, required=True)
    options.add_argument("--rate", type=float, required=True)
    options.add_argument("--reference", type=int, metavar="RANKS")
    chosen = options.parse_args()
    if chosen.reference:
        reference(chosen.reference, chosen.steps, chosen.rate)
    else:
        train(chosen.backend, chosen.steps, chosen.rate)


main()
