"""The clusters in which incidents happen: the ranks of the job there, and the traffic of others."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from testbed.lab import Lab
from testbed.scenario.incident import workers
from testbed.scenario.incident.site import OTHERS, RANKS
from testbed.workload import Job, mpirun
from testbed.workload.jobs.placement import Place


def hosts(lab: Lab) -> Sequence[Place]:
    """Return the places of ranks on hosts themselves."""
    return [lab.host(name) for name in RANKS]


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
        mca={"coll_tuned_use_dynamic_rules": "1", "coll_tuned_allreduce_algorithm": "4"},
        restart_s=restart_s,
    )
