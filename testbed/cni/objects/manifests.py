"""Manifests: YAML files with one or several objects, as for `kubectl apply -f`."""

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from pydantic import BaseModel, ValidationError

from testbed.cni.objects import fields
from testbed.cni.objects.coordinator import CoordinatorSpec
from testbed.cni.objects.device_plugins import BY_IDS, ConfigMapData, NodePolicy, NodeStatus, selects_by_ids
from testbed.cni.objects.dra.kinds import ClaimSpec, ClassSpec, SliceSpec, TemplateSpec
from testbed.cni.objects.kinds import (
    Free,
    IPPool,
    Metadata,
    NetworkAttachmentDefinition,
    NodeSpec,
    ReservedIP,
    Spec,
    Workload,
)
from testbed.cni.objects.multus import MultusConfig
from testbed.cni.objects.operators import HostDeviceNetwork, InfiniBand, MacvlanNetwork, NicClusterPolicy, SriovNetwork
from testbed.cni.objects.policies import PolicySpec
from testbed.cni.objects.services import ServiceSpec
from testbed.cni.objects.subnet import SubnetSpec
from testbed.cni.objects.telemetry import PolicySpec as TelemetryPolicySpec
from testbed.cni.objects.telemetry import TopologySpec
from testbed.cni.objects.training.spec import KUBEDL, KUBEFLOW, MPI_OPERATOR, TrainingSpec
from testbed.documents import text
from testbed.documents.problems import Problems, dotted, wrong_value
from testbed.documents.text import choices, quoted
from testbed.documents.yaml import YamlDocument, parse
from testbed.errors import InputError, did_you_mean


@dataclass(frozen=True)
class Kind:
    versions: tuple[str, ...]
    namespaced: bool
    spec: type[Spec] | None
    """None: any content; nothing of it is read."""
    part: str = "spec"
    """The key of the content."""
    short: tuple[str, ...] = ()
    """Its other names on the command line, as those of kubectl."""
    beside: Mapping[str, type[Spec]] = field(default_factory=dict)
    """Models of other keys than `part`."""


DEFAULT = "default"
"""The namespace of an object that names none."""
NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
"""The namespaces that every cluster has."""
SPIDERPOOL = ("spiderpool.spidernet.io/v2beta1",)
APPS = ("apps/v1",)
KUEUE = tuple(f"kueue.x-k8s.io/{version}" for version in ("v1beta2", "v1beta1", "v1alpha1"))
DRA = ("resource.k8s.io/v1", "resource.k8s.io/v1beta2", "resource.k8s.io/v1beta1")
TRAINING = (KUBEDL, KUBEFLOW)
SRIOV, NVIDIA = ("sriovnetwork.openshift.io/v1",), ("mellanox.com/v1alpha1",)
KINDS = {
    "NetworkAttachmentDefinition": Kind(
        ("k8s.cni.cncf.io/v1",),
        True,
        NetworkAttachmentDefinition,
        short=("network-attachment-definition", "net-attach-def", "nad"),
    ),
    "SpiderIPPool": Kind(SPIDERPOOL, False, IPPool, short=("sp",)),
    "SpiderSubnet": Kind(SPIDERPOOL, False, SubnetSpec, short=("ss",)),
    "SpiderReservedIP": Kind(SPIDERPOOL, False, ReservedIP, short=("sr",)),
    "SpiderMultusConfig": Kind(SPIDERPOOL, True, MultusConfig, short=("smc",)),
    "SpiderCoordinator": Kind(SPIDERPOOL, False, CoordinatorSpec, short=("scc",)),
    "SriovNetworkNodePolicy": Kind(SRIOV, True, NodePolicy),
    "SriovNetwork": Kind(SRIOV, True, SriovNetwork),
    "SriovIBNetwork": Kind(SRIOV, True, InfiniBand),
    "MacvlanNetwork": Kind(NVIDIA, False, MacvlanNetwork),
    "HostDeviceNetwork": Kind(NVIDIA, False, HostDeviceNetwork),
    "IPoIBNetwork": Kind(NVIDIA, False, InfiniBand),
    "NicClusterPolicy": Kind(NVIDIA, False, NicClusterPolicy),
    "ConfigMap": Kind(("v1",), True, ConfigMapData, "data", ("cm",)),
    "Secret": Kind(("v1",), True, None),
    "Namespace": Kind(("v1",), False, None, short=("ns",)),
    "Node": Kind(("v1",), False, NodeStatus, "status", ("no",), {"spec": NodeSpec}),
    "Pod": Kind(("v1",), True, None, short=("po",)),
    "Deployment": Kind(APPS, True, Workload, short=("deploy",)),
    "ReplicaSet": Kind(APPS, True, Workload, short=("rs",)),
    "StatefulSet": Kind(APPS, True, Workload, short=("sts",)),
    "DaemonSet": Kind(APPS, True, Workload, short=("ds",)),
    "Job": Kind(("batch/v1",), True, Workload),
    "PyTorchJob": Kind(TRAINING, True, TrainingSpec),
    "TFJob": Kind(TRAINING, True, TrainingSpec),
    "MPIJob": Kind((*TRAINING, MPI_OPERATOR), True, TrainingSpec),
    "ControllerRevision": Kind(APPS, True, None),
    "Topology": Kind(KUEUE, False, TopologySpec),
    "TASPolicy": Kind(("telemetry.intel.com/v1alpha1",), True, TelemetryPolicySpec),
    "DeviceClass": Kind(DRA, False, ClassSpec),
    "ResourceClaim": Kind(DRA, True, ClaimSpec),
    "ResourceClaimTemplate": Kind(DRA, True, TemplateSpec),
    "ResourceSlice": Kind(DRA, False, SliceSpec),
    "NetworkPolicy": Kind(("networking.k8s.io/v1",), True, PolicySpec, short=("netpol",)),
    "MultiNetworkPolicy": Kind(("k8s.cni.cncf.io/v1beta1", "k8s.cni.cncf.io/v1beta2"), True, PolicySpec),
    "Service": Kind(("v1",), True, ServiceSpec, short=("svc",)),
}


