"""What NCCL's RAS says of the ranks of a job, as `ncclras` prints it: text, or JSON.

Only communicators of all ranks are read: in a smaller one the numbers of ranks are others. Formats: src/ras and the
user guide's page on RAS, NCCL 2.24 to 2.29.
"""

import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

from testbed.records import json_files

GROUP = re.compile(r" *(?P<number>\d{1,6}) +\d+ +\d+ +[\d-]+ +(?P<ranks>\d{1,7}) +\d+ +[A-Z,]+ +[A-Z,]+ *")
SECTION = re.compile(r"(?:#(?P<group>\d{1,6})-\d+ \(\w+\) )?(?P<kind>INCOMPLETE|MISMATCH|ERROR|DEAD|TIMEOUT)")
DIFFERENT = re.compile(r" *Communicator ranks have different (?P<what>.*?) ?(?P<of>operation counts|status)")
COUNTED = re.compile(
    r" *(?P<who>\d{1,7} ranks have|Rank (?P<rank>\d{1,7}) has) "
    r"(?:launched up to operation (?P<count>\d{1,18})|(?P<none>not launched any operations))\b.*"
)
RANK = re.compile(r" *Rank (?P<rank>\d{1,7}) -- .*")
MISSING = re.compile(r" *The missing ranks?: (?P<ranks>[\d, -]{1,4096})")
BEGIN = "Job summary"
LONGEST = 4096
SILENT, DEAD = "does not answer", "is considered dead"


@dataclass
class Ras:
    """The ranks that do not answer, in words, and those behind: by operation how many each has launched, as far as that
    is listed, and the most that a rank has. `again`: an earlier query had the same."""

    missing: dict[int, str] = field(default_factory=dict)
    launched: dict[str, dict[int, int]] = field(default_factory=lambda: defaultdict(dict))
    most: dict[str, int] = field(default_factory=dict)
    counts: dict[str, dict[int, int]] = field(default_factory=lambda: defaultdict(dict))
    """Numbers of ranks by operation and how many they have launched."""
    again: bool = False

    def behind(self) -> dict[int, tuple[str, int, int]]:
        """Return the ranks that launched fewer operations of a kind than another: the kind, their number, the most."""
        return {
            rank: (what, count, self.most[what])
            for what, counts in sorted(self.launched.items())
            for rank, count in counts.items()
            if count < self.most[what]
        }


def read(text: str, ranks: int) -> Ras:
    """Read an output, the last one if there are several. ValueError for JSON that is damaged."""
    if text.lstrip()[:1] in ("{", "["):
        found = json_files.parsed(text)
        outputs = [_of_json(one, ranks) for one in (found if isinstance(found, list) and found else [found])]
    else:
        outputs = [_of_text(one, ranks) for one in text.split(BEGIN)[1:]] or [_of_text(text, ranks)]
    last = outputs[-1]
    last.again = any((one.missing, one.launched) == (last.missing, last.launched) for one in outputs[:-1])
    last.missing = {rank: how for rank, how in last.missing.items() if rank < ranks}
    last.launched = {
        what: {rank: count for rank, count in counts.items() if rank < ranks} for what, counts in last.launched.items()
    }

    return last


def _of_text(text: str, ranks: int) -> Ras:
    found, sizes = Ras(), dict[str, int]()
    kind, whole, what, count = "", False, "", 0
    for line in (line[:LONGEST].rstrip() for line in text.split("\n")):
        if row := GROUP.fullmatch(line):
            sizes[row["number"]] = int(row["ranks"])
        elif head := SECTION.fullmatch(line):
            kind, whole, what = head["kind"], sizes.get(head["group"] or "") == ranks, ""
        elif not whole:
            continue
        elif kind == "INCOMPLETE":
            if one := RANK.fullmatch(line):
                found.missing[int(one["rank"])] = SILENT
            elif several := MISSING.fullmatch(line):
                found.missing |= {int(number): SILENT for number in re.findall(r"\d{1,7}", several["ranks"])}
        elif kind == "MISMATCH":
            if differ := DIFFERENT.fullmatch(line):
                what = (differ["what"] or "collective") if differ["of"] != "status" else ""
            elif what and (launched := COUNTED.fullmatch(line)):
                count = int(launched["count"] or 0)
                found.most[what] = max(found.most.get(what, 0), count)
                many = launched["who"].split()[0]
                found.counts[what][count] = int(many) if many.isdigit() else 1
                if launched["rank"]:
                    found.launched[what][int(launched["rank"])] = count
            elif what in found.most and (one := RANK.fullmatch(line)):
                found.launched[what][int(one["rank"])] = count
    return found


def _of_json(output: Any, ranks: int) -> Ras:
    found = Ras()
    communicators = output.get("communicators") if isinstance(output, dict) else None
    if not isinstance(communicators, list):
        raise ValueError("is no output of ncclras: it has no communicators")  # noqa: TRY004
    for one in communicators:
        match one:
            case {"size": int(size), "ranks": list(there), "missing_ranks": list(missing)} if size == ranks:
                for row in missing:
                    match row:
                        case {"rank": int(rank), "status": {"considered_dead": True}}:
                            found.missing[rank] = DEAD
                        case {"rank": int(rank), "status": {"unresponsive": True}}:
                            found.missing[rank] = SILENT
                for row in there:
                    match row:
                        case {"rank": int(rank), "collective_counts": dict(counts)}:
                            for what, count in counts.items():
                                if isinstance(count, int):
                                    found.launched[str(what)][rank] = count
    found.counts = {what: dict(Counter(counts.values())) for what, counts in found.launched.items()}
    found.most = {what: max(counts.values()) for what, counts in found.launched.items()}
    return found
