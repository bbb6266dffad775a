"""All faults by name."""

import inspect
from collections.abc import Mapping
from typing import Any

from testbed.errors import InputError
from testbed.faults import arp, bond, congestion, host, link, lossless, mlag, packet, rank, switch, vrrp
from testbed.faults.fault import Fault, Injection, make
from testbed.lab import Lab

KINDS: Mapping[str, type[Fault]] = {
    kind.name: kind
    for module in (link, bond, packet, congestion, lossless, arp, vrrp, mlag, switch, host, rank)
    for kind in vars(module).values()
    if inspect.isclass(kind) and issubclass(kind, Fault) and kind.__module__ == module.__name__ and "name" in vars(kind)
}
"""Each class of these modules that has a name."""


def problem(name: str, parameters: Mapping[str, Any]) -> str:
    """Describe the error in a fault of a topology file; empty if there is none."""
    try:
        make(KINDS, name, parameters)
    except InputError as error:
        return f"{error.message}. {error.hint}"
    return ""


def break_from_the_start(lab: Lab) -> None:
    """Inject the faults of the lab's file."""
    for name, parameters in lab.plan.faults:
        Injection(lab, make(KINDS, name, parameters)).inject()


def descriptions() -> list[dict[str, Any]]:
    """List `name`, `title`, `text`, and the JSON Schema of the `parameters` of each fault."""
    return [
        {"name": name, "title": kind.title(), "text": kind.text(), "parameters": kind.model_json_schema()}
        for name, kind in KINDS.items()
    ]
