"""The agent of a node: the process that runs our plugins. The programs in ../bin forward their calls to it.

Its socket is in the abstract namespace, which each network namespace has for itself: a node's plugins reach the agent
of that node, whoever calls them, and nobody else does.
"""

import contextlib
import os
import select
import signal
import socket
import struct
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

from testbed.cni.plugins import bond, contract, coordinator, ifacer, rxe
from testbed.cni.plugins.contract import Plugin
from testbed.cni.plugins.ippool import Ippool
from testbed.kernel import netns, syscalls
from testbed.kernel.syscalls import CLONE_NEWNET
from testbed.lab import leaks

SOCKET = b"\0testbed-cni"
VARIABLES = ("CNI_COMMAND", "CNI_CONTAINERID", "CNI_NETNS", "CNI_ARGS", "CNI_IFNAME", "CNI_PATH")
"""The order in which `call.pl` sends them."""
MOST_FILES = 1 << 20
CREDENTIALS = struct.Struct("3i")
"""The kernel's struct ucred: process, user, group."""


def plugins(shared: Path, node: str) -> dict[str, Plugin]:
    """Return the plugins by their types. For each type ../bin has a program of that name."""
    return {
        "bond": bond.call,
        "coordinator": partial(coordinator.call, shared=shared),
        "ifacer": ifacer.call,
        "ippool": Ippool(shared, node).call,
        "rxe": rxe.call,
    }


class Agent:
    """The agent of one node: the parent's end. It ends with this process at the latest.

    `shared` is a directory for the agents of all nodes. The log has a line for each call.
    """

    def __init__(self, node: str, namespace: str, shared: Path, log: Path) -> None:
        self.pid = 0
        self._node, self._namespace, self._shared, self._log = node, namespace, shared, log

    def start(self) -> None:
        """Start serving plugins. Call it from the main thread: the agent dies with the thread that made it."""
        self._shared.mkdir(exist_ok=True)
        with netns.entered(self._namespace):
            listening = socket.socket(socket.AF_UNIX)
        with listening:
            listening.bind(SOCKET)
            listening.listen(128)
            self.pid = syscalls.fork(partial(self._serve, listening), self._note)

    def stop(self) -> None:
        """Kill the agent; it holds no state that could be lost. A second call does nothing."""
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            self.pid = 0

    def revive(self) -> None:
        """Restart the agent if somebody else has ended it, as kubelet does with the pod of a DaemonSet."""
        if self.pid and os.waitpid(self.pid, os.WNOHANG) != (0, 0):
            self._note("the agent was killed; from here on it is another one\n")
            self.start()

    def _serve(self, listening: socket.socket) -> None:
        for first, last in ((3, listening.fileno()), (listening.fileno() + 1, MOST_FILES)):
            os.closerange(first, last)  # a socket in a pod's namespace would keep it after the pod has ended
        syscalls.name_process(leaks.CNI_AGENT)
        syscalls.enter(netns.path(self._namespace), CLONE_NEWNET)
        server = Server(plugins(self._shared, self._node), self._note)
        while True:
            client, _ = listening.accept()
            threading.Thread(target=server.answer, args=(client,), daemon=True).start()

    def _note(self, text: str) -> None:
        with self._log.open("a") as log:
            log.write(text)


class Server:
    """A server with one thread per call: plugins enter namespaces, and some wait. Calls of one plugin for one
    attachment run one after the other, so a DEL that the runtime calls after it killed an ADD runs last."""

    def __init__(self, plugins: Mapping[str, Plugin], note: Callable[[str], None]) -> None:
        self._plugins, self._note = plugins, note
        self._busy: set[tuple[str, ...]] = set()
        """Plugin, container and interface of the calls under way."""
        self._changed = threading.Condition()

    def answer(self, client: socket.socket) -> None:
        with client:
            request = b"".join(iter(lambda: client.recv(1 << 16), b""))
            name, *given = request.split(b"\0", 1 + len(VARIABLES))
            if len(given) <= len(VARIABLES):
                return  # the caller was killed before it had sent everything
            *values, stdin = given
            environment = dict(zip(VARIABLES, map(os.fsdecode, values), strict=True))
            environment[contract.CALLER] = str(_process_of(client))
            with self._alone((name.decode(), environment["CNI_CONTAINERID"], environment["CNI_IFNAME"])):
                self._answer(client, name.decode(), environment, stdin)

    @contextlib.contextmanager
    def _alone(self, key: tuple[str, ...]) -> Iterator[None]:
        with self._changed:
            self._changed.wait_for(lambda: key not in self._busy)
            self._busy.add(key)
        try:
            yield
        finally:
            with self._changed:
                self._busy.remove(key)
                self._changed.notify_all()

    def _answer(self, client: socket.socket, name: str, environment: Mapping[str, str], stdin: bytes) -> None:
        what = f"{environment['CNI_COMMAND']} {name} {environment['CNI_CONTAINERID'][:12]} {environment['CNI_IFNAME']}"
        if _is_gone(client):
            self._note(f"{what}: not done, its caller was killed\n")
            return
        status, output = self._carried_out(name, environment, stdin)
        self._note(f"{what}: {output or 'done'}\n")
        try:
            client.sendall(f"{status}\n{output}".encode())
        except OSError:
            if environment["CNI_COMMAND"] == "ADD":  # its DEL may have been killed too
                self._carried_out(name, {**environment, "CNI_COMMAND": "DEL"}, stdin)
                self._note(f"{what}: undone, its caller was killed\n")

    def _carried_out(self, name: str, environment: Mapping[str, str], stdin: bytes) -> tuple[int, str]:
        try:
            return contract.answer(self._plugins[name], environment, stdin)
        except Exception:
            self._note(traceback.format_exc())
            return 1, contract.error_object(999, "the agent has a defect; its log tells more")


def _process_of(client: socket.socket) -> int:
    """Return the process at the other end."""
    number, _, _ = CREDENTIALS.unpack(client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size))
    return int(number)


def _is_gone(client: socket.socket) -> bool:
    """Return whether nobody waits for an answer: the runtime killed its plugin at the time limit and went on."""
    poll = select.poll()
    poll.register(client, 0)
    return any(event & select.POLLHUP for _, event in poll.poll(0))
