"""Kills the agent of a node before each step of a call of `ippool`, and prints how the calls go on that come after it.

`agent_kills.py COMMAND POD DIRECTORY`: COMMAND is the call that is killed, ADD or DEL. Steps are the statements of the
stores, and the line in the agent's log, which is between the COMMIT and the answer. The pool has one address of each
family: one that is lost or given twice shows with the next pod. The last outcome is that without a kill.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kills import Killing

from testbed.cni.agent import VARIABLES, Server
from testbed.cni.ipam.address_store import ADDRESSES, Store
from testbed.cni.objects import manifests
from testbed.cni.objects.database import OBJECTS
from testbed.cni.objects.database import Store as Objects
from testbed.cni.plugins.ippool import Ippool

POOLS = [
    {"name": "four", "subnet": "10.0.10.0/24", "ips": ["10.0.10.7"]},
    {"name": "six", "subnet": "fd00::/64", "ips": ["fd00::7"]},
]
CONFIG = {"cniVersion": "1.1.0", "name": "rdma", "type": "ippool", "ipam": {"type": "ippool", "pools": POOLS}}
SET = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "web"}, "spec": {"replicas": 1}}
NEVER = 10**6


class Node:
    """A node, whose agent is forked for one call."""

    def __init__(self, shared: Path, pod: str) -> None:
        self.shared, self.pod = shared, pod
        with Objects(shared / OBJECTS) as objects:
            objects.put([manifests.make(SET)])

    def copy(self) -> Node:
        """Another node, as this one is left by a kill."""
        return Node(Path(shutil.copytree(self.shared, f"{self.shared}-copy")), self.pod)

    def call(self, command: str, container: str, pod: str = "", killed_before: int = NEVER) -> list[str] | None:
        """The addresses of the result, or the error; None if there is no answer."""
        ours, theirs = socket.socketpair()
        if not (child := os.fork()):
            ours.close()
            Killing.install()
            Killing.left = killed_before
            Server({"ippool": Ippool(self.shared, "node1").call}, lambda _: Killing.step()).answer(theirs)
            os._exit(0)
        theirs.close()
        given = {
            "CNI_COMMAND": command,
            "CNI_CONTAINERID": container,
            "CNI_NETNS": "/run/netns/web",
            "CNI_ARGS": f"K8S_POD_NAMESPACE=default;K8S_POD_NAME={pod or self.pod}",
            "CNI_IFNAME": "eth0",
            "CNI_PATH": "/opt/cni/bin",
        }
        with ours:
            request = ["ippool", *(given[name] for name in VARIABLES), json.dumps(CONFIG)]
            ours.sendall("\0".join(request).encode())
            ours.shutdown(socket.SHUT_WR)
            answer = b"".join(iter(lambda: ours.recv(1 << 16), b"")).decode()
        os.waitpid(child, 0)
        if not answer:
            return None
        _, _, output = answer.partition("\n")
        found = json.loads(output or "{}")
        return [found["msg"]] if "msg" in found else [one["address"] for one in found.get("ips", [])]

    def held(self) -> list[list[str]]:
        with Store(self.shared / ADDRESSES) as store:
            return [[str(lease.address), lease.holder.pod, lease.holder.container] for lease in store.leases()]


def outcomes(command: str, pod: str, directory: Path) -> Iterator[dict[str, Any]]:
    for number in itertools.count():
        shared = directory / f"{number}"
        shared.mkdir()
        node = Node(shared, pod)
        if command == "DEL":
            node.call("ADD", "c1")
        killed = node.call(command, "c1", killed_before=number)
        yield {
            "answer": killed,
            "held": node.held(),
            "repeated": node.copy().call(command, "c1"),
            "of another pod": node.call("ADD", "c2", "other"),
            "deleted": [node.call("DEL", "c1"), node.call("DEL", "c2", "other")],
            "left": node.held(),
            "next": node.call("ADD", "c3"),
        }
        if killed is not None:
            return


if __name__ == "__main__":
    command, pod, directory = sys.argv[1:]
    json.dump(list(outcomes(command, pod, Path(directory))), sys.stdout)
