"""Labs that live, from `up` to `down`, and what may happen to them meanwhile."""

import json
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import time
from pathlib import Path

import pytest
from conftest import COMMAND
from live import Live, wait_for

SCENARIO = "ip-reuse"


def nothing_left(own: Live) -> bool:
    return wait_for(lambda: not own.processes(), 20) and not (own.labs.exists() and list(own.labs.iterdir()))


# Up and down


def test_a_lab_lives_until_down(own):
    own.up("mine")
    [row] = own("ps", "-f", "json").json
    assert (row["name"], row["state"], row["clock"]) == ("mine", "up", "real")
    done = own("down", "mine")
    assert (done.status, done.err) == (0, "")
    assert own("ps", "-f", "json").json == []
    assert nothing_left(own)
    [run] = (path for path in (own.directory / "runs" / "mine").iterdir() if not path.is_symlink())
    assert json.loads((run / "result.json").read_text())["trace"]


def test_nobody_but_the_user_can_talk_to_a_lab(live, real):
    """Directories are the user's alone; nothing listens on a network."""
    for directory in live.labs, live.labs / real:
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    keeper, machine = live.record(real)["pid"], live.machine(real)
    inodes = set()
    for pid in keeper, machine:
        for file in Path(f"/proc/{pid}/fd").iterdir():
            if (target := os.readlink(file)).startswith("socket:"):
                inodes.add(target.strip("socket:[]"))
    assert inodes, "the keeper's own socket is among them"
    for table in "tcp", "tcp6", "udp", "udp6":
        rows = Path(f"/proc/{keeper}/net/{table}").read_text().splitlines()[1:]
        assert not inodes & {row.split()[9] for row in rows}


def test_a_name_that_is_taken_and_names_that_are_none(live, real):
    taken = live("up", live.file, "--name", real)
    assert taken.status == 2
    assert "is there" in taken.error
    assert "down real" in taken.error
    for name in "../up", ".hidden", "a/b", "x" * 64, "-x", "a b", "ü":
        done = live("up", live.file, f"--name={name}")
        assert done.status == 2, done.err
        assert "name" in done.error
    nobody = live("exec", "h1", "--", "true", lab="rael")
    assert nobody.status == 2
    assert "Did you mean real?" in nobody.error


def test_two_commands_that_bring_up_the_same_name_make_one_lab(own):
    with own.started("up", own.file) as first, own.started("up", own.file) as second:
        for process in first, second:
            process.communicate(timeout=120)
    assert sorted([first.returncode, second.returncode]) == [0, 2]
    assert [row["state"] for row in own("ps", "-f", "json").json] == ["up"]


def test_a_broken_file_is_an_error_with_the_users_place_and_leaves_nothing(own):
    for number, text in enumerate(("topology: [", "name: x\ntopology:\n  nodes:\n    h1: {kind: hots}\n")):
        (own.directory / "sub").mkdir(exist_ok=True)
        file = own.directory / "sub" / f"broken{number}.clab.yml"
        file.write_text(text)
        done = own("up", f"sub/{file.name}")
        assert done.status == 2
        assert f"sub/{file.name}:" in done.error
        assert "Traceback" not in done.err
    assert own("up", "nosuch.clab.yml").status == 2
    assert nothing_left(own)
    assert not list((own.directory / "runs").glob("*/2*"))


def test_a_scenarios_lab_comes_up_as_its_variant_and_settings_have_it(own):
    assert own("up", SCENARIO, "--variant", "garp", "--set", "profile=sonic", "--name", "s").status == 0
    nodes = {node["name"]: node for node in own("inspect", "-f", "json").json["nodes"]}
    switch = next(node for node in nodes.values() if node["kind"] == "switch")
    assert switch["profile"] == "sonic"
    wrong = own("up", SCENARIO, "--variant", "gapr", "--name", "t")
    assert wrong.status == 2
    assert "garp" in wrong.error
    assert own("up", SCENARIO, "--set", "nosuch=1", "--name", "t").status == 2


def test_a_lab_with_rm_ends_with_its_command(own):
    for number in signal.SIGINT, signal.SIGTERM, signal.SIGKILL:
        with own.started("up", own.file, "--rm") as process:
            assert process.stdout.readline()
            time.sleep(0.5)  # before that it is a command that is interrupted
            process.send_signal(number)
            status = process.wait(60)
        assert status == (-9 if number == signal.SIGKILL else 0)
        assert nothing_left(own), own.processes()


