"""The structures that Python shares with the BPF programs, as ctypes, read from the programs' header."""

import ctypes
import re
from functools import cache
from pathlib import Path

HEADER = Path(__file__).parent / "bpf" / "layout.h"
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


@cache
def _header() -> str:
    return _COMMENT.sub(" ", HEADER.read_text(encoding="utf-8"))


@cache
def constants() -> dict[str, int]:
    """Return the header's numbers by name, those of enumerations included."""
    found = {name: int(value) for name, value in _CONSTANT.findall(_header())}
    for names in _ENUM.findall(_header()):
        found |= {name.strip(): number for number, name in enumerate(names.split(","))}
    return found


@cache
def structures() -> dict[str, type[ctypes.Structure]]:
    """Return the header's structures by name."""
    found: dict[str, type[ctypes.Structure]] = {}
    for name, body in _STRUCT.findall(_header()):
        fields = []
        for kind, names in _FIELD.findall(body):
            one = found.get(kind) or _TYPES[kind]
            for field, length in _NAME.findall(names):
                number = constants().get(length) or int(length or 0)
                fields.append((field, one * number if number else one))
        found[name] = type(name, (ctypes.Structure,), {"_fields_": fields})
    return found
