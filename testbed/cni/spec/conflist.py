"""Conflists: the configuration of a network, a list of plugins that are called one after the other.

Source: CNI specification 1.1.0, section 1; what libcni accepts beyond it (booleans as strings, the configuration of one
plugin, plugins in files of their own beside the list) is accepted, and so is any key that only a plugin knows.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import ErrorDetails

from testbed.cni import spec
from testbed.documents import text
from testbed.documents.json import JsonDocument, loads
from testbed.documents.problems import Problems, dotted, wrong_value
from testbed.documents.text import describe, quoted
from testbed.errors import InputError, nearest

NAME = r"[a-zA-Z0-9][a-zA-Z0-9_.\-]{0,127}"
"""The specification has no limit, but a file name has: the cache's holds this, a container and an interface."""
LONGEST_TYPE = 255
"""The maximum length of a file name on Linux, in bytes."""
SUPPORTED = f"Supported: {', '.join(spec.SUPPORTED)}."


@dataclass(frozen=True)
class Conflist:
    """A network. `versions` are the offered and supported ones, lowest first; the cache keeps its bytes, `data`."""

    name: str
    versions: tuple[str, ...]
    plugins: tuple[Mapping[str, Any], ...]
    disable_check: bool
    disable_gc: bool
    data: bytes

    @property
    def version(self) -> str:
        """Return the highest version, in which plugins are called."""
        return self.versions[-1]

    @property
    def types(self) -> list[str]:
        return [plugin["type"] for plugin in self.plugins]

    def capabilities(self) -> set[str]:
        """Return the capabilities that the plugins take from the runtime, see CNI's CONVENTIONS.md."""
        return {name for plugin in self.plugins for name in capabilities_of(plugin)}


@dataclass(frozen=True)
class Attachment:
    """One interface of a container on one network: libcni's RuntimeConf. `pod` is the container's name in messages."""

    pod: str
    container: str
    netns: str
    """The path of its network namespace."""
    interface: str
    arguments: Mapping[str, str] = field(default_factory=dict)
    """CNI_ARGS."""
    capabilities: Mapping[str, Any] = field(default_factory=dict)
    """The values for plugins that declare the capability, for example `mac`."""


def capabilities_of(plugin: Mapping[str, Any]) -> list[str]:
    """Return the capabilities that one plugin takes from the runtime."""
    return [name for name, wanted in (plugin.get("capabilities") or {}).items() if wanted]


def called_by(plugin: Mapping[str, Any]) -> list[str]:
    """Return the plugins that one entry of a conflist runs: its own, and the IPAM plugin that it calls."""
    ipam = plugin.get("ipam")
    return [plugin["type"], *([ipam["type"]] if ipam else [])]


def check_name(name: Any) -> Any:
    if not isinstance(name, str) or not re.fullmatch(NAME, name):
        raise ValueError(
            'must be letters, digits, "_", "." and "-", 128 at most, beginning with a letter or digit, '
            f"not {describe(name)}"
        )
    return name


def check_type(name: Any) -> Any:
    if not isinstance(name, str) or name in ("", ".", "..") or "/" in name or not name.isprintable():
        raise ValueError(f"must be the name of a plugin's file, not {describe(name)}")
    if len(name.encode()) > LONGEST_TYPE:
        raise ValueError(f"is too long for a file name: {describe(name)}")
    return name


def parse_boolean(value: Any) -> Any:
    if not isinstance(value, bool | str) or str(value).lower() not in ("true", "false"):
        raise ValueError(f"must be true or false, not {describe(value)}")
    return str(value).lower() == "true"


def unless_empty(value: Any) -> Any:
    """Return None for an empty object, string or list, or 0, which Go treats as absent."""
    return value or None


PluginType = Annotated[str, BeforeValidator(check_type)]
Boolean = Annotated[bool, BeforeValidator(parse_boolean)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="allow", strict=True)