def kind_named(word: str) -> str:
    """Return the kind of a word on a command line, as kubectl knows it: pod, pods, po, Pod, pods.v1. InputError."""
    wanted = word.partition(".")[0].lower()
    for name, kind in KINDS.items():
        names = (name.lower(), *kind.short)
        if wanted in {known for one in names for known in (one, f"{one}s", f"{one.removesuffix('y')}ies")}:
            return name
    raise InputError(f"a lab has no objects of kind {quoted(word)}; there are: {choices(word, list(KINDS))}")


Model = TypeVar("Model", bound=BaseModel)


@dataclass(frozen=True)
class Object:
    """An object. `namespace` is empty if the kind has none; `data` is the whole object as written."""

    kind: str
    name: str
    namespace: str
    data: Mapping[str, Any]
    document: text.Document | None = field(default=None, compare=False, repr=False)
    """The place that it was read from, for errors."""

    def __str__(self) -> str:
        return f"{self.kind}/{self.namespace}/{self.name}" if self.namespace else f"{self.kind}/{self.name}"

    def _of_metadata(self, key: str) -> dict[str, str]:
        return dict(self.data.get("metadata", {}).get(key) or {})

    @property
    def labels(self) -> dict[str, str]:
        return self._of_metadata("labels")

    @property
    def annotations(self) -> dict[str, str]:
        return self._of_metadata("annotations")

    @property
    def spec(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.data.get("spec") or {}
        return found


TIMESTAMP = "%Y-%m-%dT%H:%M:%SZ"


def written(seconds: float) -> str:
    """Return a time, in seconds of `time.time`, as objects have it."""
    return datetime.fromtimestamp(seconds, UTC).strftime(TIMESTAMP)


def deleting(one: Object) -> Object:
    """Return an object as it is from the request to delete it until it is gone."""
    metadata = {**one.data["metadata"], "deletionTimestamp": written(time.time())}
    return replace(one, data={**one.data, "metadata": metadata})


def bare(kind: str, name: str) -> Object:
    """Return an object of which nobody has said anything, such as a namespace that every cluster has."""
    return Object(kind, name, "", {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}})


def is_terminating(one: Object) -> bool:
    return bool(one.data["metadata"].get("deletionTimestamp"))


class _Head(Free):
    """The keys that all objects have."""

    apiVersion: str  # noqa: N815 (Kubernetes' name)
    kind: str
    metadata: Metadata


class Manifest(NamedTuple):
    objects: list[Object]
    notes: list[str]
    """A remark for each kind that nothing in a lab reads: its objects are passed over."""


def load(file: Path) -> Manifest:
    """Return all objects of a file, of a List its items. InputError, with places, for what is wrong in it."""
    content = text.decode(text.read(file, "manifest", "*.y*ml"), str(file)).removeprefix("\ufeff")
    content = _as_yaml(content)
    documents = [
        document for document in parse(content, str(file), "a manifest", literal=True) if document.value() is not None
    ]
    if not documents:
        raise InputError("it contains no object", where=str(file))
    objects, unread = [], []
    for document in [item for one in documents for item in _items(one)]:
        value = document.value()
        if remark := _unread(value):
            unread.append(remark)
            continue
        problems = Problems(document)
        fields.check(value, problems)
        problems.stop()
        objects.append(replace(_read(value, problems), document=document))
    remarks = [f"{one} {BY_IDS}" for one in objects if _selects_by_ids(one)]
    return Manifest(objects, [*dict.fromkeys(unread), *remarks])


def _as_yaml(content: str) -> str:
    """Return JSON, as `kubectl get -o json` writes it, as YAML, which knows no ``\\/`` and no tabs."""
    try:
        value = json.loads(content) if content.lstrip().startswith("{") else None
    except ValueError:  # YAML's flow style, or a mistake that its reader tells with a place
        value = None
    return content if value is None else json.dumps(value, indent=4, ensure_ascii=False)


