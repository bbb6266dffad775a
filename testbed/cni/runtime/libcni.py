"""The runtime of a node: it adds networks to a container, checks and deletes them, as libcni does (libcni/api.go)."""

import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from testbed.cni import installed, spec
from testbed.cni.agent import Agent
from testbed.cni.runtime import plugin_call, verification
from testbed.cni.runtime.plugin_call import OURS, CniError, Limit, NotCallableError, Place
from testbed.cni.runtime.result_cache import Cache
from testbed.cni.spec import DECODE, LATER, VERSION, Result, stand_ins
from testbed.cni.spec.conflist import Attachment, Conflist, called_by, capabilities_of
from testbed.errors import InputError
from testbed.kernel import netns
from testbed.kernel.mounts import Isolated
from testbed.kernel.syscalls import readable
from testbed.lab import Host
from testbed.lab.steps import Gate, Steps, pause, run, together

LIMIT = Limit()
SETTLE_S, LOOK_S = 10.0, 0.1
"""The time for duplicate address detection after ADD, as the reference plugins have it for a network with a gateway
(SettleAddresses), and the pause between two looks."""
AGAIN_S = 1.0
"""Pause before a repeated DEL."""
EVERYWHERE = ("0.0.0.0/0", "::/0")
SHARED = "cluster"
"""The directory of the run that all nodes share."""
STATE, VOLATILE = "/var/lib/cni", "/run/cni"
"""The directories for plugins' state: STATE survives a restart of the node (addresses of host-local)."""


