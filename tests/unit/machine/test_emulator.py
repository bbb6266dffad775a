"""Which QEMU runs machines, and how that of an image is unpacked."""

import os
import select
import subprocess
from pathlib import Path

import pytest
from small_image import LOADER, RELEASE, archive_of, make_image, place_of_this_version

from testbed.errors import UnsupportedError
from testbed.machine import child_processes, emulator


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv(emulator.CHOICE, raising=False)
    return tmp_path / "cache" / "testbed"


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A QEMU in PATH."""
    program = tmp_path / "bin" / emulator.BINARY
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho 'QEMU emulator version 9.9.9 (of the host)'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=os.pathsep)
    return program


@pytest.mark.usefixtures("host")
def test_the_image_s_runs_machines_by_its_own_loader(cache: Path) -> None:
    image = make_image(place_of_this_version(cache))
    found = emulator.emulator()
    place = image.path / "qemu"
    assert found.command == (
        *(str(place / "lib/ld-linux-x86-64.so.2"), "--library-path", str(place / "lib")),
        *(str(place / "qemu-system-x86_64"), "-L", str(place / "firmware")),
    )
    assert found.identity == image.manifest["files"]["qemu.tar"]["sha256"]
    assert emulator.release() == RELEASE
    assert [path for path in image.path.iterdir() if path.name.startswith("making-")] == []


def test_the_host_s_is_a_choice(cache: Path, host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_image(place_of_this_version(cache))
    for choice in "host", str(host):
        monkeypatch.setenv(emulator.CHOICE, choice)
        assert emulator.emulator().command == (str(host),)
        assert emulator.version() == "9.9.9"


@pytest.mark.usefixtures("cache")
def test_on_another_processor_it_is_the_host_s(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    assert emulator.emulator().command == (str(host),)


@pytest.mark.usefixtures("cache")
def test_one_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    emulator.require()  # that of the image comes with it
    monkeypatch.setenv(emulator.CHOICE, "/nowhere/qemu")
    with pytest.raises(UnsupportedError, match="there is no program /nowhere/qemu"):
        emulator.require()
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv(emulator.CHOICE, "host")
    with pytest.raises(UnsupportedError, match="qemu-system-x86_64 is not installed"):
        emulator.require()


@pytest.mark.parametrize("name", ["../out", "/etc/out", "lib/../../out", "a/b/c", "lib/a b"])
def test_an_archive_writes_nothing_outside_its_directory(cache: Path, name: str) -> None:
    image = make_image(place_of_this_version(cache))
    (image.path / "qemu.tar").write_bytes(archive_of(LOADER, (name, b"x")))
    with pytest.raises(UnsupportedError, match="damaged"):
        emulator.unpacked(image)
    assert not (image.path / "qemu").exists()
    assert list(cache.rglob("out")) == []


def test_without_a_setpriv_of_util_linux_a_child_dies_with_its_parent_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Busybox has one that does not know --pdeathsig."""
    child_processes.death_signal_words.cache_clear()
    with monkeypatch.context() as patch:
        patch.setenv("PATH", "/nowhere")
        words = child_processes.dying("KILL")
    child_processes.death_signal_words.cache_clear()
    assert words[0] != "setpriv"
    command = f"[*{words[:-1]!r}, str(os.getpid()), 'sleep', '60']"
    script = f"import os, subprocess; print(subprocess.Popen({command}).pid, flush=True); input()"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([words[0], "-c", script], text=True, **pipes) as parent:
        assert parent.stdout
        child = int(parent.stdout.readline())
        handle = os.pidfd_open(child)
        while b"sleep" not in Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")[0]:
            assert not select.select([handle], [], [], 0)[0]
        parent.kill()
    assert select.select([handle], [], [], 60)[0]
    os.close(handle)
