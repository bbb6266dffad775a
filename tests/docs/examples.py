"""What commands print, in the documentation: `make examples` runs them again and puts it between their marks.

<!-- example: make scenario=ip-reuse -->
…
<!-- /example -->
"""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tutorial import PICTURES, photograph

TOP = Path(__file__).parents[2]
BLOCK = re.compile(r"(?P<begin><!-- example: (?P<command>.*?) -->\n)(?P<text>.*?)(?P<end><!-- /example -->)", re.DOTALL)
MAC = re.compile(r"\b(?:[0-9a-f]{2}:){5}[0-9a-f]{2}\b")
DURATION = re.compile(r"\b\d[\d.]* (?:µs|ms|s|min|h|d)\b(?: \d+ (?:s|min|h)\b)*")


def pages() -> list[Path]:
    return [TOP / "README.md", *sorted((TOP / "docs").glob("*.md"))]


def examples() -> Iterator[tuple[str, str]]:
    """Each command of the documentation, and what is said there that it prints."""
    for page in pages():
        for block in BLOCK.finditer(page.read_text()):
            yield block["command"], block["text"]


def arguments(command: str) -> list[str]:
    """`make scenario=NAME variant=V` is `testbed run NAME --variant V` after set-up (Makefile)."""
    words = shlex.split(command)
    if words[0] == "testbed":
        return words[1:]
    given = dict(word.split("=", 1) for word in words[1:])
    options = [word for key in ("variant", "seed") if key in given for word in (f"--{key}", given[key])]
    return ["run", given["scenario"], *options, *shlex.split(given.get("args", ""))]


def printed(command: str) -> str:
    """The text of a block: the command, an ellipsis for its progress, its standard output."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "testbed", *arguments(command)],
        cwd=TOP,
        env={**os.environ, "COLUMNS": "80", "NO_COLOR": "1", "PYTHONIOENCODING": "utf-8"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{command} ended with status {done.returncode}:\n{done.stderr}{done.stdout}")
    return f"```text\n$ {command}\n…\n{done.stdout.strip()}\n```\n"


def stable(text: str) -> str:
    """What of a block does not depend on versions and on the machine: its words, on one line."""
    text = DURATION.sub("TIME", MAC.sub("MAC", text))
    text = re.sub(r"\btrace [0-9a-f]+|\bruns/\S+|\d+", "#", text)
    return " ".join(text.split())


def main() -> None:
    for page in pages():
        text = page.read_text()
        new = BLOCK.sub(lambda block: block["begin"] + printed(block["command"]) + block["end"], text)
        if new != text:
            page.write_text(new)
            print(f"written: {page.relative_to(TOP)}")
    report = (TOP / "runs" / "ip-reuse" / "latest" / "report.html").resolve()
    photograph(f"{report.as_uri()}#v=as-is", PICTURES / "ip-reuse.png", height=960)


if __name__ == "__main__":
    main()