class Runtime:
    """The plugins of one node: they run in its network namespace, with its own /var/lib/cni and /run/cni. The user's
    directories `own` come before all others. GC runs alone on the node, as the specification requires: it begins when
    earlier ADDs and DELs have ended, and later ones wait for it."""

    def __init__(self, node: Host, own: Sequence[Path] = ()) -> None:
        state = node.context.file("cni") / node.name
        binds = {STATE: state / "lib", VOLATILE: state / "run"}
        for where, what in binds.items():
            what.mkdir(parents=True, exist_ok=True)
            Path(where).mkdir(parents=True, exist_ok=True)  # the mount point must exist on this machine too
        files = node.context.file
        self.agent = Agent(node.name, node.namespace, files(SHARED), files(f"{node.name}-cni-agent.log"))
        self.agent.start()
        node.defer(self.agent.stop)
        isolated = Isolated(netns.path(node.namespace), binds)
        node.defer(isolated.close)
        self._place = Place(isolated, node.context.file(f"{node.name}-cni.log"))
        self._cache = Cache(binds[STATE])
        self._gate = Gate()
        self._node = node.name
        self.path = search_path(own)

    def validate(self, conflist: Conflist, who: str) -> Steps[Conflist]:
        """Check before any change that every plugin is there, as libcni's ValidateNetworkList does. Return the conflist
        with only the versions that all plugins support, IPAM's included: the highest of them is used (CNI specification
        1.1.0, "Version considerations"). `who` begins messages."""
        try:
            conflist = stand_ins.replaced(conflist, self._lacks)
        except InputError as error:
            wrong = f"{who}: {failed('ADD', conflist, error.where)}: {error.message}"
            raise NotCallableError(wrong, code=spec.CONFIG) from None
        types = dict.fromkeys(kind for config in conflist.plugins for kind in called_by(config))
        what = {kind: f"{who}: {failed('VERSION', conflist, kind)}" for kind in types}
        files = {kind: plugin_call.find(kind, self.path, what[kind]) for kind in types}
        common = conflist.versions
        for kind, file in files.items():
            known = yield from plugin_call.supported(file, what[kind])
            left = tuple(version for version in common if version in known)
            if not left:
                raise no_common_version(conflist, common, known, what[kind])
            common = left
        return replace(conflist, versions=common)

    def _lacks(self, kind: str) -> bool:
        return not any((directory / kind).is_file() for directory in self.path)

    def add(self, conflist: Conflist, attachment: Attachment, limit: Limit = LIMIT) -> Steps[Result]:
        """Run ADD of each plugin, in order. CniError of the first that fails, or whose result is wrong: the caller must
        then call `delete`."""
        return self._gate.passing(self._add(conflist, attachment, limit))

    def _add(self, conflist: Conflist, attachment: Attachment, limit: Limit) -> Steps[Result]:
        results: list[Result] = []
        for config in conflist.plugins:
            result = results[-1] if results else None
            answer = yield from self._call("ADD", conflist, config, attachment, result, limit)
            what = f"pod {attachment.pod}: {failed('ADD', conflist, config['type'])}"
            results.append(understood(answer, conflist.version, what))
        self._cache.write(conflist, attachment, spec.written(results[-1]))
        deadline = time.monotonic() + SETTLE_S
        while verification.settles(attachment, results) and time.monotonic() < deadline:
            yield from pause(LOOK_S)
        if wrong := verification.problem(conflist, attachment, results):
            what = f"pod {attachment.pod}: {failed('ADD', conflist, wrong.plugin)}"
            raise CniError(f"{what}: {wrong.text}", code=wrong.code)
        return results[-1]

    def forget_default(self, conflist: Conflist, attachment: Attachment, gateways: Sequence[str]) -> None:
        """Take default routes out of the kept result, but those to `gateways` (Multus: DeleteDefaultGWCache)."""
        result = self._cache.read(conflist.name, attachment)
        if result and "routes" in result:
            routes = [one for one in result["routes"] if one.get("dst") not in EVERYWHERE or one.get("gw") in gateways]
            self._cache.write(conflist, attachment, {**result, "routes": routes})

    def check(self, conflist: Conflist, attachment: Attachment) -> Steps[None]:
        """Run CHECK of each plugin, in order, unless the conflist has `disableCheck`."""
        if not spec.at_least(conflist.version, "0.4.0"):
            what = f"pod {attachment.pod}: {failed('CHECK', conflist, conflist.types[0])}"
            wrong = f'configuration version "{conflist.version}" does not support CHECK command'
            raise CniError(f"{what}: {wrong}", code=VERSION)
        if conflist.disable_check:
            return
        result = self._cache.read(conflist.name, attachment)
        for config in conflist.plugins:
            yield from self._call("CHECK", conflist, config, attachment, result)
        if result and (wrong := verification.unusable(attachment, result)):
            what = f"pod {attachment.pod}: {failed('CHECK', conflist, conflist.types[0])}"
            raise CniError(f"{what}: the pod has {wrong}", code=spec.CONFIG)

    def delete(self, conflist: Conflist, attachment: Attachment) -> Steps[None]:
        """Run DEL of each plugin, last first; the first error ends it. Call it after a failed ADD too.

        If the error is "try again later" (code 11), as without the agent of the node, all of it is repeated for as long
        as a plugin may take. Kubelet repeats it at any error, and for ever."""
        deadline = LIMIT.deadline()
        while True:
            try:
                return (yield from self._gate.passing(self._delete(conflist, attachment)))
            except CniError as error:
                if error.code != LATER or time.monotonic() >= deadline:
                    raise
            yield from pause(AGAIN_S)

    def _delete(self, conflist: Conflist, attachment: Attachment) -> Steps[None]:
        cached = spec.at_least(conflist.version, "0.4.0")
        result = self._cache.read(conflist.name, attachment) if cached else None
        for config in reversed(conflist.plugins):
            yield from self._call("DEL", conflist, config, attachment, result)
        self._cache.delete(conflist.name, attachment)

    def collect(self, conflist: Conflist, valid: Callable[[], Collection[Attachment]]) -> Steps[None]:
        """Run DEL of each attachment of the network that is in the cache and not `valid`, then GC of each plugin from
        version 1.1.0 on, unless the conflist has `disableGC`. CniError with all failures. `valid` is called when no ADD
        and no DEL runs."""
        return self._gate.passing(self._collect(conflist, valid), alone=True)

    def _collect(self, conflist: Conflist, valid: Callable[[], Collection[Attachment]]) -> Steps[None]:
        if conflist.disable_gc:
            return
        known = {(attachment.container, attachment.interface) for attachment in valid()}
        jobs = [
            partial(self._delete, conflist, attachment)
            for attachment in self._cache.attachments(conflist.name)
            if (attachment.container, attachment.interface) not in known
        ]
        if spec.at_least(conflist.version, "1.1.0"):
            entries = [{"containerID": container, "ifname": interface} for container, interface in sorted(known)]
            given = {"cni.dev/valid-attachments": entries, "cni.dev/attachments": entries}
            jobs += [partial(self._ask, "GC", conflist, config, given) for config in conflist.plugins]
        outcomes = yield from together(jobs, at_once=1)
        if errors := [str(error) for error in outcomes if error]:
            raise CniError("; ".join(errors))

    def status(self, conflist: Conflist) -> Steps[None]:
        """Run STATUS of each plugin, in order, from version 1.1.0 on: the first error is that of the network. Codes 50
        and 51: it takes no container now; 51: existing containers may have lost the network."""
        if spec.at_least(conflist.version, "1.1.0"):
            for config in conflist.plugins:
                yield from self._ask("STATUS", conflist, config, {})

    def _call(
        self,
        command: str,
        conflist: Conflist,
        config: Mapping[str, Any],
        attachment: Attachment,
        result: Result | None,
        limit: Limit = LIMIT,
    ) -> Steps[dict[str, Any] | None]:
        what = f"pod {attachment.pod}: {failed(command, conflist, config['type'])}"
        variables = variables_of(command, attachment, self.path)
        stdin = stdin_of(conflist, config, attachment, result)
        return (yield from self._run(config["type"], variables, stdin, limit, what))

    def _ask(
        self, command: str, conflist: Conflist, config: Mapping[str, Any], given: Mapping[str, Any]
    ) -> Steps[None]:
        what = f"node {self._node}: {failed(command, conflist, config['type'])}"
        variables = {"CNI_COMMAND": command, "CNI_PATH": joined(self.path)}
        yield from self._run(config["type"], variables, {**own_part(conflist, config), **given}, LIMIT, what)

    def _run(
        self, kind: str, variables: Mapping[str, str], stdin: Mapping[str, Any], limit: Limit, what: str
    ) -> Steps[dict[str, Any] | None]:
        """Call a plugin, which may need the agent, itself or through a delegate."""
        file = plugin_call.find(kind, self.path, what)
        self.agent.revive()
        return (yield from plugin_call.call(file, variables, stdin, self._place, limit, what))


