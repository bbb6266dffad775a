"""The kinds of sriov-network-operator and of NVIDIA's network-operator that describe networks of pods.

Each makes a NetworkAttachmentDefinition, by the operator's template. Sources: sriov-network-operator, api/v1/helper.go
and bindata/manifests/cni-config/sriov; network-operator, manifests/state-{macvlan,hostdevice}-network and api/v1alpha1.
"""

import json
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from testbed.cni.objects import device_plugins
from testbed.cni.objects.device_plugins import CONFIG
from testbed.cni.objects.kinds import Free, Metadata, Part, Spec
from testbed.cni.spec import conflist
from testbed.documents import json as texts
from testbed.errors import InputError

PREFIX, NVIDIA = "openshift.io", "nvidia.com/"
"""The prefixes of resources: of sriov-network-operator's own chart, and of a HostDeviceNetwork."""
_RESOURCE = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
ETHERNET = "is not supported: the lab's NICs are Ethernet"


class Network(Part, Spec):
    """What the kinds have in common."""

    networkNamespace: str = ""  # noqa: N815 (the operators' names, here and below)
    ipam: str = ""
    metaPlugins: str = ""  # noqa: N815
    """Plugins behind the first, as JSON objects with commas between them."""

    def plugin(self) -> dict[str, Any]:
        """Return the first plugin without its IPAM."""
        raise NotImplementedError

    def resource(self) -> str:
        """Return the resource whose device a pod gets; empty if it gets none."""
        return ""

    def check(self, metadata: Metadata) -> None:
        conflist.definition(self.config(metadata.name), metadata.name, "spec")

    def config(self, name: str) -> str:
        """Return the definition's `config`. InputError."""
        first = self.plugin()
        if self.ipam.strip():
            first["ipam"] = texts.loads(self.ipam, "spec.ipam")
        more = texts.loads(f"[{self.metaPlugins}]", "spec.metaPlugins")
        version = {"cniVersion": self.version, "name": name}
        return json.dumps({**version, "plugins": [first, *more]} if more else {**version, **first})

    @property
    def version(self) -> str:
        return "0.3.1"


class SriovNetwork(Network):
    resourceName: Annotated[str, Field(min_length=1)]  # noqa: N815
    capabilities: str = ""
    vlan: Annotated[int, Field(ge=0, le=4094)] = 0
    vlanQoS: Annotated[int, Field(ge=0, le=7)] = 0  # noqa: N815
    vlanProto: Literal["", "802.1q", "802.1Q"] = ""  # noqa: N815
    spoofChk: Literal["", "on", "off"] = ""  # noqa: N815
    trust: Literal["", "on", "off"] = ""
    linkState: Literal["", "auto", "enable", "disable"] = ""  # noqa: N815
    minTxRate: Annotated[int, Field(ge=0)] | None = None  # noqa: N815
    maxTxRate: Annotated[int, Field(ge=0)] | None = None  # noqa: N815
    logLevel: Literal["", "panic", "error", "warning", "info", "debug"] = ""  # noqa: N815
    logFile: str = ""  # noqa: N815

    @property
    def version(self) -> str:
        return "1.0.0"

    def resource(self) -> str:
        return f"{PREFIX}/{self.resourceName}"

    def plugin(self) -> dict[str, Any]:
        given = {
            "spoofchk": self.spoofChk,
            "trust": self.trust,
            "vlanProto": self.vlanProto,
            "link_state": self.linkState,
            "min_tx_rate": self.minTxRate,
            "max_tx_rate": self.maxTxRate,
        }
        set_ = {key: value for key, value in given.items() if value not in ("", None)}
        able = {"capabilities": texts.loads(self.capabilities, "spec.capabilities")} if self.capabilities else {}
        return {"type": "sriov", "vlan": self.vlan, "vlanQoS": self.vlanQoS, **set_, **able}


class MacvlanNetwork(Network):
    master: str = ""
    mode: Literal["", "bridge", "private", "vepa", "passthru"] = ""
    mtu: Annotated[int, Field(ge=0)] = 0

    def plugin(self) -> dict[str, Any]:
        given = {"master": self.master, "mode": self.mode, "mtu": self.mtu}
        return {"type": "macvlan", **{key: value for key, value in given.items() if value}}


class HostDeviceNetwork(Network):
    resourceName: str = ""  # noqa: N815

    def resource(self) -> str:
        return self.resourceName if self.resourceName.startswith(NVIDIA) else NVIDIA + self.resourceName

    def plugin(self) -> dict[str, Any]:
        return {"type": "host-device"}

    def check(self, metadata: Metadata) -> None:
        if not _RESOURCE.fullmatch(self.resourceName):
            wrong = "Invalid Resource name, it must consist of alphanumeric characters, '-', '_' or '.'"
            raise InputError(wrong, where="spec.resourceName")
        super().check(metadata)


class InfiniBand(Free, Spec):
    """IPoIBNetwork and SriovIBNetwork."""

    def check(self, metadata: Metadata) -> None:
        raise InputError(f"a network of InfiniBand {ETHERNET}")


class _DevicePlugin(Free):
    config: str = ""


class NicClusterPolicy(Free, Spec):
    """What it configures besides device plugins (drivers, images, IPAM controllers) has no effect."""

    rdmaSharedDevicePlugin: _DevicePlugin = _DevicePlugin()  # noqa: N815
    sriovDevicePlugin: _DevicePlugin = _DevicePlugin()  # noqa: N815

    def check(self, metadata: Metadata) -> None:
        for data in self.data():
            device_plugins.shared_devices(data)
            for resource in device_plugins.resources(data):
                resource.vfs()

    def data(self) -> list[Mapping[str, str]]:
        """Return the configurations of its device plugins, each as the `data` of a ConfigMap."""
        return [{CONFIG: one.config} for one in (self.rdmaSharedDevicePlugin, self.sriovDevicePlugin) if one.config]


NETWORKS: Mapping[str, type[Network]] = {
    "SriovNetwork": SriovNetwork,
    "MacvlanNetwork": MacvlanNetwork,
    "HostDeviceNetwork": HostDeviceNetwork,
}
"""The kinds that make definitions."""
