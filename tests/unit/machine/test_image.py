"""The image before and after its build: what the build needs, what its failures mean, what damage looks like."""

import os
import pwd
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from small_image import CONTENTS, make_image, nothing_in_cache, place_of_this_version

from testbed.errors import TestbedError, UnsupportedError
from testbed.machine import cache, image, image_build, recipe
from testbed.machine.image import Image
from testbed.machine.recipe import FILES


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Makes the PATH have these programs only, each a shell script of the given lines."""
    monkeypatch.setattr("platform.machine", lambda: "x86_64")

    def make(**scripts: str) -> Path:
        place = tmp_path / "bin"
        place.mkdir(exist_ok=True)
        for name, script in scripts.items():
            path = place / name.replace("_", "-").replace("mkfs-", "mkfs.")
            path.write_text(f"#!/bin/sh\n{script}\n")
            path.chmod(0o755)
        monkeypatch.setenv("PATH", str(place))
        return place

    return make


# What a build needs


def test_without_tools_the_packages_and_the_command_are_named(tools: Callable[..., Path]) -> None:
    tools(apt_get="")
    with pytest.raises(UnsupportedError) as said:
        image_build.require_tools()
    assert said.value.message == "building the image needs erofs-utils, mmdebstrap"
    install, other = said.value.hint.splitlines()
    assert install == "Run: sudo apt-get install --no-install-recommends erofs-utils mmdebstrap"
    assert "testbed image import FILE" in other


def test_where_there_is_no_apt_get_the_way_is_an_image_from_elsewhere(tools: Callable[..., Path]) -> None:
    tools()
    with pytest.raises(UnsupportedError) as said:
        image_build.require_tools()
    assert said.value.hint == (
        "This is no Debian: import an image that another machine exported: testbed image import FILE"
    )


def test_only_what_is_missing_is_named(tools: Callable[..., Path]) -> None:
    tools(mmdebstrap="", apt_get="")
    with pytest.raises(UnsupportedError, match=r"needs erofs-utils\n"):
        image_build.require_tools()


def test_root_needs_no_more_than_the_tools(tools: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    tools(mmdebstrap="", apt_get="", mkfs_erofs="")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    image_build.require_tools()


def test_without_root_all_that_is_missing_is_named_at_once(
    tools: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools(apt_get="", mkfs_erofs="")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(image_build, "KEYRING", tmp_path / "not-there")
    with pytest.raises(UnsupportedError, match="needs debian-archive-keyring, mmdebstrap, uidmap"):
        image_build.require_tools()


def test_a_range_of_user_ids_is_that_of_who_builds_whatever_the_environment_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = pwd.getpwuid(os.getuid()).pw_name
    monkeypatch.setattr(image_build, "SUBUID", tmp_path / "subuid")
    monkeypatch.setattr(image_build.subprocess, "run", lambda *_, **__: subprocess.CompletedProcess([], 0))
    monkeypatch.setenv("USER", "somebody")
    (tmp_path / "subuid").write_text("somebody:100000:65536\n")
    with pytest.raises(UnsupportedError, match=f"has none for {own}"):
        image_build.require_unshare()
    (tmp_path / "subuid").write_text(f"{own}:100000:65536\n")
    image_build.require_unshare()


def test_with_an_image_nothing_that_builds_one_is_wanted(tools: Callable[..., Path], cache_root: Path) -> None:
    tools()
    assert "mmdebstrap" in image_build.wanted_packages()
    place = make_image(place_of_this_version(cache_root)).path
    assert image_build.wanted_packages() == []
    (place / "manifest.json").write_text("{")
    assert image_build.wanted_packages() == []


def test_another_processor_is_said_first(tools: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    tools()
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    with pytest.raises(UnsupportedError, match="x86-64 only, this machine is aarch64"):
        image_build.require_tools()


def test_lists_of_names_have_comments_and_empty_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recipe, "GUEST", tmp_path)
    (tmp_path / "packages.txt").write_text("# network\niproute2\n\n  rdma-core  \n   # end\n")
    assert recipe.names_in("packages.txt") == ["iproute2", "rdma-core"]


def test_every_python_package_of_the_guest_is_pinned() -> None:
    names = [requirement.split("==")[0] for requirement in recipe.guest_requirements()]
    assert names == recipe.names_in("python.txt")
    assert all(re.fullmatch(r"[\w.-]+==\d[\w.]*", requirement) for requirement in recipe.guest_requirements())


def test_the_guest_has_every_package_that_its_packages_need() -> None:
    guest, listed = {"python_version": "3.13", "sys_platform": "linux", "extra": ""}, recipe.names_in("python.txt")
    for name in listed:
        needs = [Requirement(text) for text in requires(name) or []]
        assert {
            canonicalize_name(need.name) for need in needs if not need.marker or need.marker.evaluate(guest)
        } <= set(listed), name


@pytest.fixture
def inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of its own for all that an image is made from."""
    shutil.copytree(recipe.GUEST, tmp_path / "guest")
    shutil.copy(recipe.LOCK, tmp_path / "requirements.lock")
    shutil.copy(recipe.__file__, tmp_path / "recipe.py")
    monkeypatch.setattr(recipe, "GUEST", tmp_path / "guest")
    monkeypatch.setattr(recipe, "LOCK", tmp_path / "requirements.lock")
    monkeypatch.setattr(recipe, "__file__", str(tmp_path / "recipe.py"))
    return tmp_path


