"""Programs of the user's on nodes of a lab that lives: commands, shells, captures; what they write and read."""

from __future__ import annotations

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
from pathlib import Path
from typing import Any

from testbed.errors import InputError
from testbed.executor.live.server import Call
from testbed.kernel import own_devices
from testbed.kernel.readiness import readable
from testbed.kernel.syscalls import explained
from testbed.lab import Lab
from testbed.lab.capture import BUFFER_KIB
from testbed.lab.interface import Interface
from testbed.lab.node import Node
from testbed.protocol.live import WINDOW, Capture, Exec

PIECE = 64 << 10
"""Bytes that are read at once."""
SHELL = """
[ -f /etc/bash.bashrc ] && . /etc/bash.bashrc
PS1='\\[\\e[1;32m\\]{node}\\[\\e[0m\\]:\\w# '
alias ip='ip -color=auto' ls='ls --color=auto' grep='grep --color=auto'
HISTFILE=
"""
SHELL_FILE = "/run/testbed/shell-{node}"
ENDED = 128
"""And a signal's number: the status that a shell has for a program ended by a signal."""


def read_now(handle: int, size: int) -> bytes | None:
    """What a file that does not block has; nothing at its end, None when there is nothing now."""
    try:
        return os.read(handle, size)
    except BlockingIOError:
        return None
    except OSError:  # a terminal whose programs have ended
        return b""


class Stream:
    """What a program writes to one of its files, sent to the outside; on the real clock at most WINDOW bytes ahead of
    it. On the virtual clock the machine pauses instead, when the wire is full."""

    def __init__(self, call: Call, handle: int, name: str) -> None:
        os.set_blocking(handle, False)
        self._call, self._handle, self._name = call, handle, name
        self._ahead = 0
        self.open = True
        call.watch(handle, self.take)

    def take(self) -> None:
        data = read_now(self._handle, PIECE)
        if data is None:
            return
        if not data:
            self.close()
            return
        self._call.report(**{self._name: base64.b64encode(data).decode()})
        self._ahead += len(data)
        if self._ahead >= WINDOW and not self._call.server.wire.virtual:
            self._call.unwatch(self._handle)

    def taken(self, length: int) -> None:
        """The outside has taken so many bytes."""
        held, self._ahead = self._ahead >= WINDOW, self._ahead - length
        if self.open and held and self._ahead < WINDOW and not self._call.server.wire.virtual:
            self._call.watch(self._handle, self.take)

    def finish(self) -> None:
        """Sends what is there still, and ends it."""
        while self.open and readable([self._handle], 0):
            self.take()
        self.close()

    def close(self) -> None:
        if self.open:
            self.open = False
            self._call.unwatch(self._handle)
            os.close(self._handle)


class Program:
    """A command on a node, with pipes or with a terminal of its own."""

    def __init__(self, call: Call, node: Node[Any], request: Exec) -> None:
        self._call = call
        self._terminal = self._input = -1
        env = {**os.environ, "HOME": "/root", **node.env}
        with contextlib.ExitStack() as theirs, contextlib.ExitStack() as ours:

            def pipe_to(stack: contextlib.ExitStack, other: contextlib.ExitStack) -> tuple[int, int]:
                ends = os.pipe()
                for end, owner in zip(ends, (stack, other), strict=True):
                    owner.callback(os.close, end)
                return ends

            command = list(request.command)
            options: dict[str, Any] = {}
            if request.terminal:
                self._terminal, there = pty.openpty()
                theirs.callback(os.close, there)
                ours.callback(os.close, self._terminal)
                self._input = self._terminal
                self._size(request.terminal["rows"], request.terminal["columns"])
                env["TERM"] = request.terminal["kind"] or "xterm"
                options = dict.fromkeys(("stdin", "stdout", "stderr"), there)
                command = ["setsid", "--ctty", "--", *(command or shell(node))]
                outputs = {"out": self._terminal}
            else:
                out, err = pipe_to(ours, theirs), pipe_to(ours, theirs)
                outputs = {"out": out[0], "err": err[0]}
                stdin = subprocess.DEVNULL
                if request.input:
                    stdin, self._input = pipe_to(theirs, ours)
                options = {"stdin": stdin, "stdout": out[1], "stderr": err[1], "start_new_session": True}
            with explained(f"{node}: {request.command[0] if request.command else command[3]} cannot be started"):
                require(command if not request.terminal else command[3:])
                with own_devices.entered(node.namespace):
                    self._popen = subprocess.Popen(command, env=env, cwd="/root", **options)
            ours.pop_all()
        if self._input >= 0:
            os.set_blocking(self._input, False)
        self._streams = {name: Stream(call, handle, name) for name, handle in outputs.items()}
        self._pidfd = os.pidfd_open(self._popen.pid)
        call.watch(self._pidfd, self._over)
        call.server.ends_with(node)

    @property
    def drives(self) -> bool:
        """A program that waits for the user's input needs no time."""
        return not (self._terminal >= 0 and waits_for_input(self._terminal))

    def _size(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def hear(self, message: dict[str, Any]) -> None:
        match message:
            case {"input": str(text)}:
                self._write(base64.b64decode(text))
            case {"size": [int(rows), int(columns)]} if self._terminal >= 0:
                self._size(rows, columns)
            case {"ack": [str(name), int(length)]} if name in self._streams:
                self._streams[name].taken(length)
            case {"stop": True}:
                self._stop()

    def _write(self, data: bytes) -> None:
        """Input for the program; none is its end."""
        if self._input < 0:
            return
        if not data and self._input != self._terminal:
            os.close(self._input)
            self._input = -1
            return
        with contextlib.suppress(OSError):  # nobody reads it any more
            while data:
                data = data[os.write(self._input, data) :]

    def _stop(self) -> None:
        """Ends it and what it started, as a terminal that goes away does."""
        for number in (signal.SIGHUP, signal.SIGCONT, signal.SIGTERM):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._popen.pid, number)

    def _over(self) -> None:
        """The program has ended: what it wrote is sent, and its status. Children that it left may go on."""
        self._call.unwatch(self._pidfd)
        os.close(self._pidfd)
        status = self._popen.wait()
        for stream in self._streams.values():
            stream.finish()
        if self._input not in (-1, self._terminal):
            os.close(self._input)
        self._call.end(ENDED - status if status < 0 else status)


