"""The runs of a sweep: one for each seed, variant and combination of values."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from testbed.errors import InputError
from testbed.protocol import VariantInfo

MOST = 1_000_000
"""Runs that a sweep may have."""
RANGE = re.compile(r"(\d+)(?:\.\.(\d+))?", re.ASCII)
LARGEST_SEED = 2**63 - 1
"""Largest seed that the result file can hold."""


@dataclass(frozen=True)
class Point:
    """A run of a sweep. `values` has the varied parameters, `given` all user settings for the variant, as texts."""

    seed: int
    variant: VariantInfo
    values: Mapping[str, str]
    given: Mapping[str, str]

    @property
    def key(self) -> Key:
        """Return the key of the run among all of the same scenario."""
        return self.variant["name"], json.dumps(self.variant["settings"], sort_keys=True), self.seed

    @property
    def label(self) -> str:
        return " ".join([self.variant["name"], *self._values()])

    @property
    def values_label(self) -> str:
        return ",".join(self._values())

    def _values(self) -> list[str]:
        return [f"{key}={value}" for key, value in self.values.items()]

    def command(self, scenario: str) -> str:
        """Return the command to repeat it; `scenario` is its name or path."""
        return command(scenario, self.variant["name"], self.given, self.seed)


Key = tuple[str, str, int]


def command(scenario: str, variant: str, given: Mapping[str, str], seed: int, *others: str) -> str:
    """Return the command that runs a variant."""
    settings = [word for key, value in given.items() for word in ("--set", f"{key}={value}")]
    return shlex.join(["testbed", "run", scenario, "--variant", variant, *settings, *others, "--seed", str(seed)])


def seeds(text: str) -> list[int]:
    """Return the seeds of `0..999`, `1,5,9` or both, each once, in the order in which they are written."""
    found: dict[int, None] = {}
    for part in (part.strip() for part in text.split(",")):
        match = RANGE.fullmatch(part)
        if match is None:
            raise InputError(
                f"--seeds: {part!r} is not a seed or a range of seeds", hint="For example --seeds 0..99,200."
            )
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise InputError(f"--seeds: {part}: the end is before the start", hint=f"Write {last}..{first}.")
        if last > LARGEST_SEED:
            raise InputError(f"--seeds: {last} is too large", hint=f"The largest seed is {LARGEST_SEED}.")
        if last - first >= MOST:
            raise too_many(last - first + 1)
        found |= dict.fromkeys(range(first, last + 1))
    return [*found]


def too_many(count: int) -> InputError:
    return InputError(f"a sweep of {count} runs is too large: at most {MOST}", hint="Name fewer --seeds.")
