"""docs/counters.md, written from testbed/records/counter_names.yml: `make examples` writes it again."""

import itertools
from collections.abc import Iterator
from pathlib import Path

from testbed.records.counter_names import Counter, known

PAGE = Path(__file__).parents[2] / "docs" / "counters.md"
INTRODUCTION = """\
# Counters

All that a lab counts, under the names of the kernel, of soft-RoCE and of real gear: in `counters.json` and
`counters.jsonl` of a [run](runs.md), in [reports](reports.md), in a [diagnosis](diagnosis.md) and, with the names in
the last column, as [metrics](metrics.md). Names that only real NICs have are here too, since reports mention them.

`<priority>` is a digit. The meaning of a counter says when to look at it:

| Meaning | |
|---|---|
| error | 0 in a sound network |
| congestion | pauses, marks, and the answers to them |
| level | rises and falls; a gauge in Prometheus |
| peak | the highest level so far; a gauge in Prometheus |
| traffic | everything else |

A counter that is not in these tables is *unknown* in a report. This page is written from
`testbed/records/counter_names.yml` by `make examples`.
"""


def page() -> str:
    """Return the text of the page."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield INTRODUCTION.rstrip()
    for owner, rows in itertools.groupby(known(), lambda one: one.owner):
        yield from ("", f"## {owner[0].upper()}{owner[1:]}s", "")
        yield from (
            "| Counter | Meaning | Unit | What it counts | On real gear | Prometheus |",
            "|---|---|---|---|---|---|",
        )
        counters = list(rows)
        yield from map(_row, counters)
        sources = dict.fromkeys(part for one in counters for part in one.source.split("; "))
        yield from ("", f"Sources: {'; '.join(sources)}.")


def _row(counter: Counter) -> str:
    commands = (f"{one.where}: `{one.run}`{_look(counter, one.look)}" for one in counter.commands)
    metrics = (f"`{name}`" if counter.meaning in ("level", "peak") else f"`{name}_total`" for name in counter.metrics)
    cells = f"`{counter.name}`", counter.meaning, counter.unit, counter.text, "; ".join(commands), ", ".join(metrics)
    return f"| {' | '.join(cells)} |".replace("{", "<").replace("}", ">")


def _look(counter: Counter, look: str) -> str:
    return "" if look == counter.name else f" ({look.replace('<', '*').replace('>', '*')})"


if __name__ == "__main__":
    from written import write

    write(PAGE, page())
