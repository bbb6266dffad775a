"""Traffic in a lab: RC queue pairs, perftest and rping, counters of bytes, distributed jobs."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from testbed.workload.attributes import Attributes as Attributes
    from testbed.workload.completion import Completion as Completion
    from testbed.workload.jobs.job import Failure as Failure
    from testbed.workload.jobs.job import Job as Job
    from testbed.workload.jobs.mpi import mpirun as mpirun
    from testbed.workload.jobs.torchrun import torchrun as torchrun
    from testbed.workload.queue_pair import ConnectError as ConnectError
    from testbed.workload.tools import Result as Result
    from testbed.workload.tools import Side as Side
    from testbed.workload.tools import perftest as perftest
    from testbed.workload.tools import rping as rping
    from testbed.workload.traffic import Traffic as Traffic
    from testbed.workload.verbs import Endpoint as Endpoint
    from testbed.workload.verbs import connect_pair as connect_pair
    from testbed.workload.verbs import connected as connected
    from testbed.workload.verbs import open_endpoint as open_endpoint

_HOMES = {
    "Attributes": "attributes",
    "Completion": "completion",
    "ConnectError": "queue_pair",
    "Endpoint": "verbs",
    "Failure": "jobs.job",
    "Job": "jobs.job",
    "Result": "tools",
    "Side": "tools",
    "Traffic": "traffic",
    "connect_pair": "verbs",
    "connected": "verbs",
    "mpirun": "jobs.mpi",
    "open_endpoint": "verbs",
    "perftest": "tools",
    "rping": "tools",
    "torchrun": "jobs.torchrun",
}
__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    """Imports on first use: verbs need a library that is not there where scenarios are only described."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
