"""The structures that Python shares with the BPF programs of lossless links."""

import ctypes
from pathlib import Path

from testbed.kernel.c_header import CHeader

HEADER = Path(__file__).parent / "bpf" / "layout.h"
_header = CHeader(HEADER)
PRIORITIES = range(_header.constants["CLASSES"])
"""Those of 802.1p, each a class with a queue of its own."""


def constants() -> dict[str, int]:
    """Return the header's numbers by name, those of enumerations included."""
    return _header.constants


def structures() -> dict[str, type[ctypes.Structure]]:
    """Return the header's structures by name."""
    return _header.structures
