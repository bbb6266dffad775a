"""`testbed bench pods`: the number of pods with RDMA devices that fit into a machine."""

import itertools
import re
from pathlib import Path

from testbed.executor import Context
from testbed.executor.bench import Cluster, ippool, macvlan, percentile, present
from testbed.lab import Pod
from testbed.protocol import PodsRow
from testbed.protocol.requests import PodsBench
from testbed.scenario.event_log import EventLog
from testbed.workload.queue_pair import ConnectError
from testbed.workload.verbs import connected


def run(request: PodsBench, context: Context) -> PodsRow:
    log = EventLog(lambda event: context.emit({"event": event}))
    cluster = Cluster(request.nodes, request.at_once, context.out / "lab", log.emit)
    with cluster.lab:
        network = macvlan(ippool(request.pods), {"type": "rxe"})
        hosts = itertools.cycle(cluster.hosts(request.nodes))
        wanted = [(host, f"pod{number}", [network]) for number, host in zip(range(request.pods), hosts, strict=False)]
        before = memory_mb()
        made, create_s = cluster.timed(f"{request.pods} pods are there", lambda: cluster.create(wanted))
        pods = present(made)
        after = memory_mb()
        # Each is in a pair with the next one, which is on the next node; the last of an odd number with the first.
        pairs = list(zip(pods[::2], [*pods[1::2], *pods[:1]], strict=False))
        failed, _ = cluster.timed(f"{len(pairs)} pairs have written", lambda: sum(not writes(*pair) for pair in pairs))
        _, delete_s = cluster.timed("all are gone", lambda: cluster.delete(pods))
    return {
        "pods": request.pods,
        "nodes": request.nodes,
        "create_s": create_s,
        "delete_s": delete_s,
        "add_p50_ms": percentile(cluster.adds, 50) * 1000,
        "add_p99_ms": percentile(cluster.adds, 99) * 1000,
        "memory_mb": after,
        "pod_mb": (after - before) / request.pods,
        "writes": len(pairs),
        "failed": failed + sum(not isinstance(pod, Pod) or not pod["eth0"].rdma for pod in made),
    }


def writes(near: Pod, far: Pod) -> bool:
    """Return whether an RDMA WRITE from one pod to the other arrives."""
    try:
        with connected(near["eth0"], far["eth0"]) as (here, there):
            return here.write(4096, within=5).ok and there.load(0, 4096) == here.load(0, 4096)
    except ConnectError:
        return False


def memory_mb() -> float:
    """Return the machine's memory that is in use."""
    found = dict(re.findall(r"^(\w+):\s+(\d+) kB$", Path("/proc/meminfo").read_text(), re.MULTILINE))
    return (int(found["MemTotal"]) - int(found["MemAvailable"])) / 1024
