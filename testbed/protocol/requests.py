"""Requests to a machine: a class for each kind, with the type of its response.

They travel as objects with a `kind` (`messages.ask`). `read` is for the inside: both sides have the same code, so it
checks for mistakes, not for malice.
"""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, Literal, TypeVar, dataclass_transform, get_args

from testbed import protocol

R_co = TypeVar("R_co", covariant=True)


@dataclass_transform(frozen_default=True, kw_only_default=True)
class Request(Generic[R_co]):
    """Base of the requests, which are frozen dataclasses; `R_co` is the response type."""

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}
    apart: ClassVar[bool] = False
    """True if each has its own process inside, because several travel together and run the user's code."""

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True, kw_only=True)(cls)

    @classmethod
    def response(cls) -> Any:
        """Return the response type, for validation."""
        [base] = cls.__orig_bases__  # type: ignore[attr-defined]
        return get_args(base)[0]


class Variant(Request[protocol.VariantOutcome]):
    """Build a lab, and run a variant of a scenario in it. Reports are events, the lab's inputs (`Made`), and when it is
    up all `parameters` of the variant, defaults included."""

    scenario: str
    """Path of scenario.py below the job's files."""
    lab: protocol.LabInfo
    topology: str = ""
    """Path below the scenario's directory of a topology file that replaces its own."""
    chosen: protocol.Chosen | None = None
    """None: it comes when the lab is up (`live.Choose`), so that all variants with this lab can begin there."""


class Pytest(Request[int]):
    """Run the user's tests, all in the job's files; the response is pytest's status. Reports are text and `Tested`."""

    arguments: list[str]
    limit_s: float | None = None
    """Limit of all tests together in seconds of the machine's clock; None: no limit."""
    test_limit_s: float | None = None
    """Limit of each test without a mark `limit`, in the same unit."""
    tests: list[str] = field(default_factory=list)
    """Node ids of the tests to run, in this order; pytest's own reports of them are sent too. Empty: the arguments
    select."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Values of options that the user's conftest.py files define, by name."""


class Describe(Request[protocol.ScenarioInfo]):
    """Describe a scenario, and check that the user's settings fit the variants `named`, or all."""

    apart = True
    name: str
    scenario: str
    settings: Mapping[str, Any]
    named: list[str]
    topology: str = ""
    """Path as in `Variant`."""


class Plan(Request[protocol.PlanInfo]):
    """Plan a topology file. It is no file of the job: errors use the user's name for it."""

    file: str


class Convert(Request[protocol.ConvertedPlan]):
    """Make a topology file of the Mininet Topo `topo` in a file of the job; of the only one if `topo` is empty. Its
    switches run spanning tree, or route by `frr`."""

    file: str
    topo: str
    stp: bool = False
    routing: str = ""


class ConvertKathara(Request[str]):
    """Return the topology file, to be in the directory `base`, of the Kathará lab in a directory of this machine."""

    directory: str
    base: str
    containers: bool = True


class Draw(Request[protocol.Picture]):
    """Draw a topology file, named as for `Plan`."""

    file: str
    style: protocol.GraphStyle


class DrawPlan(Request[str]):
    """Draw a planned topology."""

    plan: protocol.PlanRows
    style: protocol.GraphStyle = "svg"


class Fabric(Request[str]):
    """Write a topology file with a fabric; `options` are those that the user gave."""

    fabric: str
    options: Mapping[str, int | str | bool]


class Schema(Request[dict[str, Any]]):
    """Return the JSON Schema of topology files."""


class Faults(Request[list[protocol.FaultInfo]]):
    """Describe all faults."""


class Profiles(Request[list[protocol.ProfileInfo]]):
    """Describe all profiles of switches."""


class Cni(Request[protocol.CniAnswer]):
    """Test a conflist as cnitool does. Files are paths below the job's files. Reports are events."""

    command: Literal["load", "add", "check", "del", "gc", "status"]
    """`load` only checks the rest of the request; no kernel is needed."""
    conflist: str
    topology: str | None = None
    plugins: list[str] = field(default_factory=list)
    """Directories with the user's own plugins."""
    node: str | None = None
    interface: str = "eth0"
    arguments: str = ""
    capabilities: str = ""
    """Last two: as in cnitool's CNI_ARGS and CAP_ARGS."""


class IpamBench(Request[list[protocol.IpamRow]]):
    """Measure IPAM plugins: `apps` times `replicas` pods on `nodes` nodes, `at_once` of them in parallel. `spare` is
    the number of addresses beyond the pods. Reports are events."""

    ipam: list[Literal["host-local", "ippool"]]
    apps: int
    replicas: int
    nodes: int
    spare: list[int]
    at_once: int


class PodsBench(Request[protocol.PodsRow]):
    """Measure pods with RDMA devices that all exist at the same time. Reports are events."""

    pods: int
    nodes: int
    at_once: int


class Layer(Request[dict[str, str]]):
    """Install the job's Debian packages into the file LAYER; the response is the versions of all, by name."""

    epoch: int
    """Time of the layer's files, in seconds."""
    uuid: str


class Collect(Request[list[protocol.Leftover]]):
    """Remove leftovers of killed runs on this kernel; with `dry_run` only list them."""

    dry_run: bool


class Live(Request[None]):
    """Build a live lab, from a topology file in the job's files or a scenario's variant, and serve requests of
    `protocol.live` until one ends it. A report announces that the lab is up."""

    topology: str = ""
    """Path of the file. It replaces a scenario's own, as in `Variant`."""
    scenario: str = ""
    variant: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    plugins: Sequence[str] | None = None
    """Directories of the user's CNI plugins among the job's files; None: `cni-plugins` beside a scenario, if it is
    there."""


KINDS: dict[str, Any] = {}


def register(*kinds: type[Request[Any]]) -> None:
    """Register kinds that `read` accepts."""
    KINDS.update({kind.__name__: kind for kind in kinds})


register(*Request.__subclasses__())


@functools.cache
def adapter(kind: Any) -> Any:
    """Return the validator of a type, such as a kind of request; it takes some milliseconds to make."""
    from pydantic import TypeAdapter  # not needed only to send requests

    return TypeAdapter(kind)


def read(found: Mapping[str, Any]) -> Request[Any]:
    """Return the request that `messages.ask` wrote. ValueError for anything else."""
    fields = dict(found)
    if (kind := KINDS.get(str(fields.pop("kind", None)))) is None:
        raise ValueError(f"its kind must be one of {', '.join(KINDS)}")
    request: Request[Any] = adapter(kind).validate_python(fields)
    return request
