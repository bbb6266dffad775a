"""The container of a pod whose program runs in a lab: it runs one of each pod."""

from testbed.cni.objects.manifests import Object
from testbed.cni.objects.pod_spec import ContainerSpec, PodSpec
from testbed.cni.objects.training.kinds import FRAMEWORKS
from testbed.cni.objects.workloads import owner_of

CHOSEN = "kubectl.kubernetes.io/default-container"


def main_of(pod: Object) -> ContainerSpec:
    """Return the container that the pod's annotation chooses, as for kubectl; of a training job the one with the name
    by which the operator judges; else the first."""
    containers = PodSpec.model_validate(pod.spec).containers
    framework = FRAMEWORKS.get(owner_of(pod)[0])
    wanted = pod.annotations.get(CHOSEN) or (framework.container if framework else "")
    return next((one for one in containers if one.name == wanted), containers[0])
