"""containers/build makes archives that `testbed image add` takes; mmdebstrap is a stand-in here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from container_images import tar_of

from testbed.machine import containers

CONTAINERS = Path(__file__).parents[3] / "containers"
NODES = json.loads((CONTAINERS / "nodes.json").read_text())
MMDEBSTRAP = """#!/bin/sh
echo "$@" > {0}/asked
[ -n "$FAIL" ] && exit 25
for word; do case $word in *layer.tar) cp {0}/root.tar "$word" ;; esac; done
"""


def build(tmp_path: Path, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    programs = tmp_path / "bin"
    programs.mkdir(exist_ok=True)
    if "PATH" not in env:
        (tmp_path / "root.tar").write_bytes(tar_of({"etc/root": b""}))
        (programs / "mmdebstrap").write_text(MMDEBSTRAP.format(tmp_path))
        (programs / "mmdebstrap").chmod(0o755)
    return subprocess.run(
        [sys.executable, CONTAINERS / "build", *words],
        cwd=tmp_path, env={**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", **env},
        capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("name", NODES)
def test_an_image_of_each_definition_is_made_and_taken(tmp_path: Path, name: str) -> None:
    done = build(tmp_path, name)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"--include={','.join(NODES[name]['packages'])} " in (tmp_path / "asked").read_text()
    added = containers.add(tmp_path / f"{name}.tar", "")
    assert added.name == f"node-{name}:1"
    first = added.digest
    assert build(tmp_path, name, "-o", "again.tar").returncode == 0
    assert containers.add(tmp_path / "again.tar", "").digest == first


@pytest.mark.parametrize(
    ("words", "env", "status", "message"),
    [
        (["nope"], {}, 2, "invalid choice: 'nope'"),
        (["frr", "-o", "nowhere/x.tar"], {}, 2, "error: there is no directory nowhere"),
        (["frr"], {"PATH": ""}, 3, "error: mmdebstrap is not installed"),
        (["frr"], {"FAIL": "1"}, 1, "error: mmdebstrap ended with status 25"),
    ],
)
def test_what_cannot_be_made_is_said_and_leaves_nothing(
    tmp_path: Path, words: list[str], env: dict[str, str], status: int, message: str
) -> None:
    done = build(tmp_path, *words, **env)
    assert done.returncode == status
    assert message in done.stderr
    assert not list(tmp_path.glob("*.tar*")) or list(tmp_path.glob("*.tar*")) == [tmp_path / "root.tar"]
