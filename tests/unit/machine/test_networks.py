"""Which plugins of the user's own go along with `testbed cni`, and how."""

import asyncio
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from testbed.errors import InputError, TestbedError
from testbed.machine import networks
from testbed.machine.jobs import Job
from testbed.protocol.requests import Cni

CONFLIST = {
    "cniVersion": "1.0.0",
    "name": "rdma",
    "plugins": [
        {"type": "mine", "ipam": {"type": "mine-ipam"}},
        {"type": "outer", "delegate": {"type": "inner"}},
        {"type": "../x"},
    ],
}


@pytest.fixture
def conflist(tmp_path: Path) -> Path:
    file = tmp_path / "rdma.conflist"
    file.write_text(json.dumps(CONFLIST))
    return file


def directory(parent: Path, name: str, *plugins: str) -> Path:
    made = parent / name
    made.mkdir()
    for plugin in plugins:
        (made / plugin).write_text(f"#!/bin/sh\n# {plugin}\n")
        (made / plugin).chmod(0o755)
    return made


def test_of_cni_path_goes_along_what_the_conflist_names(conflist: Path, tmp_path: Path) -> None:
    first = directory(tmp_path, "first", "mine", "bridge", "inner")
    second = directory(tmp_path, "second", "mine-ipam", "mine")
    path = f"{first}::{second}:{tmp_path}/none:{tmp_path}"
    assert networks.own_plugins([conflist], [], path) == {first: ["inner", "mine"], second: ["mine", "mine-ipam"]}


def test_a_script_s_modules_go_along_with_it(conflist: Path, tmp_path: Path) -> None:
    own = directory(tmp_path, "own", "mine", "bridge")
    (own / "helpers.py").write_text("x = 1\n")
    assert networks.own_plugins([conflist], [], str(own)) == {own: ["helpers.py", "mine"]}


def test_of_a_plugin_dir_all_goes_along(conflist: Path, tmp_path: Path) -> None:
    own = directory(tmp_path, "own", "mine")
    (own / "helpers.py").write_text("x = 1\n")
    assert networks.own_plugins([conflist], [own], str(own)) == {own: ["helpers.py", "mine"]}


def test_a_plugin_dir_that_can_be_no_one_s_is_wrong_input(conflist: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="own: is no directory"):
        networks.own_plugins([conflist], [tmp_path / "own"], "")
    (directory(tmp_path, "own") / "mine").write_text("#!/bin/sh\n")
    with pytest.raises(InputError, match=r"own: it contains no executable file\n  chmod \+x the plugin[.]"):
        networks.own_plugins([conflist], [tmp_path / "own"], "")


def test_a_conflist_that_is_none_names_no_plugins(conflist: Path, tmp_path: Path) -> None:
    path = str(directory(tmp_path, "own", "mine"))
    for text in "{", "[" * 100_000, "3":
        conflist.write_text(text)
        assert networks.own_plugins([conflist], [], path) == {}


def test_plugins_of_the_network_s_directory_are_named_too(conflist: Path, tmp_path: Path) -> None:
    (tmp_path / "rdma").mkdir()
    (tmp_path / "rdma/more.conf").write_text('{"type": "last"}')
    own = directory(tmp_path, "own", "last")
    assert networks.own_plugins([conflist], [], str(own)) == {own: ["last"]}


@dataclass
class FakeMachine:
    jobs: list[Job[Any]] = field(default_factory=list)

    async def run(self, job: Job[Any], out: Path) -> float:
        self.jobs.append(job)
        job.receive({"id": 0, "response": {"result": None, "kept": []}})
        return 0.1


def use(conflist: Path, plugins: networks.Plugins, out: Path) -> Job[Any]:
    machine = FakeMachine()
    asyncio.run(networks.use(Cni(command="add", conflist=str(conflist)), plugins, machine, 1, out))
    return machine.jobs[0]


def test_a_plugin_travels_with_its_execute_bit(conflist: Path, tmp_path: Path) -> None:
    own = directory(tmp_path, "own", "mine")
    (own / "helpers.py").write_text("x = 1\n")
    job = use(conflist, {own: ["helpers.py", "mine"]}, tmp_path)
    assert job.files[".cni-plugins/0/mine"] == b"#!/bin/sh\n# mine\n"
    assert job.files[".cni-plugins/0/helpers.py"] == b"x = 1\n"
    assert job.executable == [".cni-plugins/0/mine"]
    assert job.requests == [Cni(command="add", conflist="rdma.conflist", plugins=[".cni-plugins/0"])]


def test_the_files_of_the_network_s_directory_travel_with_it(conflist: Path, tmp_path: Path) -> None:
    (tmp_path / "rdma").mkdir()
    (tmp_path / "rdma/more.conf").write_text('{"type": "last"}')
    (tmp_path / "rdma/README").write_text("no plugin")
    elsewhere = directory(tmp_path, "elsewhere") / "linked.conflist"
    elsewhere.symlink_to(conflist)
    assert set(use(conflist, {}, tmp_path).files) == {"rdma.conflist", "rdma/more.conf"}
    assert set(use(elsewhere, {}, tmp_path).files) == {"rdma.conflist"}


@pytest.mark.parametrize("absolute", [True, False])
def test_an_error_names_the_conflist_as_the_user_did(
    absolute: bool, conflist: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Refuses:
        async def run(self, job: Job[Any], out: Path) -> float:
            where = "rdma.conflist:3:1"
            job.receive({"id": 0, "error": {"message": "no", "where": where, "hint": "", "also": [], "status": 2}})
            return 0.1

    monkeypatch.chdir(conflist.parent)
    given = conflist if absolute else Path("rdma.conflist")
    with pytest.raises(TestbedError, match="no") as refused:
        asyncio.run(networks.use(Cni(command="add", conflist=str(given)), {}, Refuses(), 1, Path()))
    assert (refused.value.where, refused.value.exit_status) == (f"{given}:3:1", 2)


def test_plugins_that_are_too_large_are_refused(
    conflist: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own: dict[Path, Any] = {directory(tmp_path, "own", "mine"): ["mine"]}
    monkeypatch.setattr(networks, "FILES_BYTES", conflist.stat().st_size)
    with pytest.raises(InputError, match="own: the plugins have 0 MiB; a machine accepts 0 MiB\n  Remove the debug"):
        use(conflist, own, tmp_path)
