"""`--over`: values of parameters, and every combination of them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from testbed.errors import InputError
from testbed.protocol import ScenarioInfo

Values = dict[str, str]
"""A value for each parameter that is varied."""


def combinations(overs: Sequence[str], info: ScenarioInfo) -> list[Values]:
    """Every combination of the values; one without any where nothing is varied."""
    axes = [values_over(over, info) for over in overs]
    keys = [key for key, _ in axes]
    if twice := sorted({key for key in keys if keys.count(key) > 1}):
        raise InputError(f"--over {twice[0]} is there twice")
    return [dict(zip(keys, point, strict=True)) for point in itertools.product(*(values for _, values in axes))]


def values_over(over: str, info: ScenarioInfo) -> tuple[str, list[str]]:
    """A parameter and the values that the user named, or all that its schema has."""
    key, equals, named = over.partition("=")
    properties = info["parameters"].get("properties", {})
    if key not in properties:
        hint = f"Parameters: {', '.join(properties) or 'none'}."
        raise InputError(f"--over: there is no parameter {key!r}", hint=hint)
    values = [value.strip() for value in named.split(",") if value.strip()]
    schema = properties[key]
    if not values and not equals:
        values = ["false", "true"] if schema.get("type") == "boolean" else list(map(str, schema.get("enum", ())))
    if not values:
        hint = f"For example --over {key}={schema.get('default', 1)},…"
        raise InputError(f"--over {key}: name its values", hint=hint)
    for value in values:
        if values.count(value) > 1:
            raise InputError(f"--over {key}: {value} is there twice")
    return key, values
