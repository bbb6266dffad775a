"""The programs of pods, by the lab's machine, where it does not have their images.

The command of a container runs with the machine's programs, in the pod's namespaces and with its environment. A Python
program is a fork of the process that has torch imported, if the machine has it.
"""

import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from testbed.kernel import ownership
from testbed.lab import Lab, Pod, processes
from testbed.lab.processes import Process
from testbed.protocol import events
from testbed.workload.jobs.fork_server import build_shim
from testbed.workload.jobs.job import STUB, torch_waits
from testbed.workload.jobs.mpi import ROOT, UCX
from testbed.workload.jobs.torchrun import AGENT

MARK = "TESTBED_POD"
NAME = re.compile("[A-Za-z_][A-Za-z0-9_]*")
"""A variable's name in a shell. Other programs take more."""
KUBECTL = "/opt/kube"
"""Where the operators' init container puts kubectl."""
PYTHON = """#!/bin/sh
# python, as the image of a pod would have it: a program becomes a fork of the process that has torch imported.
while [ "$1" = -u ] || [ "$1" = -B ]; do shift; done
if [ "$1" = -m ]; then
    case "$2" in torch.distributed.run | torch.distributed.launch) shift 2; exec {bin}/torchrun "$@" ;; esac
fi
case "$1" in *.py) exec {python} "$@" ;; esac
exec /usr/bin/python3 "$@"
"""
TORCHRUN = """#!/bin/sh
# torchrun: its agent is a fork, and its ranks are.
unset RANK WORLD_SIZE
export PYTHON_EXEC={bin}/python
exec {python} {agent} "$@"
"""
EXEC = """#!/bin/sh
# kubectl, of which mpirun uses: exec POD [--container NAME] -- COMMAND…
[ "$1" = exec ] || {{ echo "kubectl: only exec is here" >&2; exit 1; }}
pod=$2
while [ $# -gt 0 ] && [ "$1" != -- ]; do shift; done
shift
[ -e {of_pods}/$pod.pid ] || {{ echo "Error from server (NotFound): pods \\"$pod\\" not found" >&2; exit 1; }}
exec nsenter --target "$(cat {of_pods}/$pod.pid)" --net --mount --uts --wd={directory} \\
    sh -c '. "$0"; exec "$@"' "{of_pods}/$pod.env" "$@"
"""
MPI = {
    "OMPI_MCA_pml": "ucx",
    "OMPI_MCA_osc": "ucx",
    "OMPI_MCA_mpi_yield_when_idle": "1",
    "PRTE_MCA_hwloc_default_binding_policy": "none",
}
OPEN_MPI_5: Mapping[str, str] = {
    "OMPI_MCA_plm_rsh_agent": "PRTE_MCA_plm_ssh_agent",
    "OMPI_MCA_plm_rsh_args": "PRTE_MCA_plm_ssh_args",
    "OMPI_MCA_orte_default_hostfile": "PRTE_MCA_prte_default_hostfile",
    "OMPI_MCA_orte_keep_fqdn_hostnames": "PRTE_MCA_prte_keep_fqdn_hostnames",
}
"""Parameters as the operators write them, for Open MPI 4, and their names in the machine's Open MPI 5."""


