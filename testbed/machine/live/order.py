"""The order that a starting command gives to the keeper of a lab."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from testbed.machine.live.labs import Lab


@dataclass(frozen=True)
class Order:
    """Order for a keeper. `request` and `files` make the job of its machine."""

    lab: Lab
    request: Mapping[str, Any]
    files: Mapping[str, bytes]
    executable: list[str]
    accelerator: Any
    seed: int
    packages: list[str]
    images: list[str]
    idle_s: float | None
    attached: bool
    """True if the lab ends with the connection of the command that starts it."""
    run: dict[str, Any] | None = None
    """The fields of `stoppable.RunOrder`, for a run that can be stopped instead of a lab."""

    def text(self) -> str:
        found = {**self.__dict__, "lab": self.lab.__dict__}
        files = {name: base64.b64encode(data).decode() for name, data in self.files.items()}
        return json.dumps({**found, "files": files})

    @classmethod
    def of(cls, text: str) -> Order:
        found = json.loads(text)
        files = {name: base64.b64decode(data) for name, data in found["files"].items()}
        return cls(**{**found, "lab": Lab(**found["lab"]), "files": files})
