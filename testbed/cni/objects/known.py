"""The kinds of objects that are known."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import BaseModel

from testbed.cni.objects.coordinator import CoordinatorSpec
from testbed.cni.objects.kinds import IPPool, NetworkAttachmentDefinition, ReservedIP, Workload
from testbed.cni.objects.multus import MultusConfig


@dataclass(frozen=True)
class Kind:
    versions: tuple[str, ...]
    namespaced: bool
    spec: type[BaseModel] | None
    """None: anything, and nothing of it is read."""


SPIDERPOOL = ("spiderpool.spidernet.io/v2beta1",)
APPS = ("apps/v1",)
KINDS = {
    "NetworkAttachmentDefinition": Kind(("k8s.cni.cncf.io/v1",), True, NetworkAttachmentDefinition),
    "SpiderIPPool": Kind(SPIDERPOOL, False, IPPool),
    "SpiderReservedIP": Kind(SPIDERPOOL, False, ReservedIP),
    "SpiderMultusConfig": Kind(SPIDERPOOL, True, MultusConfig),
    "SpiderCoordinator": Kind(SPIDERPOOL, False, CoordinatorSpec),
    "Namespace": Kind(("v1",), False, None),
    "Node": Kind(("v1",), False, None),
    "Pod": Kind(("v1",), True, None),
    "Deployment": Kind(APPS, True, Workload),
    "StatefulSet": Kind(APPS, True, Workload),
    "DaemonSet": Kind(APPS, True, Workload),
    "Job": Kind(("batch/v1",), True, Workload),
}
