"""The tutorial of docs/live.md, followed line by line: a test does so, and `make examples` draws its pictures.

What is meant for a second terminal (`shell`, `capture`, `--follow`) is left out.
"""

import io
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import own_terminal
from rich.console import Console
from rich.text import Text

TOP = Path(__file__).parents[2]
PAGE = TOP / "docs" / "live.md"
PICTURES = TOP / "docs" / "pictures"
ELSEWHERE = re.compile(r"testbed (shell|capture)|--follow")
SVG = """<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace;
font-size: {char_height}px; line-height: {line_height}px }}
.{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: sans-serif }}
{styles}
</style>
<defs><clipPath id="{unique_id}-clip-terminal"><rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/>
</clipPath>{lines}</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}<g class="{unique_id}-matrix">{matrix}</g></g>
</svg>
"""
"""The format of rich without its fonts, which it would fetch."""


@dataclass(frozen=True)
class Step:
    """A line of the tutorial, its exit status, and what it showed on a terminal of 80 columns."""

    command: str
    status: int
    shown: str


def section() -> str:
    return PAGE.read_text().partition("## Ten minutes in a lab")[2].partition("\n## ")[0]


def walk(directory: Path) -> Iterator[Step]:
    """Follows the tutorial in an empty directory."""
    text = section()
    for conflist in re.findall(r"^```json\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        (directory / "vf.conflist").write_text(conflist)
    env = own_terminal.opened(directory, TERM="xterm-256color")
    for block in re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        for line in block.splitlines():
            command = line.partition(" #")[0].rstrip()
            if not ELSEWHERE.search(command):
                done = subprocess.run(
                    ["script", "-qec", f"stty cols 80; {command}", "/dev/null"],
                    cwd=directory,
                    env=env,
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    text=True,
                    check=False,
                )
                yield Step(command, done.returncode, done.stdout.replace("\r", ""))


def draw(steps: list[Step], file: Path) -> None:
    """Draws a terminal in which these commands were typed."""
    console = Console(record=True, width=80, file=io.StringIO(), force_terminal=True)
    for step in steps:
        console.print(Text(f"$ {step.command}", "bold"))
        console.print(Text.from_ansi(step.shown.rstrip()))
    file.write_text(console.export_svg(title="", code_format=SVG, unique_id="terminal"))


def photograph(report: str, file: Path, height: int = 1100) -> None:
    """Take a picture of a page, by its address."""
    with tempfile.TemporaryDirectory() as profile:
        subprocess.run(
            [
                *("chromium", "--headless", "--no-sandbox", "--hide-scrollbars", f"--user-data-dir={profile}"),
                *(f"--screenshot={file}", f"--window-size=1000,{height}", "--virtual-time-budget=4000", report),
            ],
            check=True,
            capture_output=True,
        )


def main() -> None:
    PICTURES.mkdir(exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix="testbed-"))
    try:
        steps = list(walk(directory))
        names = "testbed rdma write", "testbed tables leaf1", "testbed announce"
        moved = next(n for n, step in enumerate(steps) if step.command.startswith("testbed pod add host2"))
        shown = [step for step in steps[moved + 1 : moved + 6] if step.command.startswith(names)]
        draw(shown, PICTURES / "stale.svg")
        report = directory / "runs" / "leaf-spine" / "latest" / "report.html"
        photograph(report.as_uri(), PICTURES / "report.png")
    finally:
        shutil.rmtree(directory)


if __name__ == "__main__":
    main()
