"""The counters of lossless ports for programs of sealed nodes, which cannot read the memory of the programs on ports.

Each node has a socket. Who connects gets the counters of the node's ports, as JSON, and nothing is read from them.
"""

import contextlib
import json
import os
import select
import socket
import threading
from collections.abc import Collection
from typing import Any

from testbed.errors import TestbedError
from testbed.kernel import own_devices, sealed_root
from testbed.lab.node import Node

WAITING = 64
"""Programs that may wait for an answer."""


class PortStatistics:
    """A thread that answers, also while a program is waited for; until `close`."""

    def __init__(self, nodes: Collection[Node[Any]]) -> None:
        self._nodes: dict[int, Node[Any]] = {}
        self._sockets: dict[int, socket.socket] = {}
        self._stop = os.eventfd(0)
        self._poll = select.poll()
        self._poll.register(self._stop, select.POLLIN)
        for node in nodes:
            if any(end.plan and end.plan.lossless for end in node.interfaces.values()):
                self._listen(node)
        self._thread = threading.Thread(target=self._serve, name="port-statistics", daemon=True)
        self._thread.start()

    def _listen(self, node: Node[Any]) -> None:
        own_devices.directory(node.namespace)
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        listening.bind(str(sealed_root.statistics(node.namespace)))
        listening.listen(WAITING)
        self._nodes[listening.fileno()], self._sockets[listening.fileno()] = node, listening
        self._poll.register(listening, select.POLLIN)

    def close(self) -> None:
        os.eventfd_write(self._stop, 1)
        self._thread.join()
        os.close(self._stop)
        for handle, listening in self._sockets.items():
            listening.close()
            sealed_root.statistics(self._nodes[handle].namespace).unlink(missing_ok=True)

    def _serve(self) -> None:
        while True:
            ready = [handle for handle, _ in self._poll.poll()]
            if self._stop in ready:
                return
            for handle in ready:
                with contextlib.suppress(OSError):  # who asked has gone
                    asking, _ = self._sockets[handle].accept()
                    with asking:
                        asking.setblocking(False)
                        asking.send(counters(self._nodes[handle]))


def counters(node: Node[Any]) -> bytes:
    found = {}
    for end in [*node.interfaces.values()]:
        with contextlib.suppress(TestbedError):  # its link is not lossless
            found[end.name] = end.lossless.counters()
    return json.dumps(found).encode()
