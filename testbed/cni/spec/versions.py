"""Versions of the CNI specification that are spoken here, and what differs between them in a result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

SUPPORTED = ("0.3.1", "0.4.0", "1.0.0", "1.1.0")
"""Of conflists. 0.3.0 and before have no use any more."""
RESULTS = ("0.3.0", *SUPPORTED)
"""Of results: a plugin may answer in another one than it was asked in."""
NEW_IN_1_1 = {"interfaces": ("mtu", "socketPath", "pciID"), "routes": ("mtu", "advmss", "priority", "table", "scope")}
"""Keys of the entries of a result that 1.0 does not know."""

Result = dict[str, Any]


def at_least(version: str, other: str) -> bool:
    """Whether `version` is not older than `other`; both are known ones."""
    return RESULTS.index(version) >= RESULTS.index(other)


def convert(result: Mapping[str, Any], version: str) -> Result:
    """The result as `version` writes it. What that version has no place for is lost, as in libcni; `ips[].version`, the
    address family, is there before 1.0 and not since."""
    converted: Result = {"cniVersion": version}
    for key in "interfaces", "ips", "routes":
        if entries := result.get(key):
            converted[key] = [_entry(key, entry, version) for entry in entries]
    converted["dns"] = dict(result.get("dns") or {})
    return converted


def _entry(key: str, entry: Mapping[str, Any], version: str) -> dict[str, Any]:
    unknown = () if at_least(version, "1.1.0") else NEW_IN_1_1.get(key, ())
    kept = {name: value for name, value in entry.items() if name not in unknown}
    if key == "ips":
        kept.pop("version", None)
        if not at_least(version, "1.0.0"):
            kept = {"version": "6" if ":" in str(entry.get("address")) else "4", **kept}
    return kept
