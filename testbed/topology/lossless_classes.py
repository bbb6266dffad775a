"""Lossless classes in a topology file: `lossless: {dscp: 26, priority: 3}`, and the links that carry them."""

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from testbed.documents.problems import Problems
from testbed.documents.text import Path
from testbed.topology.definition import Definition
from testbed.topology.plan import CONTROL_PRIORITY, PAUSE_PRIORITY, Lossless, Qos

Dscp = Annotated[int, Field(ge=0, le=63)]
Priority = Annotated[int, Field(ge=0, le=7)]


def listed(value: Any) -> Any:
    """Return the list of one class or several."""
    return [value] if isinstance(value, dict) else value


def several(value: Any) -> Any:
    return [value] if isinstance(value, int) else value


class ClassDefinition(Definition):
    """A lossless class: the packets of these DSCPs, or of this tag priority, in the queue of a priority with PFC."""

    dscp: Annotated[list[Dscp], BeforeValidator(several), Field(min_length=1)] | None = None
    """The DSCPs of its packets, one or a list, such as 26. Ports then trust the DSCP."""
    pcp: Priority | None = None
    """The priority in the VLAN tag of its packets. Ports then trust the tag, not the DSCP; for trunks."""
    priority: Priority
    """Its 802.1p priority, used by pause frames: 0..5. 6 is for CNPs and routing, 7 for pause frames."""


Share = Annotated[int, Field(ge=1, le=100)]
Bytes = Annotated[int, Field(ge=0, le=1 << 30)]
Seconds = Annotated[float, Field(ge=0, le=1e7, allow_inf_nan=False)]


class QosDefinition(Definition):
    """The queues of a port. All but `weights` and `strict` are values of a switch's profile that this port has
    otherwise; a host's NIC does not need them."""

    weights: dict[Priority, Share] | None = None
    """Priorities with their shares of the port, in percent or parts (DWRR, ETS), such as `{3: 80, 0: 20}`. Default:
    equal shares."""
    strict: list[Priority] | None = None
    """Priorities that are served before all with a share, the highest first. 6 and 7 always are."""
    ecn_min: Bytes | None = None
    """Kmin in bytes."""
    ecn_max: Bytes | None = None
    """Kmax in bytes; 0: no marking."""
    ecn_probability: Annotated[float, Field(ge=0, le=100)] | None = None
    """Pmax in percent."""
    ecn_control: Literal["fixed", "adaptive"] | None = None
    """Whether Pmax follows the load."""
    ecn_interval: Annotated[float, Field(ge=0.001, le=60)] | None = None
    """Seconds between two steps of Pmax."""
    pfc_watchdog: Seconds | None = None
    """Seconds after which a storm is detected; 0: off."""
    pfc_watchdog_restoration: Seconds | None = None
    """Seconds without a pause after which a storm is over."""
    pfc_watchdog_poll: Annotated[float, Field(ge=0.001, le=1e7)] | None = None
    """Seconds between two checks."""
    pfc_watchdog_action: Literal["drop", "forward"] | None = None
    """Action for packets in a storm."""

    @model_validator(mode="after")
    def _strict_ones_have_no_share(self) -> Self:
        if both := sorted(set(self.strict or ()) & set(self.weights or ())):
            raise ValueError(f"priority {both[0]} is in 'strict' and in 'weights': keep one of them")
        if {CONTROL_PRIORITY, PAUSE_PRIORITY} & set(self.weights or ()):
            raise ValueError("priorities 6 and 7 are served before all: they have no share")
        return self


def plan_qos(link: QosDefinition | None, end: QosDefinition | None) -> Qos:
    """Return the QoS of an end: its own keys override those of the link."""
    given: dict[str, Any] = {}
    for one in link, end:
        given |= one.model_dump(exclude_none=True) if one else {}
    weights, strict = given.pop("weights", {}), given.pop("strict", [])
    return Qos(tuple(sorted(weights.items())), tuple(sorted(strict)), tuple(given.items()))


Classes = Annotated[list[ClassDefinition], BeforeValidator(listed), Field(min_length=1)]


def plan_lossless(classes: list[ClassDefinition] | None, path: Path, problems: Problems) -> Lossless | None:
    """Return the lossless classes of a lab, None without any."""
    if classes is None:
        return None
    owners: dict[tuple[str, int], int] = {}
    for index, one in enumerate(classes):
        place = (*path, index) if len(classes) > 1 else path
        if one.priority in (CONTROL_PRIORITY, PAUSE_PRIORITY):
            wrong = f"priority {one.priority} cannot be lossless: 6 is for CNPs and routing, 7 for pause frames"
            problems.add((*place, "priority"), wrong)
        if (one.dscp is None) == (one.pcp is None):
            problems.add(place, "a lossless class needs either 'dscp' or 'pcp' to identify its packets")
        for kind, values in ("dscp", one.dscp or []), ("pcp", [] if one.pcp is None else [one.pcp]):
            for value in values:
                if owners.setdefault((kind, value), one.priority) != one.priority:
                    problems.add((*place, kind), f"{kind} {value} also belongs to priority {owners[kind, value]}")
    if len({kind for kind, _ in owners}) > 1:
        problems.add(path, "ports trust the DSCP or the tag's priority: give all classes 'dscp', or all of them 'pcp'")
    return Lossless(
        tuple(sorted({one.priority for one in classes})),
        tuple((value, priority) for (kind, value), priority in owners.items() if kind == "dscp"),
        tuple((value, priority) for (kind, value), priority in owners.items() if kind == "pcp"),
    )
