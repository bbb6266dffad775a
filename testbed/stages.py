"""The two stages in which testbed comes into a machine, each a snapshot: first what is below labs, then the rest.

The files of the first stage (snapshot.BASE) import no others, so that an edit elsewhere leaves its snapshot as it is.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from testbed.cni import installed
from testbed.errors import UnsupportedError
from testbed.kernel.lossless import ports
from testbed.protocol import requests

WARM = (
    "http.client",
    "xml.etree.ElementTree",
    "testbed.cni.ipam.catalogue",
    "testbed.cni.ipam.reclaim",
    "testbed.cni.objects.controllers",
    "testbed.cni.objects.inject",
    "testbed.cni.spec.selection",
    "testbed.kernel.children",
    "testbed.kernel.hardware",
    "testbed.kernel.links",
    "testbed.kernel.own_devices",
    "testbed.kernel.policy_routing",
    "testbed.nic",
    "testbed.protocol.live",
    "testbed.topology.topology",
)
"""Of the first stage, and of Python, what the second one imports."""
PLACE = Path(__file__).parents[1]


def begin(job: Mapping[str, Any], out: str, write: object, devices: object = None) -> None:
    """Imports the first stage, and prepares this kernel."""
    for name in WARM:
        importlib.import_module(name)
    for kind in requests.KINDS.values():
        requests.adapter(kind)
    with contextlib.suppress(UnsupportedError):  # the first lab with lossless links says so
        ports.prepare()
    installed.prepare()


def complete(job: Mapping[str, Any], out: str, write: Any, devices: Any = None) -> None:
    """Puts the second stage's files beside those of the first, and has them imported."""
    sys.path.remove(job["install"])
    merge(Path(job["install"]), PLACE)
    importlib.invalidate_caches()
    importlib.import_module("testbed.executor").prepare()


def merge(source: Path, target: Path) -> None:
    """Moves files and directories to where there may be directories of the same name."""
    for path in source.iterdir():
        if (there := target / path.name).is_dir():
            merge(path, there)
        else:
            path.rename(there)
