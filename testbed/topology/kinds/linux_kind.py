"""Containers of containerlab's files, and hosts with the addresses of such a file."""

import posixpath
import re
import shlex
from dataclasses import replace
from functools import partial
from ipaddress import IPv4Address, IPv6Address
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, WithJsonSchema

from testbed.documents.problems import Problems
from testbed.documents.text import describe, quoted
from testbed.topology.kinds.host_kind import Command, Host, HostKeys
from testbed.topology.kinds.start_keys import StartKeys, health, start
from testbed.topology.plan import Bind, Container, Interface, Node
from testbed.topology.resolved import ResolvedNode
from testbed.topology.values import ADDRESS, LABEL, of_interface, parse_ip, string_schema

_IMAGE = r"[A-Za-z0-9][A-Za-z0-9._/:@-]*"
_OPTION = r"(ro|rw|z|Z|nocopy|cached|delegated|consistent|r?shared|r?slave|r?private)"
_BIND = rf"[^:]+:/[^:]*(:{_OPTION}(,{_OPTION})*)?"


def check_image(value: str) -> str:
    if not re.fullmatch(_IMAGE, value):
        raise ValueError(f"{describe(value)} is not the name of an image such as 'tools:1'")
    return value


def check_bind(value: str) -> str:
    if not re.fullmatch(_BIND, value):
        raise ValueError(f"{describe(value)} is not a bind such as 'conf/frr.conf:/etc/frr/frr.conf:ro'")
    if value.startswith("__clab"):
        there = "that is the directory which containerlab makes for a lab, and there is none"
        raise ValueError(f"bind {quoted(value)}: {there}; name a file of your own")
    return value


def parse_bind(text: str) -> Bind:
    source, target, *options = text.split(":")
    return Bind(posixpath.normpath(source), target, read_only="ro" in ",".join(options).split(","))


def check_network_mode(value: Any) -> Any:
    """Check `none`, or `container:` with the name of a node."""
    name = value.removeprefix("container:") if isinstance(value, str) else ""
    if value in (None, "", "bridge", "none") or (name and name != value and re.fullmatch(LABEL, name)):
        return value
    if value == "host":
        raise ValueError("'network-mode: host' is the network of the machine that runs the containers: a lab has none")
    raise ValueError(f"'network-mode' must be none, bridge or container:NODE, not {describe(value)}")


def parse_management(version: int, value: Any) -> Any:
    """Read an address, of the family `version`, in the management network."""
    if not isinstance(value, str):
        raise ValueError(f"expected an address such as 172.20.20.11, not {describe(value)}")  # noqa: TRY004
    address = of_interface(parse_ip(value))
    if address.version != version:
        raise ValueError(f"{address} is not an IPv{version} address")
    return address


Image = Annotated[str, AfterValidator(check_image), WithJsonSchema({"type": "string", "pattern": f"^{_IMAGE}$"})]
_MODE = rf"bridge|none|container:{LABEL}"
NetworkMode = Annotated[
    str, BeforeValidator(check_network_mode), WithJsonSchema({"type": "string", "pattern": f"^({_MODE})$"})
]
ManagementAddress4 = Annotated[
    IPv4Address,
    BeforeValidator(partial(parse_management, 4)),
    PlainSerializer(str),
    WithJsonSchema(string_schema(ADDRESS, "172.20.20.11")),
]
ManagementAddress6 = Annotated[
    IPv6Address,
    BeforeValidator(partial(parse_management, 6)),
    PlainSerializer(str),
    WithJsonSchema(string_schema(ADDRESS, "2001:172:20:20::11")),
]
BindText = Annotated[str, AfterValidator(check_bind), WithJsonSchema({"type": "string", "pattern": f"^{_BIND}$"})]


class LinuxKeys(StartKeys, HostKeys):
    image: Image | None = None
    """Linux: image of the node's container, added to the cache with `testbed image add`. Without it the node is not a
    container: it has the programs of the lab's machine."""
    cmd: Command | None = None
    """Linux with an image: the command of its container, instead of the image's own. It runs without a shell."""
    entrypoint: Command | None = None
    """Linux with an image: the entrypoint that runs `cmd`, instead of the image's own."""
    binds: list[BindText] | None = None
    """Linux with an image: files and directories to mount in the container, such as `frr.conf:/etc/frr/frr.conf:ro`,
    from the directory of the topology file. Entries of all levels of the file are mounted."""
    network_mode: NetworkMode | None = Field(None, alias="network-mode")
    """Linux: `none`: not in the management network. `container:NODE`, with an image: in the network of that node."""
    mgmt_ipv4: ManagementAddress4 | None = Field(None, alias="mgmt-ipv4")
    """Linux: the address of its `eth0` in the management network."""
    mgmt_ipv6: ManagementAddress6 | None = Field(None, alias="mgmt-ipv6")
    """Linux: the IPv6 address of its `eth0` in the management network."""

    def shared_network(self) -> str:
        """Return the node whose network the container is in; empty for its own."""
        mode = self.network_mode or ""
        return mode.removeprefix("container:") if mode.startswith("container:") else ""


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
        keys: LinuxKeys = node.keys
        planned = replace(super().plan(node, interfaces, problems), start=start(keys))
        network = keys.shared_network()
        if keys.image is None:
            for key in "cmd", "entrypoint", "binds", "healthcheck":
                if getattr(keys, key) is not None:
                    wrong = f"{key!r} is for a container, but {node.name!r} has no 'image'"
                    problems.add(node.paths[key], wrong, at_key=True)
            if network:
                wrong = f"{node.name!r} has no 'image': only a container can be in the network of another node"
                problems.add(node.paths["network_mode"], wrong)
            return planned
        if network and node.ports:
            wrong = f"{node.name!r} is in the network of {network!r}: give the link to that node"
            problems.add(next(iter(node.ports.values())).path, wrong)
        container = Container(
            keys.image,
            tuple(shlex.split(keys.cmd or "")),
            tuple(shlex.split(keys.entrypoint or "")),
            tuple(map(parse_bind, keys.binds or ())),
            network,
            health(keys),
        )
        return replace(planned, kind=self.name, container=container)
