"""Selection of the pools that a pod's interface may get addresses from, as in Spiderpool.

Sources: Spiderpool 1.0, docs/reference/annotation.md and docs/usage/spider-affinity.md.
"""

import fnmatch
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_interface, ip_network
from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from testbed.cni.objects import subnet
from testbed.cni.objects.kinds import IPPool, RoutePart, Selector
from testbed.cni.objects.manifests import Object
from testbed.cni.objects.subnet import PREFIX
from testbed.cni.spec import selection
from testbed.documents import json
from testbed.errors import InputError, did_you_mean

FAMILIES = (4, 6)
SPIDERPOOL = "spiderpool"
"""The namespace that Spiderpool is installed in, as its guides for RDMA install it."""


class Master(NamedTuple):
    """The NIC below an interface, and its addresses."""

    name: str
    addresses: Sequence[IPv4Address | IPv6Address]


@dataclass(frozen=True)
class Asking:
    """An interface that needs addresses, and what the cluster knows of its pod."""

    interface: str
    network: str
    node: str
    node_labels: Mapping[str, str] = field(default_factory=dict)
    pod: Object | None = None
    namespace: Object | None = None
    number: int = 0
    """How many interfaces of the pod have addresses already."""
    owner: Mapping[str, Any] = field(default_factory=dict)
    """The reference to the application that made the pod; empty if none did."""
    master: Master | None = None
    """The NIC with an address in the subnet of the pool, if one has to have one."""

    @property
    def labels(self) -> dict[str, str]:
        """Return the pod's labels, and those by which Spiderpool's affinities know its application."""
        if not self.pod:
            return {}
        found = self.pod.labels
        if owner := self.owner:
            found |= subnet.labels_of(owner["apiVersion"], owner["kind"], self.pod.namespace, owner["name"])
        return found

    @property
    def definition(self) -> str:
        """Return ``namespace/name`` of the interface's NetworkAttachmentDefinition. One that is no object counts as one
        of the cluster, in Spiderpool's namespace."""
        if self.pod:
            default = selection.default(self.pod.annotations)
            for one in (*selection.selected(self.pod.annotations, self.pod.namespace), *([default] if default else [])):
                if one.name == self.network:
                    return f"{one.namespace}/{one.name}"
        return f"{SPIDERPOOL}/{self.network}"


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


class PoolsOfInterface(_Pools):
    interface: str = ""
    """Empty for all interfaces, or for none: they are in the order of the entries then."""
    cleangateway: bool = False


_ONE = TypeAdapter(_Pools)
_SEVERAL = TypeAdapter(Annotated[list[PoolsOfInterface], Field(min_length=1)])
_ROUTES = TypeAdapter(list[RoutePart])
ONE, SEVERAL, ROUTES = (f"{PREFIX}/{key}" for key in ("ippool", "ippools", "routes"))
DEFAULTS = {family: f"{PREFIX}/default-ipv{family}-ippool" for family in FAMILIES}
"""The annotations of a namespace."""
_NAMES = TypeAdapter(Annotated[list[str], Field(min_length=1)])


def named(asking: Asking, configured: Mapping[int, Sequence[str]]) -> Named | None:
    """Return the first that names pools: the pod's annotations, its namespace's, the network's configuration."""
    if asking.pod and (found := _of_application(asking.pod, asking.owner, asking.interface)):
        return found
    if asking.pod and (found := _of_pod(asking.pod.annotations, asking.interface, asking.number)):
        return found
    if asking.namespace and (found := _of_namespace(asking.namespace.annotations)):
        return found
    return Named(configured, "the network's configuration") if any(configured.values()) else None


def top_owner(pod: Object, look: Callable[[str, str, str], Object | None]) -> Mapping[str, Any]:
    """Return the reference to the application of a pod (pkg/podmanager: GetPodTopController): a ReplicaSet's owner if
    it has one. `look` finds an object by kind, name and namespace."""
    found: Mapping[str, Any] = next(iter(pod.data["metadata"].get("ownerReferences") or ()), {})
    if found and found["kind"] == "ReplicaSet" and (there := look(found["kind"], found["name"], pod.namespace)):
        found = next(iter(there.data["metadata"].get("ownerReferences") or ()), found)
    return found


def _of_application(pod: Object, owner: Mapping[str, Any], interface: str) -> Named | None:
    """Return the pools that the pod's application has from SpiderSubnets."""
    settings = subnet.settings(pod.annotations)
    wanted = [one for one in settings.pools if one.interface == interface] if settings else []
    if wanted and not owner:
        raise InputError("a pool of a SpiderSubnet is for the pods of an application, and the pod has no owner")
    names = {
        one.family: [subnet.pool_name(one.family, owner["kind"], pod.namespace, owner["name"], interface)]
        for one in wanted
    }
    return Named(names, f"the annotation {subnet.ONE} or {subnet.SEVERAL}") if names else None