IPAM_KEYS = {
    "host-local": ("type", "ranges", "subnet", "rangeStart", "rangeEnd", "gateway", "routes", "resolvConf", "dataDir"),
    "static": ("type", "addresses", "routes", "dns"),
    "dhcp": ("type", "daemonSocketPath", "request", "provide", "priority", "clientID"),
}
"""The keys that the reference IPAM plugins read (their sources, `IPAMConfig`). They ignore others."""


class IpamConfiguration(_Part):
    type: PluginType

    @model_validator(mode="after")
    def _is_spelt_right(self) -> Self:
        known = IPAM_KEYS.get(self.type, ())
        for key in self.model_extra or {}:
            if key not in known and (near := nearest(key, known)):
                raise ValueError(f"has a key {key!r}, which {self.type} does not read; did you mean {near!r}?")
        return self


class PluginConfiguration(_Part):
    type: PluginType
    capabilities: Annotated[dict[str, bool] | None, BeforeValidator(unless_empty)] = None
    ipam: Annotated[IpamConfiguration | None, BeforeValidator(unless_empty)] = None


class NetworkConfiguration(_Part):
    """A conflist as it is written."""

    name: Annotated[str, BeforeValidator(check_name)]
    cniVersion: str | None = None  # noqa: N815 (CNI's name)
    cniVersions: list[str] = []  # noqa: N815
    disable_check: Boolean = Field(False, alias="disableCheck")
    disable_gc: Boolean = Field(False, alias="disableGC")
    only_inlined: Boolean = Field(False, alias="loadOnlyInlinedPlugins")
    plugins: list[PluginConfiguration] = Field(min_length=1)


def load(file: Path) -> Conflist:
    """Read a file. Raise InputError, with places, for what is wrong in it.

    After its plugins come those of the files ``<network>/*.conf`` beside it, in the order of their names, unless it has
    `loadOnlyInlinedPlugins`. With such files it needs no `plugins` (libcni, NetworkConfFromFile).
    """
    data, source = text.read(file, "conflist", "*.conf*"), str(file)
    document = JsonDocument(data, source, "conflist")
    more = [_load_plugin(part) for part in beside(file, document.value)]
    return _read(document.value, data, Problems(document), more)


def beside(file: Path, value: Any) -> list[Path]:
    """Return the files with more plugins for the list `value` of `file`."""
    match value:
        case {"type": _} if "plugins" not in value:
            return []
        case {"loadOnlyInlinedPlugins": only} if str(only).lower() != "false":
            return []
        case {"name": str(name)} if re.fullmatch(NAME, name):
            return sorted(part for part in (file.parent / name).glob("*.conf") if part.is_file())
    return []


def _load_plugin(file: Path) -> Mapping[str, Any]:
    document = JsonDocument(text.read(file, "plugin's configuration", "*.conf"), str(file), "plugin's configuration")
    problems = Problems(document)
    try:
        PluginConfiguration.model_validate(document.value)
    except ValidationError as error:
        for detail in error.errors(include_url=False):
            problems.add(detail["loc"], _message(detail, detail["loc"]))
    problems.stop()
    found: Mapping[str, Any] = document.value
    return found


SUFFIXES = (".conf", ".conflist", ".json")
"""Of files with networks (libcni, ConfFiles)."""


def make(value: Mapping[str, Any]) -> Conflist:
    """Return the conflist of a file's data."""
    try:
        data = json.dumps(value, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"a conflist may only hold JSON values: {error}", where="a conflist") from None
    source = f"conflist {value.get('name', 'without a name')}"
    return _read(JsonDocument(data, source, "conflist").value, data, Problems(None, source))


def with_arguments(network: Conflist, arguments: Mapping[str, Any]) -> Conflist:
    """Return the network whose plugins have these arguments as `args.cni`, beside their own (Multus)."""
    if not arguments:
        return network
    plugins = []
    for plugin in network.plugins:
        args = plugin.get("args")
        own = args if isinstance(args, Mapping) else {}
        cni = own.get("cni")
        plugins.append({**plugin, "args": {**own, "cni": {**(cni if isinstance(cni, Mapping) else {}), **arguments}}})
    return make({**json.loads(network.data), "plugins": plugins})


