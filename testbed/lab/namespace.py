"""A network namespace with a name: its netlink socket, its sysctls, the programs that run in it."""

from __future__ import annotations

import errno
import functools
import os
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from subprocess import CompletedProcess
from typing import TYPE_CHECKING

from testbed.errors import InputError, TestbedError
from testbed.kernel import netns, own_devices, ownership, pid_namespaces, sealed_root, sysctl
from testbed.kernel.netns import LOOPBACK
from testbed.kernel.own_devices import Bind
from testbed.kernel.rtnetlink import Rtnetlink
from testbed.lab import processes
from testbed.lab.context import Context
from testbed.lab.kernel_view import Seen
from testbed.lab.processes import Process
from testbed.protocol import events
from testbed.protocol.events import Emit
from testbed.topology import AnAddress, address_of

if TYPE_CHECKING:
    from pyroute2 import IPRoute

COMMAND_S = 30.0
NOT_RUN = 127
"""The status of a command that cannot be started, as in a shell."""
MOST_OUTPUT = 500
"""Characters of a failed command's output in its report."""
SYSCTL_REASONS = {
    errno.ENOENT: "a node has no such sysctl",
    errno.EACCES: "it belongs to the machine, not to a node",
    errno.EPERM: "it belongs to the machine, not to a node",
}


