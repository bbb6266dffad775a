"""The directory of a run: descriptions of its files (README.txt), and removal of empty ones."""

import contextlib
import os
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from testbed.errors import naming
from testbed.protocol import COUNTERS, EPOCH, EVENTS, OUTPUT, PACKETS, RESULT, SCENARIO, TABLES, TESTS, TOPOLOGY

README = "README.txt"
Line = tuple[str, str]
"""Pattern of a name, of a directory's with a slash at its end, and its description."""
OF_RUN: Sequence[Line] = (
    (RESULT, "the verdict and the inputs of the run, as JSON"),
    ("report.html", "the report of the run, a page for a browser"),
    (f"{SCENARIO}/", "the scenario's files, as copied to the machine"),
    ("pytest.txt", "what pytest wrote"),
    (TESTS, "a line for each test: outcome, virtual seconds, directory, why it failed"),
    ("reports/", "reports that the user requested from pytest"),
    ("files/", "files that tests wrote to relative paths"),
)
OF_ALL: Sequence[Line] = (
    ("traceback.txt", "the Python traceback of code that was cut short"),
    ("stack.txt", "the stack of every thread when a limit was reached"),
    (OUTPUT, "the output of the process in the machine"),
    ("session.jsonl", "the manual commands, in order"),
)
OF_LAB: Sequence[Line] = (
    (EVENTS, "the events, in the order of virtual time: t is nanoseconds since the start"),
    (PACKETS, "all captures in one file for Wireshark, on the clock of the events, with comments that name events"),
    ("*.pcap", "the captures, as tcpdump wrote them: <node>-<interface>.pcap"),
    ("*.tcpdump.log", "tcpdump's own counts for each capture, of lost packets too"),
    (TABLES, "the switches' ARP, ND and MAC tables after each step and at the end"),
    ("counters.json", "the counters of all interfaces and RDMA devices at the end"),
    (COUNTERS, "their changes, after each step and at the end"),
    (TOPOLOGY, "the planned lab, with all addresses"),
    (EPOCH, "t = 0 on other clocks"),
    ("kernel.log", "the kernel's log"),
    *OF_ALL,
    ("cni/", "the state of CNI plugins on each host, such as the addresses in use"),
    ("cluster/", "the contents of the API server, as SQLite files: objects, and the owner of each address"),
    ("*-cni-agent.log", "the calls of testbed's CNI plugins on a node, and their answers"),
    ("*-cni.log", "the stderr of CNI plugins on a node"),
    ("steps/", "the state of the machine at each step, for `testbed back`"),
    ("ranks.json", "the steps and the end of each rank of a training job"),
    ("job/", "the files of training jobs: a log for each rank, and flight.jsonl with the MPI calls of each"),
    ("*.log", "the output of programs on nodes"),
)
OTHERS = "written by the scenario, the tests or programs on nodes"


def explain(directory: Path, about: str) -> None:
    """Write README.txt into the directory of a run: a line for each kind of file that is there. OSError."""
    own = [*OF_RUN, *OF_ALL]
    tests = directory / "tmp"
    labs = [one for one in _directories(tests if tests.is_dir() else directory) if f"{one.name}/" not in dict(own)]
    beside = [
        name for name in _names(directory) if name not in {README, f"{tests.name}/", *(f"{one.name}/" for one in labs)}
    ]
    where = f"{tests.name}/, in the directory of each test" if tests.is_dir() else "the directory of each variant"
    paragraphs = [
        [f"{about}. docs/runs.md of testbed describes these files."],
        [*_lines(beside, own)],
        [f"In {where}:", *_lines({name for lab in labs for name in _names(lab)}, OF_LAB)] if labs else [],
    ]
    if RESULT in beside:
        paragraphs.append(
            ["`testbed rerun` of this directory repeats the run; `testbed diff` compares it with another."]
        )
    _write(directory, "\n\n".join("\n".join(lines) for lines in paragraphs if lines))


def explain_lab(directory: Path, name: str) -> None:
    """Write README.txt into the directory of a lab."""
    own = [(RESULT, "the inputs of the lab, as JSON"), *OF_RUN[1:2], *OF_LAB]
    names = [one for one in _names(directory) if one != README]
    lines = [f"Files of the lab {name}. docs/live.md of testbed describes such labs.", "", *_lines(names, own)]
    _write(directory, "\n".join(lines))


def _write(directory: Path, text: str) -> None:
    path = directory / README
    with naming(path):
        path.write_text(f"{text}\n", errors="replace")


def _lines(names: Iterable[str], known: Sequence[Line]) -> Iterator[str]:
    """Yield a line for each known kind that is there, and one for all others."""
    left = set(names)
    shown = []
    for pattern, text in known:
        if fitting := {name for name in left if fnmatchcase(name, pattern)}:
            left -= fitting
            shown.append((pattern, text))
    if left:
        shown.append(("others", OTHERS))
    width = max((len(pattern) for pattern, _ in shown), default=0)
    return (f"{pattern:<{width}}  {text}" for pattern, text in shown)


def _names(directory: Path) -> list[str]:
    return [f"{path.name}/" if path.is_dir() else path.name for path in sorted(directory.iterdir())]


def _directories(directory: Path) -> list[Path]:
    return [path for path in sorted(directory.iterdir()) if path.is_dir() and not path.is_symlink()]


def remove_empty(directory: Path) -> None:
    """Remove the files without contents and then the empty directories below `directory`."""
    for parent, directories, names in os.walk(directory, topdown=False):
        for path in (Path(parent) / name for name in names):
            if not path.is_symlink() and path.is_file() and not path.stat().st_size:
                path.unlink()
        for name in directories:
            with contextlib.suppress(OSError):  # not empty, or a link
                (Path(parent) / name).rmdir()
