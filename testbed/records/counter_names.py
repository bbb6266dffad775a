"""Meanings of counters: counter_names.yml, in which the name of each stands once."""

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from typing import Any, Literal, NamedTuple

import yaml

Meaning = Literal["error", "level", "congestion", "peak", "traffic", "unknown"]
Role = Literal["", "damage", "drop", "gap", "retry"]
PLACEHOLDER = re.compile(r"<(\w+)>")
PARTS = {"priority": "[0-7]"}


class Command(NamedTuple):
    """A command of real gear. `{port}` is a switch's, `{interface}` a host's, `{device}` an RDMA device."""

    where: str
    run: str
    look: str


@dataclass(frozen=True)
class Counter:
    """An entry of counter_names.yml. `metrics` are its names in Prometheus, `role` is its role in a diagnosis."""

    name: str
    meaning: Meaning
    unit: str
    owner: str
    text: str
    source: str = ""
    role: Role = ""
    metrics: tuple[str, ...] = ()
    commands: tuple[Command, ...] = ()

    @functools.cached_property
    def pattern(self) -> re.Pattern[str]:
        """Pattern of its names, with a group for each placeholder."""
        parts = PLACEHOLDER.split(self.name)
        parts[::2] = map(re.escape, parts[::2])
        parts[1::2] = (f"(?P<{part}>{PARTS.get(part, '.+')})" for part in parts[1::2])
        return re.compile("".join(parts))


NOT_KNOWN = Counter("", "unknown", "", "unknown", "")


@functools.cache
def known() -> tuple[Counter, ...]:
    """Return the entries in their order."""
    return tuple(_read(yaml.safe_load(resources.files(__package__).joinpath("counter_names.yml").read_text())))


def _read(groups: list[dict[str, Any]]) -> Iterator[Counter]:
    for group in groups:
        of_all, shown = group.get("metrics", ()), group.get("commands", ())
        for row in group["counters"]:
            own = {"look": row["name"]}
            metrics = (*(metric.format(**row) for metric in of_all), *row.get("metrics", ()))
            commands = tuple(Command(**own | command) for command in row.get("commands", shown))
            of_group = {"owner": group["owner"], "source": group["source"]}
            yield Counter(**row | of_group | {"metrics": metrics, "commands": commands})


@functools.lru_cache(100_000)
def find(name: str) -> Counter:
    """Return the entry of a counter by its name in counters.json or in the table. An unknown name gets an entry with
    the meaning `unknown`."""
    return next((one for one in known() if one.name == name or one.pattern.fullmatch(name)), NOT_KNOWN)
