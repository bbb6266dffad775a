"""The structures and constants that Python shares with BPF programs, read from the programs' C header."""

import ctypes
import re
from functools import cached_property
from pathlib import Path

_TYPES = {
    "__u8": ctypes.c_uint8,
    "__u16": ctypes.c_uint16,
    "__u32": ctypes.c_uint32,
    "__u64": ctypes.c_uint64,
    "__s64": ctypes.c_int64,
}
_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_CONSTANT = re.compile(r"^#define (\w+) (\d+)", re.MULTILINE)
_ENUM = re.compile(r"enum \w+ \{([^}]*)\}")
_STRUCT = re.compile(r"struct (\w+) \{([^}]*)\}")
_FIELD = re.compile(r"(?:struct )?(\w+) ([^;]+);")
_NAME = re.compile(r"(\w+)(?:\[(\w+)\])?")


class CHeader:
    """A header of numbers, enumerations and flat structures."""

    def __init__(self, file: Path) -> None:
        self.file = file

    @cached_property
    def _text(self) -> str:
        return _COMMENT.sub(" ", self.file.read_text(encoding="utf-8"))

    @cached_property
    def constants(self) -> dict[str, int]:
        """The header's numbers by name, those of enumerations included."""
        found = {name: int(value) for name, value in _CONSTANT.findall(self._text)}
        for names in _ENUM.findall(self._text):
            found |= {name.strip(): number for number, name in enumerate(names.split(","))}
        return found

    @cached_property
    def structures(self) -> dict[str, type[ctypes.Structure]]:
        """The header's structures by name, as ctypes."""
        found: dict[str, type[ctypes.Structure]] = {}
        for name, body in _STRUCT.findall(self._text):
            fields = []
            for kind, names in _FIELD.findall(body):
                one = found.get(kind) or _TYPES[kind]
                for field, length in _NAME.findall(names):
                    number = self.constants.get(length) or int(length or 0)
                    fields.append((field, one * number if number else one))
            found[name] = type(name, (ctypes.Structure,), {"_fields_": fields})
        return found
