"""Run the catalogue as far as the time allows: python tests/ci/catalogue.py SECONDS

SECONDS is a time since 1970. Scenarios are run whole, a few at a time, while the next few would be done by then; the
first few always are. Each commit begins with another scenario, so no scenario is always left out by a slow machine. The
last lines are those of the variants that were not as expected, and name the scenarios that were not run: the end of a
long log is what people read, and all that some CI systems keep.
"""

import re
import subprocess
import sys
import time
from collections.abc import Sequence

from testbed.machine.scenarios import shipped

TOGETHER = 8
"""Fewer lose more time at the end of them, when one CPU is idle."""
VERDICT = re.compile("✗ (.+?): ")
"""Of the line of a variant, not of the table at the end."""
LAST_LINES = 20
"""Of a run that ended without a verdict."""
REVISION = ("git", "rev-parse", "HEAD")


def rotated(names: list[str], revision: str) -> list[str]:
    first = int(revision, 16) % len(names)
    return names[first:] + names[:first]


def run(command: Sequence[str]) -> tuple[int, list[str]]:
    """Return the exit status of a command that runs scenarios, and what it printed of those that were wrong."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        lines = []
        for line in process.stdout or ():
            print(line, end="", flush=True)
            lines.append(line)
    if process.returncode == 0:
        return 0, []
    names = [words.group(1) for line in lines if (words := VERDICT.match(line))]
    wrong = [line for line in lines if any(f"{name}: " in line for name in names)]
    return process.returncode, wrong or lines[-LAST_LINES:]


def main(end: float) -> int:
    head = subprocess.run(REVISION, capture_output=True, text=True, check=True).stdout.strip()
    names = rotated([source.name for source in shipped()], head)
    status, longest = 0, 0.0
    failed: list[str] = []
    while names and (not longest or time.time() + longest < end):
        some, names = names[:TOGETHER], names[TOGETHER:]
        begin = time.time()
        code, wrong = run([sys.executable, "-m", "testbed", "run", *some])
        status |= code
        failed += wrong
        longest = max(longest, time.time() - begin)
    if failed:
        print("\nnot as expected:\n", *failed, sep="", end="", flush=True)
    if names:
        print(f"not run, because there was no time left: {' '.join(names)}", flush=True)
    return 1 if status else 0


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1])))
