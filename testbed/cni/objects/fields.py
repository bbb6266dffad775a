"""The fields of Kubernetes' own kinds. An object with another one is refused, as `kubectl apply` asks of an API server
(kubernetes.io, "API concepts", field validation: Strict).

Source: lightkube-models, which are made of Kubernetes' OpenAPI description.
"""

import types
from collections.abc import Mapping
from typing import Any, Union, get_args, get_origin

from testbed.documents.problems import Problems, dotted
from testbed.documents.text import Path
from testbed.errors import did_you_mean

GROUPS = ("", "apps", "batch", "networking.k8s.io", "resource.k8s.io")
LEFT_OUT = "status"
"""What an API server does not take from a user."""


def check(value: Any, problems: Problems) -> None:
    """Add a problem for each field that the object's kind does not have. Other projects' kinds are not checked."""
    if not isinstance(value, Mapping):
        return
    version, kind = value.get("apiVersion"), value.get("kind")
    if isinstance(version, str) and isinstance(kind, str) and version.rpartition("/")[0] in GROUPS:
        given = {key: one for key, one in value.items() if key != LEFT_OUT}
        _check(given, model_of(version, kind), (), problems)


def check_part(module: str, model: str, value: Any, path: Path, problems: Problems) -> None:
    """Add a problem for each field that a part of an object does not have. It is of one of Kubernetes' types, such as
    PodTemplateSpec of core_v1."""
    import importlib

    _check(value, getattr(importlib.import_module(f"lightkube.models.{module}"), model), path, problems)


def model_of(version: str, kind: str) -> Any:
    """Return the model of a kind, None if Kubernetes has none."""
    from lightkube.core.exceptions import LoadResourceError
    from lightkube.core.resource_registry import resource_registry

    try:
        return resource_registry.load(version, kind)
    except (LoadResourceError, ImportError, ValueError):  # of a group that it does not have, or of no group at all
        return None


def _check(value: Any, expected: Any, path: Path, problems: Problems) -> None:
    import msgspec

    origin, inner = get_origin(expected), [one for one in get_args(expected) if one is not type(None)]
    if origin in (Union, types.UnionType):
        if len(inner) == 1:
            _check(value, inner[0], path, problems)
    elif origin is list and isinstance(value, list):
        for place, one in enumerate(value):
            _check(one, inner[0], (*path, place), problems)
    elif origin is dict and inner and isinstance(value, Mapping):  # one without types is free
        for key, one in value.items():
            _check(one, inner[1], (*path, key), problems)
    elif isinstance(expected, type) and issubclass(expected, msgspec.Struct) and isinstance(value, Mapping):
        known = {field.encode_name: field.type for field in msgspec.structs.fields(expected)}
        for key, one in value.items():
            if key in known:
                _check(one, known[key], (*path, key), problems)
            else:
                near = did_you_mean(key, known, aside=True)
                problems.add((*path, key), f'unknown field "{dotted((*path, key))}"{near}', at_key=True)
