"""Play incidents with their own solutions, and with fixes that must not help: `make incidents`.

Exit status 1 if a solution does not mend its incident without hurting others, or if a wrong fix does mend one. Rows go
into a file as they come; the same command plays the missing ones.
"""

import argparse
import json
import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from typing import Any, NamedTuple

from testbed.machine.sweeps.points import seeds
from testbed.scenario.incident.drawing import draw

COMMAND = [sys.executable, "-P", "-m", "testbed"]
SOLUTION = "solution"
LIMIT_S = 3600


class Try(NamedTuple):
    """An incident and what is done about it: its solution, or one of the wrong fixes by its number."""

    number: int
    what: str
    commands: tuple[str, ...]


def tries(numbers: Sequence[int]) -> Iterator[Try]:
    for number in numbers:
        incident = draw(number)
        yield Try(number, SOLUTION, tuple(incident.mend))
        for place, fix in enumerate(incident.wrong, start=1):
            yield Try(number, f"wrong {place}", tuple(fix))


def played(one: Try) -> dict[str, Any]:
    """Play a try. Return its row: the grade, and whether it is as it has to be."""
    typed = "".join(f"testbed {command} >/dev/null\n" for command in one.commands)
    agent = f'testbed() {{ {shlex.join(COMMAND)} "$@"; }}\n{typed}echo {{}}'
    with TemporaryDirectory() as out:
        words = ["incident", "round", "--agent", agent, "--seed", str(one.number), "--out", out]
        done = subprocess.run([*COMMAND, *words], capture_output=True, text=True, timeout=LIMIT_S, check=False)
    try:
        found = json.loads(done.stdout)
    except ValueError:
        found = {"grade": None, "error": done.stderr[-1000:]}
    grade = found["grade"]
    right = bool(grade) and not found["error"] and mends(grade) == (one.what == SOLUTION)
    return {**one._asdict(), "right": right, "error": found["error"], "grade": grade}


def mends(grade: dict[str, Any]) -> bool:
    return bool(grade["mitigated"] and not grade["suffered"])


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    options.add_argument("--seeds", default="0..124", help="numbers of incidents")
    options.add_argument("--jobs", type=int, default=1, help="rounds at the same time")
    options.add_argument("--results", type=Path, default=Path("runs/incidents-checked.jsonl"), help="the file of rows")
    options.add_argument("--only-solutions", action="store_true", help="leave out the wrong fixes")
    chosen = options.parse_args()
    wanted = [one for one in tries(seeds(chosen.seeds)) if one.what == SOLUTION or not chosen.only_solutions]
    chosen.results.parent.mkdir(parents=True, exist_ok=True)
    lines = chosen.results.read_text().splitlines() if chosen.results.exists() else []
    known = {Try(row["number"], row["what"], tuple(row["commands"])): row for row in map(json.loads, lines)}
    lock = Lock()

    def check(one: Try) -> dict[str, Any]:
        row = known.get(one)
        if row is None or row["grade"] is None:
            row = played(one)
            with lock, chosen.results.open("a") as file:
                file.write(json.dumps(row) + "\n")
        incident = draw(one.number)
        mark = "right" if row["right"] else "WRONG"
        grade = row["grade"]
        saw = f"mitigated {grade['mitigated']}, suffered {grade['suffered']}" if grade else row["error"]
        with lock:
            print(f"{mark}  {one.number} {incident.area} {incident.level} {one.what}: {'; '.join(one.commands)}: {saw}")
            sys.stdout.flush()
        return row

    with ThreadPoolExecutor(chosen.jobs) as pool:
        rows = list(pool.map(check, wanted))
    areas = Counter(draw(row["number"]).area for row in rows if row["what"] == SOLUTION and row["right"])
    wrong = [row for row in rows if not row["right"]]
    print(f"{sum(areas.values())} incidents are solved by their solutions: {dict(sorted(areas.items()))}")
    print(f"{len(rows) - len(wrong)} of {len(rows)} tries are as they have to be")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
