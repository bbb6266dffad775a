"""Offers of device plugins on a node: shared RDMA devices and VFs, as users configure them.

Sources: k8s-rdma-shared-dev-plugin (README), sriov-network-operator (SriovNetworkNodePolicy), both as in Spiderpool's
docs/usage/install/ai; sriov-network-device-plugin (README). A lab's NICs have names, but no PCI addresses and no IDs.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BeforeValidator, Field, TypeAdapter

from testbed.cni.objects.kinds import Free, Metadata, Part, Spec, Texts
from testbed.documents import json
from testbed.errors import InputError

CONFIG = "config.json"
"""The key of a ConfigMap."""
PREFIXES = PREFIX, *_ = "spidernet.io", "openshift.io", "nvidia.com"
"""The prefixes of VF resources with which Spiderpool, sriov-network-operator's own chart and NVIDIA's network-operator
install it. It is in no object, so a lab knows a resource under all of them."""
OF_PLUGIN = "intel.com"
"""The prefix of sriov-network-device-plugin's resources that name none."""
NO_IDS = "is not supported: the lab's NICs have no PCI addresses and IDs; select"
ADDRESSES = "rootDevices", "pciAddresses"
IDS = "vendors", "deviceIDs", "devices", "drivers", "vendor", "deviceID"
"""Selectors that a lab cannot check. Beside names of NICs they choose nothing; alone, IDs choose all NICs of a node."""
ALL = "*"
"""The name for all NICs of a node."""
VFS_BY_IDS = 8
"""VFs of each NIC that sriov-network-device-plugin offers if its selectors have IDs alone."""
BY_IDS = "selects NICs by IDs, which a lab's do not have: all NICs of a node are selected"
MOST_VFS = 128
_PF = re.compile(r"(?P<name>[^#]+)(#(?P<first>[0-9]{1,4})-(?P<last>[0-9]{1,4}))?")


@dataclass(frozen=True)
class Offer:
    """The offer of one resource on a node."""

    amount: int
    vfs: Mapping[str, str] = field(default_factory=dict)
    """The interfaces of VFs, and the NIC of each. Empty: the units are all alike."""
    shared: Sequence[str] = ()
    """The interfaces whose RDMA device is shared."""
    rdma: bool = False
    """True if the RDMA devices of its VFs come with them (`isRdma`)."""
    mtu: int = 0
    """The MTU of its VFs and their NICs, in bytes; 0: as it is."""
    why_none: str = ""
    """The reason why its plugin offers nothing."""


def _named_by(names: str) -> BeforeValidator:
    """Refuse selectors that a lab cannot check, unless `names` choose the NICs."""

    def check(value: Any) -> Any:
        if isinstance(value, dict) and not value.get(names):
            if found := [key for key in ADDRESSES if value.get(key)]:
                raise ValueError(f"{found[0]} {NO_IDS} them by {names}")
            if any(value.get(key) for key in IDS):
                return {**value, names: [ALL]}
        return value

    return BeforeValidator(check)


class Interfaces(Part):
    ifNames: Annotated[list[str], Field(min_length=1)]  # noqa: N815 (the plugins' names, here and below)
    linkTypes: list[Literal["ether"]] = Field(default_factory=list)  # noqa: N815
    vendors: list[str] = Field(default_factory=list)
    deviceIDs: list[str] = Field(default_factory=list)  # noqa: N815
    drivers: list[str] = Field(default_factory=list)


class SharedDevice(Part):
    resourceName: Annotated[str, Field(min_length=1)]  # noqa: N815
    resourcePrefix: Annotated[str, Field(min_length=1)] = "rdma"  # noqa: N815
    rdmaHcaMax: Annotated[int, Field(ge=0)]  # noqa: N815
    selectors: Annotated[Interfaces, _named_by("ifNames")]

    @property
    def resource(self) -> str:
        return f"{self.resourcePrefix}/{self.resourceName}"


class SharedDevices(Part):
    """The configuration of k8s-rdma-shared-dev-plugin."""

    periodicUpdateInterval: int = 60  # noqa: N815
    configList: list[SharedDevice]  # noqa: N815


