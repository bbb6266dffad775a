"""A real job with tensor, pipeline, data and expert parallel groups."""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from testbed.topology.fabrics import single
from testbed.workload import Job, Parallel, mpirun

PROGRAM = Path(__file__).with_name("programs") / "parallel.py"
PARALLEL = Parallel(tensor=2, pipeline=2, data=2, expert=2)
ACTIVATION = 64 * 32 * 4
"""Bytes of a micro-batch between two stages: 64 tokens of 32 numbers."""
JOB_S = 300


def losses(job: Job, rank: int) -> list[float]:
    return [json.loads(line)["loss"] for line in job.output(rank).splitlines() if line.startswith('{"step"')]


@pytest.mark.topology(single(hosts=PARALLEL.ranks, management=True).topology())
def test_groups_train_what_one_process_trains_and_the_other_pairs_are_silent(lab):
    nics = [lab.host(f"host{rank + 1}")["eth1"] for rank in range(PARALLEL.ranks)]
    captures = [nic.peer.capture("udp port 4791") for nic in nics]
    sizes = [str(size) for size in (PARALLEL.tensor, PARALLEL.pipeline, PARALLEL.data)]
    job = mpirun(lab, [nic.node for nic in nics], PROGRAM, *sizes, launcher=lab.host("launcher"))
    job.check(JOB_S)

    alone = Job.alone(lab, lab.host("launcher"), PROGRAM, "1", "1", "1", name="one-process")
    alone.check(JOB_S)
    wanted = losses(alone, 0)
    assert len(wanted) == 4
    assert wanted[-1] < 0.9 * wanted[0]
    last_stage = [rank for rank in range(PARALLEL.ranks) if losses(job, rank)]
    assert last_stage == [rank for group in PARALLEL.groups("pipeline") for rank in group[-1:]]
    for rank in last_stage:
        assert losses(job, rank) == pytest.approx(wanted, rel=1e-5)

    sent: Counter[tuple[int, int]] = Counter()
    ranks = {nic.mac: rank for rank, nic in enumerate(nics)}
    for rank, capture in enumerate(captures):
        for frame in capture.roce():
            if frame.src == nics[rank].mac:
                sent[rank, ranks[frame.dst]] += len(frame.data)
    grouped = {
        pair
        for dimension in ("tensor", "pipeline", "data")
        for group in PARALLEL.groups(dimension)
        for one, other in pairwise(group)
        for pair in ((one, other), (other, one))
    }
    assert {pair for pair, size in sent.items() if size > ACTIVATION} == grouped
    assert len(grouped) == 3 * PARALLEL.ranks
