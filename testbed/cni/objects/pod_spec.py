"""The `spec` of pods and of the workloads that make them, as far as a lab acts on it.

Sources: Kubernetes API 1.31, core/v1, apps/v1 and batch/v1; its validation (pkg/apis/{core,apps,batch}/validation).
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from testbed.cni.objects.device_plugins import amount
from testbed.cni.objects.kinds import Free, Metadata, Selector, Spec, TemplateMetadata, Texts
from testbed.errors import InputError

MOST_PODS = 5000
"""The most pods of a workload: a lab with more would not fit into its machine."""
Count = Annotated[int, Field(ge=0, le=MOST_PODS)]


def _octal(value: Any) -> Any:
    """Return what YAML 1.1, as kubectl reads it, has for ``0600``."""
    return int(value, 8) if isinstance(value, str) and re.fullmatch("0[0-7]{1,4}", value) else value


Mode = Annotated[int, BeforeValidator(_octal), Field(ge=0, le=0o777)]
Ordinal = Annotated[int, Field(ge=0, le=1_000_000)]
Share = int | str
"""A number of pods, or a percentage of them such as ``25%``."""


_PERCENT = re.compile(r"([0-9]{1,4})%")


class FieldRef(Free):
    fieldPath: str  # noqa: N815 (Kubernetes' names, here and below)


class ResourceRef(Free):
    resource: str
    containerName: str = ""  # noqa: N815


class ObjectRef(Free):
    """A ConfigMap or a Secret of the pod's namespace."""

    name: str
    optional: bool = False


class KeyRef(ObjectRef):
    key: str


class EnvSource(Free):
    fieldRef: FieldRef | None = None  # noqa: N815
    resourceFieldRef: ResourceRef | None = None  # noqa: N815
    configMapKeyRef: KeyRef | None = None  # noqa: N815
    secretKeyRef: KeyRef | None = None  # noqa: N815


class EnvVar(Free):
    name: str
    value: str = ""
    valueFrom: EnvSource | None = None  # noqa: N815


class EnvFrom(Free):
    prefix: str = ""
    configMapRef: ObjectRef | None = None  # noqa: N815
    secretRef: ObjectRef | None = None  # noqa: N815


class Port(Free):
    containerPort: Annotated[int, Field(ge=1, le=65535)]  # noqa: N815
    hostPort: int = 0  # noqa: N815
    name: str = ""
    protocol: str = "TCP"


class ClaimOfContainer(Free):
    name: str
    request: str = ""


class Resources(Free):
    limits: dict[str, int | float | str] | None = None
    requests: dict[str, int | float | str] | None = None
    claims: list[ClaimOfContainer] | None = None


class PodClaim(Free):
    """A PodResourceClaim."""

    name: Annotated[str, Field(min_length=1)]
    resourceClaimName: str = ""  # noqa: N815
    resourceClaimTemplateName: str = ""  # noqa: N815


class SecurityContext(Free):
    privileged: bool | None = None


class VolumeMount(Free):
    name: str
    mountPath: Annotated[str, Field(min_length=1)]  # noqa: N815
    subPath: str = ""  # noqa: N815
    readOnly: bool = False  # noqa: N815


class Item(Free):
    """A KeyToPath: a file of a volume."""

    key: str
    path: Annotated[str, Field(min_length=1)]
    mode: Mode | None = None


class ConfigMapVolume(Free):
    name: str = ""
    items: list[Item] | None = None
    defaultMode: Mode = 0o644  # noqa: N815
    optional: bool = False


class SecretVolume(Free):
    secretName: str = ""  # noqa: N815
    items: list[Item] | None = None
    defaultMode: Mode = 0o644  # noqa: N815
    optional: bool = False


