"""Ranks started by torchrun, one agent a host, with gloo over TCP."""

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from testbed.errors import InputError
from testbed.lab import Host, Lab
from testbed.workload.jobs.job import Job, forked
from testbed.workload.jobs.placement import Rank, each, management

AGENT = Path(__file__).with_name("elastic.py")
PORT = 29500
Told = dict[str, Any]
"""A line that an agent has written: `round`, `t` in nanoseconds of CLOCK_MONOTONIC; and `ranks` that it starts, of
`world`; or `failed`, exit statuses by rank."""


def torchrun(
    lab: Lab,
    hosts: Sequence[Host],
    program: str | Path,
    *arguments: str,
    name: str = "job",
    ranks_per_host: int = 1,
    interface: str = "mgmt0",
    port: int = PORT,
) -> Job:
    """Start `program` (Python) as `ranks_per_host` ranks on each of `hosts`, those of the first host first: a control
    without RDMA, with gloo on the management network.

    `interface` is the management interface of the first; the others are reached by theirs in the same network. `port`
    is that of the store on the first, by which the agents meet: torchrun's --master-port."""
    file = checked(program, hosts)
    ranks = [Rank(number, host) for number, host in enumerate(each(hosts, ranks_per_host))]
    ends = management(hosts[0], hosts[1:], interface)
    job = Job(lab, name, ranks, lambda job: blame(job, told(job.directory)))
    for node, (host, end) in enumerate(zip(hosts, ends, strict=True)):
        command = [
            *(f"TMPDIR={job.scratch}", f"TESTBED_RANKS={job.directory}", f"TESTBED_LAUNCHER={agent(node)}"),
            *(f"GLOO_SOCKET_IFNAME={end.name}", "OMP_NUM_THREADS=1"),
            *(*forked(AGENT), f"--nnodes={len(hosts)}", f"--node-rank={node}", f"--nproc-per-node={ranks_per_host}"),
            *(f"--master-addr={ends[0].address().ip}", f"--master-port={port}", f"--local-addr={end.address().ip}"),
            *("--no-python", *forked(file), *arguments),
        ]
        job.launch(host, command, of_all=False)
    lab.defer(job.close)
    return job


def checked(program: str | Path, hosts: Sequence[Host]) -> str:
    """Return the path of a program that torchrun can start. InputError if it cannot, or a host is given twice."""
    if len(set(hosts)) < len(hosts):
        raise InputError("a host is given twice", hint="torchrun has one agent for each host: use ranks_per_host.")
    file = os.path.abspath(program)
    if not os.path.isfile(file):
        raise InputError(
            "this program of the ranks does not exist", where=str(program), hint="torchrun starts Python files only."
        )
    return file


def told(directory: Path) -> Iterator[tuple[int, Told]]:
    """Yield what agents have written into the directory of a job so far, with the number of the agent."""
    for path in sorted(directory.glob("torchrun-*.jsonl")):
        number = int(path.stem.partition("-")[2])
        yield from ((number, json.loads(line)) for line in path.read_text().splitlines())


def blame(job: Job, lines: Iterator[tuple[int, Told]]) -> tuple[Rank, str] | None:
    """Return the rank whose agent was the first to detect its failure; the others fail because they lose it."""
    found = [(line["t"], int(rank), code) for _, line in lines for rank, code in line.get("failed", {}).items()]
    if not found:
        return None
    _, number, code = min(found)
    return job.ranks[number], f"ended by signal {-code}" if code < 0 else f"ended with status {code}"


def agent(node: int) -> str:
    return f"torchrun-{node}"
