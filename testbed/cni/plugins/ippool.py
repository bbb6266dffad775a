"""The IPAM plugin `ippool`: addresses of pools that all nodes share. docs/cni-plugins.md describes its configuration.

It has no state of its own: the store has the holders of addresses (`cni/ipam/address_store.py`).
"""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from ipaddress import ip_address, ip_interface
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from testbed.cni import spec
from testbed.cni.ipam import reclaim
from testbed.cni.ipam.address_store import ADDRESSES, ExhaustedError, Holder, Policy, Store
from testbed.cni.ipam.candidates import (
    FAMILIES,
    ROUTES,
    SEVERAL,
    Asking,
    Master,
    Named,
    candidates,
    named,
    routes_of,
    top_owner,
)
from testbed.cni.ipam.known_pools import Catalogue
from testbed.cni.ipam.pool import Pool
from testbed.cni.objects.database import OBJECTS
from testbed.cni.objects.database import Store as Objects
from testbed.cni.objects.kinds import IPPool, Part, RoutePart
from testbed.cni.objects.manifests import Object
from testbed.cni.objects.placement import labels_of
from testbed.cni.plugins.contract import Call, Refusal, validated
from testbed.cni.spec import LATER, OWN, UNAVAILABLE
from testbed.kernel import netns
from testbed.kernel.rtnetlink import Rtnetlink

RECYCLED = (
    "currently, the IP allocation of the Pod {namespace}/{pod} (UID: {uid}) is being recycled. You may create two Pods "
    "with the same namespace and name in a very short time"
)
"""pkg/ipam/allocate.go: retrieveExistingIPAllocation."""
EVERYWHERE = {4: "0.0.0.0/0", 6: "::/0"}


class PoolConfiguration(IPPool):
    """A pool written in the configuration, with the keys of an object."""

    name: str | None = None


class Configuration(Part):
    """The key `ipam` of a plugin's configuration."""

    type: str
    pools: list[PoolConfiguration] = Field(default_factory=list)
    default_ipv4_ippool: list[str] = Field(default_factory=list)
    default_ipv6_ippool: list[str] = Field(default_factory=list)
    of_pods: bool = True
    """Whether Spiderpool's annotations choose pools, and addresses stay with pods; else each container has its own."""
    clean_gateway: bool = False
    """True if the interface gets no default route."""
    match_master_subnet: bool = False
    """Only pools are used in whose subnet the NIC below the pod's VF has an address."""
    policy: Policy = "lowest-free"
    cool_down_s: Annotated[float, Field(ge=0, le=1e9, strict=False)] = Field(0.0, alias="coolDown")
    routes: list[RoutePart] = Field(default_factory=list)
    dns: dict[str, Any] = Field(default_factory=dict)


