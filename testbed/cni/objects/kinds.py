"""The `spec` of objects as users write it; see also `multus.py`, `subnet.py` and `device_plugins.py`.

Sources: Kubernetes API 1.31; the network plumbing group's NetworkAttachmentDefinition 1.3; Spiderpool 1.0,
docs/reference/crd-*.md.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from testbed.cni.ipam import pool
from testbed.cni.ipam.pool import Route
from testbed.cni.spec import conflist
from testbed.cni.spec.conflist import Conflist
from testbed.documents.text import describe

LABEL_NAME = (
    r"([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?"
    r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
)
"""The key of a label: a name, behind a domain or not (apimachinery, IsQualifiedName)."""
NAME = r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?"


class Free(BaseModel):
    """A part of which some keys are read and the others are ignored."""

    model_config = ConfigDict(extra="allow", strict=True)


class Part(BaseModel):
    """A part of which all keys are known."""

    model_config = ConfigDict(extra="forbid", strict=True)


def texts(value: Any) -> Any:
    """Check that labels and annotations are strings: the API server refuses YAML's numbers and booleans."""
    if isinstance(value, dict):
        for key, one in value.items():
            if not isinstance(one, str):
                raise ValueError(f"{key} must be a string, not {describe(one)}; quote it")  # noqa: TRY004 (pydantic wants it)
    return value


Texts = Annotated[dict[str, str], BeforeValidator(texts)]


def check_name(value: Any) -> Any:
    if isinstance(value, str) and not re.fullmatch(NAME, value):
        raise ValueError(f'{describe(value)} is not a name: use lower-case letters, digits, "-" and ".", 253 at most')
    return value


Name = Annotated[str, BeforeValidator(check_name)]


class OwnerReference(Free):
    apiVersion: str  # noqa: N815 (Kubernetes' name)
    kind: str
    name: str


class Metadata(Free):
    name: Name
    namespace: Name | None = None
    labels: Texts = {}
    annotations: Texts = {}
    ownerReferences: list[OwnerReference] = []  # noqa: N815


class Spec(BaseModel):
    """The content of a kind of object: its `spec`, or the part that it has instead."""

    def check(self, metadata: Metadata) -> None:
        """Raise InputError for a wrong combination of valid values."""


class NetworkAttachmentDefinition(Part, Spec):
    config: str = ""
    """Empty: it is in a file with the definition's name (Multus, GetCNIConfig)."""

    def check(self, metadata: Metadata) -> None:
        if self.config:
            self.conflist(metadata.name, "spec.config")

    def conflist(self, name: str, source: str) -> Conflist:
        """Return the network that it defines. InputError."""
        return conflist.definition(self.config, name, source)


class Expression(Part):
    key: str
    operator: str
    """One that is none of Kubernetes' selects nothing: Spiderpool validates only some selectors."""
    values: list[str] = []


class Selector(Part):
    """A LabelSelector: all of it must match, and an empty one matches everything."""

    matchLabels: Texts = {}  # noqa: N815 (Kubernetes' names, here and below)
    matchExpressions: list[Expression] = []  # noqa: N815

    def matches(self, labels: Mapping[str, str]) -> bool:
        return all(labels.get(key) == value for key, value in self.matchLabels.items()) and all(
            _holds(one, labels) for one in self.matchExpressions
        )


def _holds(wanted: Expression, labels: Mapping[str, str]) -> bool:
    found = labels.get(wanted.key)
    match wanted.operator:
        case "In":
            return found in wanted.values
        case "NotIn":
            return found not in wanted.values
        case "Exists":
            return found is not None
        case "DoesNotExist":
            return found is None
        case _:
            return False


class RoutePart(Part):
    dst: str
    gw: str


class Addresses(Part, Spec):
    """The addresses of a subnet."""

    subnet: str
    ipVersion: Literal[4, 6] | None = None  # noqa: N815
    ips: list[str] = []
    excludeIPs: list[str] = []  # noqa: N815
    gateway: str | None = None
    vlan: int = 0
    """Accepted and ignored: Spiderpool has not had it since 0.9."""
    routes: list[RoutePart] = []

    @property
    def family(self) -> int:
        return 6 if ":" in self.subnet else 4

    def made(self, name: str) -> tuple[pool.Pool, list[pool.Address]]:
        """Return a pool of the addresses, and the addresses. InputError."""
        routes = [Route(route.dst, route.gw) for route in self.routes]
        return pool.make(name, self.subnet, self.ips, self.excludeIPs, self.gateway or "", routes)


class IPPool(Addresses):
    """SpiderIPPool."""

    podAffinity: Selector | None = None  # noqa: N815
    namespaceAffinity: Selector | None = None  # noqa: N815
    namespaceName: list[str] = []  # noqa: N815
    nodeAffinity: Selector | None = None  # noqa: N815
    nodeName: list[str] = []  # noqa: N815
    multusName: list[str] = []  # noqa: N815
    default: bool = False
    disable: bool = False


class ReservedIP(Part, Spec):
    """SpiderReservedIP: addresses that no pool gives."""

    ips: list[str] = []
    ipVersion: Literal[4, 6] | None = None  # noqa: N815

    def addresses(self) -> list[pool.Address]:
        """Return the addresses. InputError."""
        return [address for text in self.ips for address in pool.range_of(text)]


class TemplateMetadata(Free):
    labels: Texts | None = None
    annotations: Texts | None = None


class Template(Free):
    metadata: TemplateMetadata = TemplateMetadata()


class Workload(Free, Spec):
    """A workload, which makes pods: its size, and its pods' labels and annotations."""

    replicas: Annotated[int, Field(ge=0)] = 1
    template: Template = Template()


class Taint(Free):
    key: Annotated[str, Field(min_length=1)]
    value: str = ""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]


class NodeSpec(Free, Spec):
    taints: list[Taint] = []
    unschedulable: bool = False
