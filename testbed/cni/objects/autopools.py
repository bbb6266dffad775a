"""The pools of applications, taken from SpiderSubnets, as Spiderpool's application controller makes them."""

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from testbed.cni.ipam.pool import Address
from testbed.cni.objects import manifests, subnet
from testbed.cni.objects.kinds import IPPool
from testbed.cni.objects.manifests import Object
from testbed.cni.objects.subnet import Settings, SubnetSpec, Wanted
from testbed.errors import InputError

APPLICATIONS = ("Deployment", "StatefulSet", "DaemonSet", "Job")
POOL, SUBNET = "SpiderIPPool", "SpiderSubnet"
OWNER = f"{subnet.PREFIX}/owner-spider-subnet"


class Pools(NamedTuple):
    wanted: dict[str, Object]
    """The pools by their names as text. Other pools with the label of a subnet are deleted."""
    notes: list[str]


def pools(objects: Mapping[str, Object], held: Collection[Address]) -> Pools:
    """Return the pools of all applications in `objects`. Addresses that are `held` stay with their pool and go to no
    other. InputError for wrong annotations."""
    found: dict[str, Object] = {}
    notes = []
    mine = {text: one for text, one in objects.items() if is_auto(one)}
    taken = {address for one in objects.values() if one.kind == POOL for address in addresses_of(one)}
    for application in [one for one in objects.values() if one.kind in APPLICATIONS]:
        for wanted, settings, size in _of(application):
            name = name_of(wanted, application)
            before = mine.get(f"{POOL}/{name}")
            source = objects.get(f"{SUBNET}/{wanted.subnet}")
            if source is None:
                notes.append(f"{application} gets no addresses: there is no {SUBNET}/{wanted.subnet}")
                if before:
                    found[str(before)] = before
                continue
            of_subnet = SubnetSpec.model_validate(source.spec).made(source.name)[1]
            free = [one for one in of_subnet if one not in taken and one not in held]
            chosen = sized(addresses_of(before) if before else [], free, held, size)
            taken.update(chosen)
            if len(chosen) < size:
                notes.append(f"{application} needs {size} addresses; {source} has {len(chosen)} for it")
            if chosen:
                made = _made(name, source, application, settings, chosen)
                found[str(made)] = made
    kept = {text: one for text, one in mine.items() if one.labels.get(subnet.RECLAIM) == "false"}
    return Pools(kept | found, notes)


def is_auto(one: Object) -> bool:
    return one.kind == POOL and OWNER in one.labels


def name_of(wanted: Wanted, application: Object) -> str:
    of_it = (application.kind, application.namespace, application.name)
    return subnet.pool_name(wanted.family, *of_it, wanted.interface)


def _of(application: Object) -> list[tuple[Wanted, Settings, int]]:
    """Return the pools that an application wants, and the number of addresses of each."""
    template = (application.spec.get("template") or {}).get("metadata") or {}
    try:
        settings = subnet.settings(template.get("annotations") or {})
        size = settings.size(pods(application) if settings.flexible else 0) if settings else 0
    except InputError as error:
        error.message = f"{application}: {error.message}"
        raise
    return [(wanted, settings, size) for wanted in settings.pools] if settings else []


def pods(application: Object) -> int:
    """Return the number of pods that an application wants."""
    spec = application.spec
    if application.kind == "Job":
        parallel, complete = spec.get("parallelism"), spec.get("completions")
        return int(complete or 1) if complete is not None else int(parallel or 1)
    if application.kind == "DaemonSet":
        count = (application.data.get("status") or {}).get("desiredNumberScheduled")
        if count is None:
            raise InputError(
                "nothing has placed the pods of the DaemonSet: `lab.pods.apply` and `testbed apply` do; or set "
                f"`status.desiredNumberScheduled` to their number, or give a fixed {subnet.NUMBER}"
            )
        return int(count)
    return int(spec.get("replicas", 1))


def sized(own: list[Address], free: list[Address], held: Collection[Address], size: int) -> list[Address]:
    """Return the addresses of a pool that must have `size`: its own addresses that are held come first."""
    kept = sorted(own, key=lambda one: (one not in held, int(one)))[:size]
    return sorted([*kept, *free[: size - len(kept)]], key=int)


def addresses_of(one: Object) -> list[Address]:
    return IPPool.model_validate(one.spec).made(one.name)[1]


def _made(name: str, source: Object, application: Object, settings: Settings, chosen: list[Address]) -> Object:
    version, given = application.data["apiVersion"], source.spec
    spec: dict[str, Any] = {key: given[key] for key in ("subnet", "ipVersion", "gateway", "routes") if key in given}
    affinity = {"matchLabels": subnet.labels_of(version, application.kind, application.namespace, application.name)}
    return manifests.make(
        {
            "apiVersion": source.data["apiVersion"],
            "kind": POOL,
            "metadata": {
                "name": name,
                "labels": {OWNER: source.name, subnet.RECLAIM: str(settings.reclaim).lower()},
                "annotations": {f"{subnet.PREFIX}/application": str(application)},
            },
            "spec": {**spec, "ips": subnet.ranges(chosen), "podAffinity": affinity},
        }
    )
