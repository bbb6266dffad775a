"""Selection of the pools that a pod's interface may get addresses from, as in Spiderpool.

Sources: Spiderpool 1.0, docs/reference/annotation.md and docs/usage/spider-affinity.md.
"""

import fnmatch
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from testbed.cni.objects import subnet
from testbed.cni.objects.kinds import IPPool, Selector
from testbed.cni.objects.manifests import Object
from testbed.cni.objects.subnet import PREFIX
from testbed.cni.spec import selection
from testbed.documents import json
from testbed.errors import InputError, did_you_mean

FAMILIES = (4, 6)


@dataclass(frozen=True)
class Asking:
    """An interface that needs addresses, and what the cluster knows of its pod."""

    interface: str
    network: str
    node: str
    node_labels: Mapping[str, str] = field(default_factory=dict)
    pod: Object | None = None
    namespace: Object | None = None

    @property
    def labels(self) -> dict[str, str]:
        """Return the pod's labels, and those by which Spiderpool's affinities know its application."""
        if not self.pod:
            return {}
        found = self.pod.labels
        for owner in self.pod.data["metadata"].get("ownerReferences") or ():
            found |= subnet.labels_of(owner["apiVersion"], owner["kind"], self.pod.namespace, owner["name"])
        return found

    @property
    def definition(self) -> str:
        """Return ``namespace/name`` of the NetworkAttachmentDefinition of the interface, or the network's name."""
        if self.pod:
            for one in selection.selected(self.pod.annotations, self.pod.namespace):
                if one.name == self.network:
                    return f"{one.namespace}/{one.name}"
        return self.network


@dataclass(frozen=True)
class Named:
    """Names of pools by address family, which may be patterns, and the place where they are written."""

    pools: Mapping[int, Sequence[str]]
    source: str
    clean_gateway: bool = False
    """True if the interface gets no default route."""


