"""The table of faults in docs/faults.md: the symptom that each contract tests, and the scenarios that have the fault.

`make examples` writes it again.
"""

import ast
import re
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

from testbed.faults import KINDS, Fault

TOP = Path(__file__).parents[2]
PAGE = TOP / "docs" / "faults.md"
LAB = TOP / "tests" / "lab" / "faults" / "one_lab"
TABLE = re.compile(r"(?<=<!-- faults -->\n).*?(?=<!-- /faults -->)", re.DOTALL)
CLASSES = {kind.__name__: name for name, kind in KINDS.items()}


def symptoms() -> dict[str, str]:
    """The symptom of each fault, in the order of the contracts."""
    sys.path.insert(0, str(LAB))
    contracts = import_module("contracts").CONTRACTS
    return {contract.fault.name: contract.symptom for contract in contracts if contract.symptom}


def imported(source: str) -> Iterator[str]:
    """The faults that a Python file imports by their classes."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("testbed.faults"):
            yield from (CLASSES[alias.name] for alias in node.names if alias.name in CLASSES)


def scenarios() -> dict[str, list[str]]:
    """The scenarios that have each fault, in their code or their topology."""
    found: dict[str, set[str]] = {name: set() for name in KINDS}
    for path in sorted((TOP / "scenarios").glob("*/*")):
        text = path.read_text() if path.suffix in (".py", ".yml", ".yaml") else ""
        named = imported(text) if path.suffix == ".py" else re.findall(r"\bfault: ([a-z-]+)", text)
        for name in KINDS.keys() & set(named):
            found[name].add(path.parent.name)
    return {name: sorted(names) for name, names in found.items()}


def table() -> str:
    all_used = scenarios()
    rows = ["| Fault | Symptom | Hits | Holds | Scenarios |", "|---|---|---|---|---|"]
    for name, symptom in symptoms().items():
        kind = KINDS[name]
        hits = "yes" if kind.hits is not Fault.hits else ""
        used = ", ".join(f"`{one}`" for one in all_used[name])
        rows.append(f"| `{name}` | {symptom} | {hits} | {'yes' if kind.holds else ''} | {used} |")
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    from written import write

    write(PAGE, TABLE.sub(lambda _: table(), PAGE.read_text()))