class Volume(Free):
    """A volume: of those that a lab mounts, what is in it."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")]
    configMap: ConfigMapVolume | None = None  # noqa: N815
    secret: SecretVolume | None = None
    emptyDir: dict[str, Any] | None = None  # noqa: N815


class ContainerSpec(Free):
    name: Annotated[str, Field(min_length=1)]
    resources: Resources | None = None
    securityContext: SecurityContext | None = None  # noqa: N815
    image: str = ""
    command: list[str] | None = None
    args: list[str] | None = None
    env: list[EnvVar] | None = None
    envFrom: list[EnvFrom] | None = None  # noqa: N815
    workingDir: str = ""  # noqa: N815
    volumeMounts: list[VolumeMount] | None = None  # noqa: N815
    ports: list[Port] | None = None


class Requirement(Free):
    """A NodeSelectorRequirement."""

    key: str
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]
    values: list[str] | None = None


class NodeTerm(Free):
    """A NodeSelectorTerm: all of it must match, and an empty one matches nothing."""

    matchExpressions: list[Requirement] | None = None  # noqa: N815
    matchFields: list[Requirement] | None = None  # noqa: N815


class NodeTerms(Free):
    nodeSelectorTerms: Annotated[list[NodeTerm], Field(min_length=1)]  # noqa: N815


class PreferredNodes(Free):
    weight: Annotated[int, Field(ge=1, le=100)]
    preference: NodeTerm


class NodeAffinity(Free):
    requiredDuringSchedulingIgnoredDuringExecution: NodeTerms | None = None  # noqa: N815
    preferredDuringSchedulingIgnoredDuringExecution: list[PreferredNodes] | None = None  # noqa: N815


class PodTerm(Free):
    """A PodAffinityTerm."""

    labelSelector: Selector | None = None  # noqa: N815
    topologyKey: Annotated[str, Field(min_length=1)]  # noqa: N815
    namespaces: list[str] | None = None
    namespaceSelector: Selector | None = None  # noqa: N815


class PreferredPods(Free):
    weight: Annotated[int, Field(ge=1, le=100)]
    podAffinityTerm: PodTerm  # noqa: N815


class PodAffinity(Free):
    requiredDuringSchedulingIgnoredDuringExecution: list[PodTerm] | None = None  # noqa: N815
    preferredDuringSchedulingIgnoredDuringExecution: list[PreferredPods] | None = None  # noqa: N815


class Affinity(Free):
    nodeAffinity: NodeAffinity | None = None  # noqa: N815
    podAffinity: PodAffinity | None = None  # noqa: N815
    podAntiAffinity: PodAffinity | None = None  # noqa: N815


class Toleration(Free):
    key: str = ""
    operator: Literal["Exists", "Equal"] = "Equal"
    value: str = ""
    effect: Literal["", "NoSchedule", "PreferNoSchedule", "NoExecute"] = ""
    tolerationSeconds: Annotated[int, Field(le=1_000_000_000)] | None = None  # noqa: N815


class Spread(Free):
    """A TopologySpreadConstraint."""

    maxSkew: Annotated[int, Field(ge=1)]  # noqa: N815
    topologyKey: Annotated[str, Field(min_length=1)]  # noqa: N815
    whenUnsatisfiable: Literal["DoNotSchedule", "ScheduleAnyway"]  # noqa: N815
    labelSelector: Selector | None = None  # noqa: N815


class PodSpec(Free, Spec):
    """The `spec` of a Pod."""

    containers: Annotated[list[ContainerSpec], Field(min_length=1)]
    nodeName: str = ""  # noqa: N815
    nodeSelector: Texts | None = None  # noqa: N815
    hostNetwork: bool = False  # noqa: N815
    affinity: Affinity | None = None
    tolerations: list[Toleration] | None = None
    topologySpreadConstraints: list[Spread] | None = None  # noqa: N815
    restartPolicy: Literal["Always", "OnFailure", "Never"] = "Always"  # noqa: N815
    resourceClaims: list[PodClaim] | None = None  # noqa: N815
    volumes: list[Volume] | None = None
    hostname: Annotated[str, Field(pattern=r"^([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)?$")] = ""

    def check(self, metadata: Metadata) -> None:
        check_containers(self, "spec")

    def host_ports(self) -> set[tuple[str, int]]:
        """Return the ports of its node that the pod wants: those of hostNetwork are all its containers'."""
        ports = [port for container in self.containers for port in container.ports or ()]
        wanted = [(one.protocol, one.containerPort if self.hostNetwork else one.hostPort) for one in ports]
        return {one for one in wanted if one[1]}


