"""A job whose ranks are the programs of pods: a manifest with a training job, or with pods that are ranks."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from testbed.errors import InputError, TestbedError
from testbed.lab import Lab, Pod
from testbed.lab.pods import Caller, Network, Rollout
from testbed.lab.processes import Process
from testbed.workload.jobs.job import Failure, Job, exception_in
from testbed.workload.jobs.placement import Rank
from testbed.workload.jobs.pod_programs import OPEN_MPI_5, PodPrograms

KINDS = ("PyTorchJob", "TFJob", "MPIJob", "Job", "Pod")
"""The kinds that end."""
NPROC = re.compile(r"--nproc[-_]per[-_]node[= ](\d+)")
ENDED = ("Succeeded", "Complete", "Failed")
GONE = "gone"
"""What is said of an object that is gone before anybody saw its end."""


def pod_job(
    lab: Lab,
    manifest: str | Path | Mapping[str, Any],
    *,
    name: str = "job",
    networks: Sequence[Network] = (),
    caller: Caller | None = None,
    files: Mapping[str, Path] | None = None,
    beside: Path | None = None,
) -> PodJob:
    """Apply a manifest with a PyTorchJob, TFJob or MPIJob, or with other pods that are the ranks of a job, and run the
    commands of their containers with the programs of the lab's machine, where the lab does not have their images.

    `networks` and `caller` are as for `Pods.apply`. `files` are files that stand in for those of the image, by their
    paths there. The files of the directory `beside`, by default that of the manifest, are in the working directory of
    the programs. InputError as of `Pods.apply`."""
    job = PodJob(lab, name, files or {})
    given = beside or (None if isinstance(manifest, Mapping) else (lab.context.files / manifest).parent)
    if given:
        job.bring(given)
    job.take(lab.pods.apply(manifest, networks, caller, job.start))
    return job


class PodJob(Job):
    """A job of pods. Its end is that of its object, or of its pods."""

    def __init__(self, lab: Lab, name: str, files: Mapping[str, Path]) -> None:
        super().__init__(lab, name, [], lambda _: self._first_failed())
        self._objects: list[tuple[str, str, str]] = []
        self._seen: dict[tuple[str, str, str], str] = {}
        """How objects ended, which may be gone since."""
        self._programs = PodPrograms(lab, name, files)

    def take(self, done: Rollout) -> None:
        """Take the pods that a manifest has made as the ranks."""
        parts = [one.split("/") for one in done.objects]
        self._objects = [(kind, name, within) for kind, within, name in (one for one in parts if one[0] in KINDS)]
        if not self._objects:
            known = ", ".join(KINDS)
            raise InputError("this manifest has no job", hint=f"It needs one of: {known}.")
        self._begin(self._ranks())

    def _ranks(self) -> list[Rank]:
        """Return the ranks: of mpirun by the host file of its launcher, else those that the operators number, else the
        pods in their order; several of a pod whose torchrun starts several."""
        mine = list(self._programs.pods.values())
        launchers = [pod for pod in mine if any(name in pod.env for name in OPEN_MPI_5)]
        if launchers:
            found = self._hosts_of(launchers[-1], mine)
            return [Rank(number, pod, _device(pod)) for number, pod in enumerate(found)] or self.ranks
        if all(pod.env.get("RANK", "").isdigit() for pod in mine):
            mine.sort(key=lambda pod: int(pod.env["RANK"]))
        each = [pod for pod in mine for _ in range(_ranks_of(pod))]
        return [Rank(number, pod) for number, pod in enumerate(each)]

    @staticmethod
    def _hosts_of(launcher: Pod, pods: Sequence[Pod]) -> list[Pod]:
        """Return the pods of mpirun's host file, each as often as it has slots."""
        there, found = {pod.name: pod for pod in pods}, []
        bind = launcher.binds.get("/etc/mpi")
        for line in (bind.source / "hostfile").read_text().splitlines() if bind else ():
            host, _, slots = line.partition(" slots=")
            pod = there.get(host.partition(".")[0])
            found += [pod] * int(slots or 1) if pod else []
        return found

    def output(self, rank: int) -> str:
        """Return the output of a rank so far; of one that has no number of its own that of its pod."""
        return super().output(rank) or self.log(str(self.ranks[rank].host))

    def start(self, pod: Pod) -> Process | None:
        """Start the program of a pod."""
        process = self._programs.start(pod)
        self._processes = self._programs.processes
        if self.ranks:
            self.ranks = self._ranks()
        return process

    # The end

    @property
    def running(self) -> bool:
        return not all(self._endings())

    def _endings(self) -> list[str]:
        """Return how the objects have ended: an empty string for one that has not."""
        found = []
        for kind, name, namespace in self._objects:
            try:
                status = self.lab.objects.get(kind, name, namespace).get("status") or {}
            except InputError:
                found.append(self._seen.get((kind, name, namespace), GONE))
                continue
            holding = [one["type"] for one in status.get("conditions") or () if one["status"] == "True"]
            ended = [one for one in holding if one in ENDED]
            how = ended[0] if ended else str(status.get("phase", "")) if kind == "Pod" else ""
            found.append(how if how in ENDED else "")
            if found[-1]:
                self._seen[kind, name, namespace] = how
        return found

    def _failed(self) -> bool:
        return "Failed" in self._endings()

    def _failure(self) -> Failure | None:
        if GONE in self._endings():
            raise TestbedError(f"job {self.name}: its object is gone, and how it ended is unknown")
        if self._failed() and not self.ranks:
            raise TestbedError(f"job {self.name} has failed, and none of its pods has started")
        return super()._failure()

    def _first_failed(self) -> tuple[Rank, str] | None:
        """Return the first rank whose pod's program failed, and what it said."""
        for rank in self.ranks:
            if isinstance(rank.host, Pod) and (status := rank.host.last_status):
                said = exception_in(self.log(rank.host.name)) or f"ended with status {status}"
                return rank, said
        return None

    def _alive(self) -> set[int]:
        return {rank.number for rank in self.ranks if isinstance(rank.host, Pod) and rank.host.exit_status() is None}

    def close(self) -> None:
        """Stop following the job. Its pods stay, as their job's policy says."""
        self._watch.stop()
        self._clear()


def _device(pod: Pod) -> str:
    """Return the first RDMA device of a pod, or an empty string."""
    ends = (pod.host if pod.shares else pod).interfaces.values()
    return next((end.rdma for end in ends if end.rdma), "")


def _ranks_of(pod: Pod) -> int:
    """Return how many ranks a pod's torchrun starts."""
    words = " ".join(pod.command)
    if "torchrun" not in words and "torch.distributed" not in words:
        return 1
    said = NPROC.search(words)
    number = said[1] if said else pod.env.get("PET_NPROC_PER_NODE", "")
    return int(number) if number.isdigit() else 1
