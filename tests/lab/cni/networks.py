"""Conflists that the tests share, and a plugin of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

TOPOLOGY = "node.clab.yml"


def ipam(subnet: int, last: int = 109) -> dict[str, Any]:
    """host-local with the addresses 10.0.<subnet>.100 to .<last>, whose gateway is the leaf."""
    addresses = {
        "subnet": f"10.0.{subnet}.0/24",
        "rangeStart": f"10.0.{subnet}.100",
        "rangeEnd": f"10.0.{subnet}.{last}",
        "gateway": f"10.0.{subnet}.1",
    }
    return {"type": "host-local", "ranges": [[addresses]], "routes": [{"dst": "0.0.0.0/0"}]}


def network(*plugins: dict[str, Any], name: str = "rdma", version: str = "1.0.0") -> dict[str, Any]:
    return {"cniVersion": version, "name": name, "plugins": list(plugins)}


def macvlan(subnet: int, *more: dict[str, Any], last: int = 109, version: str = "1.0.0") -> dict[str, Any]:
    """A network for RDMA: macvlan on eth1, host-local, rxe, and `more` behind it."""
    first = {"type": "macvlan", "master": "eth1", "capabilities": {"mac": True}, "ipam": ipam(subnet, last)}
    return network(first, {"type": "rxe"}, *more, version=version)


def plugin(directory: Path, name: str, add: str, delete: str = "") -> None:
    """Makes a plugin of shell commands for ADD and DEL; a directory of CNI_PATH takes it."""
    directory.mkdir(exist_ok=True)
    file = directory / name
    file.write_text(f"""\
#!/bin/sh
case $CNI_COMMAND in
VERSION) echo '{{"cniVersion": "1.0.0", "supportedVersions": ["1.0.0"]}}' ;;
ADD) {add} ;;
DEL) {delete or ":"} ;;
esac
""")
    file.chmod(0o755)
