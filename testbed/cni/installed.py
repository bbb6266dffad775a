"""The plugins of the distribution: the directories they are in, and the versions of CNI that each supports."""

import json
import os
import subprocess
from pathlib import Path

from testbed.cni import spec

PLUGINS = (Path("/usr/lib/cni"), Path("/opt/cni/bin"))
"""The directories of plugins if CNI_PATH is not set: Debian's, and that of everybody else."""
VERSION = {"CNI_COMMAND": "VERSION", **dict.fromkeys(("CNI_NETNS", "CNI_IFNAME", "CNI_PATH"), "dummy")}
"""VERSION needs no network; the dummies are libcni's."""
supported: dict[tuple[str, int, int], list[str]] = {}
"""The versions that plugins support, by the state of their files."""


def state_of(file: Path) -> tuple[str, int, int]:
    status = file.stat()
    return str(file), status.st_mtime_ns, status.st_size


def prepare() -> None:
    """Ask all plugins before the lab is built. One that fails is asked again when it is used."""
    given = json.dumps({"cniVersion": spec.SUPPORTED[-1]}).encode()
    for file in sorted(file for directory in PLUGINS if directory.is_dir() for file in directory.iterdir()):
        asked = subprocess.run([file], env={**os.environ, **VERSION}, input=given, capture_output=True, check=False)
        if not asked.returncode:
            supported[state_of(file)] = json.loads(asked.stdout)["supportedVersions"]