def given(value: Mapping[str, Any]) -> Object:
    """Return the object that a user's mapping describes, as `load` reads those of files. InputError."""
    found = make(value)
    problems = Problems(None, "an object")
    fields.check(found.data, problems)
    problems.stop()
    return found


def _selects_by_ids(one: Object) -> bool:
    if one.kind == "NicClusterPolicy":
        return any(selects_by_ids(one.kind, data) for data in NicClusterPolicy.model_validate(one.spec).data())
    if one.kind == "ConfigMap":
        return selects_by_ids(one.kind, one.data.get("data") or {})
    return one.kind == "SriovNetworkNodePolicy" and selects_by_ids(one.kind, one.spec)


def _items(document: YamlDocument) -> Iterator[YamlDocument]:
    """Yield the items of a List, as `kubectl get -o yaml` writes it, else the document."""
    match document.value():
        case {"apiVersion": "v1", "kind": "List", "items": [*items]}:
            for number in range(len(items)):
                yield document.part("items", number)
        case _:
            yield document


def _unread(value: Any) -> str:
    """Return a remark on an object of a kind that nothing in a lab reads, or an empty string. Nothing else of it
    matters."""
    kind = value.get("kind") if isinstance(value, Mapping) and isinstance(value.get("apiVersion"), str) else None
    if not isinstance(kind, str) or not kind or kind in KINDS:
        return ""
    near = "" if fields.model_of(value["apiVersion"], kind) else did_you_mean(kind, KINDS, aside=True)
    return f"{kind} is passed over: nothing in a lab reads it{near}"


def make(value: Mapping[str, Any]) -> Object:
    """Return the object that a mapping describes. InputError, also for a kind that nothing in a lab reads."""
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"an object may only hold JSON values: {error}", where="an object") from None
    return _read(value, Problems(None, "an object"))


def _read(value: Any, problems: Problems) -> Object:
    if not isinstance(value, Mapping):
        problems.add((), "an object is a mapping with 'apiVersion', 'kind', 'metadata' and 'spec'")
        problems.stop()
    value = _without_nulls(value)
    head = _validated(_Head, value, (), problems)
    problems.stop()
    assert head
    kind = KINDS.get(head.kind)
    if kind is None:
        known = choices(head.kind, list(KINDS))
        problems.add(("kind",), f"kind {quoted(head.kind)} is not supported; supported: {known}")
        problems.stop()
    assert kind
    if head.apiVersion not in kind.versions:
        known = choices(head.apiVersion, kind.versions)
        wrong = f"apiVersion {quoted(head.apiVersion)} of {head.kind} is not supported; supported: {known}"
        problems.add(("apiVersion",), wrong)
    _check_spec(head, kind, value, problems)
    problems.stop()
    namespace = (head.metadata.namespace or DEFAULT) if kind.namespaced else ""
    return Object(head.kind, head.metadata.name, namespace, value)


def check(one: Object, model: type[Spec], problems: Problems) -> None:
    """Check the `spec` of an object by another model than its kind's."""
    metadata = Metadata.model_validate(one.data["metadata"])
    if spec := _validated(model, one.data.get("spec") or {}, ("spec",), problems):
        _check(spec, metadata, "spec", problems)


def _without_nulls(value: Any) -> Any:
    """Return a value without keys that are null: an API server takes them for absent."""
    if isinstance(value, Mapping):
        return {key: _without_nulls(one) for key, one in value.items() if one is not None}
    return [_without_nulls(one) for one in value] if isinstance(value, list) else value


def _check_spec(head: _Head, kind: Kind, value: Mapping[str, Any], problems: Problems) -> None:
    parts = {**({kind.part: kind.spec} if kind.spec else {}), **kind.beside}
    for part, model in parts.items():
        if spec := _validated(model, value.get(part) or {}, (part,), problems):
            _check(spec, head.metadata, part, problems)


def _check(spec: Spec, metadata: Metadata, part: str, problems: Problems) -> None:
    try:
        spec.check(metadata)
    except InputError as error:
        within = error.where.startswith(f"{part}.")
        path = tuple(error.where.partition(":")[0].split(".")) if within else (part,)
        problems.add(path, f"{error.where}: {error.message}" if within else error.message)


def _validated(model: type[Model], value: Any, above: text.Path, problems: Problems) -> Model | None:
    try:
        return model.model_validate(value)
    except ValidationError as error:
        for detail in error.errors(include_url=False):
            path = (*above, *detail["loc"])
            name = dotted(path)
            match detail["type"]:
                case "missing":
                    problems.add(path[:-1], f"{name} is missing")
                case "extra_forbidden":
                    allowed = list(model.model_fields)
                    near = did_you_mean(path[-1], allowed, aside=True) if len(path) == len(above) + 1 else ""
                    problems.add(path, f"{name} is not supported{near}", at_key=True)
                case _:
                    problems.add(path, wrong_value(detail, name))
    return None
