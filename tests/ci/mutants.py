"""Mutation testing, `make mutants [seed=N] [sample=N] [only=PACKAGE]`: does a unit test fail when the code is wrong?

The seed draws `sample` functions of each package that needs no kernel. mutmut (its settings: pyproject.toml) changes
each in all its ways and runs the tests that call it. Printed are the share that tests found, and what they did not: a
test is missing, or the change changes nothing. The first run in a checkout takes longer: mutmut learns which tests call
what.
"""

import argparse
import ast
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

TOP = Path(__file__).parents[2]
MUTMUT = str(Path(sys.executable).with_name("mutmut"))
PACKAGES = "testbed/switch", "testbed/cni/ipam", "testbed/report/diagnosis", "testbed/records", "testbed/topology"
FOUND, SURVIVED = "🎉⏰", "🙁🫥"
"""mutmut's signs: killed and timed out; survived and called by no test."""


def functions(package: str) -> list[str]:
    """Return the functions and methods of a package, as mutmut calls their mutants."""
    return [name for file in sorted((TOP / package).rglob("*.py")) for name in of_module(file)]


def of_module(file: Path) -> Iterator[str]:
    """mutmut leaves out what has a decorator, and functions in functions."""
    module = ".".join(file.relative_to(TOP).with_suffix("").parts).removesuffix(".__init__")
    for statement in ast.parse(file.read_text()).body:
        if isinstance(statement, ast.FunctionDef) and not statement.decorator_list:
            yield f"{module}.x_{statement.name}"
        elif isinstance(statement, ast.ClassDef) and not statement.decorator_list:
            for inner in statement.body:
                if isinstance(inner, ast.FunctionDef) and not inner.decorator_list:
                    yield f"{module}.xǁ{statement.name}ǁ{inner.name}"


def package_of(mutant: str) -> str:
    return next(package for package in PACKAGES if mutant.startswith(package.replace("/", ".") + "."))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sample", type=int, default=4, help="functions of each package")
    parser.add_argument("--only", choices=PACKAGES, action="append")
    asked = parser.parse_args()
    draw = random.Random(asked.seed)  # noqa: S311, it is no secret
    drawn: list[str] = []
    for package in asked.only or PACKAGES:
        every = functions(package)
        drawn += draw.sample(every, min(asked.sample, len(every)))
    command = [MUTMUT, "run", *(f"{name}__mutmut_*" for name in drawn)]
    done = subprocess.run(command, cwd=TOP, capture_output=True, text=True, check=False)
    results = re.findall(rf"^([{FOUND}{SURVIVED}]) (\S+__mutmut_\d+)$", done.stdout, re.MULTILINE)
    if done.returncode or not results:
        sys.exit(f"mutmut has no results:\n{done.stdout[-4000:]}{done.stderr[-4000:]}")
    for package in asked.only or PACKAGES:
        ours = [(sign, mutant) for sign, mutant in results if package_of(mutant) == package]
        found = sum(sign in FOUND for sign, _ in ours)
        share = f"{found / len(ours):.0%}" if ours else "-"
        print(f"{package}: {found} of {len(ours)} mutants found, {share}")
        for mutant in [mutant for sign, mutant in ours if sign in SURVIVED]:
            print(f"\n{mutant}")
            shown = subprocess.run(
                [MUTMUT, "show", mutant], cwd=TOP, capture_output=True, text=True, check=False
            ).stdout
            print("\n".join(line for line in shown.splitlines() if re.match(r"[-+] |@@", line)))


if __name__ == "__main__":
    main()
