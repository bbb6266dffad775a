#!/usr/bin/env python3
"""Build a container image from a directory here: containers/build.py NAME

mmdebstrap makes its root from packages.txt, `docker import` takes it. No registry is asked, and no network but Debian's
mirror (the one this machine uses, or TESTBED_MIRROR) and pip's index. What a directory may have besides: prepare.sh is
called with the root before it is packed, and config.txt has what `docker import --change` takes, a line each.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from testbed.machine.build import mirror  # noqa: E402
from testbed.machine.recipe import EPOCH, SUITE  # noqa: E402


def lines(path: Path) -> list[str]:
    """The lines of a file that are neither empty nor comments; none where there is no such file."""
    text = path.read_text() if path.exists() else ""
    return [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]


def root_command(source: Path) -> list[str]:
    """Write the root of `source` to standard output, as a tar."""
    packages = ",".join(lines(source / "packages.txt"))
    prepare = source / "prepare.sh"
    hooks = ["--customize-hook", f'{shlex.quote(str(prepare))} "$1"'] if prepare.exists() else []
    return ["mmdebstrap", "--quiet", "--variant=minbase", f"--include={packages}", *hooks, SUITE, "-", *mirror()]


def build(name: str) -> None:
    """Docker has the image `name` when it is whole, and none that is not."""
    source = HERE / name
    changes = [word for line in lines(source / "config.txt") for word in ("--change", line)]
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(EPOCH), "PYTHON": sys.executable}
    with subprocess.Popen(root_command(source), stdout=subprocess.PIPE, env=environment) as root:
        imported = subprocess.run(
            ["docker", "import", *changes, "-"], stdin=root.stdout, stdout=subprocess.PIPE, text=True, check=False
        )
    identity = imported.stdout.strip()
    if root.returncode == imported.returncode == 0:
        subprocess.run(["docker", "tag", identity, name], check=True)
        return
    if identity:
        subprocess.run(["docker", "rmi", identity], stdout=subprocess.DEVNULL, check=False)
    sys.exit(f"containers/build.py: {name} was not built; the lines above have the reason")


def main() -> None:
    names = sorted(path.parent.name for path in HERE.glob("*/packages.txt"))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", choices=names)
    build(parser.parse_args().name)


if __name__ == "__main__":
    main()
