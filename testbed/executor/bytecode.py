"""The compiler of testbed's files, in a machine that has nothing of testbed yet. This file stands alone."""

import importlib.util
import marshal
from pathlib import Path

CODE = "/run/testbed/code"
"""The directory of the files when they are imported."""
UNCHECKED = 1
"""The flag of bytecode that is taken as it is (PEP 552)."""
PLAIN = 2
"""The version of marshal's format before references: what it writes does not depend on what else refers to a value."""


def prepare(job: object, out: str, write: object, devices: object = None) -> None:
    """Compile each of the files in `sources` beside this one, under the same name in `out`."""
    sources = Path(__file__).parent / "sources"
    for file in sorted(sources.rglob("*.py")):
        name = file.relative_to(sources)
        try:
            code = compile(file.read_bytes(), f"{CODE}/{name}", "exec", dont_inherit=True)
        except (SyntaxError, ValueError):
            continue
        target = Path(out, name)
        target.parent.mkdir(parents=True, exist_ok=True)
        head = importlib.util.MAGIC_NUMBER + UNCHECKED.to_bytes(4, "little") + bytes(8)
        target.write_bytes(head + marshal.dumps(code, PLAIN))
