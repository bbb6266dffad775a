"""The CNI specification as data: configurations, results, their versions, and errors. No plugin is called here."""

from collections.abc import Mapping
from typing import Any

VERSION, ENVIRONMENT, IO, DECODE, CONFIG, NETNS, LATER, UNAVAILABLE, OWN = 1, 4, 5, 6, 7, 8, 11, 50, 100
"""Error codes: CNI specification 1.1.0, section 5; `NETNS` is libcni's own. From `OWN` on they are a plugin's own."""

OLDEST = "0.1.0"
"""The version of a configuration that names none."""
SUPPORTED = (OLDEST, "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0")
"""The versions of conflists and of results: a plugin may answer in another version than that of the request."""
IPS_SINCE = "0.3.0"
"""The version since which a result has `interfaces`, `ips` and `routes`; before it had `ip4` and `ip6`."""
NEW_IN_1_1 = {"interfaces": ("mtu", "socketPath", "pciID"), "routes": ("mtu", "advmss", "priority", "table", "scope")}
"""The keys of the entries of a result that 1.0 does not know."""

Result = dict[str, Any]


def at_least(version: str, other: str) -> bool:
    """Return whether `version` is not older than `other`; both are known ones."""
    return SUPPORTED.index(version) >= SUPPORTED.index(other)


def convert(result: Mapping[str, Any], version: str) -> Result:
    """Return the result in the format of `version`, of versions before 0.3.0 in that of 0.3.0. What a version cannot
    hold is lost, as in libcni; `ips[].version`, the address family, exists only before 1.0."""
    if "ip4" in result or "ip6" in result:
        result = _since_ips(result)
    converted: Result = {"cniVersion": version}
    for key in "interfaces", "ips", "routes":
        if entries := result.get(key):
            converted[key] = [_entry(key, entry, version) for entry in entries]
    converted["dns"] = dict(result.get("dns") or {})
    return converted


def _since_ips(result: Mapping[str, Any]) -> Result:
    found = [(family, result[family]) for family in ("ip4", "ip6") if result.get(family)]
    ips = [
        {"address": part["ip"], **({"gateway": part["gateway"]} if part.get("gateway") else {})} for _, part in found
    ]
    return {"ips": ips, "routes": [route for _, part in found for route in part.get("routes") or ()], **result}


def written(result: Mapping[str, Any]) -> Result:
    """Return a converted result as its version writes it: before 0.3.0 without interfaces, with the first address of
    each family."""
    if at_least(result["cniVersion"], IPS_SINCE):
        return dict(result)
    old: Result = {"cniVersion": result["cniVersion"]}
    for key, sign in ("ip6", True), ("ip4", False):
        if part := next((entry for entry in result.get("ips", ()) if (":" in entry["address"]) == sign), None):
            routes = [route for route in result.get("routes", ()) if (":" in route["dst"]) == sign]
            gateway = {"gateway": part["gateway"]} if part.get("gateway") else {}
            old[key] = {"ip": part["address"], **gateway, **({"routes": routes} if routes else {})}
    return {**old, "dns": result.get("dns", {})}


def _entry(key: str, entry: Mapping[str, Any], version: str) -> dict[str, Any]:
    unknown = () if at_least(version, "1.1.0") else NEW_IN_1_1.get(key, ())
    kept = {name: value for name, value in entry.items() if name not in unknown}
    if key == "ips":
        kept.pop("version", None)
        if not at_least(version, "1.0.0"):
            kept = {"version": "6" if ":" in str(entry.get("address")) else "4", **kept}
    return kept
