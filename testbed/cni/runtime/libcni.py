"""The runtime of a node: networks added to a container, checked and taken away, as libcni does (libcni/api.go).

GC and STATUS belong here, next to `check`, when there is a caller for them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from testbed.cni.runtime import plugin
from testbed.cni.runtime.cache import Cache
from testbed.cni.runtime.plugin import OURS, CniError, Place
from testbed.cni.spec import versions
from testbed.cni.spec.conflist import Attachment, Conflist, capabilities_of
from testbed.cni.spec.versions import Result
from testbed.errors import InputError
from testbed.lab import Host

PLUGINS = (Path("/usr/lib/cni"), Path("/opt/cni/bin"))
"""The directories of plugins if CNI_PATH is not set: Debian's, and that of everybody else."""
STATE, VOLATILE = "/var/lib/cni", "/run/cni"
"""The directories for plugins' state that survives a restart of the node (addresses of host-local), and the rest."""


class Runtime:
    """The plugins of one node: they run in its network namespace, with a /var/lib/cni and a /run/cni of its own. Those
    in the directories `own`, the user's, come before all others."""

    def __init__(self, node: Host, own: Sequence[Path] = ()) -> None:
        state = node.context.file("cni") / node.name
        binds = {STATE: state / "lib", VOLATILE: state / "run"}
        for where, what in binds.items():
            what.mkdir(parents=True, exist_ok=True)
            Path(where).mkdir(parents=True, exist_ok=True)  # on this machine too, to be mounted over
        self._place = Place(node.namespace, binds, node.context.file(f"{node.name}-cni.log"))
        self._cache = Cache(binds[STATE])
        self.path = search_path(own)

    def validate(self, conflist: Conflist, pod: str) -> Conflist:
        """Check before anything is made that every plugin is there, as libcni's ValidateNetworkList does. Returns the
        conflist with those of its versions that all plugins speak, IPAM's included: of these the highest counts
        (CNI specification 1.1.0, "Version considerations")."""
        what = f'pod {pod}: network "{conflist.name}"'
        types = dict.fromkeys(kind for config in conflist.plugins for kind in called_by(config))
        files = {kind: plugin.find(kind, self.path, what) for kind in types}
        known = {
            kind: plugin.supported(file, f'pod {pod}: plugin type="{kind}" name="{conflist.name}" failed (version)')
            for kind, file in files.items()
        }
        common = tuple(version for version in conflist.versions if all(version in each for each in known.values()))
        if not common:
            raise no_common_version(conflist, known, what)
        return replace(conflist, versions=common)

    def add(self, conflist: Conflist, attachment: Attachment) -> Result:
        """ADD of each plugin, in order. CniError of the first that fails: then it is the caller who has to `delete`."""
        result: Result | None = None
        for config in conflist.plugins:
            answer = self._call("ADD", conflist, config, attachment, result)
            result = understood(answer, conflist.version, failed("ADD", conflist, config, attachment))
        assert result is not None, "a conflist has a plugin"
        self._cache.write(conflist, attachment, result)
        return result

    def check(self, conflist: Conflist, attachment: Attachment) -> None:
        """CHECK of each plugin, in order, unless the conflist has `disableCheck`."""
        if not versions.at_least(conflist.version, "0.4.0"):
            wrong = f'configuration version "{conflist.version}" does not support CHECK command'
            raise CniError(f'pod {attachment.pod}: network "{conflist.name}": {wrong}')
        if conflist.disable_check:
            return
        result = self._cache.read(conflist.name, attachment)
        for config in conflist.plugins:
            self._call("CHECK", conflist, config, attachment, result)

    def delete(self, conflist: Conflist, attachment: Attachment) -> None:
        """DEL of each plugin, the last one first; the first error ends it. To be called after a failed ADD as well."""
        cached = versions.at_least(conflist.version, "0.4.0")
        result = self._cache.read(conflist.name, attachment) if cached else None
        for config in reversed(conflist.plugins):
            self._call("DEL", conflist, config, attachment, result)
        self._cache.delete(conflist.name, attachment)

    def _call(
        self, command: str, conflist: Conflist, config: Mapping[str, Any], attachment: Attachment, result: Result | None
    ) -> dict[str, Any] | None:
        what = failed(command, conflist, config, attachment)
        file = plugin.find(config["type"], self.path, what)
        variables = variables_of(command, attachment, self.path)
        return plugin.call(file, variables, stdin_of(conflist, config, attachment, result), self._place, what)


