"""The runs that a command asks for: every combination of values, with every seed, checked before a machine starts."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from testbed.cli import options
from testbed.errors import InputError
from testbed.machine import runs, scenarios
from testbed.machine.runs import VariantRun
from testbed.machine.sweeps import points
from testbed.machine.sweeps.points import Point
from testbed.protocol import ScenarioInfo

Values = dict[str, str]
"""A value for each parameter that is varied."""


async def plan(
    source: scenarios.Source,
    info: ScenarioInfo,
    seeds: Sequence[int],
    overs: Sequence[str],
    named: Sequence[str],
    settings: Mapping[str, str],
) -> tuple[ScenarioInfo, list[Point]]:
    """Plan the scenario's variants with every combination of the values of `--over`."""
    values = combinations(axes_over(overs, info))
    for variant_run in () if named else runs.choose(info, []):
        if own := next((key for key in values[0] if key in variant_run.variant["settings"]), None):
            hint = "Name the variants that should have the other values with --variant."
            raise InputError(f"variant {variant_run.label} sets {own} itself", hint=hint)
    return await plan_settings(source, seeds, [(each, {**settings, **each}) for each in values], named)


async def plan_settings(
    source: scenarios.Source,
    seeds: Sequence[int],
    asked: Sequence[tuple[Values, Mapping[str, Any]]],
    named: Sequence[str],
) -> tuple[ScenarioInfo, list[Point]]:
    """Plan the runs of all settings, those of a seed after each other: what depends on values shows early."""
    described = await options.described([(source, settings) for _, settings in asked], named)
    found = [
        (variant_run.variant, each, {key: value for key, value in given.items() if counts(variant_run, key, value)})
        for (each, given), its in zip(asked, described, strict=True)
        for variant_run in runs.choose(its, named)
    ]
    if len(seeds) * len(found) > points.MOST:
        raise points.too_many(len(seeds) * len(found))
    return described[0], [Point(seed, *one) for seed in seeds for one in found]


def counts(variant_run: VariantRun, key: str, value: Any) -> bool:
    """Return whether a variant has a setting of the user's; it keeps what it sets itself."""
    return bool(variant_run.variant["settings"][key] == value)


def as_one_run(info: ScenarioInfo, planned: Sequence[Point]) -> list[VariantRun]:
    """Return the runs of one variant and seed as those of one run directory, each under its values."""
    for key, value in (item for point in planned for item in point.values.items() if "/" in item[1]):
        raise InputError(f"--over {key}: {value!r} cannot be a value: each value names a directory")
    return [VariantRun(info["name"], point.values_label or point.variant["name"], point.variant) for point in planned]


def combinations(axes: Mapping[str, Sequence[str]]) -> list[Values]:
    """Return every combination of the values; one without any where nothing is varied."""
    return [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]


def axes_over(overs: Sequence[str], info: ScenarioInfo) -> dict[str, list[str]]:
    """Return the values of each parameter of `--over`."""
    axes: dict[str, list[str]] = {}
    for over in overs:
        key, values = values_over(over, info)
        if key in axes:
            raise InputError(f"--over {key} is given twice")
        axes[key] = values
    return axes


def values_over(over: str, info: ScenarioInfo) -> tuple[str, list[str]]:
    """Return a parameter and the values that the user named, or all that its schema has."""
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
            raise InputError(f"--over {key}: {value} is given twice")
    return key, values
