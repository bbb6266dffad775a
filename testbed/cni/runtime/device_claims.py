"""The claims of pods: those of templates are made, devices chosen when a pod gets its node, and given back after it.

The work of kube-scheduler's plugin DynamicResources and of the resource claim controller.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from testbed.cni.objects.dra import claims
from testbed.cni.objects.dra.allocation import Asking, Given, allocate
from testbed.cni.objects.dra.kinds import ClaimSpec, ClassSpec
from testbed.cni.runtime import dranet
from testbed.errors import InputError

if TYPE_CHECKING:
    from testbed.cni.objects.lab_objects import Cluster
    from testbed.cni.objects.manifests import Object
    from testbed.cni.objects.placement import NodeView
    from testbed.lab.pods import Maker


class DeviceClaims:
    """The claims of a lab."""

    def __init__(self, maker: Maker, cluster: Cluster) -> None:
        self._maker, self._cluster = maker, cluster

    def publish(self) -> None:
        """Put the ResourceSlices of DraNet for all nodes that are up, and remove those of others."""
        up = [host for host in self._maker.hosts() if not host.off]
        now = {one.name: one for one in (claims.published(host.name, dranet.devices(host)) for host in up)}
        there = {one.name: one for one in self._cluster.all(claims.SLICE) if claims.is_published(one)}
        self._cluster.put(*(one for name, one in now.items() if name not in there or there[name].data != one.data))
        for name in there.keys() - now.keys():
            self._cluster.remove(there[name])

    def settle(self) -> None:
        """Free the devices of claims that no pod uses, and delete the claims that were made for pods that are gone."""
        known = self._cluster.all(claims.CLAIM)
        if not known:
            return
        pods = {(one.namespace, one.name): one for one in self._cluster.all("Pod")}
        changed, gone = claims.settled(known, pods)
        self._cluster.put(*changed)
        for one in gone:
            self._cluster.remove(one)

    def make(self, pod: Object) -> None:
        """Make the claims of a pod's templates. InputError if a claim or a template is missing."""
        self._cluster.put(*claims.missing(pod, self._cluster.look))

    def choice(self, pod: Object) -> Choice:
        """Return the choice of devices for a pod, whose claims are there."""
        return Choice(pod, self._cluster)


class Choice:
    """The devices for one pod, by node."""

    def __init__(self, pod: Object, cluster: Cluster) -> None:
        self._pod, self._cluster = pod, cluster
        names = [claims.name_of(pod, one) for one in claims.asked(pod)]
        self._claims = [cluster.find(claims.CLAIM, name, pod.namespace) for name in names]
        self._open = [one for one in self._claims if not claims.status_of(one).get("allocation")]
        self._slices = cluster.all(claims.SLICE)
        self._classes = {one.name: ClassSpec.model_validate(one.spec) for one in cluster.all(claims.CLASS)}
        self._taken = claims.taken(cluster.all(claims.CLAIM))
        self._found: dict[str, list[list[Given]]] = {}

    def obstacle(self, node: NodeView) -> str:
        """Return why a node does not fit, in kube-scheduler's words; empty if it does. InputError for a class that does
        not exist, or a selector that fails."""
        if self._is_elsewhere(node):
            return "resourceclaim not available on the node"
        asking = [Asking(one.name, ClaimSpec.model_validate(one.spec)) for one in self._open]
        found = allocate(asking, self._classes, claims.devices(self._slices, node), self._taken)
        if found is None:
            return "cannot allocate all claims"
        self._found[node.name] = found
        return ""

    def _is_elsewhere(self, node: NodeView) -> bool:
        """Return whether the pod has a claim whose devices are of another node."""
        given = [one for one in self._claims if one not in self._open]
        return any(claims.node_of(one) not in ("", node.name) for one in given)

    def room(self, node: NodeView, most: int) -> int:
        """Return for how many pods like this one a node has devices, `most` at most. InputError as for `obstacle`."""
        if self._is_elsewhere(node):
            return 0
        asking = [Asking(one.name, ClaimSpec.model_validate(one.spec)) for one in self._open]
        offered = claims.devices(self._slices, node)
        fitting = (allocate(asking * count, self._classes, offered, self._taken) for count in range(1, most + 1))
        return sum(1 for _ in itertools.takewhile(lambda found: found is not None, fitting))

    def reserve(self, node: str) -> None:
        """Give the pod, which goes to the node, its devices."""
        given = dict(zip([str(one) for one in self._open], self._found.get(node, []), strict=False))
        changed = []
        for one in self._claims:
            claim = claims.allocated(one, given[str(one)], self._classes, node) if str(one) in given else one
            changed.append(claims.reserved(claim, self._pod))
        self._cluster.put(*changed)

    def check_node(self, node: str) -> None:
        """InputError if a pod that names its node itself, and no scheduler sees, has claims without devices there."""
        for one in self._claims:
            if one in self._open or claims.node_of(one) not in ("", node):
                wrong = (
                    f"the pod names its node, so that kube-scheduler does not see it: ResourceClaim {one.name} has no"
                )
                raise InputError(f"{wrong} device there")