class PodTemplate(Free):
    metadata: TemplateMetadata = TemplateMetadata()
    spec: PodSpec


class Rolling(Free):
    maxSurge: Share | None = None  # noqa: N815
    maxUnavailable: Share | None = None  # noqa: N815
    partition: Ordinal = 0


class Strategy(Free):
    type: Literal["RollingUpdate", "Recreate", "OnDelete"] = "RollingUpdate"
    rollingUpdate: Rolling | None = None  # noqa: N815

    @property
    def rolling(self) -> Rolling:
        return self.rollingUpdate or Rolling()


class _Selecting(Free, Spec):
    """A workload whose selector has to match its template."""

    selector: Selector
    template: PodTemplate

    def check(self, metadata: Metadata) -> None:
        if self.template.spec.restartPolicy != "Always":
            where = "spec.template.spec.restartPolicy"
            wrong = f'Unsupported value: "{self.template.spec.restartPolicy}": supported values: "Always"'
            raise InputError(wrong, where=where)
        check_containers(self.template.spec, "spec.template.spec")
        if not self.selector.matchLabels and not self.selector.matchExpressions:
            raise InputError("Invalid value: empty selector is invalid for this kind", where="spec.selector")
        if not self.selector.matches(self.template.metadata.labels or {}):
            where = "spec.template.metadata.labels"
            raise InputError("Invalid value: `selector` does not match template `labels`", where=where)


class DeploymentStrategy(Strategy):
    type: Literal["RollingUpdate", "Recreate"] = "RollingUpdate"


class DeploymentSpec(_Selecting):
    replicas: Count = 1
    paused: bool = False
    strategy: DeploymentStrategy = DeploymentStrategy()

    def check(self, metadata: Metadata) -> None:
        super().check(metadata)
        rolling = self.strategy.rolling
        if self.strategy.type == "Recreate" and self.strategy.rollingUpdate:
            wrong = "Forbidden: may not be specified when strategy `type` is 'Recreate'"
            raise InputError(wrong, where="spec.strategy.rollingUpdate")
        check_share(rolling.maxSurge, "spec.strategy.rollingUpdate.maxSurge")
        check_share(rolling.maxUnavailable, "spec.strategy.rollingUpdate.maxUnavailable", most=100)
        if self.strategy.type == "RollingUpdate" and {rolling.maxSurge, rolling.maxUnavailable} <= {0, "0%"}:
            where = "spec.strategy.rollingUpdate.maxUnavailable"
            raise InputError("Invalid value: may not be 0 when `maxSurge` is 0", where=where)

    @property
    def surge(self) -> int:
        return share(self.strategy.rolling.maxSurge, self.replicas, up=True)

    @property
    def unavailable(self) -> int:
        """Return how many pods may be missing in an update; one if neither they nor more pods were allowed
        (ResolveFenceposts of pkg/controller/deployment/util)."""
        found = share(self.strategy.rolling.maxUnavailable, self.replicas, up=False)
        return found or int(self.surge == 0)


class ReplicaSetSpec(_Selecting):
    replicas: Count = 1


class Ordinals(Free):
    start: Ordinal = 0


class StatefulSetSpec(_Selecting):
    replicas: Count = 1
    serviceName: str = ""  # noqa: N815
    podManagementPolicy: Literal["OrderedReady", "Parallel"] = "OrderedReady"  # noqa: N815
    updateStrategy: Strategy = Strategy()  # noqa: N815
    ordinals: Ordinals = Ordinals()


