"""The cache in which a runtime keeps the result of each ADD for CHECK and DEL, in libcni's format (libcni/api.go).

One file an attachment: ``<directory>/results/<network>-<container>-<interface>``.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
from pathlib import Path
from typing import Any

from testbed.cni.spec.conflist import Attachment, Conflist
from testbed.cni.spec.versions import Result

KIND = "cniCacheV1"


class Cache:
    """`directory` is libcni's cacheDir, /var/lib/cni as the plugins see it."""

    def __init__(self, directory: Path) -> None:
        self._results = directory / "results"

    def file(self, network: str, attachment: Attachment) -> Path:
        return self._results / f"{network}-{attachment.container}-{attachment.interface}"

    def write(self, conflist: Conflist, attachment: Attachment, result: Result) -> None:
        entry: dict[str, Any] = {
            "kind": KIND,
            "containerId": attachment.container,
            "config": base64.b64encode(conflist.data).decode(),
            "ifName": attachment.interface,
            "networkName": conflist.name,
            "netns": attachment.netns,
            "cniArgs": [list(pair) for pair in attachment.arguments.items()],
            "capabilityArgs": dict(attachment.capabilities),
            "result": result,
        }
        self._results.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(self.file(conflist.name, attachment), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(handle, "w") as file:
            json.dump({key: value for key, value in entry.items() if value}, file, separators=(",", ":"))

    def read(self, network: str, attachment: Attachment) -> Result | None:
        """The result of the ADD. None if there was none, or the file cannot be read: such a file is deleted."""
        file = self.file(network, attachment)
        try:
            entry = json.loads(file.read_text())
        except FileNotFoundError:
            return None
        except ValueError:
            entry = None
        if isinstance(entry, dict) and entry.get("kind") == KIND and isinstance(entry.get("result"), dict):
            result: Result = entry["result"]
            return result
        self.delete(network, attachment)
        return None

    def delete(self, network: str, attachment: Attachment) -> None:
        with contextlib.suppress(FileNotFoundError):
            self.file(network, attachment).unlink()
