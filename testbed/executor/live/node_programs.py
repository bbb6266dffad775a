"""Programs of the user's on nodes of a lab that lives: commands, shells, captures; their output and input."""

import base64
import contextlib
import errno
import fcntl
import os
import pty
import re
import shutil
import signal
import struct
import subprocess
import tempfile
import termios
from collections.abc import Callable
from pathlib import Path
from typing import Any

from testbed.errors import InputError
from testbed.executor.live.program_streams import Input, Stream
from testbed.executor.live.server import Call
from testbed.kernel import own_devices
from testbed.kernel.syscalls import explained
from testbed.lab import Lab, processes
from testbed.lab.capture import BUFFER_KIB
from testbed.lab.interface import Interface
from testbed.lab.node import Node
from testbed.lab.nodes.host_node import Host
from testbed.protocol.live import Capture, Exec

SHELL = """
[ -f /etc/bash.bashrc ] && . /etc/bash.bashrc
PS1='\\[\\e[1;32m\\]{node}\\[\\e[0m\\]:\\w# '
alias ip='ip -color=auto' ls='ls --color=auto' grep='grep --color=auto'
HISTFILE=
"""
SHELL_FILE = "shell"
"""The file of a node's /run that its shells read."""
GRACE_S = 2.0
"""Seconds that a program has to end itself."""
ENDED = 128
"""Base of the exit status that a shell has for a program ended by a signal: this plus the signal's number."""


class Program:
    """A command on a node, with pipes or with a terminal of its own."""

    def __init__(self, call: Call, node: Node[Any], request: Exec) -> None:
        self._call = call
        self._terminal = -1
        env = {**os.environ, "HOME": "/root", **node.env}
        with contextlib.ExitStack() as theirs, contextlib.ExitStack() as ours:

            def pipe_to(stack: contextlib.ExitStack, other: contextlib.ExitStack) -> tuple[int, int]:
                ends = os.pipe()
                for end, owner in zip(ends, (stack, other), strict=True):
                    owner.callback(os.close, end)
                return ends

            command = list(request.command) or shell(node)
            launcher = node.launcher(command[0], terminal=request.terminal is not None)
            self._launched = bool(launcher)
            before: list[str] = []
            options: dict[str, Any] = {}
            taken = -1
            if request.terminal:
                self._terminal, there = pty.openpty()
                theirs.callback(os.close, there)
                ours.callback(os.close, self._terminal)
                taken = os.dup(self._terminal)
                ours.callback(os.close, taken)
                self._size(request.terminal["rows"], request.terminal["columns"])
                env["TERM"] = request.terminal["kind"] or "xterm"
                options = dict.fromkeys(("stdin", "stdout", "stderr"), there)
                before = ["setsid", "--ctty", "--"]
                outputs = {"out": self._terminal}
            else:
                out, err = pipe_to(ours, theirs), pipe_to(ours, theirs)
                outputs = {"out": out[0], "err": err[0]}
                stdin = subprocess.DEVNULL
                if request.input or request.given is not None:
                    stdin, taken = pipe_to(theirs, ours)
                options = {"stdin": stdin, "stdout": out[1], "stderr": err[1], "start_new_session": True}
            with explained(f"{node}: {command[0]} cannot be started"), node.for_users(launcher) as rights:
                if not launcher:
                    require(command)
                words = [*rights, *before, *launcher, *command]
                self._popen = subprocess.Popen(words, env=env, cwd="/root", **options)
            ours.pop_all()
        self._streams = {name: Stream(call, handle, name) for name, handle in outputs.items()}
        self._input = Input(call, taken, reported=request.input) if taken >= 0 else None
        if self._input and request.given is not None:
            self._input.write(base64.b64decode(request.given))
            self._input.write(b"")
        self._pidfd = os.pidfd_open(self._popen.pid)
        self._cancel_limit: Callable[[], None] | None = None
        if request.limit_s is not None:
            self._cancel_limit = call.lab.scheduler.after(request.limit_s, self._on_limit)
        call.watch(self._pidfd, self._on_end)
        call.server.ends_with(node)

    @property
    def drives(self) -> bool:
        """Return whether the program needs time: not if it waits for the user's input and has all that was typed."""
        typed = bool(self._input and self._input.waits)
        return typed or not (self._terminal >= 0 and waits_for_input(self._terminal))

    def _size(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def receive(self, message: dict[str, Any]) -> None:
        match message:
            case {"input": str(text)} if self._input:
                data = base64.b64decode(text)
                if data or self._terminal < 0:
                    self._input.write(data)
            case {"size": [int(rows), int(columns)]} if self._terminal >= 0:
                self._size(rows, columns)
            case {"ack": [str(name), int(length)]} if name in self._streams:
                self._streams[name].acknowledge(length)
            case {"stop": True}:
                self._stop()

    def _on_limit(self) -> None:
        self._call.report(late=True)
        self._stop()

    def _stop(self) -> None:
        """End it and what it started, as a terminal that goes away does; kill soon whatever ignores that."""
        for number in (signal.SIGHUP, signal.SIGCONT, signal.SIGTERM):
            self._signal(number)
        self._call.lab.scheduler.after(GRACE_S, lambda: self._signal(signal.SIGKILL))

    def _signal(self, number: int) -> None:
        if self._popen.returncode is None:
            if self._launched and number == signal.SIGKILL:
                processes.kill_children(self._popen.pid)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._popen.pid, number)

    def _on_end(self) -> None:
        """Send the rest of the output, and the status: the program has ended. Children that it left may go on."""
        self._call.unwatch(self._pidfd)
        os.close(self._pidfd)
        if self._cancel_limit:
            self._cancel_limit()
        status = self._popen.wait()
        for stream in self._streams.values():
            stream.finish()
        if self._input:
            self._input.close()
        self._call.status = ENDED - status if status < 0 else status
        self._call.end(self._call.status)


