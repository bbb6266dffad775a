"""The start of pods of manifests: the scheduler's part, and that of kubelet before it calls the networks.

`cni/objects/placement.py` says on which node a pod goes. A pod that cannot start is an object that waits.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

from testbed.cni.objects import gangs, manifests, placement, telemetry
from testbed.cni.objects.dra import claims
from testbed.cni.objects.gangs import Wish
from testbed.cni.objects.main_container import main_of
from testbed.cni.objects.manifests import Object
from testbed.cni.objects.placement import Crowd, NodeView
from testbed.cni.objects.workloads import Run, owner_of
from testbed.cni.runtime.device_claims import DeviceClaims
from testbed.cni.runtime.node_telemetry import NodeTelemetry
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
        self._telemetry = NodeTelemetry(context, maker)

    def nodes(self) -> list[NodeView]:
        """Return all hosts of the lab as the scheduler sees them, without their devices."""
        return [
            placement.view(host.name, self._cluster.look("Node", host.name), self._maker.above(host).labels())
            for host in self._maker.hosts()
        ]

    def place(self, waiting: Sequence[Run]) -> None:
        """Give the pods nodes, in the order of their making; the reason to those that get none."""
        hosts = {host.name: host for host in self._maker.hosts() if not host.off}
        nodes = [node for node in self.nodes() if node.name in hosts]
        for run in waiting:
            run.reason = self._completed(run)
        if any(claims.asked(run.pod) for run in waiting):
            self.claims.publish()
        if self._cluster.all(telemetry.POLICY):
            self._telemetry.begin()
        if any(placement.asked(run.pod) for run in waiting):
            for node in nodes:
                node.free = self._devices.free(hosts[node.name], self._cluster)
        crowd = self._crowd(hosts)
        together = self._gangs(waiting)
        for run in [run for run in waiting if run.node]:
            self._take(run, nodes)
        for run in waiting:
            wish, gang = together.get(_gang_of(run.pod), (None, [run]))
            if not run.node and not run.reason:
                self._place_gang(wish, gang, nodes, crowd) if wish else self._place_one(run, nodes, crowd)
            if run.reason:
                self._wait(run)

    def _crowd(self, hosts: Collection[str]) -> Crowd:
        crowd = Crowd({one.name: one.labels for one in self._cluster.all("Namespace")})
        for one in self._cluster.all("Pod"):
            if one.spec.get("nodeName") in hosts:
                crowd.add(one.spec["nodeName"], one)
        return crowd

    def _place_one(self, run: Run, nodes: Sequence[NodeView], crowd: Crowd) -> None:
        run.node, run.reason = self._node_for(run.pod, nodes, crowd)
        if run.node:
            crowd.add(run.node, run.pod)
            self._take(run, nodes)

    @staticmethod
    def _take(run: Run, nodes: Sequence[NodeView]) -> None:
        for node in nodes:
            if node.name == run.node:
                node.free.subtract(placement.asked(run.pod))

    def _gangs(self, waiting: Sequence[Run]) -> dict[tuple[str, str, str], tuple[Wish, list[Run]]]:
        """Return the pods without a node whose workload is in a queue of Kueue and says how near they are to be to each
        other, by their controllers."""
        topologies = self._cluster.all("Topology")
        found: dict[tuple[str, str, str], tuple[Wish, list[Run]]] = {}
        for run in waiting:
            if run.node or run.reason or not (wish := gangs.wish_of(run.pod, topologies)):
                continue
            if gangs.QUEUE in {**self._top(run.pod).labels, **run.pod.labels}:
                found.setdefault(_gang_of(run.pod), (wish, []))[1].append(run)
        return found

    def _top(self, one: Object) -> Object:
        """Return the controller of a pod, or that of its ReplicaSet; the pod itself without one."""
        for _ in range(2):
            kind, name = owner_of(one)
            one = (self._cluster.look(kind, name, one.namespace) if kind else None) or one
        return one

    def _place_gang(self, wish: Wish, gang: Sequence[Run], nodes: Sequence[NodeView], crowd: Crowd) -> None:
        """Give all pods of a gang nodes, or the reason to all."""
        first = gang[0].pod
        names: list[str] = []
        try:
            room = {node.name: self._room(first, node, nodes, crowd, len(gang)) for node in nodes}
        except InputError as error:
            why = error.message
        else:
            there = [node for node, owner in crowd.of_owner if owner == placement.owner(first)]
            names, why = gangs.assigned(wish, nodes, room, len(gang), there)
        for run, name in zip(gang, names or [""] * len(gang), strict=True):
            run.reason = why
            if name:
                only = [node for node in nodes if node.name == name]
                run.node, run.reason = self._node_for(run.pod, only, crowd)
            if run.node:
                crowd.add(run.node, run.pod)
                self._take(run, nodes)

    def _room(self, pod: Object, node: NodeView, nodes: Sequence[NodeView], crowd: Crowd, most: int) -> int:
        """Return how many pods like this one a node takes, with their devices."""
        found = placement.room(pod, node, nodes, crowd, most)
        if found and claims.asked(pod):
            self.claims.make(pod)
            return self.claims.choice(pod).room(node, found)
        return found

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
        try:
            violated = self._measured(pod, nodes)
            if not claims.asked(pod):
                return self._of_nodes(pod, nodes, crowd, violated)
            self.claims.make(pod)
            choice = self.claims.choice(pod)
            node, why = self._of_nodes(pod, nodes, crowd, lambda node: violated(node) or choice.obstacle(node))
            if pod.spec.get("nodeName"):
                choice.check_node(node)
        except InputError as error:
            return "", error.message
        if node:
            choice.reserve(node)
        return node, why

    def _measured(self, pod: Object, nodes: Sequence[NodeView]) -> Callable[[NodeView], str]:
        """Score the nodes by the pod's telemetry policy. Return the function that says why one is left out. InputError
        if there is no such policy."""
        name = pod.labels.get(telemetry.LABEL)
        if name is None:
            for node in nodes:
                node.score = 0
            return lambda _: ""
        policy = telemetry.PolicySpec.model_validate(self._cluster.find(telemetry.POLICY, name, pod.namespace).spec)
        metrics = {node.name: self._telemetry.of(node.name) for node in nodes}
        found = telemetry.scores(policy, metrics)
        for node in nodes:
            node.score = found.get(node.name, 0) * 100 // telemetry.MOST
        return lambda node: telemetry.obstacle(policy, metrics.get(node.name, {}))

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
                PodRequest(host, run.pod.name, networks, self._metadata(run.pod, start), start.program), start.caller
            )
        except TestbedError as error:
            run.reason = error.message
            if isinstance(error, UnschedulableError) and not run.pod.spec.get("nodeName"):
                run.node = ""
            self._wait(run)
        else:
            run.state, run.reason = "running", ""
            started(run, pod)

    def _metadata(self, pod: Object, start: Start) -> PodMetadata:
        first = main_of(pod)
        privileged = bool(first.securityContext and first.securityContext.privileged)
        container = None
        if first.image and docker.has_image(first.image):
            command = tuple(first.args or ()), tuple(first.command or ())
            container = Container(first.image, *command, directory=first.workingDir, ends=True)
        elif first.image not in self._without_image and start.program is None:
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


def _gang_of(pod: Object) -> tuple[str, str, str]:
    """Return the namespace, kind and name of a pod's controller, of one without a controller its own."""
    kind, name = owner_of(pod)
    return (pod.namespace, kind, name) if kind else (pod.namespace, pod.kind, pod.name)
