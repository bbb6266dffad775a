"""Ranks started by Open MPI's mpirun, with UCX on the hosts' RDMA devices.

mpirun and its daemons speak over a management network; nothing but RoCE has a reason to be on the data network. An
agent that mpirun uses in place of ssh starts one daemon a host.
"""

import os
import re
import shlex
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from testbed.errors import InputError
from testbed.kernel import netns, own_devices, pid_namespaces
from testbed.lab import Host, HostInterface, Lab
from testbed.workload.jobs.fork_server import PID_NAMESPACE, SHIM, build_shim
from testbed.workload.jobs.job import Job, forked, torch_waits
from testbed.workload.jobs.placement import Place, Rank, each, management, place

ROOT = [f"{part}_ALLOW_RUN_AS_ROOT{end}=1" for part in ("OMPI", "PRTE") for end in ("", "_CONFIRM")]
SHARED_MEMORY = {"UCX_TLS": "rc_verbs,ud_verbs,self,sm"}
"""Settings of a job with several ranks on a host. Hosts have IPC namespaces of their own, by which UCX knows that they
share no memory, though they have one kernel."""
UCX = {
    "UCX_TLS": "rc_verbs,ud_verbs,self",
    # UCX < 1.19 drops what UD receives on an IPv4 GID of a device that is not Mellanox's, without a word.
    "UCX_UD_VERBS_ETH_DGID_CHECK": "n",
    # rxe takes 7, UCX's default, as for ever.
    "UCX_RC_VERBS_RETRY_COUNT": "6",
    # With 4096, the default, a rank pins 38 MB for RC alone: 32 ranks need more memory than the machine has.
    **{f"UCX_{transport}_VERBS_RX_QUEUE_LEN": "1024" for transport in ("RC", "UD")},
}
MANY = 16
SMALL_QUEUES = {"UCX_RC_VERBS_RX_QUEUE_LEN": "512", "UCX_UD_VERBS_RX_QUEUE_LEN": "256"}
"""Settings of a job with more than `MANY` ranks, whose receive queues are most of what they need."""
DEVICE = ". ./rank-$OMPI_COMM_WORLD_RANK.env"
FORKED = f'{DEVICE}; exec "$@"'
NATIVE = f'{DEVICE}; LD_PRELOAD={SHIM}${{LD_PRELOAD:+:$LD_PRELOAD}} exec "$@" >>rank-$OMPI_COMM_WORLD_RANK.log 2>&1'
"""The start of a rank in the job's directory, not as a fork."""
STARTS = "starts"
"""The file of a job with a controller that has a line for each start."""
CONTROLLER = f'until echo >>{STARTS}; "$@"; do sleep {{seconds}}; done'
RANK = r"process rank (?P<rank>\d+) with PID \d+ on node \S+ "
ENDED = {
    "ended by signal {signal}": RANK + r"exited on\s+signal (?P<signal>\d+)",
    "ended with status {status}": r"Process name: \[\S+,(?P<rank>\d+)\]\s+Exit code:\s+(?P<status>\d+)",
    "called MPI_Abort": RANK + r"calling\s+\"abort\"",
    "ended without MPI_Finalize, or never called MPI_Init": RANK + r"exiting\s+improperly",
}
"""The ends of a rank, and mpirun's words for each."""
FATAL = re.compile(
    r"\*\*\* reported by process \[\d+,(?P<rank>\d+)\]\n.*\n.*\*\*\* (?P<error>.+)\n.*\*\*\* MPI_ERRORS_ARE_FATAL"
)
"""An error of MPI that the program does not handle. The words are Open MPI's."""
LOST = re.compile(r"lost communication with a remote daemon.*?Remote daemon: \S+ on node (?P<host>\S+)", re.DOTALL)
"""mpirun's words for a host whose daemon ended: a pod that was deleted."""
AGENT = """#!/bin/sh
# mpirun calls this as it would ssh: HOST COMMAND…
host=$1
shift
cd {directory}
. "./$host.env"
nsenter --net={namespaces}/$namespace unshare --uts --ipc --mount sh -c "{mounts}; hostname $host; $*"
status=$?
# A host without power does not close its connections, so ssh does not hear of the end.
nsenter --net={namespaces}/$namespace ip -o link show dev $management | grep -q LOWER_UP || exec sleep infinity
exit $status
"""


