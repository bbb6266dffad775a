"""The two stages that load testbed into a machine, each a snapshot: the code below labs, then the rest.

Files of the first stage (snapshot.BASE) import no others, so an edit elsewhere does not change its snapshot.
"""

import contextlib
import importlib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from testbed.cni import installed
from testbed.errors import UnsupportedError
from testbed.kernel.bfd import offload
from testbed.kernel.lossless import ports
from testbed.protocol import requests

WARM = (
    "http.client",
    "xml.etree.ElementTree",
    "testbed.cni.ipam.known_pools",
    "testbed.cni.ipam.reclaim",
    "testbed.cni.objects.controllers",
    "testbed.cni.objects.multus",
    "testbed.cni.spec.selection",
    "testbed.kernel.borrowed_nics",
    "testbed.kernel.links",
    "testbed.kernel.own_devices",
    "testbed.kernel.policy_routing",
    "testbed.nic",
    "testbed.protocol.live",
    "testbed.topology.topology",
)
"""Imports of the second stage from the first one and from Python."""
PLACE = Path(__file__).parents[1]


def begin(job: Mapping[str, Any], out: str, write: object, devices: object = None) -> None:
    """Import the first stage, and prepare this kernel."""
    for name in WARM:
        importlib.import_module(name)
    for kind in requests.KINDS.values():
        requests.adapter(kind)
    for prepare in ports.prepare, offload.prepare:
        with contextlib.suppress(UnsupportedError):  # the first lab that needs it reports it
            prepare()
    installed.prepare()


def complete(job: Mapping[str, Any], out: str, write: Any, devices: Any = None) -> None:
    """Put the second stage's files beside those of the first, and import them."""
    sys.path.remove(job["install"])
    merge(Path(job["install"]), PLACE)
    importlib.invalidate_caches()
    importlib.import_module("testbed.executor").prepare()


def merge(source: Path, target: Path) -> None:
    """Move files and directories into directories that may exist already."""
    for path in source.iterdir():
        if (there := target / path.name).is_dir():
            merge(path, there)
        else:
            path.rename(there)