class PodPrograms:
    """Starts the programs of pods: give its `start` to `Pods.apply` as `program`."""

    def __init__(self, lab: Lab, name: str = "programs", files: Mapping[str, Path] | None = None) -> None:
        """`name` is the directory of the run with what the programs write. `files` are files that stand in for those of
        the image, by their paths there."""
        self.lab = lab
        self.directory = lab.file(name)
        self.directory.mkdir(exist_ok=True)
        self.pods: dict[str, Pod] = {}
        """The pods whose programs it has started at last, by name."""
        self._marks: dict[str, str] = {}
        """A variable of all processes of a pod, which end with it, by the names of pods."""
        self.processes: list[Process] = []
        """All programs, in the order of their starts."""
        self._files = {place: file.absolute() for place, file in (files or {}).items()}
        self._scratch = Path(tempfile.mkdtemp(prefix="pods-"))
        """What is not in the run: variables may be of users' Secrets."""
        ownership.claim_file(self._scratch)
        lab.defer(partial(shutil.rmtree, self._scratch, ignore_errors=True))
        self._bin = self._scratch / "bin"
        self._bin.mkdir()
        stub = f"/usr/bin/python3 -I -S {shlex.quote(str(STUB))}" if torch_waits() else "/usr/bin/python3"
        given = {
            "bin": self._bin,
            "python": stub,
            "agent": AGENT,
            "directory": self.directory,
            "of_pods": self._scratch,
        }
        for words, text in {"python python3": PYTHON, "torchrun": TORCHRUN, "kubectl": EXEC}.items():
            for one in words.split():
                file = self._bin / one
                file.write_text(text.format(**given))
                file.chmod(0o755)
        build_shim()

    def start(self, pod: Pod) -> Process | None:
        """Start the program of a pod: see `testbed.lab.pods.Start`."""
        if pod.name in self._marks:
            processes.end_marked(MARK, self._marks[pod.name])  # what an earlier container left
        mark = self._marks[pod.name] = f"{self._scratch.name}/{pod.name}"
        if self.pods.get(pod.name) is not pod:
            pod.defer(partial(processes.end_marked, MARK, mark))
        for place, file in self._files.items():
            pod.bind(file, place)
        given = self._given(pod)
        lines = [f"export {key}={shlex.quote(value)}\n" for key, value in given.items() if NAME.fullmatch(key)]
        self._environment_file(pod).write_text("".join(lines))
        if KUBECTL in pod.binds:
            there = pod.binds[KUBECTL].source / "kubectl"
            there.unlink(missing_ok=True)
            there.symlink_to(self._bin / "kubectl")
        self.pods[pod.name] = pod
        command = self._command(pod)
        if not command:
            text = "has no program: its container has no command, and the lab does not have its image"
            self.lab.emit(events.POD(host=pod.host.name), pod.name, text)
            return None
        directory = pod.directory
        where = directory if directory in pod.binds or os.path.isdir(directory) else str(self.directory)
        pairs = [f"{key}={value}" for key, value in given.items()]
        process = pod.launch("env", "-C", where, *pairs, *command)
        self._pid_file(pod).write_text(f"{process.pid}\n")
        self.processes.append(process)
        return process

    def _command(self, pod: Pod) -> list[str]:
        """Return the command of a pod; of sshd with settings for the machine, whose only user is root."""
        program = pod.command[0] if pod.command else ""
        if program.rpartition("/")[2] != "sshd":
            return list(pod.command)
        key = self._scratch / "host_key"
        if not key.exists():
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
        entered = f'. {shlex.quote(str(self._environment_file(pod)))}; eval "$SSH_ORIGINAL_COMMAND"'
        options = {
            "AuthorizedKeysFile": f"{self._ssh_directory(pod)}/authorized_keys",
            "StrictModes": "no",
            "UsePAM": "no",
            "ForceCommand": entered,
        }
        words = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
        run = 'mkdir -p /run/sshd; exec "$@"'
        return ["sh", "-c", run, "sh", "/usr/sbin/sshd", "-D", "-e", "-f", "/dev/null", "-h", str(key), *words]

    @staticmethod
    def _ssh_directory(pod: Pod) -> str:
        """Return where a pod has keys for ssh, an empty string if nowhere."""
        return next((place for place, bind in pod.binds.items() if (bind.source / "authorized_keys").exists()), "")

    def _ssh_options(self, pod: Pod) -> str:
        """Return the options by which mpirun's ssh takes the pod's key, and the key of any host."""
        key = self._scratch / f"{pod.name}.key"
        key.write_text((pod.binds[self._ssh_directory(pod)].source / "id_rsa").read_text())
        key.chmod(0o600)
        return f"-i {key} -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR"

    def _environment_file(self, pod: Pod) -> Path:
        return self._scratch / f"{pod.name}.env"

    def _pid_file(self, pod: Pod) -> Path:
        return self._scratch / f"{pod.name}.pid"

    def _given(self, pod: Pod) -> dict[str, str]:
        """Return the environment of a pod's programs: its own counts before what the machine needs."""
        machine = {
            **dict(one.partition("=")[::2] for one in ROOT),
            **UCX,
            **MPI,
            "TMPDIR": str(self._scratch),
            "OMP_NUM_THREADS": "1",
            "USE_LIBUV": "0",
        }
        known = {OPEN_MPI_5[name]: value for name, value in pod.env.items() if name in OPEN_MPI_5}
        if self._ssh_directory(pod):
            name = OPEN_MPI_5["OMPI_MCA_plm_rsh_args"]
            known[name] = f"{known.get(name, '')} {self._ssh_options(pod)}".strip()
        ours = {MARK: self._marks[pod.name], "TESTBED_RANKS": str(self.directory), "TESTBED_LAUNCHER": pod.name}
        path = f"{self._bin}:{pod.env.get('PATH') or os.environ['PATH']}"
        return {**machine, **known, **pod.env, **ours, "PATH": path}
