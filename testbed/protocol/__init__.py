"""The plain data that crosses the border between the user's machine and the inside of a lab machine, named here once.

`machine` and `cli` run outside; everything else runs inside, on a micro-VM's kernel or on this one. Neither imports the
other, both import this. Here are names, limits and records; `requests` has what a machine can be asked, `messages` how
requests and what comes back are written, `events` the kinds of events, `flight` the lines of flight.jsonl.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Literal, NotRequired

if TYPE_CHECKING:
    from typing import TypedDict
else:
    try:
        from typing_extensions import TypedDict  # typing's can be validated from Python 3.12 on
    except ImportError:  # set-up asks which packages are missing before any is there
        from typing import TypedDict

GraphStyle = Literal["svg", "mermaid", "dot"]
Observed = Literal["fault", "healthy"]
Clock = Literal["virtual", "real"]
LeftoverKind = Literal[
    "process", "interface", "RDMA device", "namespace", "file", "mount", "trace", "sysctl", "RDMA netns mode"
]
ENTRY = "testbed.executor:run"
"""The function that runs a job bundle inside."""
BEGIN, COMPLETE = "testbed.stages:begin", "testbed.stages:complete"
"""The functions that the two snapshots of our code call once, before they are taken."""
TORCH = "ranks:prepare"
"""The same of the snapshot for training jobs, below the one with our code (workload/jobs/ranks.py)."""
DOCKER = "daemon:prepare"
COMPILE = "bytecode:prepare"
"""The same of the snapshot for labs with containers (lab/docker/daemon.py)."""
OWNS = "owns"
"""The argument by which a job on this very kernel is one that builds labs."""
RUNS = "/run/testbed/runs"
"""The records of runs that own something on this kernel (kernel/ownership.py)."""
JOB, FILES = "job.json", "files"
"""In a job bundle: the requests with their limits, and the directory of the user's files, none of which can take the
place of the other."""

BUNDLE_BYTES = 256 << 20
"""Size of the device with a job bundle."""
FILES_BYTES = 60 << 20
"""All files of the user's in a bundle. Debian packages for a layer may fill the rest."""
RESULT_BYTES = 1 << 30
"""Size of the device with what a job leaves: messages and files."""
WIRE_BYTES = 8 << 20
"""At the end of each of the two devices: what goes to and fro while a machine lives (executor/wire.py)."""
MESSAGE_BYTES = 16 << 20
"""A message from a machine; a report beyond it is dropped, a response is an error."""
MESSAGE_DEPTH = 50
"""Levels of lists and objects in a message; ours have five."""

LAYER = "layer.erofs"
"""The file system that a request for a layer leaves."""
OUTPUT = "output.log"
"""The output of a job's process, among its files."""
RESULT, SCENARIO = "result.json", "scenario"
"""Beside the directories of its variants a run's directory has its result, and a copy of the scenario's files."""
REPORT, INDEX = "report.html", "index.html"
"""The report of a run in its directory, and the index of a directory of runs."""
EVENTS, TOPOLOGY, TABLES, PACKETS = "events.jsonl", "topology.json", "tables.jsonl", "packets.pcapng"
COUNTERS, RANKS = "counters.jsonl", "ranks.json"
TESTS, EPOCH = "tests.jsonl", "epoch.json"
"""In the directory of a variant."""
GIVEN_PROGRAM = ".program"
"""Among a scenario's files the directory of a program of the user's that it runs, with all beside it."""
FLIGHT = "flight.jsonl"
"""In the directory of a job."""
VARIANT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""Names of variants: they are directories too."""
DEBIAN_PACKAGE = re.compile(r"[a-z0-9][a-z0-9+.-]*[a-z0-9+]")
"""Names of Debian packages."""


class Problem(TypedDict):
    message: str
    where: str


class Failure(Problem):
    """An error of testbed's tree as data."""

    hint: str
    also: list[Problem]
    status: Literal[1, 2, 3]


class Tested(TypedDict):
    """The end of a test, or of a file that pytest could not collect. `directory` is the test's tmp_path below that of
    the run, if any; `text` is why it failed or was skipped."""

    test: str
    outcome: str
    virtual_s: float
    directory: str
    text: str


class Leftover(TypedDict):
    """What a run on this kernel left that was killed. `problem` is why it could not be removed, if it could not."""

    run: str
    kind: LeftoverKind
    name: str
    problem: str


class CniAnswer(TypedDict):
    """`result` is that of ADD; `kept` what stays of a node's first pod when DEL is done, in words."""

    result: dict[str, Any] | None
    kept: list[str]


class IpamRow(TypedDict):
    """What an IPAM plugin cost. `addresses` are those of each family. `add_…` is ADD of the network with macvlan,
    `ipam_…` that of the IPAM plugin alone.

    `waste` are pods without an address though there is one for each, `conflicts` addresses of several pods, `leaks`
    addresses that are held when all pods are gone."""

    ipam: str
    pods: int
    addresses: int
    create_s: float
    recreate_s: float
    delete_s: float
    add_p50_ms: float
    add_p99_ms: float
    ipam_p50_ms: float
    ipam_p99_ms: float
    conflicts: int
    waste: int
    leaks: int


