"""The clusters in which incidents happen: the ranks of the job there, and the traffic of others."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from testbed.errors import TestbedError
from testbed.lab import Lab
from testbed.scenario.incident import workers
from testbed.scenario.incident.site import OTHERS, RANKS
from testbed.workload import Job, mpirun
from testbed.workload.jobs.placement import Place


def hosts(lab: Lab) -> Sequence[Place]:
    """Return the places of ranks on hosts themselves."""
    return [lab.host(name) for name in RANKS]


def known_to_gateways(lab: Lab) -> Sequence[Place]:
    """Return the hosts of ranks, which their gateways know: an anycast gateway of another leaf cannot ask a host."""
    for host in (lab.host(name) for name in RANKS):
        gateway = host["eth1"].address().network[1]
        if not host.ping(gateway, within=5):
            raise TestbedError(f"{host} does not reach its gateway {gateway}")
    return hosts(lab)


def beside_snapshots(lab: Lab) -> Sequence[Place]:
    """Return the hosts of ranks, where each storage node writes snapshots to the backup node of the other rack: 330 kB
    every four seconds by four queue pairs, in the lossless class."""
    program = "ib_send_bw -F -e -x 1 -q 4 -n 5 -t 5 -s 16384 -m 4096 -u 20 --tclass=106"
    for store, backup in (("store1", "backup2"), ("store2", "backup1")):
        receives = f"while :; do {program} -d {backup}-eth1; done"
        sends = f"while sleep 4; do {program} -d {store}-eth1 {lab.host(backup)['eth1'].address().ip}; done"
        lab.host(backup).launch("sh", "-c", receives, "snapshot-receiver")
        lab.host(store).launch("sh", "-c", sends, "snapshot-sender")
    return hosts(lab)


@dataclass(frozen=True)
class Scene:
    """A cluster. `flows` are pings between others; `serves` says in the ticket whom nobody may hurt."""

    topology: str
    flows: Sequence[tuple[str, str]]
    serves: str
    places: Callable[[Lab], Sequence[Place]] = hosts
    """Where the ranks are, in their order; what they need is made there, such as pods."""
    environment: Mapping[str, str] | None = None
    """Variables of the ranks: settings of UCX."""
    arguments: Sequence[str] = ()
    """Of the job's program."""
    pods: Sequence[str] = ()
    """Those that `places` makes."""
    mca: Mapping[str, str] = field(default_factory=dict)
    """Parameters of Open MPI, beside those of all clusters."""


SCENES: Mapping[str, Scene] = {
    "cluster": Scene(
        "cluster.clab.yml",
        (("store1", "store2"), ("web1", "web2"), ("web1", "store1"), ("web2", "store2")),
        f"{', '.join(OTHERS[:-1])} and {OTHERS[-1]} serve others.",
    ),
    "pods": Scene(
        "pods.clab.yml",
        (("store1", "store2"), ("web1", "web2"), ("web1", "store1"), ("web2", "store2")),
        f"{', '.join(OTHERS[:-1])} and {OTHERS[-1]} serve others.",
        workers.place,
        pods=[worker.pod for worker in workers.WORKERS],
    ),
    "evpn": Scene(
        "evpn.clab.yml",
        (("store1", "store2"), ("web1", "web2"), ("web1", "store1"), ("web2", "store2")),
        f"{', '.join(OTHERS[:-1])} and {OTHERS[-1]} serve others.",
        places=known_to_gateways,
    ),
    "lossless": Scene(
        "lossless.clab.yml",
        (("store1", "store2"), ("web1", "web2"), ("web1", "store1"), ("web2", "store2")),
        f"{', '.join(OTHERS[:-1])} and {OTHERS[-1]} serve others. Backups can wait.",
        places=beside_snapshots,
        environment={"UCX_IB_TRAFFIC_CLASS": "106", "UCX_RC_VERBS_TIMEOUT": "4s"},
        arguments=("--compute", "0.3", "--repeat", "20", "--hot", "0", "2"),
        mca={"coll_tuned_alltoallv_algorithm": "1"},
    ),
}
"""Clusters by the name in their topology file."""


def start(scene: Scene, lab: Lab, program: str, restart_s: float) -> Job:
    """Start the job of a cluster, which its controller starts again `restart_s` seconds after each of its ends."""
    return mpirun(
        lab,
        scene.places(lab),
        program,
        *scene.arguments,
        launcher=lab.host("launcher"),
        environment=scene.environment,
        mca={"coll_tuned_use_dynamic_rules": "1", "coll_tuned_allreduce_algorithm": "4", **scene.mca},
        restart_s=restart_s,
    )
