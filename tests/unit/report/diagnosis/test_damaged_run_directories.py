"""A run directory may come from anybody: whatever is damaged in it, a command has a result or one clear error.

What once was another exception, or could be, is in CORPUS and tried again each time.
"""

import contextlib
import copy
import json
import random
import shutil
import struct
from pathlib import Path
from typing import Any

import pytest
from diagnosis_runs import Builder
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.cli.main import invoke
from testbed.errors import InputError
from testbed.machine import moments
from testbed.machine.moments import Moment, Saved

DEEP = 3000 * "[" + 3000 * "]"
VALUES: list[Any] = [
    None,
    True,
    -1,
    10**400,
    1e308,
    float("nan"),
    "",
    "\ud800",
    "\x1b[2J",
    "../x",
    [],
    {},
    [[]],
    {"a": 1},
]
CORPUS = [
    ("result.json", DEEP),
    ("result.json", "[]"),
    ("result.json", '{"variants": 1}'),
    ("variant/events.jsonl", ""),
    ("variant/events.jsonl", DEEP),
    ("variant/events.jsonl", '{"t": NaN}\n'),
    ("variant/topology.json", '{"name": "x", "interfaces": [{"node": "n0"}]}'),
    ("variant/topology.json", '{"name": "x", "interfaces": [], "switches": {"leaf": {"profile": 1, "values": []}}}'),
    ("variant/topology.json", DEEP),
    ("variant/counters.json", DEEP),
    ("variant/counters.jsonl", DEEP),
    ("variant/job/flight.jsonl", DEEP),
    ("variant/steps/none.step", ""),
    ("variant/steps/001.step", ""),
    ("variant/steps/001.step", "TBSTEP1\0" + 8 * "\x7f"),
]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a lab that lived."""
    directory = tmp_path_factory.mktemp("sound") / "lab"
    Builder(directory).starts().paces().ends(3, ok=True).write()
    found = {"name": "mine", "topology": "x.yml", "seed": 1, "clock": "real", "trace": "ab", "virtual_s": 1.5}
    (directory / "result.json").write_text(json.dumps({**found, "made_from": {}, "epoch": {"realtime_ns": 5}}))
    (directory / "session.jsonl").write_text('{"request": {"kind": "Exec"}}\n')
    return directory


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a session of pytest."""
    directory = tmp_path_factory.mktemp("sound") / "session"
    Builder(directory / "tests/one").starts().paces().ends(3, ok=True).write()
    (directory / "tests/one/epoch.json").write_text('{"realtime_ns": 5}')
    test = {"test": "test_x", "outcome": "failed", "text": "no", "directory": "tests/one", "virtual_s": 1, "wall_s": 1}
    (directory / "tests.jsonl").write_text(json.dumps(test) + "\n")
    return directory


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a run with a job and a kept step."""
    directory = tmp_path_factory.mktemp("sound") / "run"
    Builder(directory / "variant").starts().paces().ends(3, ok=True).write()
    variant = {"name": "variant", "expected": "fault", "observed": "fault", "trace": "ab", "virtual_s": 1, "wall_s": 1}
    variant |= {"failures": [], "evidence": {"x": 1}, "settings": {}, "epoch": {"realtime_ns": 5}}
    found = {"scenario": "mine", "seed": 1, "clock": "virtual", "variants": [variant], "made_from": {"testbed": "1"}}
    (directory / "result.json").write_text(json.dumps(found))
    parts = {"bundle": [(0, b"abc")], "result": []}
    Saved(Moment(1, 5, "step", "it begins"), "key", b"devices", parts, {3: bytes(4096)}).write(directory / "steps")
    (directory / "steps").rename(directory / "variant" / "steps")
    return directory


def try_all(directory: Path, sound: Path, page: Path, part: str = "variant") -> None:
    """Each command ends with a result or an error. Any other exception is raised here."""
    there = str(directory)
    for command in ["report", there, "-o", page], ["compare", there, sound, "-o", page]:
        assert invoke([str(word) for word in command]) in (0, 2)
    assert invoke(["diff", there, str(sound)]) in (0, 1, 2)
    assert invoke(["diff", f"{sound}/{part}", f"{there}/{part}"]) in (0, 1, 2)
    for more in [], ["--json"]:
        assert invoke(["diagnose", there, *more]) in (0, 1, 2)
    for command in ["back", f"{there}/{part}"], ["rerun", there], ["shrink", there]:
        assert invoke(command) == 2
    for file in directory.glob("variant/steps/*.step"):
        for reader in moments.moment_of, Saved.read:
            with contextlib.suppress(InputError):
                reader(file)


@pytest.mark.parametrize(("name", "text"), CORPUS)
def test_damage_that_once_was_a_traceback(sound: Path, tmp_path: Path, name: str, text: str) -> None:
    directory = tmp_path / "run"
    shutil.copytree(sound, directory)
    (directory / name).write_text(text)
    try_all(directory, sound, tmp_path / "page.html")


@pytest.mark.parametrize(("kind", "part"), [("sound", "variant"), ("lab", "."), ("session", "tests/one")])
def test_any_damage(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest, kind: str, part: str
) -> None:
    whole = request.getfixturevalue(kind)
    assert invoke(["report", str(whole), "-o", str(tmp_path_factory.mktemp("page") / "page.html")]) == 0

    @settings(max_examples=settings().max_examples // 2)
    @given(st.integers(0, 1 << 32))
    def damaged(seed: int) -> None:
        directory = tmp_path_factory.mktemp("damaged") / "run"
        shutil.copytree(whole, directory)
        draw = random.Random(seed)  # noqa: S311
        damage(draw.choice(sorted(path for path in directory.rglob("*") if path.is_file())), draw)
        try_all(directory, whole, directory.parent / "page.html", part)
        shutil.rmtree(directory.parent)

    damaged()


def damage(file: Path, draw: random.Random) -> None:
    data = file.read_bytes()
    match draw.randrange(10):
        case 0:
            file.write_bytes(data[: draw.randrange(len(data) + 1)])
        case 1:
            file.unlink()
            draw.choice([lambda: None, file.mkdir, lambda: file.symlink_to(file.name)])()
        case 2:
            file.write_bytes(b"\xff\xfe" + data)
        case _ if file.suffix == ".step":
            (length,) = struct.unpack("<Q", data[8:16])
            head = json.dumps(changed(json.loads(data[16 : 16 + length]), draw)).encode()
            file.write_bytes(data[:8] + struct.pack("<Q", len(head)) + head + data[16 + length :])
        case _:
            lines = data.decode().splitlines() or ["{}"] if file.suffix == ".jsonl" else [data.decode()]
            number = draw.randrange(len(lines) or 1)
            lines[number] = json.dumps(changed(json.loads(lines[number]), draw))
            file.write_text("\n".join(lines) + "\n")


def changed(value: Any, draw: random.Random) -> Any:
    """A JSON value of which one part is missing, has another name or another value."""
    places: list[tuple[Any, Any]] = []

    def walk(inner: Any) -> None:
        for key in inner if isinstance(inner, dict) else range(len(inner)) if isinstance(inner, list) else ():
            places.append((inner, key))
            walk(inner[key])

    walk(value)
    if not places:
        return draw.choice(VALUES)
    inner, key = draw.choice(places)
    kind = draw.randrange(4)
    if kind == 0 and isinstance(inner, dict):
        del inner[key]
    elif kind == 1 and isinstance(inner, dict):
        inner[f"{key}\0"] = inner.pop(key)
    else:
        inner[key] = copy.deepcopy(draw.choice(VALUES))
    return value
