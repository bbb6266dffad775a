"""The files that kubelet gives pods of manifests: /etc/hosts with the names of the cluster, and volumes.

Sources: Kubernetes 1.31, pkg/kubelet/kubelet_pods.go (hosts file), pkg/volume/configmap and pkg/volume/secret.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.cni.objects import names, variables
from testbed.cni.objects.main_container import main_of
from testbed.cni.objects.manifests import Object
from testbed.cni.objects.names import Name
from testbed.cni.objects.pod_spec import Item, PodSpec, Volume
from testbed.errors import TestbedError
from testbed.kernel import ownership
from testbed.kernel.own_devices import Bind
from testbed.lab import Pod

if TYPE_CHECKING:
    from testbed.cni.objects.variables import Look
ROOT = Path("/run/testbed/pods")
"""A directory for each pod: outside the runs, which hold no files of users' Secrets."""
HOSTS = "/etc/hosts"


@dataclass
class _Given:
    """What a pod has."""

    known: Object
    own: Sequence[tuple[str, str]]
    """Its addresses with its name."""
    hosts: Path | None
    volumes: Mapping[Path, Volume]
    """Volumes of ConfigMaps and Secrets, by their directories."""
    names: Sequence[Name] = ()
    """What its hosts file has."""


class PodFiles:
    """The files of all pods of a lab."""

    def __init__(self) -> None:
        self._given: dict[Pod, _Given] = {}
        self._names: Sequence[Name] = ()

    def prepare(self, pod: Pod, known: Object, own: Sequence[str], look: Look) -> None:
        """Make the files of a pod that is about to start. TestbedError for a volume that cannot be mounted."""
        top = ROOT / f"{pod.context.lab}-{pod.name}"
        shutil.rmtree(top, ignore_errors=True)  # left by a killed lab
        ownership.claim_file(top)
        ROOT.mkdir(parents=True, exist_ok=True, mode=0o700)
        top.mkdir()
        pod.defer(partial(self._forget, pod, top))
        hosts = top / "hosts" if names.asks_cluster(known.spec) else None
        name = pod.host.name if pod.metadata.host_network else str(known.spec.get("hostname") or pod.name)
        given = self._given[pod] = _Given(known, [(address, name) for address in own], hosts, {})
        if hosts:
            hosts.touch()
            self._write_names(given)
            _bind(pod, hosts, HOSTS, read_only=False)
        given.volumes = self._mount(pod, known, top, look)

    def _forget(self, pod: Pod, top: Path) -> None:
        self._given.pop(pod, None)
        pod.binds.clear()
        shutil.rmtree(top, ignore_errors=True)

    def sync(self, known: Sequence[Name], held: Collection[str], look: Look) -> None:
        """Bring the files of all pods to what the cluster's names and its ConfigMaps and Secrets are now. Nodes in
        `held` do not follow the names."""
        self._names = known
        for pod, given in self._given.items():
            if given.hosts and given.names != known and pod.host.name not in held:
                self._write_names(given)
            for directory, source in given.volumes.items():
                _write(directory, source, given.known, look, again=True)

    def _write_names(self, given: _Given) -> None:
        assert given.hosts
        given.names = self._names
        domains = names.searches(given.known.namespace, given.known.spec)
        content = names.hosts_file(domains, given.own, given.names)
        given.hosts.write_text(content)  # the file stays the same one: it is mounted

    def _mount(self, pod: Pod, known: Object, top: Path, look: Look) -> Mapping[Path, Volume]:
        """Make the volumes that the first container mounts. Return those that follow their objects."""
        spec = PodSpec.model_validate(known.spec)
        volumes = {one.name: one for one in spec.volumes or ()}
        followed: dict[Path, Volume] = {}
        for number, mount in enumerate(main_of(known).volumeMounts or ()):
            volume, directory = volumes[mount.name], top / "volumes" / mount.name
            if not (volume.configMap or volume.secret or volume.emptyDir is not None):
                continue  # a lab has no storage for it
            directory.mkdir(parents=True, exist_ok=True)
            if volume.emptyDir is None:
                _write(directory, volume, known, look, again=False)
                followed[directory] = volume
            source, place = directory / mount.subPath, os.path.normpath("/" + mount.mountPath.lstrip("/"))
            if place in ("/", "/proc") or place.startswith("/proc/"):
                raise TestbedError(f"pod {pod.name}: CreateContainerError: nothing can be mounted at {place}")
            of_object = volume.emptyDir is None
            if not source.exists():
                source.mkdir(parents=True)
            if mount.subPath and of_object:  # which kubelet does not update
                source = _copied(source, top / "parts" / str(number))
            _bind(pod, source, place, read_only=of_object or mount.readOnly)
        return followed


def _copied(source: Path, to: Path) -> Path:
    to.parent.mkdir(exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, to)
    else:
        shutil.copy2(source, to)
    return to


def _bind(pod: Pod, source: Path, place: str, *, read_only: bool) -> None:
    """Mount a file or a directory for a pod's container, or for its programs on the machine. TestbedError."""
    if pod.container:
        pod.binds[place] = Bind(source, read_only)
        return
    try:
        pod.bind(source, place, read_only=read_only)
    except OSError as error:
        what = "Are you trying to mount a directory onto a file (or vice-versa)?"
        raise TestbedError(f"pod {pod.name}: RunContainerError: {place}: {error.strerror}: {what}") from None


def _write(directory: Path, volume: Volume, pod: Object, look: Look, *, again: bool) -> None:
    """Write the files of a ConfigMap or a Secret into a directory."""
    source = volume.configMap or volume.secret
    assert source
    kind, name = ("ConfigMap", volume.configMap.name) if volume.configMap else ("Secret", _secret_of(volume))
    there = look(kind, name, pod.namespace)
    failed = f'pod {pod.name}: MountVolume.SetUp failed for volume "{volume.name}": '
    if there is None:
        if again or source.optional:
            return
        raise TestbedError(f'{failed}{kind.lower()} "{name}" not found')
    values = variables.contents(there)
    items = source.items or [Item(key=key, path=key) for key in values]
    if again:
        for path in set(os.listdir(directory)) - {one.path.partition("/")[0] for one in items}:
            (directory / path).unlink()
    for one in items:
        if one.key not in values:
            if again or source.optional:
                continue
            what = "config" if volume.configMap else "secret"
            raise TestbedError(f"{failed}references non-existent {what} key: {one.key}")
        file = directory / one.path
        if not file.is_relative_to(directory) or ".." in file.parts:  # the key of an object
            raise TestbedError(f"{failed}{one.path} is no name of a file")
        file.parent.mkdir(parents=True, exist_ok=True)
        if not file.exists() or file.read_bytes() != values[one.key]:
            file.write_bytes(values[one.key])
        file.chmod(source.defaultMode if one.mode is None else one.mode)


def _secret_of(volume: Volume) -> str:
    return volume.secret.secretName if volume.secret else ""
