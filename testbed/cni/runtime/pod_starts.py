"""The start of pods of manifests: the scheduler's part, and that of kubelet before it calls the networks.

`cni/objects/placement.py` says on which node a pod goes. A pod that cannot start is an object that waits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from testbed.cni.objects import manifests, placement
from testbed.cni.objects.dra import claims
from testbed.cni.objects.manifests import Object
from testbed.cni.objects.placement import Crowd, NodeView
from testbed.cni.objects.pod_spec import PodSpec
from testbed.cni.objects.workloads import Run
from testbed.cni.runtime.device_claims import DeviceClaims
from testbed.cni.runtime.pod_object import completed
from testbed.cni.runtime.scheduling import Devices, pending
from testbed.errors import InputError, TestbedError
from testbed.lab.context import Context
from testbed.lab.docker import client as docker
from testbed.lab.nodes.host_node import Pod, PodMetadata
from testbed.lab.pods import Maker, PodRequest, Start, UnschedulableError
from testbed.lab.steps import Steps
from testbed.protocol import events
from testbed.topology import Container

if TYPE_CHECKING:
    from testbed.cni.objects.lab_objects import Cluster
SANDBOX = "FailedCreatePodSandBox"
"""The reason of a pod that has a node and does not start."""


class PodStarts:
    """The scheduler and the kubelets of a lab."""

    def __init__(self, context: Context, maker: Maker, cluster: Cluster, devices: Devices) -> None:
        self._context, self._maker, self._cluster, self._devices = context, maker, cluster, devices
        self._without_image: set[str] = set()
        self.claims = DeviceClaims(maker, cluster)

    def nodes(self) -> list[NodeView]:
        """Return all hosts of the lab as the scheduler sees them, without their devices."""
        names = [host.name for host in self._maker.hosts()]
        return [placement.view(name, self._cluster.look("Node", name)) for name in names]

    def place(self, waiting: Sequence[Run]) -> None:
        """Give the pods nodes, in the order of their making; the reason to those that get none."""
        hosts = {host.name: host for host in self._maker.hosts() if not host.off}
        nodes = [node for node in self.nodes() if node.name in hosts]
        for run in waiting:
            run.reason = self._completed(run)
        if any(claims.asked(run.pod) for run in waiting):
            self.claims.publish()
        if any(placement.asked(run.pod) for run in waiting):
            for node in nodes:
                node.free = self._devices.free(hosts[node.name], self._cluster)
        crowd = Crowd({one.name: one.labels for one in self._cluster.all("Namespace")})
        for one in self._cluster.all("Pod"):
            if one.spec.get("nodeName") in hosts:
                crowd.add(one.spec["nodeName"], one)
        for run in waiting:
            if not run.node and not run.reason:
                run.node, run.reason = self._node_for(run.pod, nodes, crowd)
                if run.node:
                    crowd.add(run.node, run.pod)
            for node in nodes:
                if node.name == run.node:
                    node.free.subtract(placement.asked(run.pod))
            if run.reason:
                self._wait(run)

    def _completed(self, run: Run) -> str:
        """Put into a pod what webhooks put into it before a scheduler sees it; return why they refuse it."""
        try:
            run.pod = completed(run.pod, self._cluster)
        except InputError as error:
            return error.message
        there = self._cluster.look("Pod", run.pod.name, run.pod.namespace)
        uid = run.pod.data["metadata"]["uid"]
        if there and there.data["metadata"].get("uid") != uid:
            return f'pods "{run.pod.name}" already exists'
        return ""

    def _node_for(self, pod: Object, nodes: Sequence[NodeView], crowd: Crowd) -> tuple[str, str]:
        if not claims.asked(pod):
            return self._of_nodes(pod, nodes, crowd)
        try:
            self.claims.make(pod)
            choice = self.claims.choice(pod)
            node, why = self._of_nodes(pod, nodes, crowd, choice.obstacle)
            if pod.spec.get("nodeName"):
                choice.check_node(node)
        except InputError as error:
            return "", error.message
        if node:
            choice.reserve(node)
        return node, why

    @staticmethod
    def _of_nodes(
        pod: Object, nodes: Sequence[NodeView], crowd: Crowd, obstacle: Callable[[NodeView], str] = lambda _: ""
    ) -> tuple[str, str]:
        if named := pod.spec.get("nodeName"):
            there = any(node.name == named for node in nodes)
            return (named, "") if there else ("", f"the lab has no node {named}")
        return placement.place(pod, nodes, crowd, obstacle)

    def _wait(self, run: Run) -> None:
        """Make an object of a pod that waits, with the reason."""
        pod = f"{run.pod.namespace}/{run.pod.name}" if run.pod.namespace != manifests.DEFAULT else run.pod.name
        found = pending(run.pod, run.reason)
        if run.node:
            condition = {"type": "PodReadyToStartContainers", "status": "False", "reason": SANDBOX}
            status = {"phase": "Pending", "conditions": [{**condition, "message": run.reason}]}
            spec = {**run.pod.spec, "nodeName": run.node}
            found = Object(found.kind, found.name, found.namespace, {**found.data, "spec": spec, "status": status})
        before = self._cluster.look("Pod", run.pod.name, run.pod.namespace)
        if before and before.data["metadata"].get("uid") != run.pod.data["metadata"]["uid"]:
            return  # the object of another pod with this name
        self._cluster.put(found)
        if before is None or before.data.get("status") != found.data["status"]:
            self._context.emit(events.POD(host=run.node or None), pod, f"waits: {run.reason}")

    def start(self, run: Run, start: Start, started: Callable[[Run, Pod], None]) -> Steps[None]:
        """Start a pod on its node, or leave it with the reason why it waits."""
        host = next(one for one in self._maker.hosts() if one.name == run.node)
        networks = () if run.pod.spec.get("hostNetwork") else start.networks
        try:
            pod = yield from self._maker.start(
                PodRequest(host, run.pod.name, networks, self._metadata(run.pod)), start.caller
            )
        except TestbedError as error:
            run.reason = error.message
            if isinstance(error, UnschedulableError) and not run.pod.spec.get("nodeName"):
                run.node = ""
            self._wait(run)
        else:
            run.state, run.reason = "running", ""
            started(run, pod)

    def _metadata(self, pod: Object) -> PodMetadata:
        first = PodSpec.model_validate(pod.spec).containers[0]
        privileged = bool((pod.spec["containers"][0].get("securityContext") or {}).get("privileged"))
        container = None
        if first.image and docker.has_image(first.image):
            command = tuple(first.args or ()), tuple(first.command or ())
            container = Container(first.image, *command, directory=first.workingDir, ends=True)
        elif first.image not in self._without_image:
            self._without_image.add(first.image)
            note = f"the lab has no image {first.image}: its pods start without their program"
            self._context.emit(events.OBJECT(), "", note)
        return PodMetadata(
            pod.namespace,
            pod.labels,
            pod.annotations,
            privileged=privileged,
            container=container,
            host_network=bool(pod.spec.get("hostNetwork")),
            manifest=pod.data,
        )
