"""Our reading of Kathará's labs is that of Kathará's own parser, from the package index, without Docker."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from kathara_labs import LABS, write

from testbed.errors import InputError
from testbed.topology import kathara

PARSER = Path(__file__).with_name("kathara_parser.py")
NEEDED = ("kathara", "fs", "six", "appdirs", "setuptools", "binaryornot", "chardet", "requests", "urllib3", "idna")
"""What its parser imports, of all that the package depends on."""


def ours(directory: Path) -> dict[str, Any]:
    try:
        devices = kathara.read(directory).devices
    except InputError as error:
        return {"refused": str(error)}
    return {
        "devices": {
            name: {
                "interfaces": {str(number): [*end] for number, end in sorted(device.interfaces.items())},
                "image": device.options.get("image", ""),
                "sysctls": device.sysctls,
                "env": device.env,
                "exec": device.commands,
            }
            for name, device in devices.items()
        }
    }


def test_each_lab_is_read_or_refused_as_by_kathara(tmp_path: Path) -> None:
    place = tmp_path / "packages"
    install = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--target",
        str(place),
        *NEEDED,
        "certifi",
    ]
    subprocess.run(install, check=True, capture_output=True)
    directories = [write(tmp_path, name) for name in LABS]
    asked = [sys.executable, "-W", "ignore", str(PARSER), *map(str, directories)]
    done = subprocess.run(asked, env={"PYTHONPATH": str(place)}, check=True, capture_output=True, text=True)
    found: dict[str, dict[str, Any]] = json.loads(done.stdout)
    for name, directory in zip(LABS, directories, strict=True):
        his, mine = found[str(directory)], ours(directory)
        assert ("refused" in his) is ("refused" in mine) is not LABS[name][2], (name, his, mine)
        assert his.get("devices") == mine.get("devices"), name