def test_a_lab_with_rm_that_is_taken_down_ends_its_command(own):
    with own.started("up", own.file, "--rm") as process:
        assert wait_for(lambda: [lab["state"] for lab in own("ps", "-f", "json").json] == ["up"], 120)
        assert own("down").status == 0
        assert process.wait(60) == 0


def test_a_lab_that_nobody_uses_ends(own):
    own.up("idle", "--idle", "2s")
    assert nothing_left(own)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_a_command_that_ends_while_its_lab_comes_up_leaves_nothing(own, number):
    with own.started("up", own.file) as process:
        assert wait_for(lambda: own.labs.exists() and list(own.labs.glob("*/socket")), 60)
        process.send_signal(number)
        process.wait(60)
    assert nothing_left(own), own.processes()
    assert wait_for(lambda: not list((own.directory / "runs").glob("*/2*")), 20)


def test_a_lab_that_comes_up_can_be_taken_down(own):
    with own.started("up", own.file, "--name", "early") as process:
        assert wait_for(lambda: list(own.labs.glob("*/lab.json")), 60)
        done = own("down", "early")
        error = process.communicate(timeout=60)[1].decode()
    assert done.status == 0
    assert process.returncode == 1
    assert "ended before it was up" in error
    assert nothing_left(own)


# Deaths


@pytest.mark.parametrize("victim", ["keeper", "machine"])
@pytest.mark.parametrize("clock", ["real", "virtual"])
def test_a_killed_lab_is_dead_says_why_and_can_be_taken_down(own, victim, clock):
    own.up("mine", "--clock", clock)
    with own.started("exec", "h1", "--", "sh", "-c", "echo begun; exec yes >/dev/null") as process:
        assert process.stdout.readline() == b"begun\n"
        os.kill(own.record("mine")["pid"] if victim == "keeper" else own.machine("mine"), signal.SIGKILL)
        error = process.communicate(timeout=60)[1].decode()
    assert process.returncode == 1
    assert "Traceback" not in error
    assert wait_for(lambda: not own.processes(), 20), "nothing runs on"
    # The kernel takes a process's memory, and its name with it, before it closes its files, and its lock with them.
    assert wait_for(lambda: own("ps", "-f", "json").json[0]["state"] == "dead", 20)
    [row] = own("ps", "-f", "json").json
    assert "killed" in row["why"] if victim == "keeper" else "QEMU ended" in row["why"]
    late = own("exec", "h1", "--", "true")
    assert late.status == 1
    assert "is dead" in late.error
    assert "testbed down mine" in late.error
    assert "is dead" in own("up", own.file, "--name", "mine").error
    assert own("down", "mine").status == 0
    assert nothing_left(own)


def test_sigterm_of_the_keeper_takes_the_lab_down(own):
    own.up("mine")
    os.kill(own.record("mine")["pid"], signal.SIGTERM)
    assert nothing_left(own)
    assert list((own.directory / "runs" / "mine").glob("2*/result.json"))


def test_a_keeper_that_stands_still_is_killed_by_force(own):
    own.up("mine")
    keeper = own.record("mine")["pid"]
    os.kill(keeper, signal.SIGSTOP)
    assert own("ps", "-f", "json").json[0]["state"] == "up"
    done = own("down", "--force", "mine")
    assert (done.status, done.err) == (0, "")
    assert nothing_left(own)


@pytest.mark.parametrize("force", [(), ("--force",)], ids=["asked", "forced"])
def test_a_lab_without_its_socket_is_taken_down(own, force):
    own.up("mine")
    (own.labs / "mine" / "socket").unlink()
    late = own("exec", "h1", "--", "true")
    assert (late.status, "its socket was removed" in late.error) == (1, True)
    assert "testbed down mine" in late.error
    done = own("down", *force, "mine")
    assert (done.status, done.err) == (0, "")
    assert nothing_left(own)
    assert bool(list((own.directory / "runs" / "mine").glob("2*/result.json"))) is not bool(force)