def _of_pod(annotations: Mapping[str, str], interface: str, number: int) -> Named | None:
    if SEVERAL in annotations:
        entries = pools_of_interfaces(annotations[SEVERAL])
        if entries[0].interface:
            found = [one for one in entries if one.interface == interface]
        else:
            found = list(entries[number : number + 1])
        if not found:
            raise InputError(f"interface {interface} must be specified", where=f"annotation {SEVERAL}")
        return Named({4: found[0].ipv4, 6: found[0].ipv6}, f"the annotation {SEVERAL}", found[0].cleangateway)
    if ONE in annotations:
        pools = pools_of_one(annotations[ONE])
        return Named({4: pools.ipv4, 6: pools.ipv6}, f"the annotation {ONE}")
    return None


def pools_of_one(text: str) -> _Pools:
    """Read the annotation `ippool`. InputError."""
    return json.typed(text, _ONE, f"annotation {ONE}")


def pools_of_interfaces(text: str) -> Sequence[PoolsOfInterface]:
    """Read the annotation `ippools` (pkg/ipam/utils.go: validateAndMutateMultipleNICAnnotations). InputError."""
    where = f"annotation {SEVERAL}"
    entries = json.typed(text, _SEVERAL, where)
    names = [entry.interface for entry in entries]
    if any(names) and not all(names):
        raise InputError("NIC should be either all specified or all unspecified", where=where)
    if twice := [name for name in names if name and names.count(name) > 1]:
        raise InputError(f"duplicate interface {twice[0]}", where=where)
    return entries


def routes_of(text: str) -> Sequence[RoutePart]:
    """Read the annotation `routes` (pkg/ipam/utils.go: getCustomRoutes). InputError."""
    routes = json.typed(text, _ROUTES, f"annotation {ROUTES}")
    for route in routes:
        try:
            fits = ip_interface(route.dst).version == ip_address(route.gw).version and "/" in route.dst
        except ValueError:
            fits = False
        if not fits:
            raise InputError(f"invalid route format 'dst: {route.dst}, gw: {route.gw}'", where=f"annotation {ROUTES}")
    return routes


def pools_of_namespace(annotations: Mapping[str, str]) -> Mapping[int, list[str]]:
    """Read the annotations of a namespace. InputError."""
    return {
        family: json.typed(annotations[key], _NAMES, f"annotation {key}")
        for family, key in DEFAULTS.items()
        if annotations.get(key)
    }


def _of_namespace(annotations: Mapping[str, str]) -> Named | None:
    found = pools_of_namespace(annotations)
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
        _usable(asking, _each(names, pools, wanted), family, pools)
        for family in FAMILIES
        if (names := wanted.pools.get(family))
    ]


def _each(names: Sequence[str], pools: Mapping[str, IPPool], wanted: Named) -> list[str]:
    """precheckPoolCandidates of pkg/ipam/allocate.go."""
    found = [one for name in names for one in _matching(name, pools, wanted)]
    if twice := [name for name in names if names.count(name) > 1]:
        raise InputError(f"{wanted.source} names pool {twice[0]} twice")
    return found


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
    subnet, master = ip_network(pool.subnet), asking.master
    fits = {
        f"is IPv{pool.family}": pool.family == family,
        "is disabled": not pool.disable,
        f"is not for node {asking.node}": _allowed(asking.node, pool.nodeName, pool.nodeAffinity, asking.node_labels),
        f"is not for namespace {namespace}": _allowed(
            namespace, pool.namespaceName, pool.namespaceAffinity, of_namespace
        ),
        "is not for pods with its labels": _allowed("", [], pool.podAffinity, asking.labels),
        f"is not for network {asking.definition}": not pool.multusName
        or asking.definition in [name if "/" in name else f"{SPIDERPOOL}/{name}" for name in pool.multusName],
        f"has subnet {subnet}, which is not on the pod's PF {master.name if master else ''}": master is None
        or bool(pool.multusName)  # which is the last thing that Spiderpool looks at (pkg/ipam/allocate.go: selectByPod)
        or any(address in subnet for address in master.addresses),
    }
    return next((reason for reason, fitting in fits.items() if not fitting), "")


def _allowed(name: str, names: Sequence[str], selector: Selector | None, labels: Mapping[str, str]) -> bool:
    """Return whether the name is in `names` or, if there are none, the labels match the selector."""
    return name in names if names else selector is None or selector.matches(labels)


def _closeness(pool: IPPool) -> tuple[bool, ...]:
    """ByPoolPriority of pkg/ippoolmanager/utils.go."""
    names = (
        pool.podAffinity,
        pool.nodeName,
        pool.nodeAffinity,
        pool.namespaceName,
        pool.namespaceAffinity,
        pool.multusName,
    )
    return tuple(map(bool, names))
