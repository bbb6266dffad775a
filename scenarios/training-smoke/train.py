"""Trains a small model with DistributedDataParallel: every rank has its share of one data set, known by heart.

Prints a line of JSON a step; leaves the parameters in parameters-<rank>.f32 (32-bit floats) in its directory.
With ``--checkpoints DIRECTORY`` rank 0 saves the model and the optimizer there every N steps, and a job goes on from
the last of these. ``train.py --reference N`` does in one process what N ranks do: gradients of the N shares, added as
recursive doubling adds them, divided by N.
"""

import argparse
import json
import os
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


def checkpoint(directory: Path, done: int, model: torch.nn.Module, optimiser: torch.optim.Optimizer) -> None:
    """Saves the state after so many steps. The name appears when the file is complete."""
    unfinished = directory / "unfinished"
    torch.save({"done": done, "model": model.state_dict(), "optimiser": optimiser.state_dict()}, unfinished)
    os.replace(unfinished, directory / f"step-{done:04}.pt")


def restore(directory: Path, model: torch.nn.Module, optimiser: torch.optim.Optimizer) -> int:
    """Loads the last checkpoint, if there is one; returns the number of steps that it has."""
    found = sorted(directory.glob("step-*.pt"))
    if not found:
        return 0
    saved = torch.load(found[-1], weights_only=True)
    model.load_state_dict(saved["model"])
    optimiser.load_state_dict(saved["optimiser"])
    return int(saved["done"])


def train(backend: str, steps: int, rate: float, checkpoints: Path | None, every: int) -> None:
    torch.distributed.init_process_group(backend)
    rank, ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()
    inputs, targets = share(rank, ranks)
    model = make_model()
    optimiser = torch.optim.SGD(model.parameters(), lr=rate)
    done = restore(checkpoints, model, optimiser) if checkpoints else 0
    parallel = DistributedDataParallel(model)
    for step in range(done, steps):
        started = time.monotonic()
        optimiser.zero_grad()
        loss = mse_loss(parallel(inputs), targets)
        loss.backward()
        optimiser.step()
        print(json.dumps({"step": step, "loss": loss.item(), "seconds": time.monotonic() - started}), flush=True)
        if checkpoints and rank == 0 and (step + 1) % every == 0:
            checkpoint(checkpoints, step + 1, model, optimiser)
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
    options.add_argument("--checkpoints", type=Path, metavar="DIRECTORY")
    options.add_argument("--every", type=int, default=1, help="steps from one checkpoint to the next")
    chosen = options.parse_args()
    if chosen.reference:
        reference(chosen.reference, chosen.steps, chosen.rate)
    else:
        train(chosen.backend, chosen.steps, chosen.rate, chosen.checkpoints, chosen.every)


main()
