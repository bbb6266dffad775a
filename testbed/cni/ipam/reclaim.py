"""Addresses whose pods are no more, taken back without a DEL, as Spiderpool's controller does."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass

from testbed.cni.ipam.store import Holder, Lease
from testbed.cni.ipam.store import Store as Addresses
from testbed.cni.objects.store import Store as Objects

ENDED = ("Succeeded", "Failed")
"""Phases of a pod that does not run any more; Failed is that of an evicted one, too."""


def is_wanted_again(holder: Holder, objects: Objects) -> bool:
    """Whether a StatefulSet wants a pod of this name: its pods keep their addresses from one container to the next,
    and when nothing but the name is left of one."""
    found = re.fullmatch(r"(.+)-(\d+)", holder.pod)
    owner = objects.get("StatefulSet", found[1], holder.namespace) if found else None
    return found is not None and owner is not None and int(found[2]) < int(owner.spec.get("replicas", 1))


@dataclass(frozen=True)
class Reclaimed:
    lease: Lease
    reason: str


def look(addresses: Addresses, objects: Objects, since: dict[Holder, float], grace: float) -> list[Reclaimed]:
    """
    Give back the addresses that have been without a pod for `grace` seconds, in the order of pools and addresses.

    `since` is when each holder was first found so (s, CLOCK_MONOTONIC), and is brought up to date: one dict for all
    looks.
    """
    now, found = time.monotonic(), []
    reasons = {lease: reason for lease in addresses.leases() if (reason := _reason(lease.holder, objects))}
    for holder in since.keys() - {lease.holder for lease in reasons}:
        del since[holder]
    for lease, reason in reasons.items():
        if now - since.setdefault(lease.holder, now) >= grace:
            addresses.give_back(lease.holder)
            found.append(Reclaimed(lease, reason))
    return found


def _reason(holder: Holder, objects: Objects) -> str:
    """The reason why a holder is none any more, or nothing."""
    if not holder.pod:
        return ""  # its runtime says nothing of pods: CNI's GC finds it
    pod = objects.get("Pod", holder.pod, holder.namespace)
    if pod is None:
        return "" if is_wanted_again(holder, objects) else "its pod is gone"
    metadata, phase = pod.data["metadata"], (pod.data.get("status") or {}).get("phase", "")
    terminating = metadata.get("deletionTimestamp") and not _is_ready(holder.node, objects)
    reasons = {
        "its pod is another one now": bool(holder.container) and metadata.get("uid", holder.uid) != holder.uid,
        f"its pod has {phase.lower()}": phase in ENDED,
        f"its pod is terminating, and {holder.node} is not ready": terminating,
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


def _is_ready(name: str, objects: Objects) -> bool:
    node = objects.get("Node", name)
    conditions = (node.data.get("status") or {}).get("conditions") or () if node else ()
    return all(one.get("status") == "True" for one in conditions if one.get("type") == "Ready")
