"""What others did to the scene `pods` before: harmless changes that mislead, and fixes that were tried."""

from random import Random

from testbed.scenario.incident.site import uplink
from testbed.scenario.incident.trouble import PKILL, Started, Trace, Typed
from testbed.scenario.incident.workers import FREE, WORKERS, Worker


def new_pod(r: Random) -> Trace:
    at, pod = r.choice(WORKERS), "dashboard-0"
    ip = f"{at.network}.{FREE[1]}"
    return Trace(
        f"The data team started {pod} on {at.host} today, with {ip} on the pods' network. It began soon after.",
        [Started(at.host, pod, [at.attached("dashboards", ip)])],
    )


def clean_up(r: Random) -> Trace:
    at = r.choice(WORKERS)
    script = "mkdir -p /var/lib/cni/networks/retired; touch /var/lib/cni/networks/retired/10.1.99.7"
    return Trace(
        f"A job on {at.host} cleans /var/lib/cni since yesterday. Perhaps it took too much away.",
        [Typed(at.host, f"sh -c '{script}'")],
    )


def upgrade(r: Random) -> Trace:
    at = r.choice(WORKERS)
    return Trace(f"The CNI plugins of {at.host} were upgraded this morning. We would roll that back.", [])


def drained_node(r: Random) -> Trace:
    at = r.choice(WORKERS)
    return Trace(f"{at.host} was drained for a new disk last night, and is back. We suspect {at.host}.", [])


MISLEADING = [new_pod, clean_up, upgrade, drained_node]


def restarted(at: Worker) -> list[Typed]:
    """Return what has the job start again: connections that are there keep their MACs."""
    return [Typed(at.pod, f"sh -c '{PKILL} -KILL'")]


def shrunk(r: Random) -> Trace:
    at = r.choice(WORKERS)
    node, port = at.node.port.split(":")
    return Trace(
        f"The night shift set the MTU of {at.node.port} to 1500, to rule out large packets. It did not help, and "
        "is still so.",
        [Typed(node, f"ip link set {port} mtu 1500")],
        [f"exec {node} -- ip link set {port} mtu 9000"],
        at.part,
    )


def detoured(r: Random) -> Trace:
    at = r.choice(WORKERS)
    far = r.choice([other for other in WORKERS if other.leaf != at.leaf])
    return Trace(
        f"The night shift gave {at.pod} a route of its own to {far.pod} ({far.ip}), by way of {at.mate.ip}. They "
        "restarted the job. It did not help, and is still there.",
        [Typed(at.pod, f"ip route add {far.ip}/32 via {at.mate.ip} dev net1"), *restarted(at)],
        [f"exec {at.pod} -- ip route del {far.ip}/32"],
        at.part | far.part,
    )


def pinned(r: Random) -> Trace:
    at = r.choice(WORKERS)
    mate, mac = at.mate, "02:00:00:00:88:01"
    return Trace(
        f"The night shift pinned the MAC of {mate.ip} in {at.pod} to the one in the manifest of last week, {mac}. It "
        "did not help, and is still there.",
        [Typed(at.pod, f"ip neigh replace {mate.ip} lladdr {mac} nud permanent dev net1"), *restarted(at)],
        [f"exec {at.pod} -- ip neigh del {mate.ip} dev net1"],
        at.part | mate.part,
    )


def isolated(r: Random) -> Trace:
    leaf = r.choice(["leaf1", "leaf2"])
    near, _ = uplink(leaf, 1)
    node, port = near.split(":")
    return Trace(
        f"The night shift took the uplink of {leaf} out, {near}, to look at the optics. It is still down.",
        [Typed(node, f"ip link set {port} down")],
        [f"exec {node} -- ip link set {port} up"],
        frozenset({"uplinks", leaf}),
    )


TRIED = [shrunk, detoured, pinned, isolated]
