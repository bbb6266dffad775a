"""Makes and deletes the pods of a lab."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from testbed.errors import InputError, TestbedError
from testbed.kernel.rtnetlink import FAMILIES
from testbed.lab.node import Node, take_down
from testbed.lab.nodes.host import Host, Pod
from testbed.topology.values import check_label

Network = str | Path | Mapping[str, Any]
"""A network that a pod is attached to: a CNI conflist, as a file or as what is in one."""


class Networks(Protocol):
    """Attaches pods to networks: PodNetworks of `testbed.cni.runtime.pods`, given from above to a lab, which knows no
    CNI."""

    def attach(self, pod: Pod, networks: Sequence[Network]) -> None:
        """Gives the pod its interfaces. If it fails, `detach` undoes what it did before."""

    def check(self, pod: Pod) -> None: ...

    def detach(self, pod: Pod) -> None:
        """Takes the pod off its networks, the last one first."""


class Pods:
    """Makes and deletes the pods of a lab."""

    def __init__(self, nodes: dict[str, Node[Any]], networks: Networks | None) -> None:
        """`nodes` are all of the lab, to which pods are added."""
        self._nodes = nodes
        self._networks = networks

    @property
    def networks(self) -> Networks:
        if self._networks is None:
            raise InputError(
                "this lab has no pods", hint="Give it `networks=PodNetworks(…)` of testbed.cni.runtime.pods."
            )
        return self._networks

    def create(self, host: Host, name: str, networks: Sequence[Network]) -> Pod:
        """
        Makes a pod on a host, attached to `networks` in their order: its interfaces are eth0, net1, net2, …

        A network is a conflist: a file beside the scenario or the test, or a dict. docs/cni.md describes what happens.
        If a network refuses the pod, nothing of it is left.
        """
        plugged = self.networks
        self._check_name(host, name)
        pod = self._nodes[name] = Pod(host, name, plugged.check, self.delete)
        pod.defer(lambda: plugged.detach(pod))
        try:
            plugged.attach(pod, networks)
        except BaseException as error:
            try:
                self._take_away(pod)
            except TestbedError as later:
                error.add_note(f"Then the pod could not be taken away cleanly: {later}")
            raise
        ends = pod.interfaces.values()
        given = [(end.name, end.addresses[family].ip) for family in FAMILIES for end in ends if family in end.addresses]
        pod.context.emit(
            "pod", name, f"created on {host.name}: {', '.join(f'{name} {ip}' for name, ip in given)}", host=host.name
        )
        return pod

    def _check_name(self, host: Host, name: str) -> None:
        if isinstance(host, Pod):
            raise InputError(f"{host} is a pod; pods run on hosts")
        try:
            check_label(name)
        except ValueError as error:
            raise InputError(f"a pod cannot be called so: {error}") from None
        if (there := self._nodes.get(name)) is not None:
            what, hint = f"a {type(there).__name__.lower()} of the topology", "Choose another name."
            if isinstance(there, Pod):
                what, hint = f"a pod on {there.host}", "Delete it first (`pod.delete()`), or choose another name."
            raise InputError(f"{name} is there already: {what}", hint=hint)

    def delete(self, pod: Pod) -> None:
        """See `Pod.delete`."""
        if self._nodes.get(pod.name) is pod:
            self._take_away(pod)
            pod.context.emit("pod", pod.name, f"deleted from {pod.host.name}", host=pod.host.name)

    def _take_away(self, pod: Pod) -> None:
        try:
            take_down([pod])
        finally:
            del self._nodes[pod.name]
