"""Check the types of the package, of containers/build and of every scenario, in one run of mypy.

All scenarios are modules called `scenario`, of which mypy takes one a run. Here each has a name of its own: that of a
link to it, beside links to the modules that it imports.
"""

import re
import subprocess
import sys
from pathlib import Path

TOP = Path(__file__).parents[2]
LINKS = Path("build/types")


def modules(scenarios: Path) -> dict[str, Path]:
    """Return the modules of all scenarios by names that differ. What a scenario imports is the first of its name."""
    found: dict[str, Path] = {}
    for file in sorted(scenarios.glob("*/*.py")):
        if not file.is_symlink():
            own = f"{file.parent.name}_{file.stem}".replace("-", "_")
            found[own if file.stem == "scenario" or file.stem in found else file.stem] = file
    return found


def link(links: Path, files: dict[str, Path]) -> None:
    links.mkdir(parents=True, exist_ok=True)
    for old in links.iterdir():
        old.unlink()
    for name, file in files.items():
        (links / f"{name}.py").symlink_to(file)


def main() -> int:
    files = modules(TOP / "scenarios")
    link(TOP / LINKS, files)
    checked = ["testbed", "containers/build", str(LINKS)]
    command = [sys.executable, "-m", "mypy", "--no-error-summary", *checked]
    done = subprocess.run(command, cwd=TOP, stdout=subprocess.PIPE, text=True, check=False)
    real = {f"{LINKS / name}.py": str(file.relative_to(TOP)) for name, file in files.items()}
    print(re.sub(rf"{LINKS}/\w+\.py", lambda found: real[found[0]], done.stdout), end="")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
