"""testbed for notebooks and scripts: run a scenario, or a function in a lab; bring a lab up and change it by hand.

Results, counters, events and packets are plain records, lists of dictionaries, which ``pandas.DataFrame`` takes. All of
it is what the command `testbed` does, run as the user would type it: what fails there raises TestbedError here, with
the same message::

    from testbed import session

    found = session.run("ip-reuse", variants=["as-is", "garp"])
    found["as-is"].observed                                    # "fault"
    pandas.DataFrame(found["as-is"].counters())

    with session.up("fabric.clab.yml", clock="virtual") as lab:
        lab.rdma_write("host1", "host3")["status"]             # "SUCCESS"
        lab.inject("link-down", end="leaf1:e1")
        lab.advance("5m")
"""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from testbed.errors import InputError, TestbedError, UnsupportedError

__all__ = ["Answer", "Files", "LiveLab", "Result", "VariantResult", "call", "run", "up"]

Record = dict[str, Any]
ANSWER = "answer.json"
CALLED = """\
from __future__ import annotations

import json as _json
import pathlib as _pathlib

import pytest as _pytest

{source}

@_pytest.mark.topology({topology!r})
def test_call(lab):
    value = {name}(lab, *_json.loads({arguments!r}), **_json.loads({options!r}))
    _pathlib.Path({answer!r}).write_text(_json.dumps(value))
"""


@dataclass(frozen=True)
class Files:
    """The files of a variant, of a function's lab, or of a live lab that has ended."""

    directory: Path

    def counters(self) -> list[Record]:
        """Return the changes of all counters over time: `t_s`, `node`, `place`, `counter`, `value`, `change`, `per_s`,
        `unit`, `meaning` (docs/counters.md). Empty without counters.jsonl."""
        from testbed.records.counter_series import samples

        return [sample._asdict() for sample in samples(self.directory)]

    def events(self) -> list[Record]:
        """Return the events: `t_s`, `kind`, `node`, `text`, and the fields of their data (docs/events.md)."""
        from testbed.protocol import EVENTS
        from testbed.records import event_reader

        return [
            {
                **event["data"],
                "t_s": event["t"] / 1e9,
                "kind": event["kind"],
                "node": event["node"],
                "text": event["text"],
            }
            for event in event_reader.read(self.directory / EVENTS)
        ]

    def captures(self) -> dict[str, Path]:
        """Return the captures, pcap files by their names without suffix."""
        return {file.stem: file for file in sorted(self.directory.glob("*.pcap"))}

    def packets(self, name: str) -> list[Record]:
        """Return the frames of a capture: `number`, `realtime_ns`, `length`, and `data`, bytes for scapy's `Ether`.
        InputError for a capture that is not there."""
        from testbed.records.pcap import Pcap

        found = Pcap.open(file) if (file := self.captures().get(name)) else None
        if found is None:
            hint = f"There are: {', '.join(self.captures()) or 'none'}."
            raise InputError(f"there is no capture {name}", where=str(self.directory), hint=hint)
        packets = enumerate(found.packets(), start=1)
        return [
            {"number": number, "realtime_ns": packet.t_ns, "length": packet.length, "data": packet.data}
            for number, packet in packets
        ]


@dataclass(frozen=True)
class VariantResult(Files):
    """The result of a variant."""

    name: str = ""
    expected: str = ""
    observed: str | None = None
    as_expected: bool = False
    evidence: Mapping[str, Any] = field(default_factory=dict)
    virtual_s: float = 0.0
    trace: str = ""