def test_a_lab_whose_directory_is_removed_ends(own):
    own.up("mine")
    shutil.rmtree(own.labs / "mine")
    assert wait_for(lambda: not own.processes(), 60)
    assert list((own.directory / "runs" / "mine").glob("2*/result.json"))
    own.up("mine")
    assert own("down", "mine").status == 0


def test_what_makes_no_sense_on_the_socket_harms_nobody(live, real):
    """Not to the keeper, and not to the machine behind it."""
    path = live.labs / real / "socket"
    handle = os.open(path.parent, os.O_PATH)
    for data in (
        b"\x00\xff" * 1000 + b"\n",
        b"{}\n",
        b"[1]\n",
        b'{"id": "x"}\n',
        b'{"id": 1}\n',
        b'{"id": 1, "request": 5}\n',
        b'{"id": 1, "request": {"kind": "Exec"}, "protocol": 1}\n',
        b"[" * 100_000 + b"\n",
        b'{"id": 1, "protocol": 1, "request": {"kind": "Tables", "switch": "leaf", "follow": true}}\n'
        b'{"id": 1, "stop": {}}\n{"id": 1, "input": 5}\n{"id": 1, "ack": []}\n',
        b'{"id": 1, "protocol": 1, "request": {"kind": "Exec", "node": "h1", "command": ["cat"], "input": true}}\n'
        b'{"id": 1, "input": "=!"}\n{"id": 1, "ack": ["out", "x"]}\n{"id": 1, "size": [1, 1]}\n',
        b'{"id": 1, "protocol": 1, "request": {"kind": "Exec", "node": "h1", "command": []}}\n',
        b"x" * 40_000_000,
    ):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(f"/proc/self/fd/{handle}/socket")
            try:
                connection.sendall(data)
                connection.settimeout(0.3)
                connection.recv(1 << 16)
            except OSError:
                pass
    os.close(handle)
    assert live("exec", "h1", "--", "echo", "well", lab=real).out == "well\n"


def test_a_request_of_another_version_is_refused_in_one_message(live, real):
    with socket.socket(socket.AF_UNIX) as connection:
        handle = os.open(live.labs / real, os.O_PATH)
        connection.connect(f"/proc/self/fd/{handle}/socket")
        os.close(handle)
        connection.sendall(b'{"id": 1, "protocol": 99, "request": {"kind": "Inspect"}}\n')
        answer = json.loads(connection.makefile().readline())
    assert "version 99" in answer["error"]["message"]


# What is on the disk


def test_a_record_that_is_damaged_or_another_versions_hinders_nothing(own):
    own.up("mine")
    for record in (
        "",
        "[]",
        '{"name": "../../mine"}',
        '{"name": 5, "state": []}',
        '{"protocol": 7, "state": "frozen"}',
        "{",
    ):
        (own.labs / "mine" / "lab.json").write_text(record)
        [row] = own("ps", "-f", "json").json
        assert row["name"] == "mine"
        assert own("exec", "h1", "--", "true").status == 0
    done = own("down", "mine")
    assert (done.status, done.err) == (0, "")
    assert nothing_left(own)


def test_what_a_dead_lab_left_is_removed_whatever_it_is(own):
    for name, record in {"empty": None, "broken": "{", "other": '{"name": "x", "more": 1, "since": "then"}'}.items():
        (own.labs / name).mkdir(parents=True, mode=0o700)
        if record is not None:
            (own.labs / name / "lab.json").write_text(record)
    assert {row["state"] for row in own("ps", "-f", "json").json} == {"dead"}
    assert own("ps").status == 0
    done = own("down", "--all")
    assert (done.status, done.err) == (0, "")
    assert nothing_left(own)


@pytest.fixture
def small(own):
    """A file system of 1 MB."""
    place = own.directory / "small"
    place.mkdir()
    if (
        os.geteuid() != 0
        or subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", place], capture_output=True, check=False
        ).returncode
    ):
        pytest.skip("mounting a small file system needs root")
    yield place
    own.end()
    subprocess.run(["umount", "-l", place], check=True)


def fill(directory: Path) -> Path:
    file = directory / "filler"
    with file.open("wb", buffering=0) as target:
        for size in 4096, 1:
            try:
                while target.write(bytes(size)):
                    pass
            except OSError:
                continue
    return file


