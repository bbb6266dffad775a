"""Ranks started by Open MPI's mpirun, with UCX on the hosts' RDMA devices.

mpirun and its daemons speak over a management network; nothing but RoCE has a reason to be on the data network. One
daemon a host is started by an agent that mpirun takes for ssh.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from testbed.lab import Host, Lab, netns, own_devices
from testbed.workload.jobs.job import FORKED, Job
from testbed.workload.jobs.placement import Rank, management, place

ROOT = [f"{part}_ALLOW_RUN_AS_ROOT{end}=1" for part in ("OMPI", "PRTE") for end in ("", "_CONFIRM")]
UCX = {
    "UCX_TLS": "rc_verbs,ud_verbs,self",
    # UCX < 1.19 drops what UD receives on an IPv4 GID of a device that is not Mellanox's, without a word.
    "UCX_UD_VERBS_ETH_DGID_CHECK": "n",
    # rxe takes 7, UCX's default, as for ever.
    "UCX_RC_VERBS_RETRY_COUNT": "6",
}
ENDED = re.compile(
    r"process rank (?P<killed>\d+) with PID \d+ on node \S+ exited on\s+signal (?P<signal>\d+)"
    r"|Process name: \[\S+,(?P<exited>\d+)\]\s+Exit code:\s+(?P<status>\d+)"
    r"|process rank (?P<improper>\d+) with PID \d+ on node \S+ exiting\s+improperly"
)
AGENT = """#!/bin/sh
# mpirun calls this as it would ssh: HOST COMMAND…
host=$1
shift
cd {directory}
. "./$host.env"
exec nsenter --net={namespaces}/$namespace unshare --uts --mount sh -c "{mounts}; hostname $host; $*"
"""


def mpirun(
    lab: Lab,
    hosts: Sequence[Host],
    program: Path,
    *arguments: str,
    launcher: Host,
    name: str = "job",
    data: str = "eth1",
    management_interface: str = "mgmt0",
    environment: Mapping[str, str] | None = None,
    mca: Mapping[str, str] | None = None,
) -> Job:
    """Starts `program` (Python) as one rank on each of `hosts`, rank 0 first; mpirun itself runs on `launcher`.

    `data` and `management_interface` name the interfaces; `environment` is added to UCX's settings, `mca` to Open MPI's
    parameters.
    """
    ranks = place(hosts, data)
    network = management([*hosts, launcher], management_interface).network
    job = Job(lab, name, ranks, blame)
    for rank in ranks:
        write_settings(job, rank)
    agent = job.directory / "agent"
    mounts = "; ".join(f"mount --bind $devices/{name} {where}" for name, where in own_devices.SHOWN.items())
    agent.write_text(AGENT.format(directory=shlex.quote(str(job.directory)), namespaces=netns.RUN, mounts=mounts))
    agent.chmod(0o755)
    settings = {**UCX, **(environment or {})}
    parameters = {"pml": "ucx", "osc": "ucx", "mpi_yield_when_idle": "1", **(mca or {})}
    command = [
        *("env", "-C", str(job.directory), f"TMPDIR={job.scratch}", *ROOT),
        *(f"{key}={value}" for key, value in settings.items()),
        # With the first process of a PID namespace all end; a daemon that lost mpirun would stay.
        *("unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "mpirun"),
        *("--prtemca", "plm_ssh_agent", str(agent)),
        *("--prtemca", "prte_if_include", str(network), "--pmixmca", "ptl_tcp_if_include", str(network)),
        *("--host", ",".join(f"{rank.host}:1" for rank in ranks), "-np", str(len(ranks)), "--bind-to", "none"),
        *(word for key, value in parameters.items() for word in ("--mca", key, value)),
        *(word for key in settings for word in ("-x", key)),
        *(*FORKED, str(program), *arguments),
    ]
    job.launch(launcher, command)
    return job


def blame(job: Job) -> tuple[Rank, str] | None:
    """The rank that mpirun names as the first that ended the job."""
    found = ENDED.search(job.launcher_output())
    if not found:
        return None
    if found["killed"]:
        return job.ranks[int(found["killed"])], f"ended by signal {found['signal']}"
    if found["exited"]:
        return job.ranks[int(found["exited"])], f"ended with status {found['status']}"
    return job.ranks[int(found["improper"])], "ended without MPI_Finalize, or never called MPI_Init"


def write_settings(job: Job, rank: Rank) -> None:
    """What is different from host to host, for the agent to read."""
    settings = {
        "namespace": rank.host.namespace,
        "devices": str(own_devices.directory(rank.host.namespace)),
        "UCX_NET_DEVICES": f"{rank.device}:1",
        "UCX_IB_GID_INDEX": str(rank.gid),
        "TESTBED_RANKS": str(job.directory),
    }
    lines = [f"export {key}={shlex.quote(value)}" for key, value in settings.items()]
    (job.directory / f"{rank.host}.env").write_text("\n".join(lines) + "\n")
