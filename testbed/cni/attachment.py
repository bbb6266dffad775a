"""One interface of a container on one network: libcni's RuntimeConf."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Attachment:
    """`pod` is what messages call the container."""

    pod: str
    container: str
    netns: str
    """Path of its network namespace."""
    interface: str
    arguments: Mapping[str, str] = field(default_factory=dict)
    """CNI_ARGS."""
    capabilities: Mapping[str, Any] = field(default_factory=dict)
    """Values for plugins that declare the capability, `mac` for example."""
