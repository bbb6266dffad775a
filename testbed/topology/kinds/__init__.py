"""The kinds of nodes that a topology file may have, one a file, and their registry."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema, create_model

from testbed.documents.text import choices, describe, quoted
from testbed.topology.kinds.bridge_kind import Bridge, OvsBridge
from testbed.topology.kinds.host_kind import Host
from testbed.topology.kinds.kind import Kind as Kind
from testbed.topology.kinds.linux_kind import Linux
from testbed.topology.kinds.switch_kind import Switch

KINDS: Mapping[str, Kind] = {kind.name: kind for kind in (Host(), Switch(), Bridge(), Linux(), OvsBridge())}
"""The only registry of kinds, by their names in a file. A `linux` without an image is planned as a `host`, an
`ovs-bridge` as a `bridge`, any other node under the name of its kind."""


def check_kind(value: Any) -> Any:
    if value is None or (isinstance(value, str) and value in KINDS):
        return value
    name = quoted(value) if isinstance(value, str) else describe(value)
    raise ValueError(f"kind {name} is not supported; supported: {choices(value, list(KINDS))}")


def every_key() -> Any:
    """Return a model with the keys of all kinds."""
    models = dict.fromkeys(kind.keys for kind in KINDS.values())
    own = [model for model in models if sum(issubclass(other, model) for other in models) == 1]
    return create_model("EveryKey", __base__=tuple(own))


KindName = Annotated[str, BeforeValidator(check_kind), WithJsonSchema({"type": "string", "enum": list(KINDS)})]
