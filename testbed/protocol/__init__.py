"""Plain data exchanged between the user's machine and the inside of a lab machine, defined here once.

`machine` and `cli` run outside; everything else runs inside, on a micro-VM's kernel or on this one. Neither imports the
other, both import this. It has names, limits and records; `requests` has a machine's requests, `messages` the format of
requests and responses, `events` the kinds of events, `flight` the lines of flight.jsonl.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Literal, NotRequired

if TYPE_CHECKING:
    from typing import TypedDict
else:
    try:
        from typing_extensions import TypedDict  # typing's can be validated only from Python 3.12 on
    except ImportError:  # set-up checks for missing packages before any is there
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
"""Functions that the two snapshots of our code call once, before they are made."""
TORCH = "fork_server:prepare"
"""The function of the snapshot for training jobs, below the one with our code (workload/jobs/fork_server.py)."""
DOCKER = "daemon:prepare"
COMPILE = "bytecode:prepare"
"""The function of the snapshot for labs with containers (lab/docker/daemon.py)."""
OWNS = "owns"
"""The argument that marks a job on this very kernel as one that builds labs."""
RUNS = "/run/testbed/runs"
"""Records of runs that own something on this kernel (kernel/ownership.py)."""
JOB, FILES = "job.json", "files"
"""In a job bundle: the requests with their limits, and the directory of the user's files, which cannot replace them."""

BUNDLE_BYTES = 256 << 20
"""Size of the device with a job bundle, in bytes."""
FILES_BYTES = 60 << 20
"""Maximum of all user files in a bundle. Debian packages for a layer may fill the rest."""
RESULT_BYTES = 1 << 30
"""Size of the device with a job's messages and files, in bytes."""
WIRE_BYTES = 8 << 20
"""Bytes at the end of each of the two devices, for traffic with a live machine (executor/wire.py)."""
MESSAGE_BYTES = 16 << 20
"""Maximum of a message from a machine: a larger report is dropped, a larger response is an error."""
MESSAGE_DEPTH = 50
"""Levels of lists and objects in a message; ours have five."""

LAYER = "layer.erofs"
"""The file system that a request for a layer makes."""
OUTPUT = "output.log"
"""The output of a job's process, among its files."""
RESULT, SCENARIO = "result.json", "scenario"
"""A run's directory has its result and a copy of the scenario's files, beside the directories of its variants."""
REPORT, INDEX = "report.html", "index.html"
"""The report in a run's directory, and the index of a directory of runs."""
EVENTS, TOPOLOGY, TABLES, PACKETS = "events.jsonl", "topology.json", "tables.jsonl", "packets.pcapng"
COUNTERS, RANKS = "counters.jsonl", "ranks.json"
TESTS, EPOCH = "tests.jsonl", "epoch.json"
SESSION, STEPS = "session.jsonl", "steps"
"""Files in a variant's directory."""
HOST_FILES = frozenset({RESULT, SCENARIO, REPORT, INDEX, TOPOLOGY, SESSION, STEPS, "README.txt"})
"""Names that the user's machine alone writes into the directory of a run: a lab machine runs user code."""
GIVEN_PROGRAM = ".program"
"""In a scenario's files: the directory of a user's program that it runs, with all beside it."""
FLIGHT = "flight.jsonl"
"""A file in a job's directory."""
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
    """The result of a test, or of a file that pytest could not collect. `directory` is the test's tmp_path below the
    run's directory, if any; `text` is why it failed or was skipped."""

    test: str
    outcome: str
    virtual_s: float
    directory: str
    text: str


class Leftover(TypedDict):
    """A leftover of a killed run on this kernel. `problem` is why it could not be removed, if it could not."""

    run: str
    kind: LeftoverKind
    name: str
    problem: str


class CniAnswer(TypedDict):
    """The result of a CNI request: `result` is ADD's; `kept` is text on what remains of a node's first pod after
    DEL."""

    result: dict[str, Any] | None
    kept: list[str]


