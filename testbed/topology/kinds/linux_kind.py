"""Containers of containerlab's files, and hosts with the addresses of such a file."""

import posixpath
import re
import shlex
from dataclasses import replace
from typing import Annotated

from pydantic import AfterValidator, WithJsonSchema

from testbed.documents.problems import Problems
from testbed.documents.text import describe, quoted
from testbed.topology.kinds.host_kind import Command, Host, HostKeys
from testbed.topology.plan import Bind, Container, Interface, Node
from testbed.topology.resolved import ResolvedNode

_IMAGE = r"[A-Za-z0-9][A-Za-z0-9._/:@-]*"
_BIND = r"[^:]+:/[^:]*(:(ro|rw))?"


def check_image(value: str) -> str:
    if not re.fullmatch(_IMAGE, value):
        raise ValueError(f"{describe(value)} is not the name of an image such as 'tools:1'")
    return value


def check_bind(value: str) -> str:
    if not re.fullmatch(_BIND, value):
        raise ValueError(f"{describe(value)} is not a bind such as 'conf/frr.conf:/etc/frr/frr.conf:ro'")
    source = posixpath.normpath(value.partition(":")[0])
    if source.startswith(("/", "..", "~", "__clab")):
        there = "a lab has only the files beside the topology file"
        raise ValueError(f"bind {quoted(value)}: {there}; its source must be a relative path")
    return value


def parse_bind(text: str) -> Bind:
    source, target, *options = text.split(":")
    return Bind(posixpath.normpath(source), target, read_only=options == ["ro"])


Image = Annotated[str, AfterValidator(check_image), WithJsonSchema({"type": "string", "pattern": f"^{_IMAGE}$"})]
BindText = Annotated[str, AfterValidator(check_bind), WithJsonSchema({"type": "string", "pattern": f"^{_BIND}$"})]


class LinuxKeys(HostKeys):
    image: Image | None = None
    """Linux: image of the node's container, added to the cache with `testbed image add`. Without it the node is not a
    container: it has the programs of the lab's machine."""
    cmd: Command | None = None
    """Linux with an image: the command of its container, instead of the image's own. It runs without a shell."""
    entrypoint: Command | None = None
    """Linux with an image: the entrypoint that runs `cmd`, instead of the image's own."""
    binds: list[BindText] | None = None
    """Linux with an image: files and directories beside the topology file to mount in the container, such as
    `frr.conf:/etc/frr/frr.conf:ro`. Entries of all levels of the file are mounted."""


class Linux(Host):
    """A host of containerlab's files, with the addresses of the file and a container's IPv6."""

    name = "linux"
    about = (
        "containerlab's: a container if it has an `image`, else a host; its interfaces have the addresses that the "
        "file gives them, and no others but IPv6's link-local ones"
    )
    keys = LinuxKeys
    added_up = (*Host.added_up, "binds")
    plans_addresses = False
    containerlab = "container"
    special = ""

    def plan(self, node: ResolvedNode, interfaces: tuple[Interface, ...], problems: Problems) -> Node:
        planned = super().plan(node, interfaces, problems)
        keys: LinuxKeys = node.keys
        if keys.image is None:
            for key in "cmd", "entrypoint", "binds":
                if getattr(keys, key) is not None:
                    wrong = f"{key!r} is for a container, but {node.name!r} has no 'image'"
                    problems.add(node.paths[key], wrong, at_key=True)
            return planned
        container = Container(
            keys.image,
            tuple(shlex.split(keys.cmd or "")),
            tuple(shlex.split(keys.entrypoint or "")),
            tuple(map(parse_bind, keys.binds or ())),
        )
        return replace(planned, kind=self.name, container=container)
