"""Conflists: the configuration of a network, a list of plugins that are called one after the other.

Source: CNI specification 1.1.0, section 1; what libcni accepts beyond it (booleans as strings) is accepted.
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

NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.\-]*")
LARGEST = 1 << 20


@dataclass(frozen=True)
class Conflist:
    """`version` is the one chosen of those that the list offers; `data` its bytes, which the cache keeps."""

    name: str
    version: str
    plugins: tuple[Mapping[str, Any], ...]
    disable_check: bool
    data: bytes

    @property
    def types(self) -> list[str]:
        return [plugin["type"] for plugin in self.plugins]

    def capabilities(self) -> set[str]:
        """Names of what the plugins take from the runtime, see CNI's CONVENTIONS.md."""
        return {name for plugin in self.plugins for name, wanted in plugin.get("capabilities", {}).items() if wanted}


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
        data = json.dumps(value).encode()
    except (TypeError, ValueError) as error:
        raise InputError(f"a conflist holds what JSON can hold: {error}", where="a conflist") from None
    return parse(data, f"conflist {value.get('name', 'without a name')}")


def parse(data: bytes, source: str) -> Conflist:
    """`source` is what errors call it."""
    if len(data) > LARGEST:
        raise InputError(f"larger than {LARGEST >> 20} MiB", where=source)
    return _Reader(source).read(_json(data, source), data)


def _json(data: bytes, source: str) -> Any:
    try:
        return json.loads(data.decode())
    except json.JSONDecodeError as error:
        raise InputError(f"not valid JSON: {error.msg}", where=f"{source}:{error.lineno}:{error.colno}") from None
    except UnicodeDecodeError as error:
        line, column = data.count(b"\n", 0, error.start) + 1, error.start - data.rfind(b"\n", 0, error.start)
        raise InputError("not valid JSON: it is not UTF-8", where=f"{source}:{line}:{column}") from None
    except RecursionError:
        raise InputError("nested too deeply", where=source) from None


class _Reader:
    def __init__(self, source: str) -> None:
        self.source = source

    def read(self, value: Any, data: bytes) -> Conflist:
        if not isinstance(value, dict):
            self.fail("a conflist is a JSON object")
        if "plugins" not in value and "type" in value:
            self.fail('this is the configuration of one plugin; a conflist has such in its list "plugins"')
        name = value.get("name")
        if not isinstance(name, str) or not NAME.fullmatch(name):
            self.fail(
                f'"name" must be letters, digits, "_", "." and "-", beginning with a letter or digit, not {name!r}'
            )
        plugins = value.get("plugins")
        if not isinstance(plugins, list) or not plugins:
            self.fail('"plugins" must be a list with at least one plugin')
        for number, plugin in enumerate(plugins):
            self.check_plugin(plugin, f"plugins[{number}]")
        check = self.boolean(value, "disableCheck")
        return Conflist(name, self.version(value), tuple(plugins), check, data)

    def version(self, value: Mapping[str, Any]) -> str:
        first, more = value.get("cniVersion"), value.get("cniVersions", [])
        if not isinstance(more, list):
            self.fail('"cniVersions" must be a list of versions')
        offered = [*([] if first is None else [first]), *more]
        if not offered:
            self.fail('"cniVersion" is missing', self.speaks())
        chosen = versions.choose(offered)
        if chosen is None:
            self.fail(f"cniVersion {', '.join(map(str, offered))} is not supported", self.speaks())
        return chosen

    def speaks(self) -> str:
        return f"Supported: {', '.join(versions.SUPPORTED)}."

    def check_plugin(self, plugin: Any, where: str) -> None:
        if not isinstance(plugin, dict):
            self.fail(f"{where} must be an object")
        self.check_type(plugin.get("type"), f'{where}: "type"')
        capabilities = plugin.get("capabilities", {})
        if not isinstance(capabilities, dict) or not all(isinstance(wanted, bool) for wanted in capabilities.values()):
            self.fail(f'{where}: "capabilities" must be an object of true and false')
        ipam = plugin.get("ipam") or {}
        if not isinstance(ipam, dict):
            self.fail(f'{where}: "ipam" must be an object')
        if ipam:
            self.check_type(ipam.get("type"), f'{where}: "ipam": "type"')

    def check_type(self, name: Any, where: str) -> None:
        if not isinstance(name, str) or not name or "/" in name:
            self.fail(f"{where} must be the name of a plugin's file, not {name!r}")

    def boolean(self, value: Mapping[str, Any], key: str) -> bool:
        found = value.get(key, False)
        if str(found).lower() not in ("true", "false"):
            self.fail(f'"{key}" must be true or false, not {found!r}')
        return str(found).lower() == "true"

    def fail(self, message: str, hint: str = "") -> NoReturn:
        raise InputError(message, where=self.source, hint=hint)
