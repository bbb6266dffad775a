"""
Topology: a lab's file, or the same written in Python, and the way from it to a plan.

In Python it takes the shape of the file::

    Topology.model_validate({"name": "pair", "topology": {
        "nodes": {"a": {"kind": "host"}, "b": {"kind": "host"}},
        "links": [{"endpoints": ["a:eth1", "b:eth1"]}],
    }})

or is put together from the models::

    Topology(name="pair", topology=Elements(
        nodes={"a": NodeDefinition(kind="host"), "b": NodeDefinition(kind="host")},
        links=[LinkDefinition(endpoints=[EndpointDefinition(node=node, interface="eth1") for node in "ab"])],
    ))
"""

import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Self

from pydantic import PrivateAttr

from testbed.documents.problems import Problems
from testbed.documents.variables import with_defaults
from testbed.documents.yaml import YamlDocument
from testbed.topology import containerlab, loader
from testbed.topology.definition import Definition
from testbed.topology.loader import Note, note
from testbed.topology.models import Elements, ManagementDefinition
from testbed.topology.plan import Plan
from testbed.topology.planner import Check, CheckValues, make_plan
from testbed.topology.resolve import TOP, container_hosts
from testbed.topology.values import INTERFACE, Label

CONTAINER_HOST = (
    "in a file with container nodes, 'kind: host' is containerlab's, the machine that runs the containers: "
    "a node without RDMA devices and planned addresses"
)


class Topology(Definition):
    """A lab in containerlab's format with testbed's own keys."""

    name: Label
    """The lab's name: letters, digits, `-`, `_` and single `.`, at most 63."""
    topology: Elements
    """Nodes, links and their common keys."""
    mgmt: ManagementDefinition | None = None
    """The management network of a file for containerlab."""

    _document: YamlDocument | None = PrivateAttr(None)
    _notes: tuple[Note, ...] = PrivateAttr(())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a file. Raise InputError, with places, for what is wrong in its form; `plan` checks its meaning."""
        file = Path(path)
        return cls.parse(loader.read(file), source=str(file))

    @classmethod
    def parse(cls, text: str, source: str = "<string>") -> Self:
        """Read a text like a file; `source` begins the places in errors."""
        text, variables = with_defaults(text)
        document = loader.document(text, source)
        topology, notes = loader.validate(cls, document)
        notes += loader.notes_on(variables, source)
        topology._document = document
        if hosts := container_hosts(topology.topology):
            notes.append(note(document, "kind", CONTAINER_HOST, [(*TOP, "nodes", name) for name in hosts]))
        topology._notes = tuple(sorted(notes, key=lambda note: note.lines))
        return topology

    @property
    def notes(self) -> tuple[Note, ...]:
        """Return the keys of its file that have no effect in a lab, or another effect than elsewhere."""
        return self._notes

    def plan(
        self,
        *,
        profiles: Collection[str] | None = None,
        check_fault: Check | None = None,
        check_values: CheckValues | None = None,
        lab: Plan | None = None,
    ) -> Plan:
        """Plan the lab down to the last address, always the same for the same topology.

        `profiles`: the names that a switch's `profile` may have; without it any name passes. A switch that names none
        has ``""``. `check_fault` returns the error of a fault, `check_values` those of a switch's `profile_values`.
        `lab` is the plan of a lab that lives, whose file was edited: what stays keeps its MACs and planned addresses.
        Raise InputError with up to five problems, by line.
        """
        problems = Problems(self._document)
        return make_plan(self.name, self.topology, self.mgmt, problems, profiles, check_fault, check_values, lab)


def json_schema(profile_values: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of a topology file, for editors: self-contained, without `$schema` and `$id`.

    `profile_values` is that of a switch's values; without it any pass.

    An editor with the YAML language server uses it with a first line ``# yaml-language-server: $schema=PATH``.
    """
    schema = Topology.model_json_schema()
    if profile_values is not None:
        schema["$defs"]["NodeDefinition"]["properties"]["profile_values"]["anyOf"][0] = dict(profile_values)
    parts = schema["$defs"]
    link = parts["LinkDefinition"]
    for part, reasons in (
        (schema, containerlab.TOP_NOTES),
        (parts["Elements"], containerlab.TOPOLOGY_NOTES),
        (parts["NodeDefinition"], containerlab.NODE_NOTES),
        (parts["ManagementDefinition"], containerlab.MANAGEMENT_NOTES),
        (link, containerlab.LINK_NOTES),
        (parts["EndpointDefinition"]["anyOf"][1], containerlab.ENDPOINT_NOTES),
    ):
        for key, reason in reasons.items():
            part["properties"].setdefault(key, {"description": f"No effect: {reason}.", "deprecated": True})
    # A link to a special endpoint: the loader gives it to the model as one between two nodes.
    link["properties"] |= {
        "type": {**link["properties"]["type"], "enum": ["veth", containerlab.DUMMY, *containerlab.SPECIAL]},
        "endpoint": {"$ref": "#/$defs/EndpointDefinition", "description": "The one end at a node."},
        "host-interface": {"type": "string", "pattern": f"^{INTERFACE}$", "description": "The other end's interface."},
    }
    link["anyOf"] = [{"required": link.pop("required")}, {"required": ["type", "endpoint"]}]
    return schema
