"""What the table was made from: a digest of each part of the code that the experiments measure.

Comments, docstrings and blank lines do not count. Other parts of testbed also bear on figures, since a machine's clock
counts instructions, but only by some percent.
"""

import ast
import hashlib
import io
import json
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import yaml

TOP = Path(__file__).parents[2]
SCENARIOS = ("pause-storm-watchdog", "pfc-deadlock-unknown-mac", "pfc-unfairness")
"""Those that experiments run: `measure` runs no others."""
PARTS = {
    "the BPF programs": ["testbed/kernel/lossless/bpf/*.[ch]"],
    "ports": [
        "testbed/kernel/lossless/*.py",
        *(f"testbed/lab/{name}.py" for name in ("port", "lossless_network", "link_quality", "slow_motion")),
    ],
    "switches": [
        "testbed/switch/profiles.yml",
        *(f"testbed/switch/{name}.py" for name in ("profile", "buffer", "ecmp", "fdb", "table", "neighbours")),
    ],
    "NICs": ["testbed/nic/*.py"],
    "traffic": [
        f"testbed/workload/{name}.py"
        for name in ("attributes", "flows", "ibverbs", "queue_pair", "verbs", "write_streams")
    ],
    "faults": [f"testbed/faults/{name}.py" for name in ("fault", "link", "lossless")],
    "scenarios": [f"scenarios/{name}/*.{end}" for name in SCENARIOS for end in ("py", "yml")],
    "experiments": ["tests/fidelity/**/*.py"],
}
WRITERS = {"tests/fidelity/fidelity.py", "tests/fidelity/made_from.py"}
LENGTH = 16
LINE = re.compile(rf"^\| ([\w ]+) \| `([0-9a-f]{{{LENGTH}}})` \|$", re.MULTILINE)


def digests(top: Path = TOP) -> dict[str, str]:
    return {part: digest(top, patterns) for part, patterns in PARTS.items()}


def digest(top: Path, patterns: list[str]) -> str:
    found = hashlib.sha256()
    for file in files(top, patterns):
        found.update(f"{file.relative_to(top)}\0{meaning(file)}\0".encode())
    return found.hexdigest()[:LENGTH]


def files(top: Path, patterns: list[str]) -> Iterator[Path]:
    for pattern in patterns:
        named = sorted(file for file in top.glob(pattern) if str(file.relative_to(top)) not in WRITERS)
        if not named:
            raise FileNotFoundError(f"{pattern}: no such file; tests/fidelity/made_from.py lists what is measured")
        yield from named


def meaning(file: Path) -> str:
    text = file.read_text()
    match file.suffix:
        case ".py":
            return python(text)
        case ".yml":
            return json.dumps(yaml.safe_load(text), sort_keys=True)
        case _:
            return " ".join(re.sub(r"/\*.*?\*/|//[^\n]*", " ", text, flags=re.DOTALL).split())


def python(text: str) -> str:
    """The lines that are code. Positions alone are taken from the parser, as its trees differ between versions."""
    lines = text.splitlines()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column]
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Expr(value=ast.Constant(value=str()), lineno=first, end_lineno=int(last)):
                lines[first - 1 : last] = [""] * (last - first + 1)
    return "\n".join(filter(None, map(str.rstrip, lines)))


def table(found: dict[str, str]) -> str:
    lines = [f"| {part} | `{value}` |" for part, value in found.items()]
    return "".join(f"{line}\n" for line in ("| Made from | SHA-256, its first digits |", "| --- | --- |", *lines))


def recorded(page: str) -> dict[str, str]:
    return dict(LINE.findall(page))