def parse(data: bytes, source: str) -> Conflist:
    """Return the conflist of a file's bytes; `source` is its name in errors."""
    document = JsonDocument(data, source, "conflist")
    return _read(document.value, data, Problems(document))


def definition(config: str, name: str, source: str) -> Conflist:
    """Return the conflist of a NetworkAttachmentDefinition's `config`, whose name is the default (Multus)."""
    value = loads(config, source)
    if isinstance(value, dict) and "name" not in value:
        config = json.dumps({"name": name, **value})
    return parse(config.encode(), source)


def of_name(name: str, directory: Path) -> Conflist:
    """Return the network of this name in the first file of a directory that has it, as Multus looks for it
    (GetCNIConfigFromFile). InputError."""
    files = sorted(file for file in directory.glob("*") if file.suffix in SUFFIXES)
    names = {file: found for file in files if (found := _name_in(file))}
    for file, found in names.items():
        if found == name:
            return load(file)
    known = f" Networks there: {', '.join(sorted(set(names.values())))}." if names else ""
    hint = f"Write `config` into the NetworkAttachmentDefinition, or a file <any>.conflist with this name.{known}"
    raise InputError(f"no file has a network of the name {quoted(name)}", where=str(directory), hint=hint)


def _name_in(file: Path) -> str:
    try:
        found = JsonDocument(text.read(file, "conflist", "*.conf*"), str(file), "conflist").value
    except InputError:
        return ""
    is_network = (
        isinstance(found, dict) and isinstance(found.get("name"), str) and ("type" in found or "plugins" in found)
    )
    return str(found["name"]) if is_network else ""


def _read(value: Any, data: bytes, problems: Problems, more: Sequence[Mapping[str, Any]] = ()) -> Conflist:
    if not isinstance(value, dict):
        problems.add((), "a conflist must be a JSON object")
        problems.stop()
    above: text.Path = ()
    if "plugins" not in value and "type" in value:
        kept = {key: value[key] for key in ("name", "cniVersion") if key in value}
        value, above = {**kept, "plugins": [value]}, ("plugins", 0)  # as libcni's ConfListFromConf does
        data = json.dumps(value).encode()
    spoken, hint = _spoken(value, problems)
    if "plugins" not in value and more:
        value, more = {**value, "plugins": list(more)}, ()
    try:
        network = NetworkConfiguration.model_validate(value)
    except ValidationError as error:
        for detail in error.errors(include_url=False):
            path = detail["loc"]
            place = path[len(above) :] if path[: len(above)] == above else path
            problems.add(place, _message(detail, path))
    problems.stop(hint)
    return Conflist(network.name, spoken, (*value["plugins"], *more), network.disable_check, network.disable_gc, data)


def _spoken(value: Mapping[str, Any], problems: Problems) -> tuple[tuple[str, ...], str]:
    """Return the versions offered and supported, and a hint if none. The model checks other types."""
    first, more = value.get("cniVersion"), value.get("cniVersions", [])
    offered = [*([] if first is None else [first]), *(more if isinstance(more, list) else [])]
    if not offered:
        if other := _other("cniVersion", {key: value[key] for key in value if key != "cniVersions"}):
            problems.add(("cniVersion",), f"cniVersion is missing{other}")
            return (), SUPPORTED
        return (spec.OLDEST,), ""
    if not all(isinstance(version, str) for version in offered):
        return (), SUPPORTED
    spoken = tuple(version for version in spec.SUPPORTED if version in offered)
    if not spoken:
        problems.add(("cniVersion",), f"cniVersion {quoted(', '.join(offered))} is not supported")
    return spoken, "" if spoken else SUPPORTED


def _message(detail: ErrorDetails, path: text.Path) -> str:
    name = dotted(path)
    if detail["type"] == "missing":
        return f"{name} is missing{_other(str(path[-1]), detail['input'])}"
    return f"{name} {wrong_value(detail, name)}" if detail["type"] == "value_error" else wrong_value(detail, name)


def _other(key: str, given: Mapping[str, Any]) -> str:
    near = nearest(key, given)
    return f"; {near!r} is there, did you mean {key!r}?" if near else ""
