"""The cache in which a runtime keeps the result of each ADD for CHECK and DEL, in libcni's format (libcni/api.go).

One file an attachment: ``<directory>/results/<network>-<container>-<interface>``.
"""

import base64
import contextlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from testbed.cni.spec import Result
from testbed.cni.spec.conflist import Attachment, Conflist

KIND = "cniCacheV1"


class Cache:
    """The cache of one node. `directory` is libcni's cacheDir, /var/lib/cni for the plugins."""

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
        """Return the result of the ADD. None if there is none, or its file cannot be read: such a file is deleted."""
        file = self.file(network, attachment)
        if not file.exists():
            return None
        entry = _entry(file)
        if entry is None:
            self.delete(network, attachment)
            return None
        result: Result = entry["result"]
        return result

    def attachments(self, network: str) -> list[Attachment]:
        """Return the attachments of a network that were added and not deleted, ordered by file name."""
        entries = map(_entry, sorted(self._results.iterdir()) if self._results.is_dir() else [])
        return [_attachment(entry) for entry in entries if entry and entry.get("networkName") == network]

    def delete(self, network: str, attachment: Attachment) -> None:
        with contextlib.suppress(FileNotFoundError):
            self.file(network, attachment).unlink()


def _entry(file: Path) -> dict[str, Any] | None:
    try:
        entry = json.loads(file.read_text())
    except ValueError:
        return None
    if isinstance(entry, dict) and entry.get("kind") == KIND and isinstance(entry.get("result"), dict):
        return entry
    return None


def _attachment(entry: Mapping[str, Any]) -> Attachment:
    arguments = dict(entry.get("cniArgs", []))
    container, netns = entry["containerId"], entry.get("netns", "")
    pod, capabilities = arguments.get("K8S_POD_NAME", container), entry.get("capabilityArgs", {})
    return Attachment(pod, container, netns, entry["ifName"], arguments, capabilities)
