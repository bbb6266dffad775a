"""Run the catalogue as far as the time allows: python tests/ci/catalogue.py SECONDS

SECONDS is a time since 1970. Scenarios are run whole, a few at a time, while the next few would be done by then; the
first few always are. Each commit begins with another scenario, so no scenario is always left out by a slow machine. The
last line names those that were not run.
"""

import subprocess
import sys
import time

from testbed.machine.scenarios import shipped

TOGETHER = 8
"""Fewer lose more time at the end of them, when one CPU is idle."""
REVISION = ("git", "rev-parse", "HEAD")


def rotated(names: list[str], revision: str) -> list[str]:
    first = int(revision, 16) % len(names)
    return names[first:] + names[:first]


def main(end: float) -> int:
    head = subprocess.run(REVISION, capture_output=True, text=True, check=True).stdout.strip()
    names = rotated([source.name for source in shipped()], head)
    status, longest = 0, 0.0
    while names and (not longest or time.time() + longest < end):
        some, names = names[:TOGETHER], names[TOGETHER:]
        begin = time.time()
        status |= subprocess.run([sys.executable, "-m", "testbed", "run", *some], check=False).returncode
        longest = max(longest, time.time() - begin)
    if names:
        print(f"not run, because there was no time left: {' '.join(names)}", flush=True)
    return 1 if status else 0


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1])))
