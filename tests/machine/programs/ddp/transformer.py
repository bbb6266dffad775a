"""A small transformer learns the next token of repeating sequences: DistributedDataParallel, gradients that are
accumulated over two batches and clipped, workers of a DataLoader, a checkpoint at the end."""

import contextlib

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

TOKENS, LENGTH, WIDTH, ACCUMULATED = 16, 12, 16, 2


class Sequences(Dataset):
    def __len__(self) -> int:
        return 64

    def __getitem__(self, number: int) -> torch.Tensor:
        return (torch.arange(LENGTH + 1) * (1 + number % 3) + number) % TOKENS


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(TOKENS, WIDTH)
        self.positions = nn.Parameter(torch.zeros(LENGTH, WIDTH))
        layer = nn.TransformerEncoderLayer(WIDTH, nhead=2, dim_feedforward=32, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, num_layers=1)
        self.head = nn.Linear(WIDTH, TOKENS)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1])
        return self.head(self.encoder(self.embedding(tokens) + self.positions, mask=mask, is_causal=True))


def main() -> None:
    dist.init_process_group(backend="mpi")
    torch.manual_seed(1)
    data = Sequences()
    loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data), num_workers=1, drop_last=True)
    model = DistributedDataParallel(Transformer())
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for number, tokens in enumerate(loader, 1):
        updates = number % ACCUMULATED == 0
        with contextlib.nullcontext() if updates else model.no_sync():
            logits = model(tokens[:, :-1])
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()) / ACCUMULATED
            loss.backward()
        if updates:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()
            optimiser.zero_grad()
    if dist.get_rank() == 0:
        torch.save(model.module.state_dict(), "transformer.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
