"""Run the unit tests of the files that differ from a revision: `make quick [since=REVISION]`.

Without a revision that is HEAD, and for a clean tree the point where the branch left main. Tests are found by imports,
those that import a changed module before those that import what imports it. A file that is no Python stands for the
modules that have its name as text. When there are many the nearest `MOST` files of tests run, without those that are
marked as long, unless they differ themselves, and it says how many are left: `make test` runs all.

It cannot find a test that meets the change in a child process alone, that reaches a file by a pattern or a directory,
or that runs in a machine.
"""

import json
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePath

TOP = Path(__file__).parents[2]
RUFF = Path(sys.executable).with_name("ruff")
MOST = 30
"""Files of tests; two cores run as many in ten seconds."""
Graph = Mapping[str, Sequence[str]]
"""The files that import each file."""


def printed(*command: str) -> str:
    return subprocess.run(command, cwd=TOP, stdout=subprocess.PIPE, text=True, check=False).stdout


def changed(since: str) -> list[str]:
    """Return the files that differ from a revision, with those that git does not know yet."""
    differ = printed("git", "diff", "--name-only", "--no-renames", since, "--")
    return [*differ.splitlines(), *printed("git", "ls-files", "--others", "--exclude-standard").splitlines()]


def dependents() -> Graph:
    command = "analyze", "graph", "--quiet", "--direction", "dependents", "--detect-string-imports", "testbed", "tests"
    found: Graph = json.loads(printed(str(RUFF), *command))
    return found


def mentioning(file: str) -> list[str]:
    """Return the modules that name a file in their text."""
    return printed("git", "grep", "-lF", "--untracked", PurePath(file).name, "--", "testbed/*.py", "tests/*.py").split()


def is_test(file: str) -> bool:
    return file.startswith("tests/unit/") and PurePath(file).name.startswith("test_") and (TOP / file).is_file()


def nearest(roots: Iterable[str], graph: Graph) -> list[str]:
    """Return the tests that reach a file by imports, those over the fewest modules first."""
    found, order = dict.fromkeys(sorted(roots)), list[str]()
    while found:
        order += found
        found = dict.fromkeys(
            by for file in found for by in sorted([*graph.get(file, ()), *beside(file)]) if by not in order
        )
    return [file for file in order if is_test(file)]


def beside(file: str) -> list[str]:
    """Return the tests that a conftest.py is for."""
    path = TOP / file
    return [str(test.relative_to(TOP)) for test in path.parent.rglob("test_*.py")] if path.name == "conftest.py" else []


def main() -> int:
    since = sys.argv[1] if sys.argv[1:] else ""
    files = changed(since or "HEAD") or changed(printed("git", "merge-base", "HEAD", since or "main").strip() or "HEAD")
    graph = dependents()
    roots = {root for file in files for root in ([file] if file.endswith(".py") else mentioning(file))}
    reached = nearest(roots, graph)
    long = set(printed("git", "grep", "-l", "--untracked", "pytest.mark.long", "--", "tests/unit").split()) - {*files}
    tests = [test for test in reached if test not in long][:MOST]
    if len(tests) < len(reached):
        print(f"the nearest {len(tests)} of {len(reached)} files of unit tests; `make test` runs all")
    if not tests:
        print("no unit test is of what differs" if files else "nothing differs")
        return 0
    workers = [] if len(tests) > 4 else ["-n", "0"]
    return subprocess.run([sys.executable, "-m", "pytest", "-q", *workers, *tests], cwd=TOP, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
