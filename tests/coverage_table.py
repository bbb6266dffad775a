"""How much of each package the unit tests run, as `make check` prints it. docs/testing.md says what the gaps are."""

from collections import Counter
from pathlib import Path

from coverage import Coverage
from rich.console import Console
from rich.table import Table

TOP = Path(__file__).parents[1]


def package(file: Path) -> str:
    """`testbed/cli` of testbed/cli/main.py, `testbed` of testbed/errors.py."""
    return "/".join(file.relative_to(TOP).parts[:-1][:2])


def main() -> None:
    measured = Coverage(config_file=str(TOP / "pyproject.toml"))
    measured.load()
    lines, missed = Counter[str](), Counter[str]()
    for file in (TOP / "testbed").rglob("*.py"):
        _, statements, _, missing, _ = measured.analysis2(str(file))
        for name in (package(file), "total"):
            lines[name] += len(statements)
            missed[name] += len(missing)
    table = Table("lines run by unit tests", "lines", "not run", "run", box=None, pad_edge=False)
    for column in table.columns[1:]:
        column.justify = "right"
    for name in sorted(lines, key=lambda name: (name == "total", name)):
        share = (lines[name] - missed[name]) / lines[name] if lines[name] else 1
        table.add_row(name, f"{lines[name]}", f"{missed[name]}", f"{share:.0%}")
    Console().print(table)


if __name__ == "__main__":
    main()
