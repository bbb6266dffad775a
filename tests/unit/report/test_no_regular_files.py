"""Files of a run directory that are pipes, devices or too large: one clear error at once, and no wait."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from testbed.cli.live import stopping
from testbed.cli.main import invoke
from testbed.errors import InputError
from testbed.machine import record
from testbed.records import regular_files

WAIT_S = 30
READ = {
    "report": ["events.jsonl", "counters.json", "counters.jsonl", "topology.json", "server-e1.pcap"],
    "compare": ["counters.json"],
    "diagnose": ["events.jsonl", "counters.jsonl", "tables.jsonl", "topology.json"],
    "back": ["steps/001.step"],
}
SAID = {
    *(("report", name) for name in ("events.jsonl", "counters.json", "counters.jsonl")),
    ("compare", "counters.json"),
}


@pytest.fixture(autouse=True)
def _in_time() -> Iterator[None]:
    """End what waits for ever."""
    signal.alarm(WAIT_S)
    yield
    signal.alarm(0)


def variant_of(run: Path) -> Path:
    return next(path for path in sorted(run.iterdir()) if path.is_dir() and path.name != "scenario")


@pytest.mark.parametrize("kind", ["pipe", "device", "directory", "large"])
@pytest.mark.parametrize(("command", "name"), [(command, name) for command, names in READ.items() for name in names])
def test_what_is_no_regular_file_is_refused(
    run_directory: Path,
    command: str,
    name: str,
    kind: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = variant_of(run_directory) / name
    file.parent.mkdir(exist_ok=True)
    file.unlink(missing_ok=True)
    match kind:
        case "pipe":
            os.mkfifo(file)
        case "device":
            file.symlink_to("/dev/zero")
        case "directory":
            file.mkdir()
        case "large":
            monkeypatch.setattr(regular_files, "MOST", 1 << 20)
            with file.open("wb") as stream:
                stream.truncate(2 << 20)
    where = variant_of(run_directory) if command in ("diagnose", "back") else run_directory
    status = invoke([command, str(where), *([str(where)] if command == "compare" else [])])
    said = capsys.readouterr().err
    if (command, name) not in SAID:  # it is left out, or another error comes first
        assert status in (0, 2), said
        return
    assert status == 2
    assert f"{name}: cannot be read" in said
    assert ("it has more than 1 MiB" if kind == "large" else "it is not a regular file") in said


def test_a_variant_that_the_run_does_not_have_is_named(run_directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "load", lambda _: SimpleNamespace(variants=[SimpleNamespace(name="as-is")]))
    with pytest.raises(InputError, match="the run has no variant 'typo'"):
        stopping.kept_run(run_directory / "typo")


def test_links_to_themselves_are_input_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("n").symlink_to("n")
    assert invoke(["cni", "add", "n"]) == 2
    assert "is a symbolic link to itself" in capsys.readouterr().err