def no_common_version(conflist: Conflist, common: Sequence[str], known: Sequence[str], what: str) -> NotCallableError:
    """Return the error of a plugin that supports the versions `known`, none of which is in `common`."""
    wrong = f"{what}: it does not support cniVersion {' or '.join(common)}"
    if rest := [version for version in conflist.versions if version not in common]:
        wrong += f"; the plugins before it do not support {' or '.join(rest)}"
    return NotCallableError(wrong, code=VERSION, hint=f"It supports {', '.join(known)}.")


OPERATIONS = {"ADD": "add", "CHECK": "check", "DEL": "delete", "GC": "gc", "STATUS": "status", "VERSION": "version"}


def failed(command: str, conflist: Conflist, kind: str) -> str:
    """Return the text of kubelet's event for a failure of plugin `kind`."""
    return f'plugin type="{kind}" name="{conflist.name}" failed ({OPERATIONS[command]})'


def variables_of(command: str, attachment: Attachment, path: Sequence[Path]) -> dict[str, str]:
    return {
        "CNI_COMMAND": command,
        "CNI_CONTAINERID": attachment.container,
        "CNI_NETNS": attachment.netns,
        "CNI_IFNAME": attachment.interface,
        "CNI_ARGS": ";".join(f"{key}={value}" for key, value in attachment.arguments.items()),
        "CNI_PATH": joined(path),
    }


def joined(path: Sequence[Path]) -> str:
    return ":".join(map(str, path))


def own_part(conflist: Conflist, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a plugin's own configuration, completed. `capabilities` is for the runtime and must not be in it (CNI
    specification 1.1.0, section 3, "Deriving request configuration")."""
    own = {key: value for key, value in config.items() if key != "capabilities"}
    return {**own, "name": conflist.name, "cniVersion": conflist.version}


def stdin_of(
    conflist: Conflist, config: Mapping[str, Any], attachment: Attachment, result: Result | None
) -> dict[str, Any]:
    """Return the standard input of a plugin that is called for an attachment."""
    stdin = own_part(conflist, config)
    wanted = capabilities_of(config)
    if given := {name: value for name, value in attachment.capabilities.items() if name in wanted}:
        stdin["runtimeConfig"] = given
    if result is not None:
        stdin["prevResult"] = spec.written(result)
    return stdin


def understood(answer: dict[str, Any] | None, version: str, what: str) -> Result:
    """Return a plugin's result in the version of the conflist. A result without a version has that version."""
    if answer is None:
        raise CniError(f"{what}: it succeeded without a result", code=DECODE)
    found = answer.get("cniVersion") or version
    if found not in spec.SUPPORTED:
        wrong = f"its result has version {found}; supported: {', '.join(spec.SUPPORTED)}"
        raise CniError(f"{what}: {wrong}", code=VERSION)
    try:
        return spec.convert(answer, version)
    except (AttributeError, LookupError, TypeError, ValueError):
        raise CniError(f"{what}: its result is malformed", code=DECODE) from None


def search_path(own: Sequence[Path] = ()) -> list[Path]:
    """Return the directories of plugins: the user's `own`, ours, then CNI_PATH as in cnitool, or the usual ones."""
    given = os.environ.get("CNI_PATH", "")
    return [*own, OURS, *([Path(part) for part in given.split(":") if part] or installed.PLUGINS)]


def prepare() -> None:
    """Ask all plugins for their versions, so that a snapshot has the answers and the plugins in memory."""
    for file in OURS.iterdir():
        file.chmod(0o755)  # the job bundle does not keep modes
    for directory in search_path():
        for file in sorted(directory.iterdir()) if directory.is_dir() else ():
            run(readable, plugin_call.supported(file, file.name))
