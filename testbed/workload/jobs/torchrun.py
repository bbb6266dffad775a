"""Ranks started by torchrun, one agent a host, with gloo over TCP on the management network: a control without RDMA."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from testbed.lab import Host, Lab
from testbed.workload.jobs.job import FORKED, Job
from testbed.workload.jobs.placement import Rank, management

AGENT = Path(__file__).with_name("elastic.py")
PORT = 29500


ENDED = re.compile(r"^E\d+ (?P<time>[\d:.]+) .* failed \(exitcode: (?P<code>-?\d+)\) local_rank", re.MULTILINE)


def torchrun(
    lab: Lab, hosts: Sequence[Host], program: Path, *arguments: str, name: str = "job", interface: str = "mgmt0"
) -> Job:
    """Starts `program` (Python) as one rank on each of `hosts`, rank 0 first."""
    address = management(hosts, interface).ip
    job = Job(lab, name, [Rank(number, host, "", 0) for number, host in enumerate(hosts)], blame)
    for rank in job.ranks:
        command = [
            *("env", "-C", str(job.directory), f"TMPDIR={job.scratch}", f"TESTBED_RANKS={job.directory}"),
            *(f"TESTBED_LAUNCHER={agent(rank)}", f"GLOO_SOCKET_IFNAME={interface}", "OMP_NUM_THREADS=1"),
            *(*FORKED, str(AGENT), f"--nnodes={len(hosts)}", f"--node-rank={rank.number}", "--nproc-per-node=1"),
            *(f"--master-addr={address}", f"--master-port={PORT}", f"--local-addr={rank.host.addresses[interface].ip}"),
            *("--no-python", *FORKED, str(program), *arguments),
        ]
        job.launch(rank.host, command)
    return job


def blame(job: Job) -> tuple[Rank, str] | None:
    """The rank whose agent was the first to see it fail; the others fail because they lose it."""
    found = [
        (said["time"], rank.number, int(said["code"]))
        for rank in job.ranks
        for said in ENDED.finditer(job.log(agent(rank)))
    ]
    if not found:
        return None
    _, number, code = min(found)
    return job.ranks[number], f"ended by signal {-code}" if code < 0 else f"ended with status {code}"


def agent(rank: Rank) -> str:
    return f"torchrun-{rank.number}"
