"""Variants of a scenario."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from testbed.protocol import Observed


@dataclass(frozen=True)
class Variant:
    """A run of a scenario with its expected outcome. `settings` replaces defaults of the parameters, and stays unless
    the user names the variant."""

    name: str
    expected: Observed
    text: str
    settings: Mapping[str, Any] = field(default_factory=dict)