def require(command: list[str]) -> None:
    """FileNotFoundError for a program that is not there; setsid would say it in words of its own."""
    if not shutil.which(command[0]):
        raise FileNotFoundError(errno.ENOENT, "there is no such program", command[0])


def shell(node: Node[Any]) -> list[str]:
    path = SHELL_FILE.format(node=node.name)
    Path(path).write_text(SHELL.format(node=node.name))
    return ["bash", "--rcfile", path, "-i"]


def run(request: Exec, call: Call) -> Program | int:
    node = call.lab[request.node]
    if request.detach:
        node.spawn(*request.command)
        return 0
    return Program(call, node, request)


# Whether a terminal's programs wait for the user

READ, SELECT, POLL, EPOLL_WAIT, PSELECT6, PPOLL, EPOLL_PWAIT = 0, 23, 7, 232, 270, 271, 281
LIMITS = {SELECT: 5, PSELECT6: 5, POLL: 3, PPOLL: 3, EPOLL_WAIT: 4, EPOLL_PWAIT: 4}
"""System calls that wait for several files, and which of their arguments is the longest time."""
FOR_OTHERS = (61, 247, 130, 34)
"""wait4, waitid, rt_sigsuspend, pause: another process is what counts."""
FOR_EVER = {POLL: (0xFFFFFFFF, (1 << 64) - 1), EPOLL_WAIT: (0xFFFFFFFF, (1 << 64) - 1)}


def waits_for_input(terminal: int) -> bool:
    """Whether all programs in the foreground of a terminal sleep, and one of them until something is typed."""
    with contextlib.suppress(OSError):
        group = os.tcgetpgrp(terminal)
        waits = [how for entry in os.listdir("/proc") if entry.isdigit() and (how := waiting(entry, group)) is not None]
        return bool(waits) and all(waits) and "input" in waits
    return False


def waiting(process: str, group: int) -> str | None:
    """What a process of a group waits for: ``input``, ``others``, or nothing as it is at work. None for one of another
    group, or that has ended."""
    try:
        stat = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        if int(stat[2]) != group or stat[0] == "Z":
            return None
        called = Path(f"/proc/{process}/syscall").read_text().split()
        if called[0] == "running":
            return ""
        number, *arguments = (int(word, 0) for word in called)
        if number == READ:
            return "input" if os.readlink(f"/proc/{process}/fd/{arguments[0]}").startswith("/dev/pts/") else ""
        if number in LIMITS:
            return "input" if arguments[LIMITS[number] - 1] in FOR_EVER.get(number, (0,)) else ""
    except (OSError, ValueError, IndexError):
        return None
    return "others" if number in FOR_OTHERS else ""


# Captures

LOST = re.compile(r"(\d+) packets? dropped by kernel")


class Recording:
    """tcpdump on an interface, whose pcap goes to the outside as it comes."""

    drives = False

    def __init__(self, call: Call, end: Interface, filter_: str, count: int | None) -> None:
        self._call = call
        options = ["-n", "-U", "--immediate-mode", "-B", BUFFER_KIB, "--time-stamp-precision=nano"]
        options += ["-c", str(count)] if count else []
        command = ["tcpdump", *options, "-i", end.name, "-w", "-", *filter_.split()]
        out, theirs = os.pipe()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (it stays open)
        try:
            with explained(f"{end.node}: tcpdump cannot be started"), own_devices.entered(end.node.namespace):
                self._popen = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=theirs, stderr=self._errors, start_new_session=True
                )
        finally:
            os.close(theirs)
        self._stream = Stream(call, out, "out")
        self._pidfd = os.pidfd_open(self._popen.pid)
        call.watch(self._pidfd, self._over)
        call.server.ends_with(end.node)

    def hear(self, message: dict[str, Any]) -> None:
        match message:
            case {"ack": ["out", int(length)]}:
                self._stream.taken(length)
            case {"stop": True}:
                with contextlib.suppress(ProcessLookupError):
                    self._popen.send_signal(signal.SIGINT)

    def _over(self) -> None:
        self._call.unwatch(self._pidfd)
        os.close(self._pidfd)
        self._popen.wait()
        self._stream.finish()
        self._errors.seek(0)
        wrote = self._errors.read().decode(errors="replace")
        self._errors.close()
        if lost := LOST.search(wrote):
            self._call.end(int(lost[1]))
        else:
            self._call.fail(InputError(f"tcpdump: {wrote.strip().removeprefix('tcpdump: ')}"))


def capture(request: Capture, call: Call) -> Recording:
    return Recording(call, interface_of(call.lab, request.end), request.filter, request.count)


def interface_of(lab: Lab, end: str) -> Any:
    """An interface by its name on the command line, ``host:eth1``: pods have some that are no ends of links."""
    node, colon, name = end.partition(":")
    if not colon:
        hint = f"Its interfaces: {', '.join(map(str, lab[node].interfaces.values()))}."
        raise InputError(f"{end!r} is a node, not an interface", hint=hint)
    return lab[node][name]