def require(command: list[str]) -> None:
    """Raise FileNotFoundError for a program that does not exist; setsid has an error of its own."""
    if not shutil.which(command[0]):
        raise FileNotFoundError(errno.ENOENT, "there is no such program", command[0])


def shell(node: Node[Any]) -> list[str]:
    if isinstance(node, Host) and node.container:
        return [node.container.shell(), "-i"]
    run = own_devices.directory(node.namespace) / "run"
    (run / SHELL_FILE).write_text(SHELL.format(node=node.name))
    return ["bash", "--rcfile", str(own_devices.RUN / SHELL_FILE), "-i"]


def run(request: Exec, call: Call) -> Program | int:
    node = call.lab[request.node]
    call.node = node.name
    if request.detach:
        node.spawn(*request.command, for_users=True)
        return 0
    return Program(call, node, request)


# Captures

LOST = re.compile(r"(\d+) packets? dropped by kernel")


TO_FILE = ("-U", "--time-stamp-precision=nano", "-w", "-")
TO_TEXT = ("-e", "-l")


class Recording:
    """A Task that runs tcpdump on an interface, and sends what it writes. No time passes for it."""

    def __init__(self, call: Call, end: Interface, request: Capture) -> None:
        self._call = call
        options = ["-n", "--immediate-mode", "-B", BUFFER_KIB, *(TO_TEXT if request.text else TO_FILE)]
        options += ["-c", str(request.count)] if request.count else []
        command = ["tcpdump", *options, "-i", end.name, "--", *request.filter.split()]
        out, theirs = os.pipe()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (it stays open)
        try:
            with explained(f"{end.node}: tcpdump cannot be started"), end.node.for_users() as rights:
                self._popen = subprocess.Popen(
                    [*rights, *command],
                    stdin=subprocess.DEVNULL,
                    stdout=theirs,
                    stderr=theirs if request.text else self._errors,
                    start_new_session=True,
                )
        finally:
            os.close(theirs)
        self._stream = Stream(call, out, "out")
        self._pidfd = os.pidfd_open(self._popen.pid)
        self._stopped = False
        call.watch(self._pidfd, self._on_end)
        call.server.ends_with(end.node)

    @property
    def drives(self) -> bool:
        """Return whether it begins or ends now."""
        return self._stopped or not self._stream.begun

    def receive(self, message: dict[str, Any]) -> None:
        match message:
            case {"ack": ["out", int(length)]}:
                self._stream.acknowledge(length)
            case {"stop": True}:
                self._stopped = True
                self._popen.send_signal(signal.SIGINT)

    def _on_end(self) -> None:
        self._call.unwatch(self._pidfd)
        os.close(self._pidfd)
        status = self._popen.wait()
        self._stream.finish()
        self._errors.seek(0)
        wrote = self._errors.read().decode(errors="replace")
        self._errors.close()
        if lost := LOST.search(wrote):
            self._call.end(int(lost[1]))
        elif self._stopped or not status:
            self._call.end(0)
        elif not wrote:
            self._call.fail(InputError(f"tcpdump has ended with status {status}"))
        else:
            self._call.fail(InputError(f"tcpdump: {wrote.strip().removeprefix('tcpdump: ')}"))