@dataclass(frozen=True)
class Result:
    """The result of a scenario: ``result["as-is"]`` is that of a variant."""

    scenario: str
    as_expected: bool
    directory: Path
    seed: int
    trace: str
    variants: Mapping[str, VariantResult]

    def __getitem__(self, variant: str) -> VariantResult:
        if variant not in self.variants:
            raise InputError(f"there is no variant {variant}", hint=f"There are: {', '.join(self.variants)}.")
        return self.variants[variant]

    def records(self) -> list[Record]:
        """Return a record for each variant, with its evidence."""
        keys = ("name", "expected", "observed", "as_expected", "virtual_s", "trace")
        return [{**one.evidence, **{key: getattr(one, key) for key in keys}} for one in self.variants.values()]


@dataclass(frozen=True)
class Answer(Files):
    """What a function in a lab returned, and the files of its lab."""

    value: Any = None


def run(
    scenario: str | os.PathLike[str],
    *,
    variants: Sequence[str] = (),
    settings: Mapping[str, Any] | None = None,
    seed: int = 1,
    topology: str | os.PathLike[str] | None = None,
    out: str | os.PathLike[str] = "runs",
) -> Result:
    """Run a scenario, by its name or path, and return its result, as expected or not.

    `settings` are parameters, as `--set`. Raise InputError for what is wrong in the input, UnsupportedError if this
    machine cannot run it, TestbedError for a run that could not end.
    """
    words = ["run", os.fspath(scenario), "--seed", str(seed), "--out", os.fspath(out), "--json"]
    words += [word for name in variants for word in ("--variant", name)]
    words += [word for name, value in (settings or {}).items() for word in ("--set", f"{name}={_text(value)}")]
    words += ["--topology", os.fspath(topology)] if topology is not None else []
    found = _json_of(words, statuses=(0, 1))
    place = Path(found["out"])
    variants_of = {
        one["name"]: VariantResult(
            place / one["name"],
            one["name"],
            one["expected"],
            one["observed"],
            not one["failures"] and one["observed"] == one["expected"],
            one["evidence"],
            one["virtual_s"] or 0.0,
            one["trace"],
        )
        for one in found["variants"]
    }
    as_expected = found["verdict"] == "as-expected"
    return Result(found["scenario"], as_expected, place, found["seed"], found["trace"], variants_of)


def call(
    function: Callable[..., Any],
    topology: str | os.PathLike[str],
    *arguments: Any,
    seed: int = 1,
    out: str | os.PathLike[str] = "runs",
    **options: Any,
) -> Answer:
    """Call ``function(lab, *arguments, **options)`` in a lab inside a machine, and return what it returns.

    `topology` is a topology file, or its text. The function is sent as its source, so it imports what it needs itself;
    its arguments and its value must be such as JSON has. TestbedError with the end of its output if it fails.
    """
    name = getattr(function, "__name__", "")
    if not name.isidentifier():
        raise InputError(f"{function} cannot be sent to a machine: give a function with a name, made by `def`")
    source = textwrap.dedent(inspect.getsource(function))
    given = os.fspath(topology)
    text = given if "\n" in given or "{" in given else Path(given).read_text()
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "test_call.py"
        packed = {"arguments": json.dumps(arguments), "options": json.dumps(options)}
        file.write_text(CALLED.format(source=source, topology=text, name=name, answer=ANSWER, **packed))
        done = _testbed(["pytest", str(file), "--seed", str(seed), "--out", os.fspath(out)])
    place = _run_directory(done.stderr)
    if place is None or done.returncode > 1:
        raise _error(done)
    answer = place / "files" / ANSWER
    if done.returncode:
        end = "\n".join((place / "pytest.txt").read_text(errors="replace").splitlines()[-40:])
        raise TestbedError(f"{name} failed in the lab:\n{end}", where=str(place))
    tests = [json.loads(line) for line in (place / "tests.jsonl").read_text().splitlines()]
    return Answer(place / tests[-1]["directory"], json.loads(answer.read_text()))