class IpamRow(TypedDict):
    """Measured costs of an IPAM plugin. `addresses` are those of each family. `add_…` is ADD of the network with
    macvlan, `ipam_…` that of the IPAM plugin alone.

    `waste` counts pods without an address though there is one for each, `conflicts` addresses of several pods, `leaks`
    addresses still held when all pods are gone."""

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
    """Measured costs of simultaneous pods with RDMA devices. `memory_mb` is the machine's memory in use with them,
    `pod_mb` a pod's share; `failed` counts pods without a device, and failed WRITEs."""

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
    """A rank of a training job. Times are seconds; None if there was no such step. The first step includes the
    program's start, so neither the median nor the slowest includes it."""

    rank: int
    host: str
    device: NotRequired[str]
    steps: int
    first_s: float | None
    median_s: float | None
    slowest_s: float | None
    slowest_step: int | None
    slowest_at_s: float | None
    """When the slowest step began, since the variant's start."""
    saw: str
    """`completed`, or the end in the rank's output: a completion status, an exception."""


HANDOVER = "the lab is handed over"
"""The step at which an incident waits for its answer."""
GRADE = "grade.json"


IncidentArea = Literal["arp", "fabric", "training", "cni", "lossless"]
IncidentLevel = Literal[1, 2, 3, 4, 5]


class IncidentSolution(TypedDict):
    """What was wrong, and what mends it: of each trouble its cause, the places that count as right, and its story."""

    causes: list[str]
    places: list[list[str]]
    since_s: float
    """When it went wrong, in seconds of the lab; `since` by the cluster's clock."""
    since: str
    stories: list[str]
    traces: list[str]
    """What others had done before."""
    mend: list[str]
    """The commands that mend it, as `testbed` takes them."""
    wrong: list[str]
    """Fixes that are often tried, and do not help."""


class IncidentGrade(TypedDict):
    """The grade of an incident: grade.json. docs/incidents.md defines each."""

    number: int
    area: IncidentArea
    level: IncidentLevel
    cause: float
    """The part of the causes that was named, 0 to 1; `place` as well."""
    place: float
    since: bool
    """Whether the time was right at which it went wrong."""
    mitigated: bool
    """Whether the job was well again."""
    mitigated_s: float | None
    """Virtual seconds from the ticket until it was; `answered_s` until the answer."""
    answered_s: float
    commands: list[str]
    """Those that can change something."""
    suffered: list[str]
    """Traffic of others that suffered since the ticket."""
    hints: int
    points: int
    """Of 100."""
    solution: IncidentSolution


class JobRow(TypedDict):
    """The result of a training job: ranks.json. `failure` is empty when it completed; `fault_s` is the time of the
    first fault since the job's start; `missed` are faults that never occurred."""

    failure: str
    earlier: NotRequired[list[str]]
    """The failures after which it was started again."""
    job_s: float
    fault_s: float | None
    missed: list[str]
    flows: NotRequired[dict[str, int]]
    """How many flows between ranks each port between switches sends."""
    ranks: list[RankRow]


class Event(TypedDict):
    """A line of events.jsonl. `t` is nanoseconds since the variant began; `events` has the kinds and their data."""

    t: int
    kind: str
    node: str
    text: str
    data: dict[str, Any]


class Epoch(TypedDict):
    """A variant's t = 0 on the clocks of its other files, in nanoseconds. Packet times in a pcap are CLOCK_REALTIME:
    minus `realtime_ns` they are the `t` of events. Times in kernel.log minus `kernel_ns` are too."""

    realtime_ns: int
    monotonic_ns: int
    kernel_ns: int | None


class Made(TypedDict):
    """The inputs of a lab: the plan as `topology check --json` has it, and its time zero."""

    topology: PlanRows
    epoch: Epoch


class Note(TypedDict):
    """A key of a topology file that has no effect in a lab, or maybe not the intended one: the reason, the place of its
    first use, and the lines of all uses."""

    key: str
    where: str
    text: str
    lines: list[int]


class VrrpRow(TypedDict):
    """A virtual router. Missing addresses are empty."""

    id: int
    address: str
    address6: str


