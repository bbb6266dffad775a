"""Requests to a machine: a class for each kind, which names the type of its response.

They travel as objects with a `kind` (`messages.ask`). `read` is for the inside: the code of both sides is the same, so
it checks for mistakes, not for malice.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, Literal, TypeVar, dataclass_transform, get_args

from testbed.protocol import (
    CniAnswer,
    ConvertedPlan,
    FaultInfo,
    GraphStyle,
    IpamRow,
    Leftover,
    Picture,
    PlanInfo,
    PlanRows,
    PodsRow,
    ProfileInfo,
    ScenarioInfo,
    VariantOutcome,
)

R_co = TypeVar("R_co", covariant=True)


@dataclass_transform(frozen_default=True, kw_only_default=True)
class Request(Generic[R_co]):
    """Base of the requests, which are frozen dataclasses; `R_co` is the type of the response."""

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}
    apart: ClassVar[bool] = False
    """Whether each has a process of its own inside, because several travel together and run the user's code."""

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True, kw_only=True)(cls)

    @classmethod
    def response(cls) -> Any:
        """The type of the response, for its validation."""
        [base] = cls.__orig_bases__  # type: ignore[attr-defined]
        return get_args(base)[0]


class Variant(Request[VariantOutcome]):
    """Run a variant of a scenario in a lab. Reports are events, and what the variant is made from (`Made`)."""

    scenario: str
    """Path of scenario.py below the job's files."""
    variant: str
    settings: Mapping[str, Any]
    """`VariantInfo.settings`."""
    topology: str = ""
    """Path, below the scenario's directory, of a topology file in the place of its own."""
    without_faults: list[int] = field(default_factory=list)
    """Faults that the run leaves out, by their numbers in the order in which it injects them, from 1 on."""


class Pytest(Request[int]):
    """Run the user's tests, all of the job's files; the response is pytest's status. Reports are text and `Tested`."""

    arguments: list[str]
    limit_s: float | None = None
    """Seconds of the machine's clock for all tests together; None is no limit."""
    test_limit_s: float | None = None
    """The same for each test without a mark `limit`."""
    tests: list[str] = field(default_factory=list)
    """Node ids of the tests to run, in this order; pytest's own reports of them are sent, too. None: all that the
    arguments select."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Values of options that conftest.py files of the user's define, by their names."""


class Describe(Request[ScenarioInfo]):
    """Describe a scenario, and check that the user's settings fit the variants `named`, or all."""

    apart = True
    name: str
    scenario: str
    settings: Mapping[str, Any]
    named: list[str]
    topology: str = ""
    """As in `Variant`."""


class Plan(Request[PlanInfo]):
    """Plan a topology file. It is no file of the job: errors name it as the user did."""

    file: str


class Convert(Request[ConvertedPlan]):
    """Make a topology file of Mininet's Topo `topo` in a file of the job; of the only one if `topo` is empty."""

    file: str
    topo: str


class Draw(Request[Picture]):
    """Draw a topology file, named as for `Plan`."""

    file: str
    style: GraphStyle


class DrawPlan(Request[str]):
    """Draw a planned topology, as SVG."""

    plan: PlanRows


class Fabric(Request[str]):
    """Write a topology file with a fabric; `options` are those that the user gave."""

    fabric: str
    options: Mapping[str, int | str | bool]


class Schema(Request[dict[str, Any]]):
    """Return the JSON Schema of topology files."""


class Faults(Request[list[FaultInfo]]):
    """Describe all faults."""


class Profiles(Request[list[ProfileInfo]]):
    """Describe all profiles of switches."""


class Cni(Request[CniAnswer]):
    """Try a conflist out as cnitool does. Files are paths below the job's files. Reports are events."""

    command: Literal["load", "add", "check", "del", "gc", "status"]
    """`load` only checks the rest of the request; no kernel is needed."""
    conflist: str
    topology: str | None = None
    plugins: list[str] = field(default_factory=list)
    """Directories with plugins of the user's own."""
    node: str | None = None
    interface: str = "eth0"
    arguments: str = ""
    capabilities: str = ""
    """The last two as in cnitool's CNI_ARGS and CAP_ARGS."""


class IpamBench(Request[list[IpamRow]]):
    """Measure IPAM plugins: `apps` times `replicas` pods on `nodes` nodes, `at_once` of them side by side. `spare` are
    addresses more than pods. Reports are events."""

    ipam: list[Literal["host-local", "ippool"]]
    apps: int
    replicas: int
    nodes: int
    spare: list[int]
    at_once: int


class PodsBench(Request[PodsRow]):
    """Measure pods with RDMA devices, all of them alive at the same time. Reports are events."""

    pods: int
    nodes: int
    at_once: int


class Layer(Request[dict[str, str]]):
    """Install the job's Debian packages, which leaves the file LAYER; the response is the versions of all, by name."""

    epoch: int
    """The time of the layer's files, in seconds."""
    uuid: str


class Collect(Request[list[Leftover]]):
    """Remove what runs on this kernel left that were killed; with `dry_run` only list it."""

    dry_run: bool


class Live(Request[None]):
    """Build a lab that lives, of a topology file among the job's files or of a variant of a scenario, and serve the
    requests of `protocol.live` until one ends it. A report says when the lab is up."""

    topology: str = ""
    """Path of the file. Of a scenario it is in the place of its own, as in `Variant`."""
    scenario: str = ""
    variant: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)


KINDS: dict[str, Any] = {}


def register(*kinds: type[Request[Any]]) -> None:
    """Has `read` know these kinds."""
    KINDS.update({kind.__name__: kind for kind in kinds})


register(*Request.__subclasses__())


@functools.cache
def adapter(kind: Any) -> Any:
    """The validator of a type, such as a kind of request, which takes some milliseconds to make."""
    from pydantic import TypeAdapter  # not for those who only ask

    return TypeAdapter(kind)


def read(found: Mapping[str, Any]) -> Request[Any]:
    """The request in what `messages.ask` made of it. ValueError for anything else."""
    fields = dict(found)
    if (kind := KINDS.get(str(fields.pop("kind", None)))) is None:
        raise ValueError(f"its kind is none of {', '.join(KINDS)}")
    request: Request[Any] = adapter(kind).validate_python(fields)
    return request
