"""Topologies of data centres, made from a few numbers.

Each kind is a function with its options as parameters. It returns a Fabric: a lab is built from `topology()`, and
`text(fabric)` is a topology file for people. An impossible fabric is an InputError that names the option.

    from testbed.topology.fabrics import leaf_spine

    @pytest.mark.topology(leaf_spine(leaves=2, spines=2, hosts=2).topology())
    def test_ping(lab): ...
"""

import inspect
from collections.abc import Callable
from typing import Any

from testbed.documents.yaml import MAX_NODES
from testbed.errors import InputError, did_you_mean
from testbed.topology.fabrics.clos import leaf_spine, rail_optimized, single, two_tier
from testbed.topology.fabrics.fabric import Fabric, Manner, RoutedManner
from testbed.topology.fabrics.fat_tree import fat_tree
from testbed.topology.fabrics.writer import text

__all__ = ["KINDS", "Fabric", "fat_tree", "leaf_spine", "make", "rail_optimized", "single", "text", "two_tier"]

KINDS: dict[str, Callable[..., Fabric]] = {
    "single": single,
    "two-tier": two_tier,
    "leaf-spine": leaf_spine,
    "rail-optimized": rail_optimized,
    "fat-tree": fat_tree,
}


def make(kind: str, options: dict[str, Any]) -> Fabric:
    """Make a fabric by the name of its kind; `options` are parameters of its function."""
    if kind not in KINDS:
        hint = f"{did_you_mean(kind, KINDS)}Kinds: {', '.join(KINDS)}."
        raise InputError(f"fabric kind {kind!r} does not exist", hint=hint)
    own = [name for name in inspect.signature(KINDS[kind]).parameters if name != "manner"]
    known = [*own, *(Manner if kind == "single" else RoutedManner).__annotations__]
    for option in options:
        if option not in known:
            raise InputError(f"{kind} has no option {option!r}", hint=f"It has: {', '.join(known)}.")
    fabric = KINDS[kind](**options)
    if (values := _values(fabric.document())) > MAX_NODES:
        raise InputError(
            f"`{fabric.command}` would write {values} values; the limit for a topology is {MAX_NODES}",
            hint="Choose smaller numbers.",
        )
    return fabric


def _values(data: Any) -> int:
    """Count keys and values, as the reader of the file does."""
    if isinstance(data, dict):
        return 1 + sum(1 + _values(value) for value in data.values())
    return 1 + sum(map(_values, data)) if isinstance(data, list) else 1
