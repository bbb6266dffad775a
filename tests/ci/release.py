"""Make the files of a release: `make release`, into dist/VERSION. It tags, pushes and uploads nothing.

The wheel, the source distribution, the image that machines boot from, the container with testbed, the notes of
CHANGELOG.md and SHA256SUMS. The directory is there when all of it is.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

TOP = Path(__file__).parents[2]
BIN = Path(sys.executable).parent


def git(top: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=top, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


def version_of(top: Path) -> str:
    return str(tomllib.loads((top / "pyproject.toml").read_text())["project"]["version"])


def notes(top: Path, version: str) -> str:
    """Return what CHANGELOG.md has under a version with its date; empty if there is nothing."""
    heading = rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d$"
    section = re.compile(heading + r"(.*?)(?=^## |^\[[^\]]+\]: |\Z)", re.MULTILINE | re.DOTALL)
    found = section.search((top / "CHANGELOG.md").read_text())
    return found[1].strip() if found else ""


def obstacles(top: Path, version: str) -> Iterator[str]:
    """Return what stands against a release, in sentences with what to do."""
    if changed := git(top, "status", "--porcelain"):
        yield f"files differ from the last commit; commit or remove them:\n{changed}"
    if not notes(top, version):
        yield f"CHANGELOG.md has no section `## [{version}] - YYYY-MM-DD` with text; write it"
    if git(top, "tag", "--list", f"v{version}"):
        yield f"the tag v{version} is there already; set the next version in pyproject.toml"


def run(*command: str | Path) -> None:
    print("$", *command, flush=True)
    epoch = git(TOP, "log", "-1", "--format=%ct")
    subprocess.run(command, cwd=TOP, env={**os.environ, "SOURCE_DATE_EPOCH": epoch}, check=True)


def checksums(directory: Path) -> str:
    """Return the lines that `sha256sum --check` reads."""
    lines = []
    for path in sorted(directory.iterdir()):
        with path.open("rb") as file:
            lines.append(f"{hashlib.file_digest(file, 'sha256').hexdigest()}  {path.name}\n")
    return "".join(lines)


def main() -> int:
    version = version_of(TOP)
    if found := list(obstacles(TOP, version)):
        print(f"no release {version}:", *found, sep="\n- ", file=sys.stderr)
        return 2
    out = TOP / "dist" / version
    made = out.with_name(f"{version}.partial")
    for old in (made, out):
        shutil.rmtree(old, ignore_errors=True)
    made.mkdir(parents=True)
    run(BIN / "hatchling", "build", "--directory", made)
    image = made / f"testbed-{version}-image.oci"
    run(BIN / "testbed", "image", "export", image)
    image.with_name(f"{image.name}.sha256").unlink()  # SHA256SUMS has it
    run(BIN / "python", TOP / "containers/build", "testbed", "--output", made / f"testbed-{version}-container.tar")
    (made / "NOTES.md").write_text(notes(TOP, version) + "\n")
    (made / "SHA256SUMS").write_text(checksums(made))
    made.rename(out)
    print(f"{out.relative_to(TOP)} has the release. Look at NOTES.md, then:")
    print(f"  git tag --annotate v{version} --cleanup=verbatim --file dist/{version}/NOTES.md")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except subprocess.CalledProcessError as error:
        sys.exit(f"ended with status {error.returncode}: {' '.join(map(str, error.cmd))}")
