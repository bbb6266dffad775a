"""pyverbs, imported at its first use: a scenario can be described where there is no RDMA."""

import functools
import importlib
from typing import Any

MODULES = {
    "AH": "addr", "AHAttr": "addr", "GID": "addr", "GlobalRoute": "addr", "CQ": "cq", "CompChannel": "cq",
    "Context": "device", "MR": "mr", "PD": "pd", "PyverbsError": "pyverbs_error", "PyverbsRDMAError": "pyverbs_error",
    "QP": "qp", "QPAttr": "qp", "QPCap": "qp", "QPInitAttr": "qp", "RecvWR": "wr", "SGE": "wr", "SendWR": "wr",
}  # fmt: skip
"""Its classes by their names, with the module of each. Names that begin with IBV_ are in `enums`."""


def __getattr__(name: str) -> Any:
    """Import a name that is not here yet (PEP 562); from then on it is."""
    module = "enums" if name.startswith("IBV_") else MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(f"pyverbs.{module}"), name)
    return value


@functools.cache
def flags(prefix: str, names: str) -> int:
    """Return the enums `prefix` + name combined, for each of the `names`, separated by spaces."""
    return functools.reduce(int.__or__, (int(__getattr__(prefix + name)) for name in names.split()))
