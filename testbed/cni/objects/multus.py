"""SpiderMultusConfig: the description of a network, from which its NetworkAttachmentDefinition is made.

Sources: Spiderpool 1.0, docs/reference/crd-spidermultusconfig.md and docs/usage/spider-multus-config.md. Refused by
name: what its webhook refuses, and what a lab does not have.
"""

import json
from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field, model_validator

from testbed.cni.objects.coordinator import CoordinatorSpec
from testbed.cni.objects.kinds import Part, Spec
from testbed.documents.json import loads
from testbed.documents.text import choices, quoted

INJECT_RDMA, INJECT = "cni.spidernet.io/rdma-resource-inject", "cni.spidernet.io/network-resource-inject"
CR_NAME, CNI_VERSION = "multus.spidernet.io/cr-name", "multus.spidernet.io/cni-version"
RESOURCE_NAME = "k8s.v1.cni.cncf.io/resourceName"
"""The annotation of a definition with the resource whose device its first plugin gets."""
DEFAULT_VERSION = "0.3.1"
DEFINITION = "NetworkAttachmentDefinition"
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
    name: str
    mode: Annotated[int, Field(ge=0, le=6)]
    options: str = ""


class Pools(Part):
    """The names of SpiderIPPools."""

    ipv4: list[str] = Field(default_factory=list)
    ipv6: list[str] = Field(default_factory=list)
    matchMasterSubnet: bool = False  # noqa: N815 (Spiderpool's names, here and below)


class OnNic(Part):
    """macvlan and ipvlan."""

    master: list[str]
    vlanID: Annotated[int, Field(ge=0, le=4094)] = 0  # noqa: N815
    bond: Bond | None = None
    rdmaResourceName: str = ""  # noqa: N815
    enableRdma: bool = False  # noqa: N815
    """True if `rdmaResourceName` counts, in older versions."""
    mtu: Annotated[int, Field(ge=0)] = 0
    """0: the kernel's choice."""
    ippools: Pools | None = None

    @model_validator(mode="after")
    def _is_complete(self) -> Self:
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
    resourceName: str = ""  # noqa: N815
    vlanID: Annotated[int, Field(ge=0, le=4094)] = 0  # noqa: N815
    minTxRateMbps: Annotated[int, Field(ge=0)] = 0  # noqa: N815
    maxTxRateMbps: Annotated[int, Field(ge=0)] = 0  # noqa: N815
    enableRdma: bool = False  # noqa: N815
    """The older name of `rdmaIsolation`."""
    rdmaIsolation: bool = False  # noqa: N815
    mtu: Annotated[int, Field(ge=0)] = 0
    ippools: Pools | None = None

    @model_validator(mode="after")
    def _can_be_had(self) -> Self:
        for key in ("minTxRateMbps", "maxTxRateMbps"):
            if getattr(self, key):
                raise ValueError(f"sriov.{key} is not supported: a VF of the lab has no rate of its own")
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
        vlan = {"vlan": self.vlanID} if self.vlanID else {}
        tuned = [{"type": "tuning", "mtu": self.mtu}] if self.mtu else []
        return [{"type": "sriov", **vlan, **ipam}, *tuned]


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
            matching = {"match_master_subnet": True} if self.pools.matchMasterSubnet else {}
            ipam = {"ipam": {"type": "ippool", **matching, **pools}}
        plugins = network.plugins(self.cniType, ipam)
        if self.enableCoordinator:
            own = self.coordinator.given() if self.coordinator else {}
            plugins.append({"type": "coordinator", **(cluster.given(of_cluster=True) if cluster else {}), **own})
        plugins += [
            loads(text, f"spec.chainCNIJsonData[{number}]") for number, text in enumerate(self.chainCNIJsonData)
        ]
        if network.rdma:  # in the place of Spiderpool's `rdma`; a soft-RoCE device needs a complete interface
            plugins.append({"type": "rxe", **({"exclusive": True} if isinstance(network, Sriov) else {})})
        version = annotations.get(CNI_VERSION, DEFAULT_VERSION)
        return json.dumps({"cniVersion": version, "name": name, "plugins": plugins})

    def _pools_by_family(self) -> list[tuple[int, list[str]]]:
        return [(4, self.pools.ipv4), (6, self.pools.ipv6)]
