"""The annotation with which a pod selects its networks, as Multus reads it.

Source: Kubernetes Network Custom Resource Definition De-facto Standard 1.3, section 4.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_interface
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from testbed.cni.spec import conflist
from testbed.documents.problems import dotted, wrong_value
from testbed.documents.text import quoted
from testbed.errors import InputError, did_you_mean

NETWORKS, DEFAULT_NETWORK = "k8s.v1.cni.cncf.io/networks", "v1.multus-cni.io/default-network"
_SHORT = re.compile(rf"(?:(?P<namespace>[^/@]+)/)?(?P<name>{conflist.NAME})(?:@(?P<interface>[^/@]+))?")
_MAC = re.compile(r"[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5}")


@dataclass(frozen=True)
class Selected:
    """One network of a pod: a NetworkAttachmentDefinition."""

    name: str
    namespace: str
    interface: str = ""
    """Empty: net1, net2, … by its place."""
    capabilities: Mapping[str, Any] = field(default_factory=dict)
    """What is asked of the plugins: `mac`, `ips`."""


class _Element(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    name: str
    namespace: str = ""
    interface: str = ""
    ips: list[str] = []
    mac: str = ""


_ELEMENTS = TypeAdapter(Annotated[list[_Element], Field(min_length=1)])
NOT_SUPPORTED = {
    "default-route": "the default route is that of the first network whose plugins set one",
    "cni-args": "put it in the definition's `config`",
    "infiniband-guid": "the lab's NICs are Ethernet",
    "bandwidth": "put it in the definition's `config`",
    "portMappings": "no plugin of the lab takes it",
    "ipam-claim-reference": "there are no IPAM claims",
}


def selected(annotations: Mapping[str, str], namespace: str) -> list[Selected]:
    """The networks of a pod's annotation `k8s.v1.cni.cncf.io/networks`, in their order. InputError."""
    text = annotations.get(NETWORKS, "").strip()
    return _parsed(text, namespace, NETWORKS) if text else []


def default(annotations: Mapping[str, str], namespace: str) -> Selected | None:
    """The network of the pod's eth0, by its annotation `v1.multus-cni.io/default-network`."""
    text = annotations.get(DEFAULT_NETWORK, "").strip()
    if not text:
        return None
    found = _parsed(text, namespace, DEFAULT_NETWORK)
    if len(found) > 1:
        raise InputError(f"{DEFAULT_NETWORK} names several networks; one is the default")
    return found[0]


def _parsed(text: str, namespace: str, where: str) -> list[Selected]:
    if text.startswith("["):
        return _long(text, namespace, where)
    found = []
    for part in text.split(","):
        match = _SHORT.fullmatch(part.strip())
        if not match:
            hint = "A network is `name`, `namespace/name` or `namespace/name@interface`; or write a JSON list."
            raise InputError(f"{quoted(part.strip())} is no network", where=where, hint=hint)
        found.append(Selected(match["name"], match["namespace"] or namespace, match["interface"] or ""))
    return found


def _long(text: str, namespace: str, where: str) -> list[Selected]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"it is neither a list of names nor JSON: {error}", where=where) from None
    try:
        elements = _ELEMENTS.validate_python(value)
    except ValidationError as error:
        wrong = "; ".join(_wrong(detail) for detail in error.errors(include_url=False))
        raise InputError(wrong, where=where) from None
    return [_checked(element, namespace, where) for element in elements]


def _wrong(detail: Any) -> str:
    name, key = dotted(detail["loc"]), str(detail["loc"][-1]) if detail["loc"] else ""
    if detail["type"] == "missing":
        return f"{name} is missing"
    if detail["type"] != "extra_forbidden":
        return wrong_value(detail, name or "it")
    near = did_you_mean(key, _Element.model_fields, aside=True)
    return f"{name} is not supported{': ' + NOT_SUPPORTED[key] if key in NOT_SUPPORTED else near}"


def _checked(element: _Element, namespace: str, where: str) -> Selected:
    given: dict[str, Any] = {}
    if element.mac:
        if not _MAC.fullmatch(element.mac):
            raise InputError(f"{element.name}: mac {quoted(element.mac)} is no MAC address", where=where)
        given["mac"] = element.mac.lower()
    for address in element.ips:
        try:
            ip_interface(address)
        except ValueError:
            raise InputError(f"{element.name}: ips: {quoted(address)} is no address", where=where) from None
    if element.ips:
        given["ips"] = element.ips
    return Selected(element.name, element.namespace or namespace, element.interface, given)