class Functions(Part):
    pfNames: Annotated[list[str], Field(min_length=1)]  # noqa: N815
    vendor: str = ""
    deviceID: str = ""  # noqa: N815
    rootDevices: list[str] = Field(default_factory=list)  # noqa: N815
    netFilter: str = ""  # noqa: N815

    def by_name(self, count: int) -> dict[str, list[int]]:
        """Return the numbers of VFs of each NIC. InputError."""
        found = {}
        for text in self.pfNames:
            match = _PF.fullmatch(text)
            if not match or (match["last"] and not int(match["first"]) <= int(match["last"]) < count):
                raise InputError(f"{text} is not a NIC, or one with VFs such as eth1#0-3")
            found[match["name"]] = list(range(count))
            if match["last"]:
                found[match["name"]] = list(range(int(match["first"]), int(match["last"]) + 1))
        return found


class NodePolicy(Part, Spec):
    """SriovNetworkNodePolicy."""

    resourceName: Annotated[str, Field(min_length=1)]  # noqa: N815
    numVfs: Annotated[int, Field(ge=1, le=MOST_VFS)]  # noqa: N815
    nicSelector: Annotated[Functions, _named_by("pfNames")]  # noqa: N815
    nodeSelector: Texts = Field(default_factory=dict)  # noqa: N815
    priority: Annotated[int, Field(ge=0, le=99)] = 99
    mtu: Annotated[int, Field(ge=0)] = 0
    """Of the NIC and of its VFs; 0: as it is."""
    deviceType: Literal["netdevice"] = "netdevice"  # noqa: N815
    linkType: Literal["eth", "ETH"] = "eth"  # noqa: N815
    isRdma: bool = False  # noqa: N815
    eSwitchMode: Literal["legacy"] = "legacy"  # noqa: N815
    needVhostNet: bool = False  # noqa: N815
    excludeTopology: bool = False  # noqa: N815
    externallyManaged: bool = False  # noqa: N815

    @property
    def resource(self) -> str:
        return f"{PREFIX}/{self.resourceName}"

    def check(self, metadata: Metadata) -> None:
        try:
            self.nicSelector.by_name(self.numVfs)
        except InputError as error:
            error.where = "spec.nicSelector.pfNames"
            raise


class Selected(Functions):
    """Selectors of sriov-network-device-plugin."""

    vendors: list[str] = Field(default_factory=list)
    devices: list[str] = Field(default_factory=list)
    drivers: list[str] = Field(default_factory=list)
    pciAddresses: list[str] = Field(default_factory=list)  # noqa: N815
    linkTypes: list[Literal["ether"]] = Field(default_factory=list)  # noqa: N815
    isRdma: bool = False  # noqa: N815
    needVhostNet: bool = False  # noqa: N815


def _one_selector(value: Any) -> Any:
    """Return the selectors, which may be a list of which one has to match; a lab reads lists of one."""
    return value[0] if isinstance(value, list) and len(value) == 1 else value


class Resource(Part):
    resourceName: Annotated[str, Field(min_length=1)]  # noqa: N815
    resourcePrefix: Annotated[str, Field(min_length=1)] = OF_PLUGIN  # noqa: N815
    deviceType: Literal["netDevice"] = "netDevice"  # noqa: N815
    excludeTopology: bool = False  # noqa: N815
    selectors: Annotated[Selected, BeforeValidator(_one_selector), _named_by("pfNames")]

    @property
    def resource(self) -> str:
        return f"{self.resourcePrefix}/{self.resourceName}"

    def vfs(self) -> dict[str, list[int]]:
        """Return the numbers of VFs of each NIC. InputError."""
        if ALL in self.selectors.pfNames:
            return {ALL: list(range(VFS_BY_IDS))}
        if whole := [name for name in self.selectors.pfNames if "#" not in name]:
            raise InputError(f"selectors.pfNames: {whole[0]} has no VFs in a lab unless it says which: {whole[0]}#0-3")
        return self.selectors.by_name(MOST_VFS)


class Resources(Part):
    """The configuration of sriov-network-device-plugin."""

    resourceList: list[Resource]  # noqa: N815


class ConfigMapData(Free, Spec):
    """The `data` of a ConfigMap."""

    def check(self, metadata: Metadata) -> None:
        shared_devices(self.model_extra or {})
        for resource in resources(self.model_extra or {}):
            resource.vfs()


class NodeStatus(Free, Spec):
    """The `status` of a Node."""

    def check(self, metadata: Metadata) -> None:
        allocatable(self.model_extra or {})


_SHARED = TypeAdapter(SharedDevices)
_RESOURCES = TypeAdapter(Resources)
Configuration = TypeVar("Configuration")


