"""Diagnose labs with a hidden fault, and print what was found of each kind: `make diagnosis`.

With --page the table goes into docs/diagnosis.md. Exit status 1 if a fault is called healthy, if a sound lab is not, or
if fewer than nine of ten have the right cause and place.
"""

import argparse
import json
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from blind_labs import HEALTHY, KINDS, Blind, broken, sound

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "testbed"]
PAGE, MARKS = ROOT / "docs" / "diagnosis.md", ("<!-- confusion -->\n", "<!-- /confusion -->\n")
RIGHT = 0.9
"""Minimum share of labs with the right cause and place."""


class Result(NamedTuple):
    lab: Blind
    found: dict[str, Any]
    """The job as `testbed diagnose --json` has it; its cause is `error` if the lab itself went wrong."""

    @property
    def right(self) -> bool:
        return self.lab.has(self.found)


def tried(lab: Blind, directory: Path) -> Result:
    """Run a lab, and diagnose its job."""
    scenario = lab.write(directory / "lab")
    run = subprocess.run([*COMMAND, "run", scenario, "--out", directory], capture_output=True, text=True, check=False)
    latest = directory / "lab" / "latest"
    if run.returncode or not latest.exists():
        return Result(lab, {"cause": "error", "link": "", "ranks": [], "text": run.stdout + run.stderr, "also": []})
    said = subprocess.run([*COMMAND, "diagnose", latest, "--json"], capture_output=True, text=True, check=False)
    [[job]] = [variant["jobs"] for variant in json.loads(said.stdout)["variants"]]
    return Result(lab, job)


def line(result: Result) -> str:
    found = result.found
    also = f"; also {', '.join(one['cause'] for one in found['also'])}" if found["also"] else ""
    place = found["link"] or ", ".join(f"rank {one['rank']}" for one in found["ranks"])
    mark = "right" if result.right else "WRONG"
    return f"{mark}  {result.lab.name}: {found['cause']} {place}{also}"


def table(results: Sequence[Result]) -> Iterator[str]:
    """Yield the lines of the confusion matrix: what was found of each kind of lab."""
    of_kind: dict[str, list[Result]] = defaultdict(list)
    for result in results:
        of_kind["sound jobs" if HEALTHY in result.lab.causes else result.lab.name].append(result)
    yield "| What is wrong | Labs | Right cause and place | Found |"
    yield "|---|---|---|---|"
    for name, of in sorted(of_kind.items()):
        causes = Counter(result.found["cause"] for result in of)
        found = ", ".join(f"`{cause}`{f' {count}' if count < len(of) else ''}" for cause, count in causes.most_common())
        yield f"| {name} | {len(of)} | {sum(result.right for result in of)} | {found} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--broken", type=int, default=len(KINDS))
    parser.add_argument("--sound", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path, default=ROOT / "runs" / "diagnosis")
    parser.add_argument("--only", default="", help="labs whose name has this")
    parser.add_argument("--page", action="store_true")
    given = parser.parse_args()
    labs = [*broken(given.seed, given.broken), *sound(given.seed, given.sound)]
    numbered = [(number, lab) for number, lab in enumerate(labs) if given.only in lab.name]
    given.out.mkdir(parents=True, exist_ok=True)

    def one(numbered: tuple[int, Blind]) -> Result:
        number, lab = numbered
        result = tried(lab, given.out / f"{given.seed}-{number}")
        print(f"{number:3} {line(result)}", flush=True)
        return result

    with ThreadPoolExecutor(given.jobs) as pool:
        results = list(pool.map(one, numbered))
    wrong = [result for result in results if HEALTHY not in result.lab.causes]
    right = sum(result.right for result in wrong)
    missed = sum(result.found["cause"] == HEALTHY for result in wrong)
    alarms = sum(not result.right for result in results if HEALTHY in result.lab.causes)
    text = "\n".join(table(results)) + "\n"
    summary = (
        f"{len(wrong)} labs with a fault: {right} with the right cause and place, {missed} called healthy. "
        f"{len(results) - len(wrong)} sound labs: {alarms} false alarms.\n"
    )
    print(f"\n{text}\n{summary}")
    if given.page:
        first, last = MARKS
        before, _, rest = PAGE.read_text().partition(first)
        PAGE.write_text(f"{before}{first}{summary}\n{text}{last}{rest.partition(last)[2]}")
    return int(missed > 0 or alarms > 0 or right < RIGHT * len(wrong))


if __name__ == "__main__":
    sys.exit(main())
