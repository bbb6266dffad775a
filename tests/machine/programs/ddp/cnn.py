"""A CNN learns to name the pattern in a picture: DistributedDataParallel, a DataLoader with a DistributedSampler, a
scheduler of the learning rate, and a checkpoint by rank 0 after each epoch, from which it goes on."""

import argparse
import json
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

CHECKPOINT = "cnn.pt"


def pictures(count: int) -> TensorDataset:
    """Stripes across, stripes down, or a spot, each with noise."""
    generator = torch.Generator().manual_seed(7)
    labels = torch.randint(3, (count,), generator=generator)
    data = torch.randn(count, 1, 12, 12, generator=generator) * 0.3
    data[labels == 0, :, ::2, :] += 1
    data[labels == 1, :, :, ::2] += 1
    data[labels == 2, :, 4:8, 4:8] += 1
    return TensorDataset(data, labels)


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(200, 3)
    )


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--epochs", type=int, default=2)
    options.add_argument("--batch", type=int, default=8)
    options.add_argument("--samples", type=int, default=None)
    chosen = options.parse_args()
    with open("settings.json") as file:  # beside the script, where its user starts it
        settings = json.load(file)
    dist.init_process_group("mpi")
    torch.manual_seed(settings["seed"])
    data = pictures(settings["samples"] if chosen.samples is None else chosen.samples)
    sampler = DistributedSampler(data, shuffle=True, seed=settings["seed"])
    loader = DataLoader(data, batch_size=chosen.batch, sampler=sampler)
    model = DistributedDataParallel(network())
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.02)
    scheduler = torch.optim.lr_scheduler.StepLR(optimiser, step_size=1, gamma=0.5)
    begin = 0
    if os.path.exists(CHECKPOINT):
        saved = torch.load(CHECKPOINT)
        model.module.load_state_dict(saved["model"])
        begin = saved["epoch"] + 1
    for epoch in range(begin, chosen.epochs):
        sampler.set_epoch(epoch)
        total = 0.0
        for inputs, labels in loader:
            optimiser.zero_grad()
            loss = nn.functional.cross_entropy(model(inputs), labels)
            loss.backward()
            optimiser.step()
            total += loss.item()
        scheduler.step()
        if dist.get_rank() == 0:
            torch.save({"model": model.module.state_dict(), "epoch": epoch}, CHECKPOINT)
        dist.barrier()
        print(f"epoch {epoch}: loss {total / len(loader):.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
