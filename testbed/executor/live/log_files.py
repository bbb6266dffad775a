"""The output of programs on the nodes of a lab that lives: the files of `Namespace.spawn`, FRR's daemons included."""

import base64
import contextlib
import os
import re
from pathlib import Path
from typing import Any

from testbed.executor.live.program_streams import PIECE
from testbed.executor.live.server import Call
from testbed.kernel import syscalls
from testbed.kernel.changes import IN_CREATE, IN_MODIFY
from testbed.lab import Pod
from testbed.protocol.live import WINDOW, Logs

SUFFIX = ".log"
GONE = re.compile(r"(.+)-(?:container|[^-]+-\d+)")
"""The name of a log of a pod that may be gone: of its container, or of a program by its number."""


class Reading:
    """A Task that sends the files, a piece of each in turn; on the real clock at most WINDOW bytes ahead of the
    outside, as in a `Stream`. Without `follow` it sends what the files held at first."""

    drives = False

    def __init__(self, call: Call, node: str, *, follow: bool) -> None:
        self._call, self._node, self._follow = call, node, follow
        self._taken: dict[Path, int] = {}
        self._ends = {path: path.stat().st_size for path in self._files()}
        self._ahead = 0
        self._watching = False
        with syscalls.explained("inotify"):
            self._inotify = syscalls.call("inotify_init1", os.O_CLOEXEC | os.O_NONBLOCK)
            place = os.fsencode(call.lab.directory)
            syscalls.call("inotify_add_watch", self._inotify, place, IN_MODIFY | IN_CREATE)

    def _files(self) -> dict[Path, tuple[str, str]]:
        found = files(self._call)
        return {path: source for path, source in found.items() if self._node in ("", source[0])}

    def send(self) -> bool:
        """Send all that fits. Return whether that was the end."""
        while sum(self._send_piece(path, *source) for path, source in self._files().items() if not self._held):
            pass
        self._watch(self._follow and not self._held)
        if self._follow or self._held:
            return False
        os.close(self._inotify)
        return True

    @property
    def _held(self) -> bool:
        return self._ahead >= WINDOW and not self._call.server.wire.virtual

    def _send_piece(self, path: Path, node: str, program: str) -> int:
        at = self._taken.get(path, 0)
        size = PIECE if self._follow else min(PIECE, self._ends.get(path, 0) - at)
        with path.open("rb") as file:
            file.seek(at)
            data = file.read(size)
        if data:
            self._call.report(node=node, program=program, out=base64.b64encode(data).decode())
            self._taken[path] = at + len(data)
            self._ahead += len(data)
        return len(data)

    def _watch(self, wanted: bool) -> None:
        if wanted and not self._watching:
            self._call.watch(self._inotify, self._changed)
        elif self._watching and not wanted:
            self._call.unwatch(self._inotify)
        self._watching = wanted

    def _changed(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while os.read(self._inotify, 1 << 16):
                pass
        self.send()

    def receive(self, message: dict[str, Any]) -> None:
        match message:
            case {"ack": ["out", int(length)]}:
                held, self._ahead = self._held, self._ahead - length
                if held and not self._held and self.send():
                    self._call.end(None)
            case {"stop": True}:
                self._watch(False)
                os.close(self._inotify)
                self._call.end(None)


def files(call: Call) -> dict[Path, tuple[str, str]]:
    """Return the node of each file, which may be a pod that is gone, and its program."""
    found = {}
    for path in sorted(call.lab.directory.glob(f"?*-?*{SUFFIX}")):
        name = path.name.removesuffix(SUFFIX)
        nodes = [node for node in call.lab.nodes if name.startswith(f"{node}-")]
        gone = GONE.fullmatch(name)
        node = max(nodes, key=len, default=gone[1] if gone else name.partition("-")[0])
        found[path] = node, name.removeprefix(f"{node}-")
    return found


def logs(request: Logs, call: Call) -> Reading | None:
    for node in call.lab.nodes.values():
        if isinstance(node, Pod) and node.container and request.node in ("", node.name):
            node.container.keep_output()
    if request.node and not any(node == request.node for node, _ in files(call).values()):
        _ = call.lab[request.node]  # raises: the error lists the nodes
    reading = Reading(call, request.node, follow=request.follow)
    return None if reading.send() else reading
