"""The request to probe all pairs of NICs of a lab."""

from testbed.errors import InputError
from testbed.executor.live.changing import nic, with_rdma
from testbed.executor.live.server import Call
from testbed.lab import HostInterface
from testbed.lab.nodes.host_node import Host
from testbed.protocol import live
from testbed.protocol.live import ProbedMesh
from testbed.topology import Family
from testbed.workload.probes.mesh import Mesh, Pair
from testbed.workload.probes.mesh import probe as probe_all


def probe(request: live.Probe, call: Call) -> list[ProbedMesh]:
    given = dict.fromkeys(one for name in request.nodes for one in named(call, name))
    nics = list(given) or all_nics(call, request.family)
    if not nics:
        raise InputError(f"no interface of the lab has an RDMA device and an IPv{request.family} address")
    call.lab.scheduler.catch_up()
    found = probe_all(
        nics,
        call.lab.nodes.values(),
        protocols=request.protocols,
        count=request.count,
        size=request.size,
        traffic_class=request.traffic_class,
        family=request.family,
    )
    rows = [row(mesh) for mesh in found]
    for one in rows:
        sent, arrived = (sum(pair[what] for pair in one["pairs"]) for what in ("sent", "arrived"))
        call.back.add(f"{one['protocol']}: {arrived} of {sent} probes arrived\n".encode())
        call.status = int(bool(call.status) or any(pair["arrived"] < request.count for pair in one["pairs"]))
    return rows


def all_nics(call: Call, family: Family) -> list[HostInterface]:
    """Return the interfaces with an RDMA device and an address."""
    hosts = [node for node in call.lab.nodes.values() if isinstance(node, Host) and not node.gone]
    return [end for node in hosts for end in node.interfaces.values() if usable(end, family)]


def usable(end: HostInterface, family: Family) -> bool:
    return bool(not end.gone and end.rdma and family in end.addresses)


def named(call: Call, name: str) -> list[HostInterface]:
    """Return an interface, or those of a host or pod."""
    if ":" not in name and isinstance(node := call.lab[name], Host):
        found = [end for end in node.interfaces.values() if not end.gone and end.rdma]
        return found or [with_rdma(nic(call, name))]
    return [with_rdma(nic(call, name))]


def row(mesh: Mesh) -> ProbedMesh:
    return {
        "protocol": mesh.protocol,
        "nics": [str(one) for one in mesh.nics],
        "bytes": mesh.size,
        "pairs": [pair_row(pair) for pair in mesh.pairs.values()],
        "lost_at": mesh.places(),
        "slow_ports": mesh.slow_ports(),
        "resent": mesh.resent,
        "unseen": mesh.unseen,
    }


def pair_row(pair: Pair) -> live.ProbedPair:
    times = [round(one / 1e3, 1) for one in sorted(pair.times_ns)]
    return {
        "source": str(pair.source),
        "target": str(pair.target),
        "sent": pair.sent,
        "arrived": pair.arrived,
        "shortest_us": times[0] if times else None,
        "median_us": pair.median_us,
        "longest_us": times[-1] if times else None,
        "error": pair.error,
        "paths": {" ".join(ports): count for ports, count in pair.paths.most_common()},
    }