def mpirun(
    lab: Lab,
    hosts: Sequence[Place],
    program: str | Path,
    *arguments: str,
    launcher: Host,
    name: str = "job",
    ranks_per_host: int = 1,
    data: str = "eth1",
    management_interface: str = "mgmt0",
    environment: Mapping[str, str] | None = None,
    of_ranks: Mapping[int, Mapping[str, str]] | None = None,
    mca: Mapping[str, str] | None = None,
    restart_s: float | None = None,
    beside: Path | Sequence[Path] = (),
) -> Job:
    """Start `program` as `ranks_per_host` ranks on each of `hosts`, those of the first host first; mpirun itself runs
    on `launcher`. A host may be in `hosts` several times: ranks are in the order of the list. Pods are hosts, too, and
    an interface in place of its host chooses the RDMA device.

    `program` is a Python file (``.py``), or any executable: a file, or a name on the PATH. `data` is the interface of
    hosts, `management_interface` that of the launcher: hosts are reached by their interface in its network.
    `environment` is added to UCX's settings, `of_ranks` to those of single ranks, by their numbers; `mca` to Open MPI's
    parameters. With `restart_s` a job that failed is started again after so many seconds, without end, as by a
    controller. The files of the directories `beside` are in the ranks' working directory, too, those of the first one
    where several have a name. InputError for a rank that the job does not have.
    """
    words = rank_command(program, arguments)
    ranks = place(lab, each(hosts, ranks_per_host), data)
    own = of_ranks or {}
    if unknown := [number for number in own if not 0 <= number < len(ranks)]:
        raise InputError(f"the job has no rank {unknown[0]}", hint=f"It has ranks 0 to {len(ranks) - 1}.")
    ends = management(launcher, [rank.host for rank in ranks], management_interface)
    network = ends[0].address().network
    build_shim()
    job = Job(lab, name, ranks, blame)
    for rank, end in zip(ranks, ends[1:], strict=True):
        write_settings(job, rank, end, own.get(rank.number, {}))
    agent = job.directory / "agent"
    mounts = "; ".join(
        (
            *(f"mount --bind $devices/{name} {where}" for name, where in own_devices.SHOWN.items()),
            *("mkdir -p $devices/run/testbed", "mount --rbind /run/testbed $devices/run/testbed"),
            "mount --rbind $devices/run /run",
        )
    )
    agent.write_text(AGENT.format(directory=shlex.quote(str(job.directory)), namespaces=netns.RUN, mounts=mounts))
    agent.chmod(0o755)
    places = job.directory / "ranks.hosts"
    places.write_text("".join(f"{rank.host}\n" for rank in ranks))
    local = SHARED_MEMORY if len({rank.host for rank in ranks}) < len(ranks) else {}
    queues = SMALL_QUEUES if len(ranks) > MANY else {}
    settings = {**UCX, **local, **queues, "TESTBED_RANKS": str(job.directory), **(environment or {})}
    parameters = {"pml": "ucx", "osc": "ucx", "mpi_yield_when_idle": "1", **(mca or {})}
    again = [] if restart_s is None else ["sh", "-c", CONTROLLER.format(seconds=restart_s), "controller"]
    command = [
        *(f"TMPDIR={job.scratch}", *ROOT, *(f"{key}={value}" for key, value in settings.items())),
        *again,
        # With the first process of a PID namespace all end; a daemon that lost mpirun would stay.
        *("unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "mpirun"),
        *("--prtemca", "plm_ssh_agent", str(agent)),
        *("--prtemca", "prte_if_include", str(network), "--pmixmca", "ptl_tcp_if_include", str(network)),
        *("--hostfile", str(places), "--map-by", "seq", "-np", str(len(ranks)), "--bind-to", "none"),
        *(word for key, value in parameters.items() for word in ("--mca", key, value)),
        *(word for key in settings for word in ("-x", key)),
        *words,
    ]
    for directory in [beside] if isinstance(beside, Path) else beside:
        job.bring(directory)
    job.launch(launcher, command, own_run=False)  # the agent reaches the hosts by their namespaces
    return job


def rank_command(program: str | Path, arguments: Sequence[str]) -> list[str]:
    """Return the command that mpirun starts as a rank. InputError if the program cannot be started."""
    file = os.path.abspath(program)
    if str(program).endswith(".py") and os.path.isfile(file):
        if torch_waits():
            return ["sh", "-c", FORKED, "rank", *forked(file), *arguments]
        return ["sh", "-c", NATIVE, "rank", "python3", "-m", "mpi4py", file, *arguments]
    found = shutil.which(program)
    if found is None:
        hint = "It has no execute bit: chmod +x." if os.path.isfile(file) else ""
        raise InputError("this program of the ranks does not exist", where=str(program), hint=hint)
    return ["sh", "-c", NATIVE, "rank", os.path.abspath(found), *arguments]


def blame(job: Job) -> tuple[Rank, str] | None:
    """Return the rank that mpirun names as the first that ended the job, and its end."""
    if fatal := FATAL.search(job.launcher_output()):
        return job.ranks[int(fatal["rank"])], fatal["error"]
    output = job.launcher_output()
    found = [(match.start(), end, match) for end, words in ENDED.items() if (match := re.search(words, output))]
    if not found and (lost := LOST.search(output)):
        ended = (rank for rank in job.ranks if rank.host.name == lost["host"])
        return next(((rank, "mpirun lost contact with it") for rank in ended), None)
    if not found:
        return None
    _, end, match = min(found)
    return job.ranks[int(match["rank"])], end.format_map(match.groupdict())


def write_settings(job: Job, rank: Rank, end: HostInterface, own: Mapping[str, str]) -> None:
    """Write files for the agent and for the start of a rank: values that differ between hosts and between ranks."""
    devices = str(own_devices.directory(rank.host.namespace))
    of_host = {"namespace": rank.host.namespace, "devices": devices, "management": end.name}
    if pid_namespaces.exists(rank.host.namespace):
        of_host[PID_NAMESPACE] = str(pid_namespaces.path(rank.host.namespace))
    lines = [f"export {key}={shlex.quote(value)}\n" for key, value in of_host.items()]
    (job.directory / f"{rank.host}.env").write_text("".join(lines))
    beside = [other.number for other in job.ranks if other.host == rank.host]
    of_rank = {
        "UCX_NET_DEVICES": f"{rank.device}:1",
        "UCX_IB_GID_INDEX": rank.gid,
        # As torchrun sets them: scripts read these.
        "RANK": rank.number,
        "WORLD_SIZE": len(job.ranks),
        "LOCAL_RANK": beside.index(rank.number),
        "LOCAL_WORLD_SIZE": len(beside),
    }
    lines = [f'export {key}="${{{key}:-{value}}}"\n' for key, value in of_rank.items()]  # the caller's own win
    lines += [f"export {key}={shlex.quote(value)}\n" for key, value in own.items()]
    (job.directory / f"rank-{rank.number}.env").write_text("".join(lines))
