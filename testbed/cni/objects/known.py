"""The kinds of objects that are known."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import BaseModel

from testbed.cni.objects.coordinator import CoordinatorSpec
from testbed.cni.objects.devices import NodePolicy
from testbed.cni.objects.kinds import IPPool, NetworkAttachmentDefinition, ReservedIP, Workload
from testbed.cni.objects.multus import MultusConfig
from testbed.cni.objects.subnet import SubnetSpec


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
    "SpiderSubnet": Kind(SPIDERPOOL, False, SubnetSpec),
    "SpiderReservedIP": Kind(SPIDERPOOL, False, ReservedIP),
    "SpiderMultusConfig": Kind(SPIDERPOOL, True, MultusConfig),
    "SpiderCoordinator": Kind(SPIDERPOOL, False, CoordinatorSpec),
    "SriovNetworkNodePolicy": Kind(("sriovnetwork.openshift.io/v1",), True, NodePolicy),
    "ConfigMap": Kind(("v1",), True, None),
    "Namespace": Kind(("v1",), False, None),
    "Node": Kind(("v1",), False, None),
    "Pod": Kind(("v1",), True, None),
    "Deployment": Kind(APPS, True, Workload),
    "StatefulSet": Kind(APPS, True, Workload),
    "DaemonSet": Kind(APPS, True, Workload),
    "Job": Kind(("batch/v1",), True, Workload),
}
