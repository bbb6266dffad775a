"""A sharded job: python3 train.py STORAGE LAYOUT STEPS SLOW. Each rank keeps a part of the parameters and saves it
after every fourth step. A part is half a second on its way to the storage, rank 3's SLOW seconds. LAYOUT is how the
parts are saved:

in-place      each part replaces the one before
latest-first  each checkpoint has a directory, and rank 0 names it as the latest when its own part is there
latest-last   rank 0 names it when all parts are there
"""

import hashlib
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

storage, layout, steps, slow = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
EACH, PART = 4, 1 << 14
dist.init_process_group("mpi")
rank, ranks = dist.get_rank(), dist.get_world_size()


def save(part: torch.Tensor, done: int) -> None:
    directory = storage if layout == "in-place" else storage / str(done)
    directory.mkdir(exist_ok=True)
    print(f"rank {rank} saves step {done}", flush=True)
    torch.save({"part": part, "done": done}, directory / f"part-{rank}.new")
    time.sleep(slow if rank == ranks - 1 else 0.5)
    os.replace(directory / f"part-{rank}.new", directory / f"part-{rank}.pt")
    if layout == "latest-last":
        saved = torch.tensor([done])
        dist.all_gather([torch.empty_like(saved) for _ in range(ranks)], saved)
    if rank == 0:
        (storage / "latest.new").write_text(str(done))
        os.replace(storage / "latest.new", storage / "latest")


def load() -> tuple[torch.Tensor, int]:
    if not (storage / "latest").exists():
        return torch.full((PART,), float(rank), dtype=torch.float64), 0
    latest = (storage / "latest").read_text()
    saved = torch.load((storage if layout == "in-place" else storage / latest) / f"part-{rank}.pt")
    print(f"rank {rank} has the part of step {saved['done']}, the latest is {latest}", flush=True)
    return saved["part"], int(latest)


part, done = load()
for step in range(done, steps):
    parts = [torch.empty_like(part) for _ in range(ranks)]
    dist.all_gather(parts, part)
    whole = torch.cat(parts)
    part += 0.1 * (whole.mean() - part) + torch.sin(whole[rank::ranks] + step)
    if (step + 1) % EACH == 0:
        save(part, step + 1)
print(f"part {hashlib.sha256(part.numpy().tobytes()).hexdigest()[:16]}", flush=True)
