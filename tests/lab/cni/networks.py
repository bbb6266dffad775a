"""Conflists that the tests share, and plugins of their own."""

import json
from pathlib import Path
from typing import Any, NamedTuple

from testbed import Lab, Pod

ROUTED, FLAT = "routed.clab.yml", "flat.clab.yml"
FAILS = {"cniVersion": "1.1.0", "code": 100, "msg": "no"}
"""An error that `recorder` ends with."""


def ipam(subnet: int, first: int = 100, last: int = 109) -> dict[str, Any]:
    """host-local with the addresses 10.0.<subnet>.<first> to .<last>; the leaf is their gateway."""
    addresses = {
        "subnet": f"10.0.{subnet}.0/24",
        "rangeStart": f"10.0.{subnet}.{first}",
        "rangeEnd": f"10.0.{subnet}.{last}",
        "gateway": f"10.0.{subnet}.1",
    }
    return {"type": "host-local", "ranges": [[addresses]], "routes": [{"dst": "0.0.0.0/0"}]}


def ippool(subnet: int, first: int = 100, last: int = 109, **keys: Any) -> dict[str, Any]:
    """The same with ippool."""
    pool = {
        "name": f"net{subnet}",
        "subnet": f"10.0.{subnet}.0/24",
        "ips": [f"10.0.{subnet}.{first}-10.0.{subnet}.{last}"],
        "gateway": f"10.0.{subnet}.1",
    }
    return {"type": "ippool", "pools": [pool], "routes": [{"dst": "0.0.0.0/0", "gw": f"10.0.{subnet}.1"}], **keys}


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


def recorder(number: int, answer: dict[str, Any] | None = None, **keys: Any) -> dict[str, Any]:
    """The configuration of the plugin that says what it is given."""
    return {"type": "recorder", "number": number, **({"answer": {**answer, "end": 0}} if answer else {}), **keys}


def make_pod(lab: Lab, *networks: dict[str, Any], name: str = "web") -> Pod:
    """Create a pod on node1."""
    return lab.pods.create(lab.host("node1"), name, list(networks))


def failed(kind: str = "macvlan", operation: str = "add", who: str = "pod web", network: str = "rdma") -> str:
    """The begin of each message about a plugin."""
    return f'{who}: plugin type="{kind}" name="{network}" failed ({operation}): '


class Call(NamedTuple):
    """One call of the plugin `recorder`."""

    command: str
    environment: dict[str, str]
    stdin: dict[str, Any]
    there: bool
    """Whether the namespace was there."""
    namespace: str
    """The network namespace in which it ran, as in /proc/self/ns/net."""


def calls(lab: Lab, node: str) -> list[Call]:
    """The calls of `recorder` on a node, from the log of its plugins."""
    log = lab.directory / f"{node}-cni.log"
    told = [json.loads(line) for line in log.read_text().splitlines() if line[0] == "{"] if log.exists() else []
    return [Call(one["environment"]["CNI_COMMAND"], **one) for one in told]


def under_way(lab: Lab, node: str) -> list[list[tuple[str, str]]]:
    """Command and container of the calls of `recorder` that were under way together, whenever one began."""
    now: list[tuple[str, str]] = []
    found = []
    for line in (lab.directory / f"{node}-cni.log").read_text().splitlines():
        if line[0] == "{":
            environment = json.loads(line)["environment"]
            now.append((environment["CNI_COMMAND"], environment["CNI_CONTAINERID"]))
            found.append([*now])
        elif line.startswith("ended "):
            _, command, container = f"{line} ".split(" ")[:3]
            now.remove((command, container))
    return found


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
