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

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, PrivateAttr

from testbed.topology import loader
from testbed.topology.document import Document
from testbed.topology.models import Elements
from testbed.topology.plan import Plan
from testbed.topology.planner import Check, CheckValues, make_plan
from testbed.topology.problems import Problems
from testbed.topology.values import Label


class Topology(BaseModel):
    """A lab in containerlab's format with testbed's own keys."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, use_attribute_docstrings=True)

    name: Label
    """The lab's name: letters, digits and `-`, at most 63."""
    topology: Elements
    """Nodes and links, and what they have in common."""

    _document: Document | None = PrivateAttr(None)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a file. Raises InputError, with places, for what is wrong in its form; `plan` checks its meaning."""
        file = Path(path)
        return cls.parse(loader.read(file), source=str(file))

    @classmethod
    def parse(cls, text: str, source: str = "<string>") -> Self:
        """The same from a text; `source` is what the places in errors start with."""
        document = Document(text, source)
        topology = loader.validate(cls, document)
        topology._document = document
        return topology

    def plan(
        self,
        *,
        profiles: Collection[str] | None = None,
        check_fault: Check | None = None,
        check_values: CheckValues | None = None,
    ) -> Plan:
        """
        The lab down to the last address, always the same for the same topology.

        `profiles`: the names that a switch's `profile` may have; without it any name passes. A switch that names none
        has ``""``. `check_fault` says what is wrong with a fault, `check_values` with a switch's `profile_values`.
        Raises InputError with up to five problems, by line.
        """
        problems = Problems(self._document)
        return make_plan(self.name, self.topology, problems, profiles, check_fault, check_values)


def json_schema(profile_values: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """
    The JSON Schema (2020-12) of a topology file, for editors: self-contained, without `$schema` and `$id`.

    `profile_values` is that of a switch's values; without it any pass.

    An editor with the YAML language server takes it by a first line ``# yaml-language-server: $schema=PATH``.
    """
    schema = Topology.model_json_schema()
    if profile_values is not None:
        schema["$defs"]["NodeDefinition"]["properties"]["profile_values"]["anyOf"][0] = dict(profile_values)
    return schema
