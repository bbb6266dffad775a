"""SpiderMultusConfig: the description of a network, from which its NetworkAttachmentDefinition is made.

Sources: Spiderpool 1.0, docs/reference/crd-spidermultusconfig.md and docs/usage/spider-multus-config.md. Refused by
name: what its webhook refuses, and what a lab does not have.
"""

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from testbed.cni.objects.coordinator import CoordinatorSpec
from testbed.cni.objects.kinds import Metadata, Part, Spec
from testbed.cni.spec import conflist
from testbed.documents.json import loads
from testbed.documents.text import choices, quoted
from testbed.errors import InputError

INJECT_RDMA, INJECT = "cni.spidernet.io/rdma-resource-inject", "cni.spidernet.io/network-resource-inject"
CR_NAME, CNI_VERSION = "multus.spidernet.io/cr-name", "multus.spidernet.io/cni-version"
RESOURCE_NAME = "k8s.v1.cni.cncf.io/resourceName"
"""The annotation of a definition with the resource whose device its first plugin gets."""
DEFAULT_VERSION = "0.3.1"
OTHERS = {
    "ib-sriov": "the lab's NICs are Ethernet",
    "ipoib": "the lab's NICs are Ethernet",
    "ovs": "the lab has no Open vSwitch",
    "vlan": "soft-RoCE does not run on a VLAN device; macvlan has `vlanID`",
}
"""The other cniTypes, and the reason why each is not supported."""
KINDS = ("macvlan", "ipvlan", "sriov", "custom")


def _cni_type(value: Any) -> Any:
    if value in OTHERS:
        raise ValueError(f"cniType {value} is not supported: {OTHERS[value]}")
    if isinstance(value, str) and value not in KINDS:
        raise ValueError(f"cniType {quoted(value)} is not supported; supported: {choices(value, KINDS)}")
    return value


class Bond(Part):
    name: Annotated[str, Field(min_length=1)]
    mode: Annotated[int, Field(ge=0, le=6)]
    options: str = ""


class Pools(Part):
    """The names of SpiderIPPools."""

    ipv4: list[str] = Field(default_factory=list)
    ipv6: list[str] = Field(default_factory=list)
    matchMasterSubnet: Literal[False] = False  # noqa: N815 (Spiderpool's names, here and below)


class OnNic(Part):
    """macvlan and ipvlan."""

    master: Annotated[list[str], Field(min_length=1)]
    vlanID: Annotated[int, Field(ge=0, le=4094)] = 0  # noqa: N815
    bond: Bond | None = None
    rdmaResourceName: str = ""  # noqa: N815
    enableRdma: bool = False  # noqa: N815
    """True if `rdmaResourceName` counts, in older versions."""
    mtu: Annotated[int, Field(ge=68, le=65535)] | None = None
    ippools: Pools | None = None

    @model_validator(mode="after")
    def _is_complete(self) -> Self:
        if len(self.master) > 1 and not self.bond:
            raise ValueError("master: several interfaces need bond")
        if self.enableRdma and not self.rdmaResourceName:
            raise ValueError("enableRdma: rdmaResourceName is missing")
        return self

    @property
    def resource(self) -> str:
        return self.rdmaResourceName

    @property
    def rdma(self) -> bool:
        return bool(self.rdmaResourceName)

    @property
    def key(self) -> str:
        """Return the sort key of networks for injection."""
        return self.bond.name if self.bond and len(self.master) > 1 else self.master[0]

    def plugins(self, kind: str, ipam: Mapping[str, Any]) -> list[dict[str, Any]]:
        bonded = self.bond and len(self.master) > 1
        made: dict[str, Any] = {"bond": self.bond.model_dump()} if self.bond and bonded else {}
        if self.vlanID:
            made["vlanID"] = self.vlanID
        first = [{"type": "ifacer", "interfaces": self.master, **made}] if made else []
        child = {"type": kind, "master": f"{self.key}.{self.vlanID}" if self.vlanID else self.key}
        mode = {"mode": "bridge", "capabilities": {"mac": True}} if kind == "macvlan" else {}
        return [*first, {**child, **mode, **({"mtu": self.mtu} if self.mtu else {}), **ipam}]


