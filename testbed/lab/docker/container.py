"""The container of a host or a pod, which joins its network namespace.

The namespace, its links, addresses and RDMA devices are those of any host, and exist before the container starts.
Docker gets no network; its runtime (runtime.sh) puts the container into the namespace.
"""

from pathlib import Path
from typing import Any

from testbed.errors import InputError, TestbedError
from testbed.kernel import netns, own_devices
from testbed.kernel.rdma import Rdma
from testbed.lab.docker import client as docker
from testbed.lab.namespace import Namespace
from testbed.protocol import events
from testbed.topology import Container as ContainerPlan

SHELLS = "bash", "sh", "ash"
CAPABILITIES = "NET_ADMIN", "NET_RAW", "SYS_ADMIN", "IPC_LOCK", "SYS_PTRACE"
"""Capabilities beside Docker's own. containerlab gives all; a container here does not have its machine's devices."""
OUTPUT_AS_3_AND_4 = ("sh", "-c", 'exec "$0" "$@" 3>&1 4>&2')
OUTPUT_TO_3_AND_4 = ("sh", "-c", 'exec "$0" "$@" >&3 2>&4 3>&- 4>&-')
"""The words around runc by which a program gets its starter's files for output. runc gives it pipes, and waits for the
end of what goes through them, which daemons that the program leaves hold open: FRR's start script never ended."""
NO_PROGRAM = "executable file not found", "no such file or directory", "permission denied"
"""Docker's words for a command that is not in the image, or no program."""
START_ERROR = 128
"""The status that containerd gives a container whose command cannot be started (StartError)."""
END_S = 10
"""Seconds in which Docker reports the status of a container whose process has ended."""
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class DockerContainer:
    """The container that `plan` describes; it exists once it was started."""

    def __init__(self, node: Namespace, plan: ContainerPlan) -> None:
        self._node = node
        self.plan = plan
        self.namespace = f"{node.context.lab}-{plan.network}" if plan.network else node.namespace
        """The network namespace that it is in, which may be another node's."""
        self._id = ""
        self.pid = 0
        """Its first process, as the machine numbers it."""
        self._refused = False
        """True if its command could not be started at last."""
        self._root = Path()
        self._path = DEFAULT_PATH

    def start(self) -> None:
        """Create and start it. It ends with the programs of its node."""
        api = docker.client()
        what = f"{self._node.name}: the container of {self.plan.image} cannot be started"
        with docker.explained(what):
            made = api.create_container(
                self.plan.image,
                list(self.plan.cmd) or None,
                hostname=self._node.host_name,
                name=f"{self._node.context.lab}-{self._node.name}",
                entrypoint=list(self.plan.entrypoint) or None,
                environment=self._node.env,
                working_dir=self.plan.directory or None,
                tty=True,
                stdin_open=True,
                host_config=self._host_config(),
            )
            self._id = made["Id"]
            self._node.defer(self._remove)
            self._run(api)
            state = api.inspect_container(self._id)
        if self._refused:
            return
        self.pid = int(state["State"]["Pid"])
        self._root = Path(f"/proc/{self.pid}/root")
        variables = dict(variable.partition("=")[::2] for variable in state["Config"]["Env"] or ())
        self._path = variables.get("PATH", DEFAULT_PATH)
        command = [state["Path"], *state["Args"]]
        self._node.context.emit(
            events.CONTAINER(image=self.plan.image, digest=state["Image"], command=command),
            self._node.name,
            f"{self.plan.image} runs {' '.join(command)}",
        )
        if not self.plan.ends:
            self._require_running()

    def _run(self, api: Any) -> None:
        """Run it. The command of one that may end can be wrong: then it has ended, as if the command had."""
        import docker.errors

        self._refused = False
        try:
            api.start(self._id)
        except docker.errors.APIError as error:
            why = str(error.explanation)
            self._refused = self.plan.ends and any(words in why for words in NO_PROGRAM)
            if not self._refused:
                raise
            self._node.context.emit(events.OBJECT(), self._node.name, f"its container cannot be started: {why}")

    def _host_config(self) -> dict[str, Any]:
        devices = own_devices.directory(self.namespace)
        files = sorted((devices / "dev").iterdir())
        config: dict[str, Any] = docker.client().create_host_config(
            network_mode="none",
            cap_add=list(CAPABILITIES),
            security_opt=["seccomp=unconfined"],
            devices=[f"{file}:{own_devices.SHOWN['dev'] / file.name}:rwm" for file in files],
            binds=[*self._binds(), *self._sysfs(devices)],
            ulimits=[{"Name": "memlock", "Soft": -1, "Hard": -1}],
        )
        # The SDK has no arguments for these. A node sets sysctls of its network namespace, so /proc/sys is writable.
        return config | {"Annotations": {"testbed.namespace": str(netns.path(self.namespace))}, "ReadonlyPaths": []}

    def _sysfs(self, devices: Path) -> list[str]:
        """Return mounts of sysfs. The kernel shows all devices in every sysfs in shared mode, else the namespace's."""
        with netns.entered(self.namespace), Rdma() as here:
            if here.exclusive:
                return []
        return [f"{devices / name}:{where}:ro" for name, where in own_devices.SHOWN.items() if name != "dev"]

    def _binds(self) -> list[str]:
        own = self._node.binds.items()
        binds = [f"{bind.source}:{place}:{'ro' if bind.read_only else 'rw'}" for place, bind in own]
        for bind in self.plan.binds:
            source = self._node.context.files / bind.beside
            if not source.exists():
                missing = f"bind {bind.source}:{bind.target}: the file does not exist"
                hint = "The lab of a scenario has the files beside scenario.py, without hidden ones."
                raise InputError(f"{self._node.name}: {missing}", hint=hint)
            binds.append(f"{source}:{bind.target}:{'ro' if bind.read_only else 'rw'}")
        return binds

    def ended(self) -> bool:
        """Return whether it has ended."""
        return not self._root.exists()

    def exit_status(self) -> int | None:
        """Return the status with which it has ended, None if it runs."""
        if self._refused:
            return START_ERROR
        if not self.ended():
            return None
        with docker.explained(f"{self._node.name}: Docker cannot report the end of its container"):
            return int(docker.client().wait(self._id, timeout=END_S)["StatusCode"])

    def start_again(self) -> None:
        """Start it again after its end, as it was made."""
        with docker.explained(f"{self._node.name}: the container of {self.plan.image} cannot be started again"):
            self._run(docker.client())
            self.pid = int(docker.client().inspect_container(self._id)["State"]["Pid"])
        self._root = Path(f"/proc/{self.pid}/root")

    def healthy(self) -> bool:
        """Run its own test of its health, and return whether it passes."""
        assert self.plan.health
        health = self.plan.health
        try:
            done = self._node.run(*health.test, within=health.timeout_s, check=False)
        except TestbedError:  # its program is not there yet, or the test does not end
            return False
        return done.returncode == 0

    def _require_running(self) -> None:
        """Raise TestbedError with the end of its output when its container has ended."""
        with docker.explained(f"{self._node.name}: Docker cannot report the state of its container"):
            state = docker.client().inspect_container(self._id)["State"]
            if state["Running"]:
                return
            wrote = docker.client().logs(self._id, tail=5).decode(errors="replace").strip()
        text = f"{self._node.name}: its container has ended with status {state['ExitCode']}"
        hint = "A node's programs run in its container: give it a cmd that does not end, such as sleep infinity."
        raise TestbedError(f"{text}:\n{wrote}" if wrote else f"{text} without output", hint=hint)

    def launcher(self, program: str, *, terminal: bool = False) -> list[str]:
        """Return runc's command to start programs like `docker exec` does. runc passes on signals and status."""
        if not self._id:
            return []
        if not self._root.exists():
            self._require_running()
        if not docker.program_in(self._root, program, self._path):
            if program.rpartition("/")[2] in SHELLS:
                raise self._without(f"no shell {program}")
            raise self._without(f"no program {program}")
        runc = ["runc", "--root", docker.RUNTIME_STATE, "exec"]
        if terminal:
            return [*runc, "--tty", self._id]
        if not docker.program_in(self._root, "sh", self._path):
            return [*runc, self._id]
        return [*OUTPUT_AS_3_AND_4, *runc, "--preserve-fds", "2", self._id, *OUTPUT_TO_3_AND_4]

    def _without(self, what: str) -> InputError:
        hint = "Run programs of the image by their names, or use an image with a shell."
        return InputError(f"{self._node.name}: its image {self.plan.image} has {what}", hint=hint)

    def shell(self) -> str:
        """Return the shell of its image. InputError if it has none."""
        for name in SHELLS:
            if docker.program_in(self._root, name, self._path):
                return name
        raise self._without("no shell")

    def keep_output(self) -> None:
        """Write the output of its command into the run directory."""
        with docker.explained(f"{self._node.name}: the output of its container cannot be read"):
            wrote = docker.client().logs(self._id).replace(b"\r\n", b"\n")
        self._node.context.file(f"{self._node.name}-container.log").write_bytes(wrote)

    def _remove(self) -> None:
        try:
            self.keep_output()
        finally:
            with docker.explained(f"{self._node.name}: its container cannot be removed"):
                docker.client().remove_container(self._id, force=True, v=True)
