"""This very kernel as a lab: one refusal names all that it lacks, in the lines that `testbed doctor` shows."""

from pathlib import Path

import pytest

from testbed.errors import UnsupportedError
from testbed.machine import checkup
from testbed.machine.checkup import Check


@pytest.fixture
def no_lab(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user's machine with an older kernel on which nothing was installed for testbed."""
    monkeypatch.setattr(checkup.os, "geteuid", lambda: 1000)
    monkeypatch.setattr(checkup.platform, "release", lambda: "6.12.48+deb13-amd64")
    monkeypatch.setattr(checkup, "_has_module", lambda *_: False)
    monkeypatch.setattr(checkup.shutil, "which", lambda _: None)
    monkeypatch.setattr(checkup, "_has_library", lambda _: False)
    monkeypatch.setattr(checkup.importlib.util, "find_spec", lambda _: None)
    monkeypatch.setattr(checkup, "DEBIAN_PYVERBS", Path("/nowhere"))


@pytest.mark.usefixtures("no_lab")
def test_one_refusal_names_all_that_is_missing_and_what_brings_it() -> None:
    with pytest.raises(UnsupportedError) as refused:
        checkup.require_local()
    assert refused.value.exit_status == 3
    lines = refused.value.message.splitlines()
    assert [line.strip().partition(":")[0] for line in lines[1:]] == ["root", "kernel", "modules", "tools", "pyverbs"]
    for word in ("sudo -s", "7.1", "rdma_rxe", "iproute2", "iputils-ping", "libnftables1", "python3-pyverbs"):
        assert word in refused.value.message, word


@pytest.mark.usefixtures("no_lab")
def test_the_refusal_has_the_lines_of_doctor() -> None:
    missing = [check for check in checkup.local() if check.state == "missing"]
    with pytest.raises(UnsupportedError) as refused:
        checkup.require_local()
    for check in missing:
        assert f"{check.subject}: {check.text}" in refused.value.message
        assert check.fix in refused.value.message


def test_what_only_some_labs_need_is_no_reason_to_refuse(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [Check("root", "works", "yes"), Check("CNI plugins", "note", "not installed", "apt-get …")]
    monkeypatch.setattr(checkup, "local", lambda: iter(found))
    checkup.require_local()


def test_one_tool_of_many_is_named_with_its_package_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkup.shutil, "which", lambda name: None if name == "rdma" else f"/sbin/{name}")
    monkeypatch.setattr(checkup, "_has_library", lambda _: True)
    [tools] = [check for check in checkup.local() if check.subject == "tools"]
    assert (tools.state, tools.text) == ("missing", "not installed: rdma")
    assert tools.fix.split()[-1] == "iproute2"


@pytest.fixture
def capabilities(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The status of this process, for a test to write."""
    monkeypatch.setattr(checkup.os, "geteuid", lambda: 0)
    monkeypatch.setattr(checkup, "STATUS", tmp_path / "status")
    return tmp_path / "status"


@pytest.mark.parametrize(("mask", "state"), [("000001ffffffffff", "works"), ("00000000a80425fb", "missing")])
def test_root_of_a_container_is_no_root(capabilities: Path, mask: str, state: str) -> None:
    capabilities.write_text(f"Name:\tpython\nCapEff:\t{mask}\nCapBnd:\t000001ffffffffff\n")
    [root] = [check for check in checkup.local() if check.subject == "root"]
    assert root.state == state
    assert ("CAP_SYS_ADMIN" in root.text) == (state == "missing")


@pytest.mark.parametrize("environment", [False, True])
def test_a_virtual_environment_is_told_how_to_see_debian_s_pyverbs(
    environment: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(checkup.importlib.util, "find_spec", lambda _: None)
    monkeypatch.setattr(checkup, "DEBIAN_PYVERBS", tmp_path)  # it is installed
    monkeypatch.setattr(checkup.sys, "prefix", "/home/u/venv" if environment else checkup.sys.base_prefix)
    [pyverbs] = [check for check in checkup.local() if check.subject == "pyverbs"]
    assert ("/home/u/venv/pyvenv.cfg" in pyverbs.fix) == environment
    assert "apt-get" not in pyverbs.fix
