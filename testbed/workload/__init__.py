"""Traffic in a lab: RC queue pairs, perftest and rping, counters of bytes, distributed jobs."""

from testbed.workload.attributes import Attributes
from testbed.workload.completion import Completion
from testbed.workload.jobs.job import Failure, Job
from testbed.workload.jobs.mpi import mpirun
from testbed.workload.jobs.torchrun import torchrun
from testbed.workload.queue_pair import ConnectError
from testbed.workload.tools import Result, Side, perftest, rping
from testbed.workload.traffic import Traffic
from testbed.workload.verbs import Endpoint, connect_pair, connected, open_endpoint

__all__ = [
    "Attributes",
    "Completion",
    "ConnectError",
    "Endpoint",
    "Failure",
    "Job",
    "Result",
    "Side",
    "Traffic",
    "connect_pair",
    "connected",
    "mpirun",
    "open_endpoint",
    "perftest",
    "rping",
    "torchrun",
]