class Namespace:
    """A network namespace. `kernel` is the lab's netlink socket in it."""

    def __init__(self, context: Context, name: str, of: Namespace | None = None) -> None:
        """With `of` it is that one's namespace, which outlives this name for it."""
        self.context = context
        self.name = name
        self.namespace: str = of.namespace if of else f"{context.lab}-{name}"
        self.shares = of is not None
        """Whether the namespace is another one's."""
        if of:
            self.kernel: Rtnetlink = of.kernel
        else:
            self._create()
        self.seen: Seen | None = None
        """What the kernel had here when notifications were last read, once the lab follows them."""
        self.gone = False
        """True after its end."""
        self.env: dict[str, str] = {}
        """Environment variables of its programs, beside those of the machine."""
        self.binds: dict[str, Bind] = {}
        """Files and directories that its programs find at other places, by these places: see `bind`."""
        self.boots = 0
        """How often it has been rebooted."""
        self._files = 0
        self._undo = ExitStack()

    def _create(self) -> None:
        netns.create(self.namespace)
        with self.entered():
            try:
                self.kernel = Rtnetlink()
                own_devices.add(self.namespace, self.name)
            except BaseException:
                netns.delete(self.namespace)
                raise
            for scope in "all", "default":
                sysctl.write(f"net/ipv6/conf/{scope}/disable_ipv6", 1)
        self.kernel.set_link(LOOPBACK, up=True)
        if self.context.seal:  # its first process is in no node's network, so that it outlives a reboot
            pid_namespaces.create(self.namespace, self.name)
        self.context.scheduler.namespaces[self.namespace] = None

    def __str__(self) -> str:
        return self.name

    @property
    def host_name(self) -> str:
        """Return the host name of its programs."""
        return self.name

    @functools.cached_property
    def ip(self) -> IPRoute:
        """Return a netlink socket in it for scenarios and tests: pyroute2's IPRoute, opened at the first call."""
        from pyroute2 import IPRoute  # takes a while

        with self.entered():
            return IPRoute()

    def now(self) -> Seen:
        """Return what the kernel has here now; of a namespace that has gone what it had at last."""
        if self.seen is None:
            return Seen(self.kernel)
        self.context.view.drain()
        return self.seen

    def came_up(self, index: int) -> None:
        """Do what belongs to an interface that somebody has set up."""

    def entered(self) -> AbstractContextManager[None]:
        """Enter the namespace: the block's sockets, devices and /proc/sys/net are those of this namespace."""
        return netns.entered(self.namespace)

    def sysctl(self, path: str, value: int | str) -> None:
        """Set `path` below /proc/sys, for example ``net/ipv4/ip_forward``. InputError if the node has no such one, or
        does not accept the value."""
        with self.entered(), self._refusing(f"sysctl {path} cannot be set to {value}"):
            sysctl.write(path, value)

    def read_sysctl(self, path: str) -> str:
        with self.entered(), self._refusing(f"sysctl {path} cannot be read"):
            return sysctl.read(path)

    @contextmanager
    def _refusing(self, what: str) -> Iterator[None]:
        """Turn what the kernel refuses into an InputError."""
        try:
            yield
        except OSError as error:
            raise InputError(f"{self.name}: {what}: {error.strerror}") from None

    def set_sysctls(self, sysctls: Iterable[tuple[str, str]]) -> None:
        """Set paths below /proc/sys. InputError for one that the namespace does not have or accept."""
        for path, value in sysctls:
            try:
                with self.entered():
                    sysctl.write(path, value)
            except OSError as error:
                reason = SYSCTL_REASONS.get(error.errno or 0, error.strerror)
                raise InputError(f"{self.name}: sysctl {path.replace('/', '.')} = {value}: {reason}") from None

    def launcher(self, program: str, *, terminal: bool = False) -> list[str]:
        """Return the words before a command that run its `program` where the node's programs run, if that is not on the
        machine itself."""
        return []

    @contextmanager
    def for_users(self, launcher: Sequence[str] = ()) -> Iterator[Sequence[str]]:
        """Enter it to start a program of a user. Yield the words before the command, and before those of its
        `launcher`: in a sealed lab they take away what looks into the machine."""
        if seal := self.context.seal:
            with sealed_root.entered(self.namespace, seal.shown, self.binds):
                yield sealed_root.RIGHTS
            return
        with own_devices.entered(self.namespace, own_run=not launcher, binds={} if launcher else self.binds):
            yield ()

    def run(
        self, *command: str, within: float = COMMAND_S, text: str = "", check: bool = True
    ) -> CompletedProcess[str]:
        """Run a command to its end `within` seconds, with `text` as its input. With `check` a failure raises."""
        return self._run(command, self.launcher(command[0]), within, text, check=check)

    def use(
        self, *command: str, within: float = COMMAND_S, text: str = "", check: bool = True
    ) -> CompletedProcess[str]:
        """Run a program of the machine, which the node may lack, in the node's network; arguments as for `run`."""
        return self._run(command, (), within, text, check=check)

    def _run(
        self, command: Sequence[str], launcher: Sequence[str], within: float, text: str, *, check: bool
    ) -> CompletedProcess[str]:
        ready = self.context.scheduler.ready
        binds = {} if launcher else self.binds
        return processes.run(
            self.name, self.namespace, command, within, text, ready, self.env, launcher, binds=binds, check=check
        )

    def ping(self, ip: AnAddress, *, within: float) -> bool:
        """Return whether one echo request is answered; `within` in seconds."""
        command = ["ping", "-n", "-c", "1", "-W", f"{within:g}", str(address_of(ip))]
        return self.use(*command, within=within + COMMAND_S, check=False).returncode == 0

    def spawn(self, *command: str, for_users: bool = False) -> Process:
        """Start a program; its output is kept in the run directory. It is stopped with the node at the latest. If it
        ends by itself before, that is an event, and a warning of the run if nobody asks for its state or output.
        `for_users` starts it as one of a user."""
        return self._start(command, self.context.emit, for_users=for_users)

    def launch(self, *command: str, own_run: bool = True) -> Process:
        """Start a program as `spawn` does, for a caller that reports its end itself. Without `own_run` it finds the
        machine's /run, with the names of all nodes' namespaces."""
        return self._start(command, None, own_run=own_run)

    def _start(
        self, command: Sequence[str], emit: Emit | None, *, own_run: bool = True, for_users: bool = False
    ) -> Process:
        self._files += 1
        log = self.context.file(f"{self.name}-{Path(command[0]).name}-{self._files}.log")
        scheduler = self.context.scheduler
        launcher = self.launcher(command[0])
        process = Process(
            self.name,
            self.namespace,
            command,
            log,
            scheduler.ready,
            self.env,
            launcher=launcher,
            own_run=own_run,
            binds={} if launcher else self.binds,
            entered=partial(self.for_users, launcher) if for_users else None,
        )
        scheduler.programs.follow(process, emit)
        self.defer(process.stop)
        return process

    def execute(self, commands: Sequence[Sequence[str]]) -> None:
        """Run the commands of the file. One that fails is reported, as in containerlab, and the lab goes on. Daemons
        that they start end with the lab."""
        if commands:
            self.defer(lambda: processes.end_all(self.namespace))
        for command in commands:
            text, why = shlex.join(command), ""
            try:
                process = self.launch(*command)
                if status := process.wait(COMMAND_S):
                    why = ": ".join(filter(None, (f"status {status}", process.output.strip()[-MOST_OUTPUT:])))
            except TestbedError as error:  # it cannot be started, or goes on
                status, why = NOT_RUN, error.message.removeprefix(f"{self.name}: ")
            event = events.EXEC(command=text, status=status)
            self.context.emit(event, self.name, f"exec {text} failed: {why}" if why else f"ran {text}")
            if why:
                self.context.scheduler.programs.warnings.append(f"{self.name}: exec {text} failed: {why}")

    def bind(self, source: Path, place: str, *, read_only: bool = False) -> None:
        """Let programs that start from now on find a file or a directory at `place`, too. What the machine does not
        have there to mount it on is made, and goes with the node. OSError if it has something else there."""
        path = Path(place)
        if path.exists() and path.is_dir() is not source.is_dir():
            wrong = errno.ENOTDIR if source.is_dir() else errno.EISDIR
            raise OSError(wrong, os.strerror(wrong), place)
        missing = [one for one in (path, *path.parents) if not one.exists()]
        for one in reversed(missing):
            ownership.claim_place(one)
        (path if source.is_dir() else path.parent).mkdir(parents=True, exist_ok=True)
        if not path.exists():
            path.touch()
        for one in reversed(missing):
            self.defer(partial(ownership.leave_place, one))
        self.binds[place] = Bind(source, read_only)

    def defer(self, undo: Callable[[], object]) -> None:
        """Register `undo` to be called when the node is taken down, before its devices go; the last one first."""
        self._undo.callback(undo)

    def end_programs(self) -> None:
        self._undo.close()

    def release(self) -> None:
        self.end_programs()

    def close(self) -> None:
        self.gone = True
        if self.shares:
            return
        self.context.view.forget(self)
        self.context.scheduler.namespaces.pop(self.namespace, None)
        self.kernel.close()
        if "ip" in self.__dict__:
            self.ip.close()
        sealed_root.remove(self.namespace)
        pid_namespaces.delete(self.namespace)
        own_devices.remove(self.namespace)
        netns.delete(self.namespace)
