"""The files that kubelet gives pods of manifests: /etc/hosts with the names of the cluster, and volumes.

Sources: Kubernetes 1.31, pkg/kubelet/kubelet_pods.go (hosts file), pkg/volume/configmap and pkg/volume/secret.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.cni.objects import names, variables
from testbed.cni.objects.manifests import Object
from testbed.cni.objects.names import Name
from testbed.errors import InputError, TestbedError
from testbed.kernel import ownership
from testbed.lab import Pod

if TYPE_CHECKING:
    from testbed.cni.objects.variables import Look
ROOT = Path("/run/testbed/pods")
"""A directory for each pod: outside the runs, which hold no files of users' Secrets."""
HOSTS = "/etc/hosts"
SOURCES = {"configMap": "ConfigMap", "secret": "Secret"}
MODE = 0o644


@dataclass
class _Given:
    """What a pod has."""

    known: Object
    own: Sequence[tuple[str, str]]
    """Its addresses with its name."""
    hosts: Path | None
    volumes: Mapping[str, Mapping[str, Any]]
    """Volumes of ConfigMaps and Secrets, by the names of their directories."""
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
            pod.bind(hosts, HOSTS)
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
                _write(Path(directory), source, given.known, look, again=True)

    def _write_names(self, given: _Given) -> None:
        assert given.hosts
        given.names = self._names
        domains = names.searches(given.known.namespace, given.known.spec)
        content = names.hosts_file(domains, given.own, given.names)
        given.hosts.write_text(content)  # the file stays the same one: it is mounted

    def _mount(self, pod: Pod, known: Object, top: Path, look: Look) -> Mapping[str, Mapping[str, Any]]:
        """Make the volumes that the first container mounts. Return those that follow their objects."""
        volumes = {one["name"]: one for one in known.spec.get("volumes") or ()}
        followed: dict[str, Mapping[str, Any]] = {}
        for mount in known.spec["containers"][0].get("volumeMounts") or ():
            volume = volumes.get(mount["name"])
            if volume is None:
                raise InputError(f'pod {pod.name}: volumeMounts: Not found: "{mount["name"]}"')
            directory = top / "volumes" / mount["name"]
            if any(key in volume for key in SOURCES):
                directory.mkdir(parents=True, exist_ok=True)
                _write(directory, volume, known, look, again=False)
                followed[str(directory)] = volume
            elif "emptyDir" in volume:
                directory.mkdir(parents=True, exist_ok=True)
            else:
                continue  # a lab has no storage for it
            source, place = directory / str(mount.get("subPath") or ""), str(mount["mountPath"])
            if ".." in source.parts or not source.is_relative_to(directory):
                raise InputError(f"pod {pod.name}: volumeMounts: subPath: must not contain '..'")
            if ".." in Path(place).parts or ":" in place or not Path(place).is_absolute():
                raise InputError(
                    f"pod {pod.name}: volumeMounts: mountPath {place}: must be an absolute path without ':'"
                )
            if not source.exists():
                source.mkdir(parents=True)
            pod.bind(source, place)
        return followed


def _write(directory: Path, volume: Mapping[str, Any], pod: Object, look: Look, *, again: bool) -> None:
    """Write the files of a ConfigMap or a Secret into a directory."""
    key = next(key for key in SOURCES if key in volume)
    kind, source = SOURCES[key], volume[key] or {}
    name = str(source.get("name") or source.get("secretName") or "")
    there = look(kind, name, pod.namespace)
    if there is None:
        if again or source.get("optional"):
            return
        wrong = f'MountVolume.SetUp failed for volume "{volume["name"]}": {kind.lower()} "{name}" not found'
        raise TestbedError(f"pod {pod.name}: {wrong}")
    values = variables.values(there)
    mode = int(source.get("defaultMode") or MODE)
    items = source.get("items") or [{"key": one, "path": one} for one in values]
    for one in items:
        if one["key"] not in values:
            if again or source.get("optional"):
                continue
            wrong = f"references non-existent config key: {one['key']}"
            raise TestbedError(f'pod {pod.name}: MountVolume.SetUp failed for volume "{volume["name"]}": {wrong}')
        file = directory / one["path"]
        if ".." in file.parts or not file.is_relative_to(directory):
            raise InputError(f"pod {pod.name}: volumes: items: path {one['path']}: must not contain '..'")
        file.parent.mkdir(parents=True, exist_ok=True)
        if not file.exists() or file.read_text() != values[one["key"]]:
            file.write_text(values[one["key"]])
        file.chmod(int(one.get("mode") or mode))
