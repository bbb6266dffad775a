"""The kinds of nodes that a topology file may have, one a file. What they are in a lab is in `testbed.lab.nodes`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema

from testbed.documents.text import choices, describe, quoted
from testbed.topology.kinds.bridge import Bridge
from testbed.topology.kinds.host import Host
from testbed.topology.kinds.kind import Kind as Kind
from testbed.topology.kinds.linux import Linux
from testbed.topology.kinds.switch import Switch

KINDS: Mapping[str, Kind] = {kind.name: kind for kind in (Host(), Switch(), Bridge(), Linux())}
"""By their names in a file. A node's plan has the same name, but for a `linux` without an image, which is planned as a
`host`."""


def check_kind(value: Any) -> Any:
    if value is None or (isinstance(value, str) and value in KINDS):
        return value
    name = quoted(value) if isinstance(value, str) else describe(value)
    raise ValueError(f"kind {name} is not supported; supported: {choices(value, list(KINDS))}")


KindName = Annotated[str, BeforeValidator(check_kind), WithJsonSchema({"type": "string", "enum": list(KINDS)})]