def up(
    what: str | os.PathLike[str],
    *,
    name: str = "",
    clock: str = "virtual",
    seed: int = 1,
    out: str | os.PathLike[str] = "runs",
) -> LiveLab:
    """Bring a lab up, of a topology file or a scenario. As a context manager it ends with the block; else call `down`.
    Raise as `run` does."""
    words = ["up", os.fspath(what), "--clock", clock, "--seed", str(seed), "--out", os.fspath(out), "--format", "json"]
    found = _json_of([*words, *(["--name", name] if name else [])])
    return LiveLab(Path(found["out"]), found["name"])


@dataclass(frozen=True)
class LiveLab(Files):
    """A lab that is up. Its methods are the commands for labs that live (docs/live.md), and return their JSON."""

    name: str = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.down()

    def execute(self, node: str, *command: str, check: bool = True) -> str:
        """Run a command on a node to its end, and return its standard output. With `check` a failure raises."""
        done = _testbed(["exec", "--lab", self.name, node, "--", *command])
        if check and done.returncode:
            raise TestbedError(f"{node}: {' '.join(command)}: status {done.returncode}: {done.stderr.strip()}")
        return done.stdout

    def inject(self, fault: str, **parameters: Any) -> Record:
        """Inject a fault of `testbed fault list`, and return it with its number."""
        given = [f"{name}={_text(value)}" for name, value in parameters.items()]
        return dict(self._ask("fault", "inject", fault, *given))

    def recover(self, number: int) -> Record:
        """Recover a fault by its number."""
        return dict(self._ask("fault", "recover", str(number)))

    def advance(self, time: str) -> None:
        """Let virtual time pass: ``25m``, ``8h``."""
        self._ask("advance", time)

    def rdma_write(self, source: str, target: str, *, silent: bool = False) -> Record:
        """Send one RDMA WRITE from a host to another, or to an address, and return its completion."""
        return dict(self._ask("rdma", "write", source, target, *(["--silent"] if silent else [])))

    def tables(self, switch: str) -> list[Record]:
        """Return the entries of a switch's ARP, ND and FDB tables."""
        return list(self._ask("tables", switch))

    def inspect(self) -> Record:
        """Return the nodes with their interfaces, and the faults."""
        return dict(self._ask("inspect"))

    def testbed(self, *words: str) -> Any:
        """Run another command for this lab, such as ``lab.testbed("link", "set", "leaf:e1", "rate=1gbit")``, and return
        its JSON."""
        return self._ask(*words)

    def down(self) -> None:
        """End the lab. Its run directory stays, with its report. A second call does nothing."""
        done = _testbed(["down", self.name])
        if done.returncode and "does not exist" not in done.stderr:
            raise _error(done)

    def _ask(self, *words: str) -> Any:
        return _json_of([*words, "--lab", self.name, "--format", "json"])


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _testbed(words: Sequence[str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "testbed", *words]
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)


def _json_of(words: Sequence[str], statuses: Sequence[int] = (0,)) -> Any:
    done = _testbed(words)
    if done.returncode not in statuses or not done.stdout.strip():
        raise _error(done)
    found = json.loads(done.stdout)
    if isinstance(found, dict) and "error" in found and "status" in found:
        raise _error(done)
    return found


def _error(done: subprocess.CompletedProcess[str]) -> TestbedError:
    """Return the error of a command that failed."""
    kind = {2: InputError, 3: UnsupportedError}.get(done.returncode, TestbedError)
    try:
        error = json.loads(done.stdout)["error"]
        return kind(error["message"], where=error["where"], hint=error["hint"])
    except (ValueError, LookupError, TypeError):
        text = done.stderr.strip().rpartition("error: ")[2] or f"status {done.returncode}"
        return kind(text)


def _run_directory(progress: str) -> Path | None:
    """Return the directory that `testbed pytest` names at its end."""
    for line in _last_words(progress):
        if (place := Path(line)).is_dir():
            return place
    return None


def _last_words(text: str) -> Iterator[str]:
    for line in reversed(text.splitlines()):
        if "text, tests and files: " in line:
            yield line.partition("files: ")[2].strip()
