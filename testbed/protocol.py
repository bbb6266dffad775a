"""What crosses the border between the user's machine and the inside of a lab machine: plain data, named here once.

`machine` and `cli` run outside; everything else runs inside, on a micro-VM's kernel or on this one. Neither imports the
other, both import this.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NotRequired

if TYPE_CHECKING:
    from typing import TypedDict
else:
    try:
        from typing_extensions import TypedDict  # typing's can be validated from Python 3.12 on
    except ImportError:  # set-up asks which packages are missing before any is there
        from typing import TypedDict

from testbed.errors import TestbedError

GraphStyle = Literal["svg", "mermaid", "dot"]
Observed = Literal["fault", "healthy"]
Clock = Literal["virtual", "real"]
ENTRY = "testbed.inside:run"
"""What runs a job inside."""
PREPARE = "testbed.inside:prepare"
"""What a snapshot of our code calls once, before it is taken."""
TORCH = "ranks:prepare"
"""What a snapshot for training jobs calls once, below the one with our code (workload/jobs/ranks.py)."""
FILES = "files"
"""Where a parcel holds the job's files, so that none of them can take the place of job.json beside it."""

LAYER = "layer.erofs"
LAYER_PACKAGES = "packages.json"
"""What a job that makes a layer leaves: a file system, and the versions of all packages there are with it, by name."""
OUTPUT = "output.log"
"""What a job's process wrote, among its artefacts."""
RESULT, SCENARIO = "result.json", "scenario"
"""Beside the directories of its variants a run's directory has its result, and a copy of the scenario's files."""
EVENTS, TOPOLOGY = "events.jsonl", "topology.json"
"""In the directory of a variant."""
VARIANT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""Names of variants: they are directories too."""
DEBIAN_PACKAGE = re.compile(r"[a-z0-9][a-z0-9+.-]*[a-z0-9+]")
"""Names of Debian packages."""
DESCRIBED = "described"
"""An empty file beside the description of a scenario: its code has come to an end, whatever it was."""


# Functional syntax, for the key `in`.
_Directory = TypedDict("_Directory", {"in": NotRequired[str]})


class Job(_Directory):
    """One errand for a machine. `kind` says which of the other keys are there; `in`, the directory of its files, comes
    on arrival."""

    kind: Literal["variant", "pytest", "describe", "topology", "fabric", "graph", "cni", "faults", "profiles", "layer"]
    name: str
    """For people: the scenario's name, or what is run."""
    seed: NotRequired[int]
    busy_s: NotRequired[float]
    """Virtual seconds for which it may keep the CPU busy without a pause and without an event; for ever if absent."""
    training: NotRequired[bool]
    """Whether torch is to be imported when it begins."""
    executable: NotRequired[list[str]]
    """Those of the job's files that can be executed, by their path below its directory."""
    scenario: NotRequired[str]
    """Path of scenario.py below the parcel's directory."""
    topology: NotRequired[str]
    """The same of a topology file that the user gave in the place of the scenario's; for a description, of all."""
    variant: NotRequired[str]
    scenarios: NotRequired[list[tuple[str, str, dict[str, str]]]]
    """For descriptions: of each the name, the file in the directory with its number, in which the answer goes, too, and
    what the user sets."""
    named: NotRequired[list[str]]
    """Variants that the user named; for a description."""
    mininet: NotRequired[str]
    """Of a topology: its file is one of Mininet's, and this the name of the Topo in it, or nothing if there is one."""
    settings: NotRequired[dict[str, Any]]
    """Of a variant its `VariantInfo.settings`."""
    arguments: NotRequired[list[str]]
    """For pytest."""
    limits: NotRequired[PytestLimits]
    cni: NotRequired[CniRequest]
    layer: NotRequired[LayerRequest]
    options: NotRequired[dict[str, int | str | bool]]
    """Of a fabric what the user gave; `name` is its kind."""
    style: NotRequired[GraphStyle]


class PytestLimits(TypedDict):
    """Seconds of the machine's clock, for all tests together and for each."""

    session_s: float | None
    test_s: float | None


class Tested(TypedDict):
    """How a test of the user's ended, a line of tests.jsonl. `directory` is its tmp_path below the run's directory, if
    it has one; `text` is why it failed."""

    test: str
    outcome: str
    virtual_s: float
    directory: str
    text: str


class LayerRequest(TypedDict):
    """What a layer is packed with beside the installed packages: the time of its files, in seconds, and its UUID."""

    epoch: int
    uuid: str


class CniRequest(TypedDict):
    """What `testbed cni` is to do. Files are paths below the parcel's directory."""

    command: Literal["load", "add", "check", "del"]
    """`load` does nothing but look whether the rest is right; no kernel is needed."""
    conflist: str
    topology: str | None
    plugins: list[str]
    """Directories with plugins of the user's own."""
    node: str | None
    interface: str
    arguments: str
    capabilities: str
    """The last two as in cnitool's CNI_ARGS and CAP_ARGS."""


class CniAnswer(TypedDict):
    """`result` is that of ADD; `kept` what stays of a node's first pod when DEL is done, in words."""

    result: dict[str, Any] | None
    kept: list[str]


class Event(TypedDict):
    """A line of events.jsonl. `t` is in virtual nanoseconds since the variant began, `data` depends on `kind`."""

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
    """What a variant is made from, as it was decided inside. `parameters` are all, with their defaults; `topology` is
    the plan, as `testbed topology check --json` has it."""

    parameters: dict[str, Any]
    topology: dict[str, Any]
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


class PlanInfo(TypedDict):
    """What a topology file becomes; `text` is that of a file made of Mininet's."""

    name: str
    interfaces: list[InterfaceRow]
    notes: list[Note]
    text: NotRequired[str]


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
    """What is shown of a parameter's JSON Schema."""

    type: NotRequired[Any]
    default: NotRequired[Any]
    description: NotRequired[str]
    enum: NotRequired[list[Any]]


class ParametersSchema(TypedDict):
    """What is used of the JSON Schema of parameters."""

    properties: NotRequired[dict[str, ParameterSchema]]


class VariantInfo(TypedDict):
    """`settings` is what it changes of the parameters' defaults, the user's settings that count for it included."""

    name: str
    expected: Observed
    text: str
    settings: dict[str, Any]


class ScenarioInfo(TypedDict):
    """What `describe` says of a scenario; `parameters` is the JSON Schema of its parameters, whole."""

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


class VariantOutcome(TypedDict):
    """result.json of a variant, written inside. `trace` is the SHA-256 of its events.jsonl."""

    name: str
    expected: Observed
    observed: Observed | None
    as_expected: bool
    evidence: dict[str, Any]
    failures: list[str]
    trace: str
    virtual_s: float


@contextlib.contextmanager
def refusals(out: Path) -> Iterator[None]:
    """Leaves in refusal.json what the block refuses, for the outside to raise."""
    try:
        yield
    except TestbedError as error:
        said = {"message": error.message, "where": error.where, "hint": error.hint, "also": error.also}
        refusal = {**said, "status": error.exit_status}
        (out / "refusal.json").write_text(json.dumps(refusal))
