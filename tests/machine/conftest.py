"""Tests of machines from outside: they start the command as a user does. They need QEMU and the image, not root."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

COMMAND = (sys.executable, "-m", "testbed")
HERE = Path(__file__).parent
LIMIT_S = 600
"""Wall seconds for one command: it bounds a hang and is no measure of speed."""


@dataclass(frozen=True)
class Done:
    status: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        return json.loads(self.out)

    @property
    def error(self) -> str:
        """The message, as one line."""
        return " ".join(self.err.split())


@pytest.fixture
def testbed(tmp_path: Path) -> Callable[..., Done]:
    """Runs the command; `env` adds to the environment."""

    def call(*arguments: str | Path, env: dict[str, str] | None = None) -> Done:
        done = subprocess.run(
            [*COMMAND, *map(str, arguments)],
            cwd=tmp_path,
            env={**os.environ, **(env or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    return call


@pytest.fixture
def misbehave() -> Path:
    return HERE / "scenarios" / "misbehave.py"


@pytest.fixture
def cache(testbed: Callable[..., Done], tmp_path: Path) -> Path:
    """A cache of its own, with hard links to the image's files and without a snapshot."""
    image = Path(testbed("image", "info", "--json").json["path"])
    fresh = tmp_path / "cache" / "testbed"
    shutil.copytree(image, fresh / "images" / image.name, copy_function=os.link)
    return fresh


@pytest.fixture(scope="session", autouse=True)
def image() -> None:
    """The image is there before the first test."""
    subprocess.run([*COMMAND, "image", "build"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True)
