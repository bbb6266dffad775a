"""Hosts with RDMA NICs."""

import re
import shlex
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from testbed.documents.problems import Problems
from testbed.documents.text import describe, listing, quoted
from testbed.topology.definition import DEFAULT_ROUTE, DEFAULT_ROUTE6, Definition, RoutedKeys
from testbed.topology.kinds.bond_keys import BondKeys
from testbed.topology.kinds.kind import Kind, Role, Shape, static_routes
from testbed.topology.plan import CongestionControl, Interface, NicModel, Node, Reordering, Route
from testbed.topology.resolved import Port, ResolvedNode
from testbed.topology.values import RDMA, Delay, check_rdma, mapping_schema, string_schema

_VARIABLE = r"[A-Za-z_][A-Za-z0-9_]*"


def check_command(value: str) -> str:
    """Check one command for `shlex`, as containerlab splits it: no shell is involved."""
    try:
        words = shlex.split(value)
    except ValueError as error:
        raise ValueError(f"{describe(value)} is not a command: {str(error).lower()}") from None
    if not words:
        raise ValueError("a command is empty")
    return value


def check_env(value: dict[str, Any]) -> dict[str, str]:
    env = {}
    for name, item in value.items():
        if name.startswith("__"):
            raise ValueError(f"{quoted(name)} imports variables; testbed does not: a lab must be the same everywhere")
        if not re.fullmatch(_VARIABLE, name):
            raise ValueError(f"{quoted(name)} is not the name of an environment variable")
        if not isinstance(item, str | int):
            raise ValueError(f"variable {quoted(name)} must be a string, not {describe(item)}; quote it")  # noqa: TRY004
        env[name] = str(item).lower() if isinstance(item, bool) else str(item)
    return env


@dataclass(frozen=True, slots=True)
class Nic:
    """A NIC of this machine, by the name of its RDMA device."""

    device: str


def parse_rdma(value: Any) -> Any:
    if isinstance(value, bool | Nic):
        return value
    if not isinstance(value, dict):
        raise ValueError(f"'rdma' must be true, false or a NIC such as {{device: mlx5_0}}, not {describe(value)}")  # noqa: TRY004
    if list(value) != ["device"]:
        raise ValueError(f"'rdma' of a NIC must have the key 'device' only, not {listing(map(quoted, value))}")
    return Nic(check_rdma(value["device"]))


Command = Annotated[str, AfterValidator(check_command)]
Env = Annotated[
    dict[str, Any], AfterValidator(check_env), mapping_schema(f"^{_VARIABLE}$", "string", "integer", "boolean")
]
Rdma = Annotated[
    bool | Nic,
    BeforeValidator(parse_rdma),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "boolean"},
                {
                    "type": "object",
                    "title": "Nic",
                    "properties": {"device": string_schema(RDMA, "mlx5_0") | {"description": "Its RDMA device."}},
                    "required": ["device"],
                    "additionalProperties": False,
                },
            ]
        }
    ),
]


class ReorderDefinition(Definition):
    """What a NIC holds of a queue pair whose next packet is missing."""

    packets: Annotated[int, Field(ge=1, le=65535)] | None = None
    """Packets that wait at most. Default: as many as come."""
    bytes: Annotated[int, Field(ge=1, le=1 << 30)] | None = None
    """Bytes that wait at most. Default: as many as come."""
    timeout: Delay | None = None
    """How long they wait at most. Default: the time that 256 packets of the MTU take on the link."""


def parse_reorder(value: Any) -> Any:
    """Accept a number of packets, too."""
    return {"packets": value} if isinstance(value, int) and not isinstance(value, bool) else value


