"""Reclaiming of addresses whose pods have ended without a DEL, as Spiderpool's controller does it."""

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from testbed.cni.ipam.address_store import ADDRESSES, Holder, Lease
from testbed.cni.ipam.address_store import Store as Addresses
from testbed.cni.objects.database import OBJECTS
from testbed.cni.objects.database import Store as Objects

GRACE, EVERY = 35.0, 600.0
"""Seconds from the end of a pod until its addresses are free, which are its termination period of 30 s and 5 s, and
between two looks at all addresses (cmd/spiderpool-controller/cmd/config.go)."""
ENDED = ("Succeeded", "Failed")
"""The phases of a pod that no longer runs; an evicted pod is Failed too."""


def is_wanted_again(holder: Holder, objects: Objects) -> bool:
    """Return whether a StatefulSet wants a pod of this name: its pods keep their addresses from one container to the
    next, even when only the name is left."""
    found = re.fullmatch(r"(.+)-(\d+)", holder.pod)
    owner = objects.get("StatefulSet", found[1], holder.namespace) if found else None
    if found is None or owner is None:
        return False
    first = int((owner.spec.get("ordinals") or {}).get("start", 0))
    return first <= int(found[2]) < first + int(owner.spec.get("replicas", 1))


def is_alive(holder: Holder, objects: Objects) -> bool:
    """Return whether the holder's pod lives, and will have another container (pkg/podmanager: IsPodAlive)."""
    pod = objects.get("Pod", holder.pod, holder.namespace) if holder.pod else None
    if pod is None:
        return False
    metadata, status = pod.data["metadata"], pod.data.get("status") or {}
    restarts, phase = pod.spec.get("restartPolicy", "Always"), status.get("phase")
    ended = (phase == "Succeeded" and restarts != "Always") or (
        phase == "Failed" and (restarts == "Never" or status.get("reason") == "Evicted")
    )
    return metadata.get("uid", holder.uid) == holder.uid and not metadata.get("deletionTimestamp") and not ended


def release_conflicting(shared: Path, container: str) -> None:
    """Free the addresses of a container because another host has one of them, but for a pod of a StatefulSet: the pod's
    next container gets others (pkg/ipam/release.go: ReleaseIPs, as SPIDERPOOL_ENABLED_RELEASE_CONFLICT_IPS has it by
    default). `shared` is the directory of the stores."""
    with Addresses(shared / ADDRESSES) as addresses, Objects(shared / OBJECTS) as objects:
        for lease in addresses.leases():
            if lease.holder.container == container and not is_wanted_again(lease.holder, objects):
                addresses.give_back(lease.holder)


@dataclass(frozen=True)
class Reclaimed:
    lease: Lease
    reason: str


def look(
    addresses: Addresses,
    objects: Objects,
    since: dict[Holder, float],
    grace: float,
    ready: Callable[[str], bool] = lambda _: True,
) -> list[Reclaimed]:
    """Give back the addresses that have been without a pod for `grace` seconds, in the order of pools and addresses.

    `since` is when each holder was first found without a pod (s, CLOCK_MONOTONIC). It is updated: use one dict for all
    calls. `ready` says of a node whether it is up; its object may say that it is not, too.
    """
    now, found = time.monotonic(), []
    reasons = {lease: reason for lease in addresses.leases() if (reason := _reason(lease.holder, objects, ready))}
    for holder in since.keys() - {lease.holder for lease in reasons}:
        del since[holder]
    for lease, reason in reasons.items():
        if now - since.setdefault(lease.holder, now) >= grace:
            addresses.give_back(lease.holder)
            found.append(Reclaimed(lease, reason))
    return found


def _reason(holder: Holder, objects: Objects, ready: Callable[[str], bool]) -> str:
    """Return the reason why a holder no longer exists, or an empty string."""
    if not holder.pod:
        return ""  # its runtime does not report pods: CNI's GC finds it
    pod = objects.get("Pod", holder.pod, holder.namespace)
    if pod is None:
        return "" if is_wanted_again(holder, objects) else "its pod is gone"
    metadata, phase = pod.data["metadata"], (pod.data.get("status") or {}).get("phase", "")
    silent = not (ready(holder.node) and _is_ready(holder.node, objects))
    terminating = silent and metadata.get("deletionTimestamp") and not is_wanted_again(holder, objects)
    reasons = {
        "its pod is another one now": metadata.get("uid", holder.uid) != holder.uid
        and (bool(holder.container) or not is_wanted_again(holder, objects)),
        f"its pod has {phase.lower()}": phase in ENDED,
        f"its pod is terminating, and {holder.node} is not ready": terminating,
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


def _is_ready(name: str, objects: Objects) -> bool:
    node = objects.get("Node", name)
    conditions = (node.data.get("status") or {}).get("conditions") or () if node else ()
    return all(one.get("status") == "True" for one in conditions if one.get("type") == "Ready")
