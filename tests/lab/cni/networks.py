"""Conflists that the tests share, and plugins of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

ROUTED, FLAT = "routed.clab.yml", "flat.clab.yml"


def ipam(subnet: int, first: int = 100, last: int = 109) -> dict[str, Any]:
    """host-local with the addresses 10.0.<subnet>.<first> to .<last>; the leaf is their gateway."""
    addresses = {
        "subnet": f"10.0.{subnet}.0/24",
        "rangeStart": f"10.0.{subnet}.{first}",
        "rangeEnd": f"10.0.{subnet}.{last}",
        "gateway": f"10.0.{subnet}.1",
    }
    return {"type": "host-local", "ranges": [[addresses]], "routes": [{"dst": "0.0.0.0/0"}]}


def network(*plugins: dict[str, Any], name: str = "rdma", version: str = "1.0.0") -> dict[str, Any]:
    return {"cniVersion": version, "name": name, "plugins": list(plugins)}


def macvlan(addresses: dict[str, Any], *more: dict[str, Any], version: str = "1.0.0") -> dict[str, Any]:
    """A network for RDMA: macvlan on eth1, rxe, and `more` behind it."""
    first = {"type": "macvlan", "master": "eth1", "capabilities": {"mac": True}, "ipam": addresses}
    return network(first, {"type": "rxe"}, *more, version=version)


def bridge(name: str = "metadata") -> dict[str, Any]:
    """A network of the node's own, with the node as its gateway."""
    addresses = {"type": "host-local", "ranges": [[{"subnet": "10.244.1.0/24"}]]}
    return network({"type": "bridge", "bridge": "cni0", "isGateway": True, "ipam": addresses}, name=name)


def write_plugin(directory: Path, name: str, add: str, delete: str = ":") -> None:
    """A plugin whose ADD and DEL are shell commands. `directory` is one of CNI_PATH."""
    directory.mkdir(exist_ok=True)
    file = directory / name
    file.write_text(f"""\
#!/bin/sh
case $CNI_COMMAND in
VERSION) echo '{{"cniVersion": "1.0.0", "supportedVersions": ["1.0.0"]}}' ;;
ADD) {add} ;;
DEL) {delete} ;;
esac
""")
    file.chmod(0o755)