class HostKeys(BondKeys, RoutedKeys):
    nic: NicModel | None = None
    """Host: `hardware` keeps a QP's destination MAC and sends no ARP, as real NICs do; `rxe` (default) is soft-RoCE."""
    rdma: Rdma | None = None
    """
    Host: whether each of its interfaces gets a soft-RoCE device, named `<node>-<interface>`. Default true. Or, with
    `--machine local`, a NIC of this machine, which becomes its only interface with RDMA: `{device: mlx5_0}`.
    """
    congestion_control: CongestionControl | None = None
    """
    Host: pacing of queue pairs by its NICs on lossless links: `dcqcn` by the marks of switches, `timely` by round
    trips. Default: `dcqcn` of `nic: hardware`, `none` of `nic: rxe`.
    """
    congestion_values: dict[str, float | bool | str] | None = None
    """Host: values that replace the algorithm's own, such as `scale` (docs/lossless.md lists them). Merged value by
    value when several levels of the file have the key."""
    reorder: Annotated[ReorderDefinition, BeforeValidator(parse_reorder)] | None = None
    """
    Host: its NICs on lossless links put the packets of a queue pair in order, as those do that take packets by several
    paths: so many packets wait for a missing one, such as 64. Or `{packets: 64, bytes: 100000, timeout: 20ms}`.
    """
    exec: list[Command] | None = None
    """
    Host, linux: commands to run on the node when the lab is up, in this order and without a shell. Commands of all
    levels of the file are run. One that fails is a warning; the run directory has their output.
    """
    env: Env | None = None
    """Host, linux: environment variables of programs on the node. Merged by name over the levels of the file."""


class Host(Kind):
    name = "host"
    lab_class = "host_node:Host"
    about = "a machine with RDMA NICs"
    keys: ClassVar[type[HostKeys]] = HostKeys
    added_up: ClassVar[tuple[str, ...]] = ("exec",)
    shape = Shape(("([", "])"), "ellipse", "fill: #fff; stroke: #94a3b8")
    is_host = True
    containerlab: ClassVar[Role | None] = "machine"
    special = "host"

    def complete(self, node: ResolvedNode, problems: Problems) -> None:
        node.rdma = node.keys.rdma is not False
        node.nic = node.keys.rdma.device if isinstance(node.keys.rdma, Nic) else ""

    def check_port(self, port: Port, problems: Problems) -> None:
        """Accept any name."""

    def check_addresses(self, port: Port, problems: Problems) -> None:
        """Accept any address."""

    def has_classes(self, node: ResolvedNode) -> bool:
        return node.rdma

    def untagged(self, port: Port) -> str | int | None:
        return port.name

    def plan(self, node: ResolvedNode, interfaces: tuple[Interface, ...], problems: Problems) -> Node:
        keys: HostKeys = node.keys
        return Node(
            node.name,
            Host.name,
            interfaces,
            keys.nic or "rxe",
            keys.congestion_control or ("dcqcn" if keys.nic == "hardware" else "none"),
            tuple((keys.congestion_values or {}).items()),
            reorder=Reordering(**keys.reorder.model_dump()) if keys.reorder else None,
            routes=self._routes(node, interfaces, problems),
            exec=tuple(tuple(shlex.split(command)) for command in keys.exec or []),
            env=tuple((keys.env or {}).items()),
            sysctls=tuple((keys.sysctls or {}).items()),
            ipv6=not node.planned,
            dummies=tuple(node.dummies),
        )

    def _routes(self, node: ResolvedNode, interfaces: tuple[Interface, ...], problems: Problems) -> tuple[Route, ...]:
        if node.keys.routes is not None:
            own = [address for interface in interfaces for address in interface.addresses]
            own += [address for bond in node.bonds.values() for address in bond.addresses.values()]
            return static_routes(node, own, problems)
        ports = [*node.ports.values(), *node.bonds.values()]
        first = {family: ip for port in reversed(ports) for family, ip in port.gateways.items()}
        return tuple(
            Route(to, (first[family],)) for family, to in ((4, DEFAULT_ROUTE), (6, DEFAULT_ROUTE6)) if family in first
        )