class Sriov(Part):
    resourceName: Annotated[str, Field(min_length=1)]  # noqa: N815
    vlanID: int = 0  # noqa: N815
    minTxRateMbps: int = 0  # noqa: N815
    maxTxRateMbps: int = 0  # noqa: N815
    enableRdma: bool = False  # noqa: N815
    """The older name of `rdmaIsolation`."""
    rdmaIsolation: bool = False  # noqa: N815
    mtu: Annotated[int, Field(ge=68, le=65535)] | None = None
    ippools: Pools | None = None

    @model_validator(mode="after")
    def _can_be_had(self) -> Self:
        for key in ("vlanID", "minTxRateMbps", "maxTxRateMbps"):
            if getattr(self, key):
                raise ValueError(f"sriov.{key} is not supported: a VF of the lab has no VLAN and no rate of its own")
        return self

    @property
    def resource(self) -> str:
        return self.resourceName

    @property
    def rdma(self) -> bool:
        return self.enableRdma or self.rdmaIsolation

    @property
    def key(self) -> str:
        return self.resourceName

    def plugins(self, kind: str, ipam: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the plugins: host-device moves the pod's VF into the pod, as sriov-cni does."""
        tuned = [{"type": "tuning", "mtu": self.mtu}] if self.mtu else []
        return [{"type": "host-device", **ipam}, *tuned]


class MultusConfig(Part, Spec):
    """SpiderMultusConfig."""

    cniType: Annotated[str, BeforeValidator(_cni_type)] = "custom"  # noqa: N815
    macvlan: OnNic | None = None
    ipvlan: OnNic | None = None
    sriov: Sriov | None = None
    ibsriov: Any = None
    ipoib: Any = None
    ovs: Any = None
    enableCoordinator: bool = True  # noqa: N815
    disableIPAM: bool = False  # noqa: N815
    coordinator: CoordinatorSpec | None = None
    customCNI: str | None = None  # noqa: N815
    chainCNIJsonData: list[str] = Field(default_factory=list)  # noqa: N815

    @model_validator(mode="after")
    def _is_of_one_type(self) -> Self:
        own = "customCNI" if self.cniType == "custom" else self.cniType
        if not getattr(self, own):
            raise ValueError(f"cniType is {self.cniType}, but spec.{own} is missing")
        of_types = ("macvlan", "ipvlan", "sriov", "ibsriov", "ipoib", "ovs", "customCNI")
        if others := [name for name in of_types if name != own and getattr(self, name) is not None]:
            raise ValueError(f"cniType is {self.cniType}, but spec.{others[0]} is present: remove it")
        return self

    @property
    def network(self) -> OnNic | Sriov | None:
        """Return the network; None if its configuration is the user's."""
        return self.macvlan or self.ipvlan or self.sriov

    @property
    def pools(self) -> Pools:
        return self.network.ippools or Pools() if self.network else Pools()

    def config(self, name: str, annotations: Mapping[str, str], cluster: CoordinatorSpec | None = None) -> str:
        """Return the NetworkAttachmentDefinition's `config`. `cluster` has the coordinator's defaults. InputError."""
        network = self.network
        if not network:
            return self.customCNI or ""
        ipam: dict[str, Any] = {}
        if not self.disableIPAM:
            pools = {f"default_ipv{family}_ippool": names for family, names in self._pools_by_family() if names}
            ipam = {"ipam": {"type": "ippool", **pools}}
        plugins = network.plugins(self.cniType, ipam)
        if self.enableCoordinator:
            own = self.coordinator.given() if self.coordinator else {}
            plugins.append({"type": "coordinator", **(cluster.given() if cluster else {}), **own})
        plugins += [_chained(text, number) for number, text in enumerate(self.chainCNIJsonData)]
        if network.rdma:  # in the place of Spiderpool's `rdma`; a soft-RoCE device needs a complete interface
            plugins.append({"type": "rxe", **({"exclusive": True} if isinstance(network, Sriov) else {})})
        version = annotations.get(CNI_VERSION, DEFAULT_VERSION)
        return json.dumps({"cniVersion": version, "name": name, "plugins": plugins})

    def _pools_by_family(self) -> list[tuple[int, list[str]]]:
        return [(4, self.pools.ipv4), (6, self.pools.ipv6)]

    def check(self, metadata: Metadata) -> None:
        """Raise InputError if it cannot become a NetworkAttachmentDefinition, or cannot be injected as requested."""
        annotations = metadata.annotations
        if INJECT_RDMA in annotations or INJECT in annotations:
            self.check_injection(rdma=INJECT_RDMA in annotations)
        source = "its configuration" if self.network else "spec.customCNI"
        conflist.definition(self.config(metadata.name, annotations), metadata.name, source)

    def check_injection(self, *, rdma: bool) -> None:
        if not self.network:
            raise InputError("cniType custom does not support injected resources or networks")
        if rdma and not self.network.resource:
            raise InputError(f"spec.{self.cniType}.rdmaResourceName is missing: {INJECT_RDMA} needs it")
        if not any(names for _, names in self._pools_by_family()):
            raise InputError(f"spec.{self.cniType}.ippools names no pool: injection into pods needs one")


def _chained(text: str, number: int) -> dict[str, Any]:
    where = f"spec.chainCNIJsonData[{number}]"
    value = loads(text, where)
    if not isinstance(value, dict) or not value.get("type"):
        raise InputError(f"{where} is not the configuration of a plugin: a JSON object with `type`")
    return value