def test_a_full_disk_below_the_run_directory_is_one_message_in_the_end(own, small):
    own.up("mine", "--out", small)
    filler = fill(small)
    assert own("exec", "h1", "--", "true").status == 0, "the lab lives on"
    assert own("link", "set", "leaf:e1", "down").status == 0
    done = own("down", "mine")
    assert done.status == 3
    assert "the disk is full" in done.error
    assert "Traceback" not in done.err
    filler.unlink()
    assert nothing_left(own)


def test_a_full_disk_below_the_labs_does_not_hinder_a_lab(own, small):
    own.state = small
    own.labs = small / "testbed" / "labs"
    own.env["XDG_STATE_HOME"] = str(small)
    own.up("mine")
    filler = fill(small)
    full = own("up", own.file, "--name", "other")
    assert full.status == 3
    assert "the disk is full" in full.error
    assert "Traceback" not in full.err
    assert own("exec", "h1", "--", "true").status == 0
    done = own("down", "mine")
    assert (done.status, done.err) == (0, "")
    filler.unlink()
    assert nothing_left(own)


def test_a_full_disk_below_steps_that_are_kept_ends_the_run_and_leaves_no_part_of_one(own, small):
    done = own("run", SCENARIO, "--variant", "garp", "--keep-steps", "--out", small)
    assert done.status == 3
    assert re.search(r"small/ip-reuse/\S+/garp/steps/001\.step: the disk is full", done.error)
    assert not list(small.rglob("*.step"))
    assert not own.processes()


def test_labs_without_a_place_are_one_message(own):
    own.state.write_text("")
    for command in ("ps",), ("up", own.file), ("exec", "h1", "--", "true"):
        done = own(*command)
        assert done.status == 3
        assert "XDG_STATE_HOME" in done.error
        assert "Traceback" not in done.err


def test_a_cache_without_an_image_is_no_lab(own, tmp_path):
    """And the run directory of a lab that never was goes with it."""
    shutil.rmtree(tmp_path / "runs", ignore_errors=True)
    done = own("up", own.file, "--with", "no-such-package")
    assert done.status != 0
    assert "no-such-package" in done.error
    assert nothing_left(own)


# Side by side


@pytest.mark.parametrize("clock", ["real", "virtual"])
def test_commands_at_once_are_all_served(live, clock, request):
    lab = request.getfixturevalue(clock)
    commands = [("exec", "h1", "--", "echo", str(number)) for number in range(4)]
    commands += [("rdma", "write", "h1", "h2"), ("rdma", "write", "h2", "h1"), ("tables", "leaf"), ("inspect",)]
    running = [
        subprocess.Popen(
            [*COMMAND, *command],
            env={**live.env, "TESTBED_LAB": lab},
            cwd=live.directory,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for command in commands
    ]
    for number, process in enumerate(running):
        out, err = process.communicate(timeout=120)
        assert process.returncode == 0, err
        if number < 4:
            assert out == f"{number}\n"


def test_tables_are_followed(live, real):
    assert live("exec", "h1", "--", "ping", "-c", "1", "10.0.10.1", lab=real).status == 0
    with live.started("tables", "leaf", "--follow", "-f", "json", lab=real) as process:
        process.stdout.readline()
        assert live("exec", "h1", "--", "ip", "addr", "add", "10.0.10.77/24", "dev", "eth1", lab=real).status == 0
        assert live("exec", "h1", "--", "ping", "-I", "10.0.10.77", "-c", "1", "10.0.10.1", lab=real).status == 0
        while "10.0.10.77" not in (line := process.stdout.readline().decode()):
            assert line
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0


def test_a_write_that_hangs_does_not_hold_down(own):
    """The frames are lost, and the queue pair goes on for minutes."""
    own.up("mine")
    assert own("rdma", "write", "h1", "h2").status == 0
    assert own("link", "set", "h2:eth1", "loss=100").status == 0
    with own.started("rdma", "write", "h1", "h2") as process:
        assert wait_for(lambda: own("exec", "h1", "--", "rdma", "resource", "show", "qp").status == 0)
        done = own("down", "mine")
        process.communicate(timeout=60)
    assert (done.status, done.err) == (0, "")
    assert nothing_left(own)