class _Pools(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    ipv4: list[str] = []
    ipv6: list[str] = []


class _PoolsOfInterface(_Pools):
    interface: str
    cleangateway: bool = False


_ONE = TypeAdapter(_Pools)
_SEVERAL = TypeAdapter(Annotated[list[_PoolsOfInterface], Field(min_length=1)])
_NAMES = TypeAdapter(Annotated[list[str], Field(min_length=1)])


def named(asking: Asking, configured: Mapping[int, Sequence[str]]) -> Named | None:
    """Return the first that names pools: the pod's annotations, its namespace's, the network's configuration."""
    if asking.pod and (found := _of_application(asking.pod, asking.interface)):
        return found
    if asking.pod and (found := _of_pod(asking.pod.annotations, asking.interface)):
        return found
    if asking.namespace and (found := _of_namespace(asking.namespace.annotations)):
        return found
    return Named(configured, "the network's configuration") if any(configured.values()) else None


def _of_application(pod: Object, interface: str) -> Named | None:
    """Return the pools that the pod's application has from SpiderSubnets."""
    settings = subnet.settings(pod.annotations)
    wanted = [one for one in settings.pools if one.interface == interface] if settings else []
    owners = list(pod.data["metadata"].get("ownerReferences") or ())
    if wanted and not owners:
        raise InputError("a pool of a SpiderSubnet is for the pods of an application, and the pod has no owner")
    names = {
        one.family: [subnet.pool_name(one.family, owners[0]["kind"], pod.namespace, owners[0]["name"], interface)]
        for one in wanted
    }
    return Named(names, f"the annotation {subnet.ONE} or {subnet.SEVERAL}") if names else None


def _of_pod(annotations: Mapping[str, str], interface: str) -> Named | None:
    key = f"{PREFIX}/ippools"
    if text := annotations.get(key):
        for one in json.typed(text, _SEVERAL, f"annotation {key}"):
            if one.interface == interface:
                return Named({4: one.ipv4, 6: one.ipv6}, f"the annotation {key}", one.cleangateway)
    key = f"{PREFIX}/ippool"
    if text := annotations.get(key):
        pools = json.typed(text, _ONE, f"annotation {key}")
        return Named({4: pools.ipv4, 6: pools.ipv6}, f"the annotation {key}")
    return None


def _of_namespace(annotations: Mapping[str, str]) -> Named | None:
    keys = {family: f"{PREFIX}/default-ipv{family}-ippool" for family in FAMILIES}
    found = {
        family: json.typed(annotations[key], _NAMES, f"annotation {key}")
        for family, key in keys.items()
        if annotations.get(key)
    }
    return Named(found, "the annotations of its namespace") if found else None


def candidates(asking: Asking, wanted: Named | None, pools: Mapping[str, IPPool]) -> list[list[str]]:
    """Return the pools to try for each address family, the best first: those whose affinity is closest to the pod.

    `wanted` names them; without it they are the cluster's, which have `default`. InputError if one is not there, or
    none of a family may be used, with the reason for each.
    """
    if wanted is None:
        default = [name for name, pool in pools.items() if pool.default]
        if not default:
            raise InputError("nothing names a pool for it, and the cluster has no default pool")
        wanted = Named(
            {family: [n for n in default if pools[n].family == family] for family in FAMILIES}, "the default"
        )
    return [
        _usable(asking, [one for name in names for one in _matching(name, pools, wanted)], family, pools)
        for family in FAMILIES
        if (names := wanted.pools.get(family))
    ]


def _matching(name: str, pools: Mapping[str, IPPool], wanted: Named) -> list[str]:
    if found := fnmatch.filter(pools, name):
        return found
    known = ", ".join(pools) or "none"
    hint = f"{did_you_mean(name, pools)}Pools: {known}."
    raise InputError(f"{wanted.source} names pool {name}, which does not exist", hint=hint)


def _usable(asking: Asking, names: Sequence[str], family: int, pools: Mapping[str, IPPool]) -> list[str]:
    reasons = {name: _obstacle(asking, pools[name], family) for name in dict.fromkeys(names)}
    usable = [name for name, reason in reasons.items() if not reason]
    if not usable:
        why = "; ".join(f"{name} {reason}" for name, reason in reasons.items())
        raise InputError(f"no IPv{family} pool may be used: {why}")
    return sorted(usable, key=lambda name: _closeness(pools[name]), reverse=True)


def _obstacle(asking: Asking, pool: IPPool, family: int) -> str:
    """Return the reason why a pool cannot be used, or an empty string."""
    namespace = asking.pod.namespace if asking.pod else ""
    of_namespace = asking.namespace.labels if asking.namespace else {}
    fits = {
        f"is IPv{pool.family}": pool.family == family,
        "is disabled": not pool.disable,
        f"is not for node {asking.node}": _allowed(asking.node, pool.nodeName, pool.nodeAffinity, asking.node_labels),
        f"is not for namespace {namespace}": _allowed(
            namespace, pool.namespaceName, pool.namespaceAffinity, of_namespace
        ),
        "is not for pods with its labels": _allowed("", [], pool.podAffinity, asking.labels),
        f"is not for network {asking.definition}": not pool.multusName
        or not {asking.definition, asking.network}.isdisjoint(pool.multusName),
    }
    return next((reason for reason, fitting in fits.items() if not fitting), "")


def _allowed(name: str, names: Sequence[str], selector: Selector | None, labels: Mapping[str, str]) -> bool:
    """Return whether the name is in `names` or, if there are none, the labels match the selector."""
    return name in names if names else selector is None or selector.matches(labels)


def _closeness(pool: IPPool) -> tuple[bool, ...]:
    of_node, of_namespace = pool.nodeName or pool.nodeAffinity, pool.namespaceName or pool.namespaceAffinity
    return tuple(map(bool, (pool.podAffinity, of_node, of_namespace, pool.multusName)))