def shared_devices(data: Mapping[str, Any]) -> list[SharedDevice]:
    """Return the devices in the `data` of a ConfigMap, if it is k8s-rdma-shared-dev-plugin's. InputError."""
    found = _configured(data, "configList", _SHARED)
    return found.configList if found else []


def resources(data: Mapping[str, Any]) -> list[Resource]:
    """Return the resources in the `data` of a ConfigMap, if it is sriov-network-device-plugin's. InputError."""
    found = _configured(data, "resourceList", _RESOURCES)
    return found.resourceList if found else []


def _configured(data: Mapping[str, Any], key: str, adapter: TypeAdapter[Configuration]) -> Configuration | None:
    """Return the configuration in the `data` of a ConfigMap, if it has the key that its plugin's has."""
    text = data.get(CONFIG)
    return json.typed(text, adapter, f"data.{CONFIG}") if isinstance(text, str) and key in text else None


def aliases(resource: str) -> list[str]:
    """Return the names of a resource with the operator's other prefixes, if it has one of them."""
    prefix, _, name = resource.rpartition("/")
    return [f"{other}/{name}" for other in PREFIXES if other != prefix] if prefix in PREFIXES else []


def allocatable(status: Mapping[str, Any]) -> dict[str, Offer]:
    """Return what a Node's status declares, without common resources such as cpu. InputError."""
    given = status.get("allocatable") or {}
    return {name: Offer(amount(name, value)) for name, value in given.items() if "/" in name}


def amount(name: str, value: Any) -> int:
    if re.fullmatch(r"\d{1,9}", str(value)):
        return int(value)
    raise InputError(f"{name}: {value!r} is not a number of devices")


def selects_by_ids(kind: str, data: Mapping[str, Any]) -> bool:
    """Return whether an object, which is valid, selects NICs by their IDs alone: a SriovNetworkNodePolicy by its
    `spec`, others by the `data` of a ConfigMap."""
    if kind == "SriovNetworkNodePolicy":
        return ALL in NodePolicy.model_validate(data).nicSelector.pfNames
    return any(ALL in one.selectors.ifNames for one in shared_devices(data)) or any(
        ALL in one.selectors.pfNames for one in resources(data)
    )


NOT_STARTED = (
    "k8s-rdma-shared-dev-plugin does not start in RDMA's exclusive mode (incorrect RDMA subsystem network namespace): "
    "the lab needs `rdma_mode: shared`."
)


def offers(
    interfaces: Collection[str],
    labels: Mapping[str, str],
    status: Mapping[str, Any],
    shared: Iterable[SharedDevice],
    policies: Sequence[NodePolicy],
    resources: Sequence[Resource] = (),
    *,
    nics: Sequence[str] = (),
    exclusive: bool = False,
) -> dict[str, Offer]:
    """Return the offers of a node with these interfaces and labels; `nics` are those with a link. The offer of a plugin
    replaces that of `status`, as in kubelet. k8s-rdma-shared-dev-plugin does not start in exclusive mode
    (ValidateRdmaSystemMode)."""
    found = allocatable(status)
    for device in shared:
        wanted = nics if ALL in device.selectors.ifNames else device.selectors.ifNames
        there = [name for name in wanted if name in interfaces]
        found[device.resource] = (
            Offer(0, why_none=NOT_STARTED) if exclusive else Offer(device.rdmaHcaMax if there else 0, shared=there)
        )
    own = [one for one in sorted(policies, key=lambda one: one.priority) if one.nodeSelector.items() <= labels.items()]
    selected = [(one.resource, one.nicSelector.by_name(one.numVfs)) for one in own]
    selected += [(one.resource, one.vfs()) for one in resources]
    functions: dict[str, dict[str, str]] = {}
    for resource, of_nics in selected:
        of_resource = functions.setdefault(resource, {})
        for chosen, numbers in of_nics.items():
            for name in nics if chosen == ALL else [chosen]:
                of_resource |= {f"{name}v{number}": name for number in numbers if name in interfaces}
    with_rdma = {policy.resource for policy in policies if policy.isRdma}
    with_rdma |= {one.resource for one in resources if one.selectors.isRdma}
    mtus = {policy.resource: policy.mtu for policy in policies if policy.mtu}
    return found | {
        resource: Offer(len(vfs), vfs, rdma=resource in with_rdma, mtu=mtus.get(resource, 0))
        for resource, vfs in functions.items()
    }
