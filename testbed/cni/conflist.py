"""Conflists: the configuration of a network, a list of plugins that are called one after the other.

Source: CNI specification 1.1.0, section 1; what libcni accepts beyond it (booleans as strings, the configuration of one
plugin) is accepted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from testbed.cni import versions
from testbed.errors import InputError, did_you_mean

NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.\-]{0,127}")
"""The specification has no limit, a file's name has: that of the cache holds this, a container and an interface."""
LARGEST = 1 << 20
LONGEST_TYPE = 255
"""Bytes of a file's name on Linux."""


@dataclass(frozen=True)
class Conflist:
    """`versions` are those that the list offers and that are spoken here, the lowest first; `data` are its bytes, which
    the cache keeps."""

    name: str
    versions: tuple[str, ...]
    plugins: tuple[Mapping[str, Any], ...]
    disable_check: bool
    data: bytes

    @property
    def version(self) -> str:
        """The highest one, which plugins are asked in."""
        return self.versions[-1]

    @property
    def types(self) -> list[str]:
        return [plugin["type"] for plugin in self.plugins]

    def capabilities(self) -> set[str]:
        """Names of what the plugins take from the runtime, see CNI's CONVENTIONS.md."""
        return {name for plugin in self.plugins for name in capabilities_of(plugin)}


def capabilities_of(plugin: Mapping[str, Any]) -> list[str]:
    """Names of what one plugin takes from the runtime."""
    return [name for name, wanted in (plugin.get("capabilities") or {}).items() if wanted]


def load(file: Path) -> Conflist:
    """Reads a file. InputError, with the place, for what is wrong in it."""
    try:
        data = file.read_bytes()
    except FileNotFoundError:
        names = [path.name for path in sorted(file.parent.glob("*.conflist"))]
        hint = f"{did_you_mean(file.name, names)}Conflists in {file.parent}: {', '.join(names) or 'none'}."
        raise InputError("no such file", where=str(file), hint=hint) from None
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(file)) from None
    return parse(data, str(file))


def make(value: Mapping[str, Any]) -> Conflist:
    """The same from what is in a file."""
    try:
        data = json.dumps(value, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"a conflist holds what JSON can hold: {error}", where="a conflist") from None
    return parse(data, f"conflist {value.get('name', 'without a name')}")


def parse(data: bytes, source: str) -> Conflist:
    """`source` is what errors call it."""
    if len(data) > LARGEST:
        raise InputError(f"larger than {LARGEST >> 20} MiB", where=source)
    return _Reader(source).read(read_json(data, source), data)


def read_json(data: bytes, source: str) -> Any:
    """JSON as the standard has it: no NaN, and no number that no plugin could read."""
    try:
        return json.loads(data.decode(), parse_constant=_no_json)
    except json.JSONDecodeError as error:
        comment = error.doc[error.pos :].lstrip(", \t\r\n").startswith(("//", "/*", "#"))
        hint = "JSON has no comments; libcni refuses them too." if comment else ""
        where = f"{source}:{error.lineno}:{error.colno}"
        raise InputError(f"not valid JSON: {error.msg}", where=where, hint=hint) from None
    except UnicodeDecodeError as error:
        line, column = data.count(b"\n", 0, error.start) + 1, error.start - data.rfind(b"\n", 0, error.start)
        raise InputError("not valid JSON: it is not UTF-8", where=f"{source}:{line}:{column}") from None
    except RecursionError:
        raise InputError("nested too deeply", where=source) from None
    except ValueError as error:  # NaN, or a number of thousands of digits
        raise InputError(f"not valid JSON: {error}", where=source) from None


def _no_json(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no value")


def wrapped(plugin: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration of one plugin as a list of one: what libcni's ConfListFromConf makes of it."""
    kept = {key: plugin[key] for key in ("name", "cniVersion") if key in plugin}
    return {**kept, "plugins": [plugin]}


def shortened(value: Any) -> str:
    """A value that is wrong, for a message."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


class _Reader:
    def __init__(self, source: str) -> None:
        self.source = source

    def read(self, value: Any, data: bytes) -> Conflist:
        if not isinstance(value, dict):
            self.fail("a conflist is a JSON object")
        if "plugins" not in value and "type" in value:
            value = wrapped(value)
            data = json.dumps(value).encode()
        name = value.get("name")
        if not isinstance(name, str) or not NAME.fullmatch(name):
            self.fail(
                '"name" must be letters, digits, "_", "." and "-", beginning with a letter or digit and 128 at most, '
                f"not {shortened(name)}"
            )
        plugins = value.get("plugins")
        if not isinstance(plugins, list) or not plugins:
            self.fail('"plugins" must be a list with at least one plugin')
        for number, plugin in enumerate(plugins):
            self.check_plugin(plugin, f"plugins[{number}]")
        check = self.boolean(value, "disableCheck")
        return Conflist(name, self.versions(value), tuple(plugins), check, data)

    def versions(self, value: Mapping[str, Any]) -> tuple[str, ...]:
        first, more = value.get("cniVersion"), value.get("cniVersions", [])
        if not isinstance(more, list):
            self.fail('"cniVersions" must be a list of versions')
        offered = [*([] if first is None else [first]), *more]
        if not offered:
            self.fail('"cniVersion" is missing', self.speaks())
        for version in offered:
            if not isinstance(version, str):
                self.fail(f"a version of CNI is a string, not {shortened(version)}", self.speaks())
        spoken = versions.spoken(offered)
        if not spoken:
            self.fail(f"cniVersion {shortened(', '.join(offered))} is not supported", self.speaks())
        return spoken

    def speaks(self) -> str:
        return f"Supported: {', '.join(versions.SUPPORTED)}."

    def check_plugin(self, plugin: Any, where: str) -> None:
        if not isinstance(plugin, dict):
            self.fail(f"{where} must be an object")
        self.check_type(plugin.get("type"), f'{where}: "type"')
        capabilities = plugin.get("capabilities") or {}
        if not isinstance(capabilities, dict) or not all(isinstance(wanted, bool) for wanted in capabilities.values()):
            self.fail(f'{where}: "capabilities" must be an object of true and false')
        ipam = plugin.get("ipam") or {}
        if not isinstance(ipam, dict):
            self.fail(f'{where}: "ipam" must be an object')
        if ipam:
            self.check_type(ipam.get("type"), f'{where}: "ipam": "type"')

    def check_type(self, name: Any, where: str) -> None:
        if not isinstance(name, str) or name in ("", ".", "..") or "/" in name or not name.isprintable():
            self.fail(f"{where} must be the name of a plugin's file, not {shortened(name)}")
        if len(name.encode()) > LONGEST_TYPE:
            self.fail(f"{where} is longer than a file's name can be: {shortened(name)}")

    def boolean(self, value: Mapping[str, Any], key: str) -> bool:
        found = value.get(key, False)
        if not isinstance(found, bool | str) or str(found).lower() not in ("true", "false"):
            self.fail(f'"{key}" must be true or false, not {shortened(found)}')
        return str(found).lower() == "true"

    def fail(self, message: str, hint: str = "") -> NoReturn:
        raise InputError(message, where=self.source, hint=hint)