def capture(request: Capture, call: Call) -> Recording:
    return Recording(call, interface_of(call.lab, request.end), request)


def interface_of(lab: Lab, end: str) -> Any:
    """Return an interface by its name on the command line, ``host:eth1``: pods have some that are no ends of links."""
    node, colon, name = end.partition(":")
    if not colon:
        hint = f"Its interfaces: {', '.join(map(str, lab[node].interfaces.values()))}."
        raise InputError(f"{end!r} is a node, not an interface", hint=hint)
    found = lab[node][name]
    if found.gone:
        raise InputError(f"{end} is gone: a command has deleted it, or moved it to another namespace")
    return found


READ, WRITE, SELECT, POLL, EPOLL_WAIT, PSELECT6, PPOLL, EPOLL_PWAIT = 0, 1, 23, 7, 232, 270, 271, 281
LIMITS = {SELECT: 5, PSELECT6: 5, POLL: 3, PPOLL: 3, EPOLL_WAIT: 4, EPOLL_PWAIT: 4}
"""System calls that wait for several files, and which of their arguments is the longest time."""
FOR_OTHERS = (61, 247, 130, 34)
"""wait4, waitid, rt_sigsuspend, pause: another process is what counts."""
SHORT_MS = 1000
TERMINALS = "/dev/pts/", "/dev/tty"
FOR_EVER = dict.fromkeys((POLL, EPOLL_WAIT, EPOLL_PWAIT), (0xFFFFFFFF, (1 << 64) - 1))
"""The timeouts that mean no limit, where that is no null pointer: -1."""


def waits_for_input(terminal: int) -> bool:
    """Return whether all programs in the foreground of a terminal sleep, and one of them until something is typed."""
    with contextlib.suppress(OSError):
        group = os.tcgetpgrp(terminal)
        waits = [how for entry in os.listdir("/proc") if entry.isdigit() and (how := waiting(entry, group)) is not None]
        return bool(waits) and all(waits) and "input" in waits
    return False


def waiting(process: str, group: int) -> str | None:
    """Return the reason why a process of a group waits: ``input``, ``others``, or an empty text while it works. None
    for one of another group, or one that has ended."""
    try:
        stat = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        if int(stat[2]) != group or stat[0] == "Z":
            return None
        called = Path(f"/proc/{process}/syscall").read_text().split()
        return "" if called[0] == "running" else waits_in(process, *(int(word, 0) for word in called))
    except (OSError, ValueError, IndexError):
        return None


def waits_in(process: str, number: int, *arguments: int) -> str:
    """Return the reason why a process waits, as `waiting` does, from the system call that it is in."""
    if number in LIMITS:
        for_ever = arguments[LIMITS[number] - 1] in FOR_EVER.get(number, (0,))
        return "input" if for_ever or (number == POLL and asks_terminal(process, *arguments[:3])) else ""
    if number in (READ, WRITE):
        file = os.readlink(f"/proc/{process}/fd/{arguments[0]}")
        if file.startswith("pipe:"):
            return "others"
        return "input" if number == READ and file.startswith(TERMINALS) else ""
    return "others" if number in FOR_OTHERS else ""


def asks_terminal(process: str, files: int, count: int, timeout_ms: int) -> bool:
    """Return whether poll(2) is about a terminal alone, with a timeout so short that it is repeated, as in Python's
    prompt."""
    if count != 1 or timeout_ms > SHORT_MS:
        return False
    with open(f"/proc/{process}/mem", "rb", buffering=0) as memory:
        memory.seek(files)
        (file,) = struct.unpack("i", memory.read(4))
    return os.readlink(f"/proc/{process}/fd/{file}").startswith(TERMINALS)