class PodsRow(TypedDict):
    """What pods with RDMA devices cost that are there at the same time. `memory_mb` is what of the machine's memory is
    in use with them, `pod_mb` a pod's share; `failed` are pods without a device, and WRITEs that failed."""

    pods: int
    nodes: int
    create_s: float
    delete_s: float
    add_p50_ms: float
    add_p99_ms: float
    memory_mb: float
    pod_mb: float
    writes: int
    failed: int


class RankRow(TypedDict):
    """What is known of a rank of a training job. Times are seconds; None where there was no such step. The first step
    includes the program's start, so it is in neither the median nor the slowest."""

    rank: int
    host: str
    steps: int
    first_s: float | None
    median_s: float | None
    slowest_s: float | None
    slowest_step: int | None
    slowest_at_s: float | None
    """When it began, since the variant did."""
    saw: str
    """`completed`, or what the rank's output has of its end: a completion status, an exception."""


class JobRow(TypedDict):
    """The end of a training job: ranks.json. `failure` is empty when it completed; `fault_s` is when the first fault
    came, since the job's start; `missed` are faults that never came."""

    failure: str
    job_s: float
    fault_s: float | None
    missed: list[str]
    ranks: list[RankRow]


class Event(TypedDict):
    """A line of events.jsonl. `t` is nanoseconds since the variant began; `events` has the kinds and their data."""

    t: int
    kind: str
    node: str
    text: str
    data: dict[str, Any]


class Epoch(TypedDict):
    """A variant's t = 0 on the clocks of its other files, in nanoseconds. The time of a packet in a pcap is
    CLOCK_REALTIME: less `realtime_ns` it is the `t` of events. Times in kernel.log are less `kernel_ns` the same."""

    realtime_ns: int
    monotonic_ns: int
    kernel_ns: int | None


class Made(TypedDict):
    """The inputs of a variant: all parameters, defaults included, and the plan as `topology check --json` has it."""

    parameters: dict[str, Any]
    topology: PlanRows
    epoch: Epoch


class Note(TypedDict):
    """A key of a topology file that has no effect in a lab, or another than it may have been written for: why, the
    place where it stands first, and the lines of all places."""

    key: str
    where: str
    text: str
    lines: list[int]


class InterfaceRow(TypedDict):
    """An interface of a planned node, or an SVI, which has no peer. Texts are empty where there is nothing."""

    node: str
    kind: str
    interface: str
    peer: str
    mac: str
    address: str
    address6: str
    gateway: str
    gateway6: str
    vlan: int | None
    trunk: list[int]
    routed: bool
    rdma: str | None
    profile: NotRequired[str]
    """Of a switch."""


class PlanRows(TypedDict):
    """A planned topology."""

    name: str
    interfaces: list[InterfaceRow]


class PlanInfo(PlanRows):
    """The plan of a topology file."""

    notes: list[Note]
    images: list[str]
    """Of its nodes that are containers."""
    binds: list[str]
    """Paths of what these have from beside the topology file."""


class ConvertedPlan(PlanInfo):
    """The same of a file of Mininet's; `text` is the topology file made of it."""

    text: str


class Picture(TypedDict):
    """A drawing of a topology file."""

    text: str
    notes: list[Note]


class ProfileValue(TypedDict):
    """Of a switch profile; `source` is a letter, see `testbed profile describe`."""

    value: Any
    unit: str
    source: str
    text: str


class ProfileInfo(TypedDict):
    name: str
    about: str
    values: dict[str, ProfileValue]


class FaultInfo(TypedDict):
    """`parameters` is the JSON Schema of the fault's parameters."""

    name: str
    title: str
    text: str
    parameters: ParametersSchema


class ParameterSchema(TypedDict):
    """The part of a parameter's JSON Schema that is shown."""

    type: NotRequired[Any]
    default: NotRequired[Any]
    description: NotRequired[str]
    enum: NotRequired[list[Any]]


class ParametersSchema(TypedDict):
    """The part of the JSON Schema of parameters that is used."""

    properties: NotRequired[dict[str, ParameterSchema]]
    required: NotRequired[list[str]]


class VariantInfo(TypedDict):
    """`settings` is what it changes of the parameters' defaults, the user's settings that count for it included."""

    name: str
    expected: Observed
    text: str
    settings: dict[str, Any]


class ScenarioInfo(TypedDict):
    """The description of a scenario; `parameters` is the JSON Schema of its parameters, whole."""

    name: str
    title: str
    text: str
    tags: list[str]
    parameters: ParametersSchema
    variants: list[VariantInfo]
    compared: str
    """The variant for `testbed matrix`."""
    limit_s: float
    busy_limit_s: float
    training: bool
    notes: list[Note]
    """Of the topology files of its variants."""
    packages: list[str]
    """Debian packages beside those of the image."""
    images: list[str]
    """Images of the containers of its variants' labs."""


class VariantOutcome(TypedDict):
    """The verdict on a variant: as expected without `failures`. `trace` is the SHA-256 of its events.jsonl."""

    observed: Observed | None
    evidence: dict[str, Any]
    failures: list[str]
    trace: str
    virtual_s: float
