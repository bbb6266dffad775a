"""Bring tests/lab/seconds.json up to date: the CPU seconds of each file of tests in a machine of its own.

python tests/machine/record_seconds.py [FILE…], on a machine with an image and its snapshots.
"""

import json
import resource
import subprocess
import sys
from pathlib import Path

from test_inside import LAB, QUICK, SLOW, needs_torch

RECORD = LAB / "seconds.json"


def main(names: list[str]) -> None:
    found = json.loads(RECORD.read_text()) if names else {}
    for file in map(Path, names) if names else sorted(LAB.rglob("test_*.py")):
        before = used()
        training = ["--training"] if needs_torch(file) else []
        chosen = () if file.name in SLOW else QUICK
        words = [*training, file, "--", *chosen]
        done = subprocess.run([sys.executable, "-m", "testbed", "pytest", *words], check=False)
        if done.returncode:
            print(f"{file}: status {done.returncode}", file=sys.stderr)
        found[str(file.resolve().relative_to(LAB))] = round(used() - before, 1)
    RECORD.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")


def used() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return children.ru_utime + children.ru_stime


if __name__ == "__main__":
    main(sys.argv[1:])