def test_the_key_changes_with_every_file_of_the_guest(inputs: Path) -> None:
    before = recipe.inputs_key()
    for path in sorted((inputs / "guest").glob("*.*")):
        text = path.read_text()
        path.write_text(text + "\n# changed\n")
        assert recipe.inputs_key() != before, path.name
        path.write_text(text)
    assert recipe.inputs_key() == before


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("recipe.py", 'PYTHON = "3.13"', 'PYTHON = "3.14"'),
        ("recipe.py", "PMEM_ALIGNMENT = 2 << 20", "PMEM_ALIGNMENT = 4 << 20"),
        ("requirements.lock", "annotated-types==", "annotated-types==99."),
    ],
    ids=["a constant", "how the files are padded", "a package that one of the guest's needs"],
)
def test_the_key_changes_with_what_is_done_with_the_files(inputs: Path, file: str, old: str, new: str) -> None:
    before = recipe.inputs_key()
    text = (inputs / file).read_text()
    assert old in text
    (inputs / file).write_text(text.replace(old, new))
    assert recipe.inputs_key() != before


def test_the_key_is_the_same_in_every_checkout_and_whatever_the_lock_says_beside_versions(
    inputs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = recipe.inputs_key()
    lock = inputs / "requirements.lock"
    lock.write_text(re.sub(r"sha256:[0-9a-f]", "sha256:0", lock.read_text()))
    assert recipe.inputs_key() == before
    monkeypatch.undo()
    assert recipe.inputs_key() == before


# The build


def test_the_mirror_is_the_one_the_user_chose(tools: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    tools(apt_get="echo Debian Debian http://this.machine/debian/")
    monkeypatch.setenv("TESTBED_MIRROR", "http://chosen/debian")
    assert image_build.mirror() == ["http://chosen/debian"]


def test_the_mirror_is_else_the_one_of_this_debian(tools: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TESTBED_MIRROR", raising=False)
    tools(apt_get="echo Docker Docker http://d/; echo 'Debian Debian http://m/debian/'; echo Debian Debian http://n/")
    assert image_build.mirror() == ["http://m/debian/"]


def test_on_another_distribution_the_mirror_is_left_to_mmdebstrap(
    tools: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TESTBED_MIRROR", raising=False)
    tools(apt_get="echo Ubuntu Ubuntu http://archive.ubuntu.com/ubuntu/")
    assert image_build.mirror() == []


def test_a_build_tells_the_bytes_it_fetched_and_keeps_every_line() -> None:
    words = (
        "I: running apt-get update...",
        "Get:1 http://m trixie InRelease [1,500 B]",
        "Get:2 http://m trixie/main amd64 Packages [2.5 MB]",
        "Setting up libc6 (2.41) ...",
        "unheard",
    )
    told: list[tuple[str, int]] = []
    with tempfile.TemporaryFile("w+") as log:
        command = ["sh", "-c", 'printf "%s\\n" "$@"; exit 25', "sh", *words]
        status = image_build.follow(command, log, lambda *now: told.append(now))
        log.seek(0)
        assert log.read().splitlines() == [*words]
    assert status == 25
    assert [fetched for _, fetched in told] == [0, 1500, 2_501_500, 2_501_500, 2_501_500]
    assert told[-1][0] == "install packages"


@pytest.mark.parametrize("inherited", [{}, {"DEBIAN_FRONTEND": "dialog", "DEBCONF_PRIORITY": "low", "TERM": "dumb"}])
def test_a_build_does_not_depend_on_how_the_user_installs_packages(
    monkeypatch: pytest.MonkeyPatch, inherited: dict[str, str]
) -> None:
    for name in [name for name in os.environ if name.startswith("DEB") or name == "TERM"]:
        monkeypatch.delenv(name)
    for name, value in inherited.items():
        monkeypatch.setenv(name, value)
    with tempfile.TemporaryFile("w+") as log:
        assert image_build.follow(["sh", "-c", "env | grep -e ^DEB -e ^TERM= | sort"], log, lambda *_: None) == 0
        log.seek(0)
        assert log.read() == "DEBIAN_FRONTEND=noninteractive\nTERM=xterm\n"


SCRAPS = {"packages": b"", "sources": b"", "kernel-release": b"7.3"}


def build_with(monkeypatch: pytest.MonkeyPatch, during: Callable[[], object]) -> Image:
    """A build of a few bytes; `during` is called while mmdebstrap would be at work."""

    def bootstrap(work: Path, _: image_build.Progress) -> None:
        (work / "python").mkdir()
        for name, data in {**CONTENTS, **SCRAPS}.items():
            (work / name).write_bytes(data)
        during()

    monkeypatch.setattr(image_build, "require_tools", lambda: None)
    monkeypatch.setattr(image_build, "SPACE", 0)
    monkeypatch.setattr(image_build, "fetch_python", lambda _: None)
    monkeypatch.setattr(image_build, "bootstrap", bootstrap)
    return image_build.build(lambda *_: None)


def test_an_image_is_found_by_the_inputs_it_was_built_from(
    cache_root: Path, inputs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = build_with(monkeypatch, lambda: None)
    assert built.path == place_of_this_version(cache_root)
    assert image.find() == built
    assert sorted(path.name for path in built.path.iterdir()) == sorted(("manifest.json", *FILES))


def test_an_image_whose_inputs_are_edited_during_its_build_is_given_up(
    cache_root: Path, inputs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(TestbedError, match="inputs changed during the build"):
        build_with(monkeypatch, lambda: (inputs / "guest" / "init.sh").write_text("edited"))
    assert nothing_in_cache(cache_root)


@pytest.mark.parametrize(
    ("words", "kind", "message", "hint"),
    [
        ("E: Could not resolve 'mirror.example'", UnsupportedError, "could not be fetched", "TESTBED_MIRROR"),
        ("Err:1 Unable to connect to m:80", UnsupportedError, "could not be fetched", "apt-get update"),
        ("E: Failed to fetch http://m/a.deb  404", UnsupportedError, "could not be fetched", "TESTBED_MIRROR"),
        ("tar: write error: No space left on device", UnsupportedError, "the disk filled up", "XDG_CACHE_HOME"),
        ("E: Failed to fetch a\nNo space left on device", UnsupportedError, "the disk filled up", "6 GB"),
        ("E: setup hook failed", TestbedError, "mmdebstrap failed", "testbed doctor"),
        ("", TestbedError, "mmdebstrap failed", "testbed doctor"),
    ],
)
def test_a_failed_build_says_whose_fault_it_is(words: str, kind: type[TestbedError], message: str, hint: str) -> None:
    with pytest.raises(TestbedError, match=message) as said:
        image_build.raise_for(f"I: before\n\n{words}\n")
    assert type(said.value) is kind
    assert hint in said.value.hint
    assert words.splitlines()[-1:] == [line.strip() for line in said.value.message.splitlines()][-1:] or not words


def test_a_failed_build_quotes_its_last_lines_only() -> None:
    with pytest.raises(TestbedError) as said:
        image_build.raise_for("\n".join(f"line {number}" for number in range(100)))
    assert "line 94" in said.value.message
    assert "line 93" not in said.value.message


# Damage


def test_no_image_is_none(cache_root: Path) -> None:
    assert image.find() is None


def test_an_image_of_this_version_is_found(cache_root: Path) -> None:
    make_image(place_of_this_version(cache_root))
    found = image.find()
    assert found
    assert (found.kernel, len(found.digest)) == ("7.3", 64)
    found.verify()
    assert found.file("vmlinuz").read_bytes() == b"kernel"


def test_a_damaged_manifest_says_where_and_what_to_do(cache_root: Path) -> None:
    place = make_image(place_of_this_version(cache_root)).path
    (place / "manifest.json").write_text('{"digest": "d')
    with pytest.raises(UnsupportedError, match="manifest is damaged") as said:
        image.find()
    assert said.value.where == str(place / "manifest.json")
    assert "testbed image rm" in said.value.hint


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_cut_or_gone_is_damage(cache_root: Path, name: str) -> None:
    found = make_image(place_of_this_version(cache_root))
    os.truncate(found.path / name, 3)
    with pytest.raises(UnsupportedError, match=rf"damaged: {name} has 3 bytes, expected {len(CONTENTS[name])}"):
        found.file(name)
    (found.path / name).unlink()
    with pytest.raises(UnsupportedError, match=f"{name} has 0 bytes") as said:
        found.file(name)
    assert "testbed image rm" in said.value.hint


def test_a_changed_byte_is_seen_when_every_byte_is_read(cache_root: Path) -> None:
    found = make_image(place_of_this_version(cache_root))
    (found.path / "vmlinuz").write_bytes(b"kernal")
    assert found.file("vmlinuz")
    with pytest.raises(UnsupportedError, match="the contents of vmlinuz have changed since the build"):
        found.verify()


# Older images


def test_of_other_versions_the_last_ones_stay(cache_root: Path) -> None:
    places = [make_image(cache_root / "images" / name).path for name in ("oldest", "old", "newer", "newest", "used")]
    for age, path in enumerate(places):
        os.utime(path, (1000 + age, 1000 + age))
    os.utime(places[-1], (1, 1))
    image.prune(places[-1])
    assert sorted(path.name for path in (cache_root / "images").iterdir()) == ["newer", "newest", "used"]


def test_all_images_can_be_removed(cache_root: Path) -> None:
    assert image.remove_all() == 0
    for name in ("one", "two"):
        make_image(cache_root / "images" / name)
    assert image.remove_all() == 2
    assert nothing_in_cache(cache_root)


def test_a_link_among_the_images_is_removed_and_nothing_behind_it(cache_root: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    for name in ("a", "z"):
        make_image(cache_root / "images" / name)
    (cache_root / "images" / "m").symlink_to(tmp_path / "mine")
    (cache_root / "images" / "n").symlink_to("nowhere")
    assert image.remove_all() == 2
    assert nothing_in_cache(cache_root)
    assert (tmp_path / "mine").is_dir()


def test_an_image_that_is_being_built_is_not_removed(cache_root: Path) -> None:
    make_image(cache_root / "images" / "one")
    parent = cache.directory("images")
    with cache.locked(parent), cache.making(parent / "two") as work:
        with pytest.raises(TestbedError, match="another command is building or importing an image"):
            image.remove_all()
        assert sorted(parent.iterdir()) == sorted((work, parent / "one"))


def test_what_a_killed_build_left_is_removed_and_not_counted(cache_root: Path) -> None:
    make_image(cache_root / "images" / f"making-{'a' * 16}")
    assert image.remove_all() == 0
    assert nothing_in_cache(cache_root)


def eventually(condition: Callable[[], object], within: float = 30) -> bool:
    deadline = time.monotonic() + within
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    return bool(condition())


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGKILL])
def test_pip_ends_with_a_build_that_is_killed_and_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    """As pip does, its program makes a temporary directory."""
    (tmp_path / "tmp").mkdir()
    code = f"""
import signal
from pathlib import Path
from testbed.machine import image_build, recipe
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # below nohup it is ignored
recipe.python_command = lambda _: ["sh", "-c", "mktemp -d; echo $$ > {tmp_path}/pid; exec sleep 1000"]
image_build.fetch_python(Path({str(tmp_path)!r}))
"""
    environment = {**os.environ, "TMPDIR": str(tmp_path / "tmp")}
    with subprocess.Popen([sys.executable, "-c", code], env=environment) as build:
        assert eventually(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
        pip = int((tmp_path / "pid").read_text())
        build.send_signal(number)
    assert eventually(lambda: not list((tmp_path / "tmp").iterdir()))
    assert eventually(lambda: not Path(f"/proc/{pip}").exists())
