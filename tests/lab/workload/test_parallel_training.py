"""A real job with tensor, pipeline, data and expert parallel groups."""

import json
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from testbed.topology.fabrics import single
from testbed.workload import Job, Parallel, mpirun

PROGRAM = Path(__file__).with_name("programs") / "parallel.py"
ACTIVATIONS = 4 * 2 * 64 * 32 * 4
"""Bytes from a stage to the next: 4 steps of 2 micro-batches of 64 tokens of 32 numbers. Pairs without a group in
common exchange less, when the groups are made."""
JOB_S = 300


def losses(job: Job, rank: int) -> list[float]:
    return [json.loads(line)["loss"] for line in job.output(rank).splitlines() if line.startswith('{"step"')]


SHAPES = [(Parallel(tensor=2, pipeline=2, data=2, expert=2), 1), (Parallel(tensor=4, pipeline=4, data=2, expert=2), 4)]
"""With the ranks a host: eight, and PTD-P's 32 with tensor parallelism within hosts."""


@pytest.mark.parametrize(
    ("parallel", "ranks_per_host"),
    [
        pytest.param(
            parallel,
            each,
            id=f"{parallel.ranks}-ranks",
            marks=pytest.mark.topology(single(parallel.ranks // each, management=True).topology()),
        )
        for parallel, each in SHAPES
    ],
)
def test_groups_train_what_one_process_trains_and_the_other_pairs_are_silent(lab, parallel, ranks_per_host):
    hosts = [lab.host(f"host{number + 1}") for number in range(parallel.ranks // ranks_per_host)]
    captures = {host: host["eth1"].peer.capture("udp port 4791") for host in hosts}
    sizes = [str(size) for size in (parallel.tensor, parallel.pipeline, parallel.data)]
    job = mpirun(lab, hosts, PROGRAM, *sizes, launcher=lab.host("launcher"), ranks_per_host=ranks_per_host)
    job.check(JOB_S)

    alone = Job.alone(lab, lab.host("launcher"), PROGRAM, str(parallel.pipeline), name="one-process")
    alone.check(JOB_S)
    wanted = losses(alone, 0)
    assert len(wanted) == 4
    assert wanted[-1] < 0.9 * wanted[0]
    last_stage = [rank for rank in range(parallel.ranks) if losses(job, rank)]
    assert last_stage == sorted(group[-1] for group in parallel.groups("pipeline"))
    for rank in last_stage:
        assert losses(job, rank) == pytest.approx(wanted, rel=1e-5)

    sent: Counter[tuple[str, str]] = Counter()
    owners = {host["eth1"].mac: host.name for host in hosts}
    for host, capture in captures.items():
        for frame in capture.roce():
            if frame.src == host["eth1"].mac:
                sent[host.name, owners[frame.dst]] += len(frame.data)
    names = [hosts[rank // ranks_per_host].name for rank in range(parallel.ranks)]
    grouped = {
        (names[rank], names[peer])
        for dimension in ("tensor", "pipeline", "data")
        for group in parallel.groups(dimension)
        for one, other in pairwise(group)
        for rank, peer in ((one, other), (other, one))
        if names[rank] != names[peer]
    }
    assert {pair for pair, size in sent.items() if size >= ACTIVATIONS} == grouped
