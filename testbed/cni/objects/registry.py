"""The registry of known kinds of objects."""

from dataclasses import dataclass

from testbed.cni.objects.coordinator import CoordinatorSpec
from testbed.cni.objects.device_plugins import ConfigMapData, NodePolicy, NodeStatus
from testbed.cni.objects.kinds import IPPool, NetworkAttachmentDefinition, ReservedIP, Spec, Workload
from testbed.cni.objects.multus import MultusConfig
from testbed.cni.objects.subnet import SubnetSpec


@dataclass(frozen=True)
class Kind:
    versions: tuple[str, ...]
    namespaced: bool
    spec: type[Spec] | None
    """None: any content; nothing of it is read."""
    part: str = "spec"
    """The key of the content."""
    only: str = ""
    """The only name that is allowed, if there is one object only."""


DEFAULT = "default"
"""The namespace of an object that names none, and the name of a SpiderCoordinator."""
SPIDERPOOL = ("spiderpool.spidernet.io/v2beta1",)
APPS = ("apps/v1",)
KINDS = {
    "NetworkAttachmentDefinition": Kind(("k8s.cni.cncf.io/v1",), True, NetworkAttachmentDefinition),
    "SpiderIPPool": Kind(SPIDERPOOL, False, IPPool),
    "SpiderSubnet": Kind(SPIDERPOOL, False, SubnetSpec),
    "SpiderReservedIP": Kind(SPIDERPOOL, False, ReservedIP),
    "SpiderMultusConfig": Kind(SPIDERPOOL, True, MultusConfig),
    "SpiderCoordinator": Kind(SPIDERPOOL, False, CoordinatorSpec, only=DEFAULT),
    "SriovNetworkNodePolicy": Kind(("sriovnetwork.openshift.io/v1",), True, NodePolicy),
    "ConfigMap": Kind(("v1",), True, ConfigMapData, "data"),
    "Namespace": Kind(("v1",), False, None),
    "Node": Kind(("v1",), False, NodeStatus, "status"),
    "Pod": Kind(("v1",), True, None),
    "Deployment": Kind(APPS, True, Workload),
    "StatefulSet": Kind(APPS, True, Workload),
    "DaemonSet": Kind(APPS, True, Workload),
    "Job": Kind(("batch/v1",), True, Workload),
}
