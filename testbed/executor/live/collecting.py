"""The files of a run directory while its lab lives, for a diagnosis."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path

from testbed.executor.live.program_streams import PIECE
from testbed.executor.live.server import Call
from testbed.protocol import COUNTERS, EVENTS, TABLES, live
from testbed.scenario.evidence import counters

READ = ".log", ".json", ".jsonl", ".env"
"""The ends of files that are sent."""
NOW = "now"


def collect(_: live.RunFiles, call: Call) -> None:
    for name, data in files(call):
        for start in range(0, len(data), PIECE):
            call.report(file=name, out=base64.b64encode(data[start : start + PIECE]).decode())


def files(call: Call) -> Iterator[tuple[str, bytes]]:
    lab, log = call.lab, call.log
    place = Path(lab.directory)
    made = {name: text.encode() for name, text in (record() for record in lab.recorders) if text}
    made[EVENTS] = "".join(json.dumps(event) + "\n" for event in log.events).encode()
    lab.scheduler.catch_up()
    tables = [{"t": log.now, "after": NOW, "switch": one.name, **one.tables()} for one in lab.switches()]
    counted = {node: {**kinds["interfaces"], **kinds["rdma"]} for node, kinds in counters(lab, []).items()}
    rows = {TABLES: tables, COUNTERS: [{"t": log.now, "after": NOW, "counters": counted}]}
    for name, found in rows.items():
        before = (place / name).read_bytes() if (place / name).exists() else b""
        made[name] = before + "".join(json.dumps(row) + "\n" for row in found).encode()
    yield from made.items()
    for path in sorted(place.rglob("*")):
        name = str(path.relative_to(place))
        if name not in made and path.suffix in READ and path.is_file() and not path.is_symlink():
            yield name, path.read_bytes()