class Ippool:
    """The plugin on one node. Calls may run in parallel."""

    def __init__(self, shared: Path, node: str) -> None:
        """Use `shared`, the directory that all nodes share."""
        self._shared, self._node = shared, node
        self._turn = threading.Lock()
        self._opened: tuple[Store, Objects, Catalogue] | None = None

    def call(self, asked: Call) -> Mapping[str, Any] | None:
        """See `contract.Plugin`."""
        settings = validated(Configuration, asked.config.get("ipam", {}), "ipam")
        with self._turn:
            if self._opened is None:
                store, objects = Store(self._shared / ADDRESSES), Objects(self._shared / OBJECTS)
                self._opened = store, objects, Catalogue(store, objects)
            store, objects, _ = self._opened
            match asked.command:
                case "ADD":
                    return self._add(asked, settings, store, objects)
                case "CHECK":
                    self._check(asked, store)
                case "DEL":
                    if settings.of_pods:
                        _release(self._holder(asked), store, objects)
                    else:
                        store.give_back(self._holder(asked))
                case "GC":
                    self._collect(asked, store, objects)
                case "STATUS":
                    self._status(asked, settings, store)
        return None

    def _pools(self, asked: Call, settings: Configuration) -> tuple[Named | None, list[list[str]]]:
        """Return the source of pool names, and the pools to try, by address family."""
        assert self._opened
        store, objects, catalogue = self._opened
        pod, node = self._pod(asked, objects), objects.get("Node", self._node)
        labels = labels_of(self._node, node)
        namespace = objects.get("Namespace", pod.namespace) if pod else None
        ordered = pod is not None and SEVERAL in pod.annotations
        others = [name for name in store.of_container(asked.container) if name != asked.interface] if ordered else []
        owner = top_owner(pod, objects.get) if pod else {}
        asking = Asking(asked.interface, asked.network, self._node, labels, pod, namespace, len(others), owner)
        if settings.match_master_subnet and asked.command == "ADD":
            asking = replace(asking, master=master_of(asked))
        if not settings.of_pods:
            asking = replace(asking, pod=None, namespace=None)
        wanted = named(asking, {4: settings.default_ipv4_ippool, 6: settings.default_ipv6_ippool})
        inline = catalogue.inline(asked.network, [(pool.name, pool) for pool in settings.pools])
        if wanted or not inline:
            return wanted, candidates(asking, wanted, catalogue.of_cluster())
        by_family = {family: [name for name, pool in inline.items() if pool.family == family] for family in FAMILIES}
        return None, candidates(asking, Named(by_family, "the network's configuration"), inline)

    def _pod(self, asked: Call, objects: Objects) -> Object | None:
        name = asked.arguments.get("K8S_POD_NAME", "")
        return objects.get("Pod", name, asked.arguments.get("K8S_POD_NAMESPACE", "")) if name else None

    def _holder(self, asked: Call) -> Holder:
        namespace, pod, uid = (asked.arguments.get(f"K8S_POD_{name}", "") for name in ("NAMESPACE", "NAME", "UID"))
        return Holder(asked.network, asked.container, asked.interface, namespace, pod, self._node, uid)

    def _add(self, asked: Call, settings: Configuration, store: Store, objects: Objects) -> Mapping[str, Any]:
        wanted, families = self._pools(asked, settings)
        holder = self._holder(asked)
        fixed = reclaim.is_wanted_again(holder, objects)
        if settings.of_pods and not fixed and (uid := store.other_uid(holder)):
            raise Refusal(OWN, RECYCLED.format(namespace=holder.namespace, pod=holder.pod, uid=uid))
        keeps_gateway = not (settings.clean_gateway or (wanted and wanted.clean_gateway))
        try:
            leases = store.allocate(holder, families, settings.policy, settings.cool_down_s, fixed)
        except ExhaustedError as error:
            raise Refusal(LATER if error.cooling else OWN, error.message) from None
        ips, routes = [], [route.model_dump() for route in settings.routes]
        pools = {lease: pool for lease in leases if (pool := store.pool(lease.pool))}
        routes += self._routes_of_pod(asked, store, objects, list(pools.values()))
        for lease, pool in pools.items():
            gateway = {"gateway": str(pool.gateway)} if pool.gateway else {}
            ips.append({"address": f"{lease.address}/{pool.subnet.prefixlen}", **gateway})
            routes += [{"dst": route.dst, "gw": route.gw} for route in pool.routes]
            default = EVERYWHERE[pool.family]
            if pool.gateway and keeps_gateway and default not in (route["dst"] for route in routes):
                routes.append({"dst": default, "gw": str(pool.gateway)})
        return spec.convert({"ips": ips, "routes": routes, "dns": settings.dns}, asked.version)

    def _routes_of_pod(
        self, asked: Call, store: Store, objects: Objects, pools: Sequence[Pool]
    ) -> list[dict[str, str]]:
        """Return the routes of the pod's annotation whose gateway is in a subnet of this interface, and of none before
        (pkg/ipam/utils.go: groupCustomRoutes)."""
        pod = self._pod(asked, objects)
        if not pod or ROUTES not in pod.annotations:
            return []
        before = {name: names for name, names in store.of_container(asked.container).items() if name != asked.interface}
        taken = [pool.subnet for names in before.values() for pool in map(store.pool, names) if pool]
        return [
            route.model_dump()
            for route in routes_of(pod.annotations[ROUTES])
            if any(ip_address(route.gw) in pool.subnet for pool in pools)
            and not any(ip_address(route.gw) in subnet for subnet in taken)
        ]

    def _check(self, asked: Call, store: Store) -> None:
        held = store.held_by(self._holder(asked))
        if not held:
            raise Refusal(OWN, f"the store has no address for {asked.interface} of {asked.container}")
        given = [ip_interface(entry["address"]).ip for entry in asked.config.get("prevResult", {}).get("ips", [])]
        if foreign := [str(address) for address in held if given and address not in given]:
            raise Refusal(OWN, f"{asked.interface} lacks {', '.join(foreign)}, which the store assigns to the pod")

    def _collect(self, asked: Call, store: Store, objects: Objects) -> None:
        valid = asked.valid()
        for lease in store.leases(asked.network, self._node):
            if lease.holder.container and (lease.holder.container, lease.holder.interface) not in valid:
                _release(lease.holder, store, objects)

    def _status(self, asked: Call, settings: Configuration, store: Store) -> None:
        for names in self._pools(asked, settings)[1]:
            if not any(map(store.free, names)):
                raise Refusal(UNAVAILABLE, f"no address is free in {', '.join(names)}")


def master_of(asked: Call) -> Master:
    """Return the NIC below the VF that is in the pod already. Refusal."""
    try:
        with netns.entered(asked.namespace), Rtnetlink() as inside:
            index = inside.parent(inside.index(asked.interface))
        with Rtnetlink() as here:
            index = here.parent(index) if here.is_vlan(index) else index
            addresses = [address.ip for of, address in here.addresses() if of == index]
            return Master(here.name(index), addresses)
    except OSError as error:
        wrong = f'failed to get pf device id from vf "{asked.interface}" for pod: {error.strerror}'
        raise Refusal(OWN, f"filterPoolCandidatesByPfSubnet: {wrong}") from None


def _release(holder: Holder, store: Store, objects: Objects) -> None:
    """Free the addresses of a holder whose container has ended, or keep them for its pod's next container
    (pkg/ipam/release.go)."""
    if reclaim.is_wanted_again(holder, objects) or reclaim.is_alive(holder, objects):
        store.keep(holder)
    else:
        store.give_back(holder)