class DaemonSetSpec(_Selecting):
    updateStrategy: Strategy = Strategy()  # noqa: N815

    def check(self, metadata: Metadata) -> None:
        super().check(metadata)
        rolling, where = self.updateStrategy.rolling, "spec.updateStrategy.rollingUpdate"
        check_share(rolling.maxSurge, f"{where}.maxSurge", most=100)
        check_share(rolling.maxUnavailable, f"{where}.maxUnavailable", most=100)


class JobSpec(Free, Spec):
    template: PodTemplate
    parallelism: Count = 1
    completions: Count | None = None
    backoffLimit: Count = 6  # noqa: N815
    completionMode: Literal["NonIndexed", "Indexed"] = "NonIndexed"  # noqa: N815
    suspend: bool = False
    activeDeadlineSeconds: Annotated[int, Field(ge=0)] | None = None  # noqa: N815
    ttlSecondsAfterFinished: Annotated[int, Field(ge=0)] | None = None  # noqa: N815

    def check(self, metadata: Metadata) -> None:
        if self.template.spec.restartPolicy == "Always":
            where = "spec.template.spec.restartPolicy"
            raise InputError('Required value: valid values: "OnFailure", "Never"', where=where)
        if self.completionMode == "Indexed" and self.completions is None:
            wrong = "Required value: when completion mode is Indexed"
            raise InputError(wrong, where="spec.completions")
        check_containers(self.template.spec, "spec.template.spec")


WORKLOADS: Mapping[str, type[Spec]] = {
    "Pod": PodSpec,
    "Deployment": DeploymentSpec,
    "ReplicaSet": ReplicaSetSpec,
    "StatefulSet": StatefulSetSpec,
    "DaemonSet": DaemonSetSpec,
    "Job": JobSpec,
}
"""The `spec` of the kinds whose pods a lab starts."""


FIXED = {
    "Deployment": ("selector",),
    "ReplicaSet": ("selector",),
    "DaemonSet": ("selector",),
    "StatefulSet": ("selector", "serviceName", "podManagementPolicy", "volumeClaimTemplates"),
    "Job": ("template", "completions", "completionMode", "selector", "manualSelector"),
    "ResourceClaim": ("devices",),
    "ResourceClaimTemplate": ("spec", "metadata"),
    "ResourceSlice": ("driver", "nodeName", "nodeSelector", "allNodes"),
}
"""The fields that no update changes (pkg/apis/{apps,batch,resource}/validation)."""


