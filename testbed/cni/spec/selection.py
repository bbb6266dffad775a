"""The annotation with which a pod selects its networks, as Multus reads it.

Source: Kubernetes Network Custom Resource Definition De-facto Standard 1.3, section 4.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_interface
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter
from pydantic_core import ErrorDetails

from testbed.cni.spec import conflist
from testbed.documents import json
from testbed.documents.problems import wrong_value
from testbed.documents.text import quoted
from testbed.errors import InputError, did_you_mean

NETWORKS, DEFAULT_NETWORK = "k8s.v1.cni.cncf.io/networks", "v1.multus-cni.io/default-network"
MULTUS = "kube-system"
"""The namespace that Multus is installed in."""
CLUSTER_NETWORK, OF_MULTUS = "clusterNetwork", "multusNamespace"
CONFIGURATIONS = ("daemon-config.json", "cni-conf.json")
"""The keys of ConfigMaps with the configuration of Multus: its daemon's, its plugin's (deployments/)."""
_SHORT = re.compile(rf"(?:(?P<namespace>[^/@]+)/)?(?P<name>{conflist.NAME})(?:@(?P<interface>[^/@]+))?")
_MAC = re.compile(r"[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5}")


@dataclass(frozen=True)
class Selected:
    """One network of a pod: a NetworkAttachmentDefinition."""

    name: str
    namespace: str
    interface: str = ""
    """Empty: net1, net2, … by its position."""
    capabilities: Mapping[str, Any] = field(default_factory=dict)
    """The capability values for the plugins: `mac`, `ips`, `bandwidth`, `portMappings`."""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """What the plugins get as `args.cni` in their configuration (`cni-args`)."""
    default_route: Sequence[str] | None = None
    """The gateways of the pod's default routes, by this network's interface; empty: it has no default route."""
    or_file: bool = False
    """True if it is a file with this name where no definition has it."""


def check_mac(text: str) -> str:
    if text and not _MAC.fullmatch(text):
        raise ValueError(f"{quoted(text)} is not a MAC address")
    return text.lower()


def check_address(text: str) -> str:
    try:
        ip_interface(text)
    except ValueError:
        raise ValueError(f"{quoted(text)} is not an IP address") from None
    return text


def check_gateway(text: str) -> str:
    try:
        ip_address(text)
    except ValueError:
        raise ValueError(f"{quoted(text)} is not an IP address") from None
    return text


class _Element(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    name: str
    namespace: str = ""
    interface: str = ""
    ips: list[Annotated[str, AfterValidator(check_address)]] = []
    mac: Annotated[str, AfterValidator(check_mac)] = ""
    bandwidth: dict[str, int] = {}
    ports: Annotated[list[dict[str, Any]], Field(alias="portMappings")] = []
    arguments: Annotated[dict[str, Any], Field(alias="cni-args")] = {}
    default_route: Annotated[
        list[Annotated[str, AfterValidator(check_gateway)]] | None, Field(alias="default-route")
    ] = None
    gateway: Any = None
    """Ignored, as in Multus: `default-route` had this name once."""

    def selected(self, namespace: str) -> Selected:
        """Return the network, by default in the namespace of its pod."""
        asked = {"mac": self.mac, "ips": self.ips, "bandwidth": self.bandwidth, "portMappings": self.ports}
        given = {key: value for key, value in asked.items() if value}
        namespace = self.namespace or namespace
        return Selected(self.name, namespace, self.interface, given, self.arguments, self.default_route)


_ELEMENTS = TypeAdapter(Annotated[list[_Element], Field(min_length=1)])
NOT_SUPPORTED = {"infiniband-guid": "the lab's NICs are Ethernet", "ipam-claim-reference": "the lab has no IPAM claims"}


def selected(annotations: Mapping[str, str], namespace: str) -> list[Selected]:
    """Return the networks of a pod's annotation `k8s.v1.cni.cncf.io/networks`, in order. InputError."""
    text = annotations.get(NETWORKS, "")
    return _parsed(text, namespace, NETWORKS) if text.strip() else []


def default(annotations: Mapping[str, str]) -> Selected | None:
    """Return the network of the pod's eth0, from its annotation `v1.multus-cni.io/default-network`; without a namespace
    it is in Multus' own (docs/configuration.md, `multusNamespace`)."""
    text = annotations.get(DEFAULT_NETWORK, "")
    if not text.strip():
        return None
    found = _parsed(text, MULTUS, DEFAULT_NETWORK)
    if len(found) > 1:
        raise InputError(f"{DEFAULT_NETWORK} names several networks: name one")
    return found[0]


def cluster_network(maps: Iterable[tuple[str, Mapping[str, Any]]]) -> Selected | None:
    """Return the network of each pod's eth0: `clusterNetwork` in the configuration of Multus (docs/configuration.md),
    or in the ConfigMap of Spiderpool's chart. `maps` are namespaces and contents of ConfigMaps. A path is a file
    of its last name."""
    for namespace, data in maps:
        if isinstance(name := data.get(CLUSTER_NETWORK), str) and name:
            return Selected(name, namespace, or_file=True)
        for found in map(multus_configuration, (data.get(key) for key in CONFIGURATIONS)):
            if isinstance(name := found.get(CLUSTER_NETWORK), str) and name:
                where, _, short = name.rpartition("/")
                usual = str(found.get(OF_MULTUS) or MULTUS)
                return Selected(short, usual if name.startswith("/") else where or usual, or_file=True)
    return None


def multus_configuration(text: Any) -> Mapping[str, Any]:
    """Return the configuration of Multus in a ConfigMap; empty if it is none."""
    try:
        found = json.loads(text, "data") if isinstance(text, str) else {}
    except InputError:
        return {}
    return found if isinstance(found, dict) else {}


def _parsed(text: str, namespace: str, where: str) -> list[Selected]:
    if text.lstrip().startswith("["):
        return [element.selected(namespace) for element in json.typed(text, _ELEMENTS, where, _worded)]
    found = []
    for part in text.split(","):
        match = _SHORT.fullmatch(part.strip())
        if not match:
            hint = "A network is `name`, `namespace/name` or `namespace/name@interface`; or write a JSON list."
            raise InputError(f"{quoted(part.strip())} is not a network", where=where, hint=hint)
        found.append(Selected(match["name"], match["namespace"] or namespace, match["interface"] or ""))
    return found


def _worded(detail: ErrorDetails, name: str) -> str:
    if detail["type"] == "missing":
        return f"{name} is missing"
    if detail["type"] == "value_error":
        return f"{name}: {wrong_value(detail, name)}"
    if detail["type"] != "extra_forbidden":
        return wrong_value(detail, name)
    key = str(detail["loc"][-1])
    near = did_you_mean(key, _Element.model_fields, aside=True)
    return f"{name} is not supported{': ' + NOT_SUPPORTED[key] if key in NOT_SUPPORTED else near}"