def called_by(config: Mapping[str, Any]) -> list[str]:
    """The plugins that one entry of a conflist has run: its own, and the IPAM plugin that this one calls."""
    ipam = config.get("ipam")
    return [config["type"], *([ipam["type"]] if ipam else [])]


def no_common_version(conflist: Conflist, known: Mapping[str, Sequence[str]], what: str) -> InputError:
    """The error of a conflist that offers no version which all its plugins speak. `known` is by plugin."""
    for kind, versions_of_it in known.items():
        if not set(conflist.versions) & set(versions_of_it):
            wrong = f'{what}: plugin type="{kind}" does not support cniVersion {" or ".join(conflist.versions)}'
            return InputError(wrong, hint=f"It supports {', '.join(versions_of_it)}.")
    hint = "; ".join(f"{kind} supports {', '.join(found)}" for kind, found in known.items())
    return InputError(f"{what}: no cniVersion of {', '.join(conflist.versions)} is common to its plugins", hint=hint)


def failed(command: str, conflist: Conflist, config: Mapping[str, Any], attachment: Attachment) -> str:
    """The beginning of a message, in the words of kubelet's events."""
    operation = {"ADD": "add", "CHECK": "check", "DEL": "delete"}[command]
    return f'pod {attachment.pod}: plugin type="{config["type"]}" name="{conflist.name}" failed ({operation})'


def variables_of(command: str, attachment: Attachment, path: Sequence[Path]) -> dict[str, str]:
    return {
        "CNI_COMMAND": command,
        "CNI_CONTAINERID": attachment.container,
        "CNI_NETNS": attachment.netns,
        "CNI_IFNAME": attachment.interface,
        "CNI_ARGS": ";".join(f"{key}={value}" for key, value in attachment.arguments.items()),
        "CNI_PATH": ":".join(map(str, path)),
    }


def stdin_of(
    conflist: Conflist, config: Mapping[str, Any], attachment: Attachment, result: Result | None
) -> dict[str, Any]:
    """The standard input of a plugin: its own configuration, completed. `capabilities` is the runtime's and must not be
    in it (CNI specification 1.1.0, section 3, "Deriving request configuration")."""
    stdin = {key: value for key, value in config.items() if key != "capabilities"}
    stdin |= {"name": conflist.name, "cniVersion": conflist.version}
    wanted = capabilities_of(config)
    if given := {name: value for name, value in attachment.capabilities.items() if name in wanted}:
        stdin["runtimeConfig"] = given
    if result is not None:
        stdin["prevResult"] = result
    return stdin


def understood(answer: dict[str, Any] | None, version: str, what: str) -> Result:
    """A plugin's result in the version of the conflist. A result without a version is of that one."""
    if answer is None:
        raise CniError(f"{what}: it ended well and gave no result")
    found = answer.get("cniVersion") or version
    if found not in versions.RESULTS:
        raise CniError(f"{what}: its result is of version {found}, which is none of {', '.join(versions.RESULTS)}")
    try:
        return versions.convert(answer, version)
    except (AttributeError, TypeError, ValueError):
        raise CniError(f"{what}: its result is not shaped as one") from None


def search_path(own: Sequence[Path] = ()) -> list[Path]:
    """Directories of plugins: the user's `own`, ours, and those of CNI_PATH as with cnitool, else the usual ones."""
    given = os.environ.get("CNI_PATH", "")
    return [*own, OURS, *([Path(part) for part in given.split(":") if part] or PLUGINS)]


def prepare() -> None:
    """Ask all plugins for their versions, so that a snapshot has the answers, and the plugins in memory."""
    for file in OURS.iterdir():
        file.chmod(0o755)  # the job bundle does not carry modes
    for directory in search_path():
        for file in sorted(directory.iterdir()) if directory.is_dir() else ():
            plugin.supported(file, file.name)