class InterfaceRow(TypedDict):
    """An interface of a planned node, or an SVI, which has no peer. Missing texts are empty."""

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
    """The profile, of switches only."""
    master: NotRequired[str]
    """The bond of which it is a member."""
    mode: NotRequired[Literal["802.3ad", "active-backup", "balance-xor"]]
    """The mode of a bond."""
    members: NotRequired[list[str]]
    """The members of a bond."""
    system: NotRequired[str]
    """The MAC that a bond has in LACPDUs, where it is not its own."""
    es_id: NotRequired[int]
    """The number of a port channel's Ethernet segment."""
    mlag: NotRequired[int]
    """The number that a port channel shares with that of the other switch of a pair."""
    vni: NotRequired[int]
    """The VXLAN network of an SVI's VLAN."""
    vrrp: NotRequired[VrrpRow]
    """The virtual router in an SVI's VLAN."""


class SwitchValue(TypedDict):
    """A value of a switch; `quality`: documented, from memory, chosen, or set here."""

    value: bool | int | float | str | list[int] | None
    unit: str
    quality: str


class SwitchRow(TypedDict):
    """The profile that a switch starts with, and its values that are not testbed's defaults."""

    profile: str
    values: dict[str, SwitchValue]
    vtep: NotRequired[str]
    """The address of its end of VXLAN tunnels."""
    l3vni: NotRequired[int]
    """The VXLAN network between the VRFs of VTEPs."""


class PlanRows(TypedDict):
    """A planned topology, with the profiles that its switches start with."""

    name: str
    interfaces: list[InterfaceRow]
    switches: NotRequired[dict[str, SwitchRow]]


class PlanInfo(PlanRows):
    """The plan of a topology file."""

    notes: list[Note]
    images: list[str]
    """Images of its nodes that are containers."""
    binds: dict[str, str]
    """Files and directories that these mount, as the topology file names them, with their paths from its directory in a
    lab."""


class ConvertedPlan(PlanInfo):
    """The plan of a Mininet file; `text` is the topology file made from it."""

    text: str


class Picture(TypedDict):
    """A drawing of a topology file."""

    text: str
    notes: list[Note]


class ProfileValue(TypedDict):
    """A value of a switch profile; `source` is a letter, see `testbed profile describe`."""

    value: Any
    unit: str
    source: str
    citation: str
    text: str


class ProfileInfo(TypedDict):
    name: str
    about: str
    values: dict[str, ProfileValue]


class FaultInfo(TypedDict):
    """A fault; `parameters` is the JSON Schema of its parameters."""

    name: str
    title: str
    text: str
    parameters: ParametersSchema


class ParameterSchema(TypedDict):
    """The displayed part of a parameter's JSON Schema."""

    type: NotRequired[Any]
    default: NotRequired[Any]
    description: NotRequired[str]
    enum: NotRequired[list[Any]]


class ParametersSchema(TypedDict):
    """The used part of the JSON Schema of parameters."""

    properties: NotRequired[dict[str, ParameterSchema]]
    required: NotRequired[list[str]]


class LabInfo(TypedDict):
    """A scenario's lab: its topology file, a path below the scenario's directory, and profiles by switch."""

    topology: str
    profiles: dict[str, dict[str, Any]]


class Chosen(TypedDict):
    """A variant to run. `settings` are `VariantInfo.settings`; `without_faults` has numbers of faults that the run
    omits, in injection order from 1."""

    variant: str
    settings: dict[str, Any]
    without_faults: list[int]


class VariantInfo(TypedDict):
    """A variant; `settings` are its changes of the parameters' defaults, with the user's settings that apply to it."""

    name: str
    expected: Observed
    text: str
    settings: dict[str, Any]
    lab: NotRequired[LabInfo]
    """Absent where other variants were asked for."""


class ScenarioInfo(TypedDict):
    """The description of a scenario; `parameters` is the full JSON Schema of its parameters."""

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
    """Notes on the topology files of its variants."""
    packages: list[str]
    """Debian packages beside those of the image."""
    images: list[str]
    """Images of the containers of its variants' labs."""


class VariantOutcome(TypedDict):
    """The verdict on a variant: as expected without `failures`, whatever the `warnings`. `trace` is the SHA-256 of its
    events.jsonl."""

    observed: Observed | None
    evidence: dict[str, Any]
    failures: list[str]
    warnings: list[str]
    trace: str
    virtual_s: float
