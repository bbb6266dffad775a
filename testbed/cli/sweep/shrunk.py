"""The end of `testbed shrink`: the parts that matter for a failure, the others, and the command to repeat it."""

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from testbed.cli import summary
from testbed.cli.catalogue import columns
from testbed.cli.words import plain, plain_lines
from testbed.machine.sweeps import points
from testbed.machine.sweeps.attempts import InjectedFault, Part, Setting, Shrunk


def command(found: Shrunk, scenario: str) -> str:
    """Return the command that repeats the smallest run."""
    given = {part.key: part.text for part in found.after if isinstance(part, Setting)}
    without = [word for number in found.without_faults for word in ("--without-fault", str(number))]
    return points.command(scenario, found.variant, given, found.seed, *without)


def end_of(part: Part, found: Shrunk) -> str | None:
    """Return a part as it is in the end, None if the run fails without it."""
    if isinstance(part, InjectedFault):
        return str(part) if part in found.after else None
    return next((str(one) for one in found.after if isinstance(one, Setting) and one.key == part.key), None)


def as_json(found: Shrunk, scenario: str, directory: Path) -> dict[str, Any]:
    return {
        "variant": found.variant,
        "seed": found.seed,
        "failures": [*found.failures],
        "parts": [
            {"part": str(part), "matters": (end := end_of(part, found)) is not None, "end": end}
            for part in found.before
        ],
        "tried": [{"parts": [*map(str, attempt.parts)], "same_failure": attempt.same} for attempt in found.tried],
        "settings": {part.key: part.text for part in found.after if isinstance(part, Setting)},
        "without_faults": found.without_faults,
        "command": command(found, scenario),
        "directory": str(directory),
    }


def report(screen: Console, found: Shrunk, scenario: str, directory: Path) -> None:
    screen.print()
    screen.print(Text(plain(f"Failure of {found.variant}, in each run below with the same failure:"), "bold"))
    for failure in found.failures:
        screen.print(Padding(Text(plain_lines(failure)), (0, 0, 0, 2)))
    screen.print()
    tried = columns("failure", "with")
    for attempt in found.tried:
        words = ", ".join(map(str, attempt.parts)) or "nothing set, no fault"
        tried.add_row(Text("the same", "bold") if attempt.same else Text("another, or none", "dim"), plain(words))
    screen.print(tried)
    if found.before:
        screen.print()
        parts = columns("setting or fault", "for this failure")
        for part in found.before:
            parts.add_row(plain(part), _words(part, found))
        screen.print(parts)
    screen.print()
    left, count = len(found.after), len(found.before)
    facts = f" · {summary.number(len(found.tried), 'run')} · seed {found.seed}"
    screen.print(Text.assemble((f"{left} of {count} settings and faults matter", "bold"), (facts, "dim")))
    screen.print(Text(f"Run it: {plain(command(found, scenario))}"), soft_wrap=True)
    screen.print(Text(plain(directory), "dim"), soft_wrap=True)


def _words(part: Part, found: Shrunk) -> Text:
    end = end_of(part, found)
    if end is None:
        return Text("does not matter", "dim")
    return Text("matters" if end == str(part) else f"matters; {plain(end)} is enough", "bold")