def fixed(kind: str, before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Return the first field that an update of a workload changes and may not, or an empty string."""
    return next((key for key in FIXED.get(kind, ()) if before.get(key) != now.get(key)), "")


def check_share(value: Share | None, where: str, most: int = 9999) -> None:
    """Raise InputError for what is neither a number nor a percentage, or one above `most` percent."""
    number = _PERCENT.fullmatch(value) if isinstance(value, str) else None
    if isinstance(value, int) and value < 0:
        raise InputError(f"Invalid value: {value}: must be greater than or equal to 0", where=where)
    if isinstance(value, str) and not number:
        raise InputError(f"Invalid value: {value!r}: must be an integer or percentage (e.g '5%')", where=where)
    if number and int(number[1]) > most:
        raise InputError(f"Invalid value: {value!r}: must not be greater than {most}%", where=where)


def share(value: Share | None, of: int, *, up: bool) -> int:
    """Return a number of pods; a quarter of all if none is given, as for Deployments. `check_share` has passed it."""
    if isinstance(value, int):
        return value
    number = _PERCENT.fullmatch("25%" if value is None else value)
    assert number
    parts = of * int(number[1])
    return -(-parts // 100) if up else parts // 100


def check_containers(spec: PodSpec, where: str) -> None:
    """Raise InputError for two containers of one name, for claims that are none, and for an amount of devices that is
    no number."""
    _check_claims(spec, where)
    _check_variables(spec, where)
    _check_volumes(spec, where)
    names = [container.name for container in spec.containers]
    for number, container in enumerate(spec.containers):
        if container.name in names[:number]:
            raise InputError(f'Duplicate value: "{container.name}"', where=f"{where}.containers")
        for kind in ("limits", "requests"):
            given = getattr(container.resources, kind) if container.resources else None
            for name, value in (given or {}).items():
                if "/" in name:
                    try:
                        amount(name, value)
                    except InputError as error:
                        raise InputError(f"{where}.containers[{number}].resources.{kind}: {error.message}") from None


FIELDS = re.compile(
    r"metadata\.(name|namespace|uid|(labels|annotations)\['[^']+'\])|spec\.(nodeName|serviceAccountName)"
    r"|status\.(hostIP|hostIPs|podIP|podIPs)"
)
"""What a variable can have of its pod."""


def _check_variables(spec: PodSpec, where: str) -> None:
    for number, container in enumerate(spec.containers):
        for one in container.env or ():
            source = one.valueFrom
            at = f"{where}.containers[{number}].env, {one.name}"
            if source and one.value:
                raise InputError(f"{at}: Invalid value: may not be specified when `value` is not empty")
            given = source and [source.fieldRef, source.resourceFieldRef, source.configMapKeyRef, source.secretKeyRef]
            if given is not None and sum(map(bool, given)) != 1:
                raise InputError(f"{at}: Invalid value: must specify exactly one source")
            if source and source.fieldRef and not FIELDS.fullmatch(source.fieldRef.fieldPath):
                raise InputError(f'{at}: Invalid value: "{source.fieldRef.fieldPath}": no such field of a pod')


def _check_volumes(spec: PodSpec, where: str) -> None:
    names = [one.name for one in spec.volumes or ()]
    for number, name in enumerate(names):
        if name in names[:number]:
            raise InputError(f'Duplicate value: "{name}"', where=f"{where}.volumes")
    for one in spec.volumes or ():
        items = [item for source in (one.configMap, one.secret) if source for item in source.items or ()]
        if wrong := next((item.path for item in items if not _stays_below(item.path)), None):
            text = f"Invalid value: {wrong!r}: must be a relative path, and must not contain '..'"
            raise InputError(text, where=f"{where}.volumes")
    for number, container in enumerate(spec.containers):
        at, places = f"{where}.containers[{number}].volumeMounts", set[str]()
        for mount in container.volumeMounts or ():
            if mount.name not in names:
                raise InputError(f'Not found: "{mount.name}"', where=at)
            if mount.mountPath in places:
                raise InputError(f'Invalid value: "{mount.mountPath}": must be unique', where=at)
            if ":" in mount.mountPath:
                raise InputError(f"Invalid value: \"{mount.mountPath}\": must not contain ':'", where=at)
            if mount.subPath and not _stays_below(mount.subPath):
                text = f"Invalid value: {mount.subPath!r}: must be a relative path, and must not contain '..'"
                raise InputError(text, where=at)
            places.add(mount.mountPath)


def _stays_below(path: str) -> bool:
    return not path.startswith("/") and ".." not in path.split("/") and "\0" not in path


def _check_claims(spec: PodSpec, where: str) -> None:
    names = [one.name for one in spec.resourceClaims or ()]
    for number, one in enumerate(spec.resourceClaims or ()):
        if one.name in names[:number]:
            raise InputError(f'Duplicate value: "{one.name}"', where=f"{where}.resourceClaims")
        if bool(one.resourceClaimName) == bool(one.resourceClaimTemplateName):
            wrong = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"
            raise InputError(f"Invalid value: {one.name}: {wrong}", where=f"{where}.resourceClaims")
    for container in spec.containers:
        for used in (container.resources and container.resources.claims) or ():
            if used.name not in names:
                wrong = f'Not found: "{used.name}": must be one of the names in pod.spec.resourceClaims'
                raise InputError(wrong, where=f"{where}.containers")
