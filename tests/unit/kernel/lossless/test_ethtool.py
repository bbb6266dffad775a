"""The ethtool that programs of a lab with lossless links find first."""

import os
import subprocess
import sys

import pytest

from testbed.kernel.lossless.ethtool import BIN, MAPS, found_first

REAL = """#!/bin/sh
echo "$@"
[ "$2" != eth7 ]
"""


@pytest.fixture
def real(tmp_path, monkeypatch):
    """The machine's own, which tells what it was given."""
    program = tmp_path / "ethtool"
    program.write_text(REAL)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")


def ethtool(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["ethtool", *arguments], capture_output=True, text=True, check=False, env=dict(os.environ))


@pytest.mark.usefixtures("real")
@pytest.mark.parametrize(
    "arguments", [("-i", "eth1"), ("-S",), ("-S", "eth1"), ("-S", "eth7"), ("--json", "-S", "eth1")]
)
def test_it_calls_the_machines_own_and_ends_as_that_does(arguments):
    """`eth1` is no port of a lab."""
    own = ethtool(*arguments)
    with found_first([1, 2, 3]):
        ours = ethtool(*arguments)
    assert (ours.returncode, ours.stdout, ours.stderr) == (own.returncode, own.stdout, own.stderr)
    assert own.stdout == " ".join(arguments) + "\n"


def test_a_machine_without_one_says_what_to_install(monkeypatch):
    with monkeypatch.context() as patch, found_first([]):
        python = os.path.dirname(os.path.realpath(sys.executable))
        patch.setenv("PATH", f"{BIN}:{python}")
        told = ethtool("-S", "eth1")
    assert told.returncode == 127
    assert "apt-get install ethtool" in told.stderr


def test_the_environment_is_as_before_afterwards():
    before = dict(os.environ)
    with found_first([7, 8, 9]):
        assert os.environ["PATH"].startswith(f"{BIN}:")
        assert os.environ[MAPS] == "7,8,9"
    assert dict(os.environ) == before
