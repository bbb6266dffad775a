"""The kinds of dynamic resource allocation (DRA), in the versions v1beta1, v1beta2 and v1.

Sources: Kubernetes API 1.34, resource.k8s.io; its validation (pkg/apis/resource/validation).
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from testbed.cni.objects.dra.selectors import LONGEST, Device, Quantity, Version, compiled
from testbed.cni.objects.kinds import Free, Metadata, Part, Spec
from testbed.cni.objects.pod_spec import NodeTerm
from testbed.errors import InputError

MOST = 32
"""Requests, constraints and configurations of a claim; also the devices that it can get."""
MOST_DEVICES = 128
"""Of a slice."""
_QUALIFIED = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z_][A-Za-z0-9_]{0,31}")
_LABEL = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
Label = Annotated[str, Field(pattern=f"^{_LABEL}$")]
_SUBDOMAIN = r"^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$"
_ATTRIBUTE = re.compile(r"([a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?/)?[A-Za-z_][A-Za-z0-9_]{0,31}")
_POOL = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?(/[a-z0-9]([-a-z0-9.]*[a-z0-9])?)*$"
MOST_OPAQUE = 10 * 1024
"""Bytes of the parameters for a driver (OpaqueParametersMaxLength)."""
DomainName = Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?$")]


class Cel(Part):
    expression: Annotated[str, Field(min_length=1, max_length=LONGEST)]


class DeviceSelector(Part):
    cel: Cel


Selectors = Annotated[list[DeviceSelector], Field(max_length=MOST)]


class Exact(Part):
    """What a request, or an alternative of it, asks for."""

    deviceClassName: Annotated[str, Field(pattern=_SUBDOMAIN)]  # noqa: N815 (Kubernetes' names, here and below)
    selectors: Selectors = Field(default_factory=list)
    allocationMode: Literal["ExactCount", "All"] = "ExactCount"  # noqa: N815
    count: Annotated[int, Field(ge=1)] | None = None

    def check_counts(self, where: str) -> None:
        if self.count is not None and self.allocationMode == "All":
            raise InputError(
                "Invalid value: must not be specified when allocationMode is 'All'", where=f"{where}.count"
            )
        if (self.count or 1) > MOST:
            raise InputError(
                f"Invalid value: {self.count}: a claim gets {MOST} devices at most", where=f"{where}.count"
            )
        check_selectors(self.selectors, where)


class Alternative(Exact):
    name: Label


class Request(Part):
    """A request of v1, with `exactly` or `firstAvailable`; of v1beta1 with the keys of `exactly` beside its name."""

    name: Label
    exactly: Exact | None = None
    firstAvailable: Annotated[list[Alternative], Field(min_length=1, max_length=8)] | None = None  # noqa: N815
    deviceClassName: str = ""  # noqa: N815
    selectors: Selectors = Field(default_factory=list)
    allocationMode: Literal["ExactCount", "All"] = "ExactCount"  # noqa: N815
    count: Annotated[int, Field(ge=1)] | None = None

    def options(self) -> list[tuple[str, Exact]]:
        """Return the alternatives in their order, with the names that results have."""
        if self.firstAvailable:
            return [(f"{self.name}/{one.name}", one) for one in self.firstAvailable]
        return [(self.name, self.exactly or self._inline())]

    def _inline(self) -> Exact:
        given = {"deviceClassName", "selectors", "allocationMode", "count"}
        return Exact(**{key: getattr(self, key) for key in given})

    def check_form(self, where: str) -> None:
        forms = [bool(self.exactly), bool(self.firstAvailable), bool(self.deviceClassName)]
        if sum(forms) != 1:
            raise InputError("Required value: exactly one of `exactly` or `firstAvailable` is required", where=where)
        names = [name for name, _ in self.options()]
        if twice := [name for name in names if names.count(name) > 1]:
            raise InputError(f'Duplicate value: "{twice[0].rpartition("/")[2]}"', where=f"{where}.firstAvailable")
        for name, option in self.options():
            form = "exactly" if self.exactly else "firstAvailable" if name != self.name else ""
            option.check_counts(".".join(filter(None, (where, form))))


class Constraint(Part):
    requests: Annotated[list[str], Field(max_length=MOST)] = Field(default_factory=list)
    matchAttribute: str = ""  # noqa: N815
    distinctAttribute: str = ""  # noqa: N815

    def covers(self, request: str) -> bool:
        """Return whether it is about a request, or an alternative given as request/alternative."""
        return not self.requests or request in self.requests or request.partition("/")[0] in self.requests


class Opaque(Part):
    driver: DomainName
    parameters: dict[str, Any]

    @field_validator("parameters")
    @classmethod
    def _is_short(cls, given: dict[str, Any]) -> dict[str, Any]:
        if len(json.dumps(given)) > MOST_OPAQUE:
            raise ValueError(f"may not be more than {MOST_OPAQUE} bytes")
        return given


class ClassConfig(Part):
    opaque: Opaque


class ClaimConfig(ClassConfig):
    requests: Annotated[list[str], Field(max_length=MOST)] = Field(default_factory=list)


class DeviceRequests(Part):
    requests: Annotated[list[Request], Field(max_length=MOST)] = Field(default_factory=list)
    constraints: Annotated[list[Constraint], Field(max_length=MOST)] = Field(default_factory=list)
    config: Annotated[list[ClaimConfig], Field(max_length=MOST)] = Field(default_factory=list)


class ClaimSpec(Part, Spec):
    """ResourceClaim."""

    devices: DeviceRequests = DeviceRequests()

    def check(self, metadata: Metadata) -> None:
        self.check_within("spec")

    def check_within(self, above: str) -> None:
        """Raise InputError for what an API server refuses."""
        devices = f"{above}.devices"
        names = [one.name for one in self.devices.requests]
        if twice := [name for name in names if names.count(name) > 1]:
            raise InputError(f'Duplicate value: "{twice[0]}"', where=f"{devices}.requests")
        for number, request in enumerate(self.devices.requests):
            request.check_form(f"{devices}.requests.{number}")
        known = {*names, *(name for one in self.devices.requests for name, _ in one.options())}
        for number, constraint in enumerate(self.devices.constraints):
            where = f"{devices}.constraints.{number}"
            given = [one for one in (constraint.matchAttribute, constraint.distinctAttribute) if one]
            if len(given) != 1:
                raise InputError("Required value: matchAttribute or distinctAttribute", where=where)
            if not _QUALIFIED.fullmatch(given[0]):
                wrong = f'Invalid value: "{given[0]}": must include a domain, as in resource.kubernetes.io/pcieRoot'
                raise InputError(wrong, where=f"{where}.matchAttribute")
            _check_known(constraint.requests, known, f"{where}.requests")
        for number, config in enumerate(self.devices.config):
            _check_known(config.requests, known, f"{devices}.config.{number}.requests")


def _check_known(requests: Sequence[str], known: set[str], where: str) -> None:
    if unknown := [one for one in requests if one not in known]:
        wrong = f'Invalid value: "{unknown[0]}": must be the name of a request in the claim'
        raise InputError(wrong, where=where)


class TemplateSpec(Part, Spec):
    """ResourceClaimTemplate."""

    metadata: Free = Free()
    spec: ClaimSpec

    def check(self, metadata: Metadata) -> None:
        self.spec.check_within("spec.spec")


class ClassSpec(Part, Spec):
    """DeviceClass."""

    selectors: Selectors = Field(default_factory=list)
    config: Annotated[list[ClassConfig], Field(max_length=MOST)] = Field(default_factory=list)
    extendedResourceName: str = ""  # noqa: N815

    def check(self, metadata: Metadata) -> None:
        check_selectors(self.selectors, "spec")
        if self.extendedResourceName:
            raise InputError("it is not supported: name the class in a claim", where="spec.extendedResourceName")


def check_selectors(selectors: Sequence[DeviceSelector], above: str) -> None:
    for number, one in enumerate(selectors):
        try:
            compiled(one.cel.expression)
        except InputError as error:
            where = f"{above}.selectors.{number}.cel.expression"
            raise InputError(f'Invalid value: "{one.cel.expression}": {error.message}', where=where) from None


class AttributeValue(Part):
    bool_: bool | None = Field(None, alias="bool")
    int_: int | None = Field(None, alias="int")
    string: Annotated[str, Field(max_length=64)] | None = None
    version: str | None = None

    def value(self) -> bool | int | str | Version:
        """InputError."""
        plain = (self.bool_, self.int_, self.string)
        given: list[bool | int | str | Version] = [one for one in plain if one is not None]
        given += [Version.of(self.version)] if self.version is not None else []
        if len(given) != 1:
            raise InputError("exactly one value must be specified")
        return given[0]


class Capacity(Part):
    value: str | int


class Basic(Part):
    attributes: dict[str, AttributeValue] = Field(default_factory=dict)
    capacity: dict[str, Capacity | str | int] = Field(default_factory=dict)


class SliceDevice(Basic):
    """A device of v1, or of v1beta1 with `basic`."""

    name: Label
    basic: Basic | None = None


class PoolOf(Part):
    name: Annotated[str, Field(pattern=_POOL, max_length=253)]
    generation: Annotated[int, Field(ge=0)] = 0
    resourceSliceCount: Annotated[int, Field(ge=1)] = 1  # noqa: N815


class NodeTermsOf(Part):
    nodeSelectorTerms: list[NodeTerm]  # noqa: N815


class SliceSpec(Part, Spec):
    """ResourceSlice: devices that a driver offers."""

    driver: DomainName
    pool: PoolOf
    nodeName: str = ""  # noqa: N815
    nodeSelector: NodeTermsOf | None = None  # noqa: N815
    allNodes: bool = False  # noqa: N815
    devices: Annotated[list[SliceDevice], Field(max_length=MOST_DEVICES)] = Field(default_factory=list)

    def check(self, metadata: Metadata) -> None:
        if bool(self.nodeName) + bool(self.nodeSelector) + self.allNodes != 1:
            wrong = "Required value: exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required"
            raise InputError(wrong, where="spec")
        names = [one.name for one in self.devices]
        if twice := [name for name in names if names.count(name) > 1]:
            raise InputError(f'Duplicate value: "{twice[0]}"', where="spec.devices")
        for number in range(len(self.devices)):
            self._device(number)

    def offered(self) -> Iterator[Device]:
        """Yield its devices."""
        yield from map(self._device, range(len(self.devices)))

    def _device(self, number: int) -> Device:
        """InputError."""
        one = self.devices[number]
        content = one.basic or one
        where = f"spec.devices.{number}"
        try:
            attributes = {self._full(name): value.value() for name, value in content.attributes.items()}
            capacity = {self._full(name): Quantity.of(_amount(value)) for name, value in content.capacity.items()}
        except InputError as error:
            raise InputError(f"Invalid value: {error.message}", where=where) from None
        return Device(self.driver, self.pool.name, one.name, attributes, capacity)

    def _full(self, name: str) -> str:
        if not _ATTRIBUTE.fullmatch(name):
            raise InputError(f'"{name}" must be a C identifier, with a domain before it or not')
        return name if "/" in name else f"{self.driver}/{name}"


def _amount(value: Capacity | str | int) -> str:
    return str(value.value if isinstance(value, Capacity) else value)


DRA: Mapping[str, type[Spec]] = {
    "ResourceClaim": ClaimSpec,
    "ResourceClaimTemplate": TemplateSpec,
    "DeviceClass": ClassSpec,
    "ResourceSlice": SliceSpec,
}
