"""Reports of runs: one HTML file each, and the index of a directory of runs, made from the files of a run's directory.

A report is read without testbed, without a network and years later. Nothing here runs a lab or the user's code.
"""

import html
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import quote

from testbed.errors import naming
from testbed.protocol import INDEX, REPORT, RESULT
from testbed.report.contents import Draw, contents
from testbed.report.page import file, page, policy
from testbed.report.run_model import Part, Run, read_run


def write(runs: Sequence[Run], draw: Draw, output: Path, *, side_by_side: bool = False) -> None:
    """Write the report of runs to a file, whole or not at all. `draw` makes the drawing of a plan. Links lead to the
    files of the runs from the place of `output`. With `side_by_side` it opens with all variants beside each other."""
    base = output.parent.resolve()
    names = ", ".join(run.name for run in runs)
    verdicts = {True: "as expected", False: "unexpected", None: "no verdict"}
    plain = " ".join(f"{run.name}: {verdicts[run.as_expected]}." for run in runs)
    data = {**contents(runs, draw, base), "side_by_side": side_by_side}
    text = page(f"{names} – testbed", f"{plain} The rest of this report needs JavaScript.", data)
    scratch = output.with_name(f".{output.name}-{os.getpid()}")
    try:
        with naming(output):
            scratch.write_text(text)
        scratch.replace(output)
    finally:
        scratch.unlink(missing_ok=True)


LATEST = "latest"


def has_runs(directory: Path) -> bool:
    """Return whether it is a directory of runs, such as ``runs/``."""
    return any(directory.glob(f"*/{LATEST}/{RESULT}"))


def write_index(directory: Path) -> Path:
    """Write the index of a directory of runs into it."""
    places = sorted(path.parent.resolve() for path in directory.glob(f"*/{LATEST}/{RESULT}"))
    runs = [(place, read_run(place)) for place in places]
    output = directory / INDEX
    text = _page([(f"{place.parent.name}/{place.name}/{REPORT}", place.name, run) for place, run in runs])
    with naming(output):
        output.write_text(text)
    return output


def _page(runs: list[tuple[str, str, Run]]) -> str:
    good = sum(run.as_expected is True for _, _, run in runs)
    rows = "\n".join(_row(link, when, run) for link, when, run in runs)
    counts = {"good": good, "scenarios": len(runs), "variants": sum(len(run.parts) for _, _, run in runs)}
    level = "good" if good == len(runs) else "bad"
    return file("index.html").format(policy=policy(), style=file("page.css"), rows=rows, level=level, **counts)


def _row(link: str, when: str, run: Run) -> str:
    link = html.escape(link, quote=True)
    word, level = ("✓ as expected", "good") if run.as_expected else ("✗ unexpected", "bad")
    chips = " ".join(_chips(link, run.parts))
    return (
        f'<tr><td><a href="{link}"><b>{html.escape(run.name)}</b></a><div class="small quiet">{html.escape(run.title)}'
        f'</div></td><td><span class="verdict small {level}">{word}</span></td><td class="small">{chips}</td>'
        f'<td class="wide number small mono quiet">{html.escape(when)}</td></tr>'
    )


def _chips(link: str, parts: tuple[Part, ...]) -> Iterator[str]:
    for part in parts:
        mark, level = ("✓", "good") if part.as_expected else ("✗", "bad")
        name = html.escape(part.name, quote=True)
        observed = html.escape(f"expected {part.expected}, observed {part.observed or 'nothing'}", quote=True)
        yield f'<a class="chip {level}" href="{link}#v={quote(part.name)}" title="{observed}">{mark} {name}</a>'
