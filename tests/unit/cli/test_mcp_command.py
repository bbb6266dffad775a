"""`testbed mcp` without its SDK, labs of a topology's text, and who may connect over HTTP."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.cli.live import up as up_command
from testbed.cli.main import invoke
from testbed.cli.mcp import loopback, own_labs
from testbed.cli.mcp.lab_calls import Access
from testbed.errors import InputError

TEXT = "name: mine\ntopology:\n  nodes:\n    a: {kind: host}\n"
WITHOUT_SDK = """
import sys
sys.modules["mcp"] = None
from importlib import util
found = util.find_spec
util.find_spec = lambda name, *rest: None if name == "mcp" else found(name, *rest)
from testbed.cli.main import invoke
sys.exit(invoke(["mcp"]))
"""


@pytest.fixture(autouse=True)
def _own_labs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def test_without_the_sdk_there_is_one_clear_error() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_SDK], capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert done.stdout == ""
    assert done.stderr == (
        "error: testbed mcp needs the SDK of MCP, which is not installed\n  Install it: pip install 'testbed[mcp]'\n"
    )


def test_a_lab_that_is_not_there_is_an_error_before_anything_is_served(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["mcp", "--lab", "nope"]) == 2
    assert "lab nope does not exist" in capsys.readouterr().err


def test_a_port_that_is_taken_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert invoke(["mcp", "--http", str(port)]) == 2
    said = capsys.readouterr().err
    assert f"error: http cannot be served at 127.0.0.1:{port}: Address already in use" in said
    assert "--http 0 takes a free one" in said


# Labs of a topology's text


def test_only_the_text_goes_into_such_a_lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cni-plugins").mkdir()
    (tmp_path / "cni-plugins" / "mine").write_text("x")
    found = own_labs.source(TEXT, "")
    assert (found.name, found.files) == ("mine", {"topology.clab.yml": TEXT.encode()})
    assert (found.executable, found.packages, found.images) == ([], [], [])
    assert own_labs.source(TEXT, "other").name == "other"


def test_a_topology_with_containers_is_refused() -> None:
    text = "name: x\ntopology:\n  nodes:\n    a: {kind: linux, image: 'debian:13', binds: [/etc/passwd:/x]}\n"
    with pytest.raises(InputError, match="with containers cannot be brought up here"):
        own_labs.source(text, "")


def test_a_name_is_no_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(up_command.labs, "require_free", lambda _: pytest.fail("it was taken for a name"))
    for name in "../x", "a/b", "":
        with pytest.raises(InputError, match="cannot be a lab's name"):
            own_labs.up(Access(), TEXT.replace("mine", "''"), name)


def test_only_labs_of_the_server_are_ended() -> None:
    with pytest.raises(InputError, match="lab pair is not one that up has brought up"):
        own_labs.down("pair")


# Who may connect


def test_the_owner_of_a_connection_is_its_clients_user() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        client = socket.create_connection(listening.getsockname())
        there, _ = listening.accept()
        with there, client:
            ends = client.getsockname(), listening.getsockname()
            assert loopback.owner(*ends) == os.geteuid()
            assert loopback.owner(ends[1], ends[0]) == os.geteuid(), "the server's end has the same user here"
        assert loopback.owner(*ends) is None, "a connection that is closed has no owner"


def test_a_socket_that_nobody_has_is_nobodys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = tmp_path / "tcp"
    monkeypatch.setattr(loopback, "TABLE", table)
    row = "   1: 0100007F:9C40 0100007F:251C {state} 00000000:00000000 00:00000000 00000000 {user} 0 {inode} 1 0 20"
    ends = ("127.0.0.1", 40000), ("127.0.0.1", 9500)
    cases = ("01", 1000, 77, 1000), ("01", 0, 0, None), ("06", 0, 0, None), ("05", 5, 77, None)
    for state, user, inode, found in cases:
        table.write_text(f"  sl  local_address rem_address …\n{row.format(state=state, user=user, inode=inode)}\n")
        assert loopback.owner(*ends) == found
