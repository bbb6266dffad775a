"""Traffic in a lab: RC queue pairs, perftest and rping, counters of bytes, distributed jobs."""

from testbed.workload.attributes import Attributes as Attributes
from testbed.workload.collectives.engine import CollectiveError as CollectiveError
from testbed.workload.collectives.group import Group as Group
from testbed.workload.collectives.results import CollectiveResult as CollectiveResult
from testbed.workload.collectives.results import bandwidth_table as bandwidth_table
from testbed.workload.completion import Completion as Completion
from testbed.workload.flow import Flow as Flow
from testbed.workload.jobs.job import Failure as Failure
from testbed.workload.jobs.job import Job as Job
from testbed.workload.jobs.mpi import mpirun as mpirun
from testbed.workload.jobs.torchrun import torchrun as torchrun
from testbed.workload.queue_pair import ConnectError as ConnectError
from testbed.workload.streams import Stream as Stream
from testbed.workload.streams import Streams as Streams
from testbed.workload.streams import fairness as fairness
from testbed.workload.tools import Result as Result
from testbed.workload.tools import Side as Side
from testbed.workload.tools import perftest as perftest
from testbed.workload.tools import rping as rping
from testbed.workload.traffic import Traffic as Traffic
from testbed.workload.verbs import Endpoint as Endpoint
from testbed.workload.verbs import connect_pair as connect_pair
from testbed.workload.verbs import connected as connected
from testbed.workload.verbs import open_endpoint as open_endpoint
