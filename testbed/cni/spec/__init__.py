"""The CNI specification as data: configurations, results, their versions, and errors. No plugin is called here."""

from collections.abc import Mapping
from typing import Any

VERSION, ENVIRONMENT, IO, DECODE, CONFIG, NETNS, LATER, UNAVAILABLE, OWN = 1, 4, 5, 6, 7, 8, 11, 50, 100
"""Error codes: CNI specification 1.1.0, section 5; `NETNS` is libcni's own. From `OWN` on they are a plugin's own."""

SUPPORTED = ("0.3.1", "0.4.0", "1.0.0", "1.1.0")
"""The versions of conflists. 0.3.0 and earlier are no longer used."""
RESULTS = ("0.3.0", *SUPPORTED)
"""The versions of results: a plugin may answer in another version than that of the request."""
NEW_IN_1_1 = {"interfaces": ("mtu", "socketPath", "pciID"), "routes": ("mtu", "advmss", "priority", "table", "scope")}
"""The keys of the entries of a result that 1.0 does not know."""

Result = dict[str, Any]


def at_least(version: str, other: str) -> bool:
    """Return whether `version` is not older than `other`; both are known ones."""
    return RESULTS.index(version) >= RESULTS.index(other)


def convert(result: Mapping[str, Any], version: str) -> Result:
    """Return the result in the format of `version`. What that version cannot hold is lost, as in libcni;
    `ips[].version`, the address family, exists only before 1.0."""
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
