"""Layers of an image: what is asked, what is found in the cache, what is made of apt's words, and how they travel."""

import asyncio
import json
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from container_images import docker_save, tar_of

from testbed.cli import options
from testbed.errors import InputError, TestbedError, UnsupportedError
from testbed.executor import layer
from testbed.machine import cache, checkup, containers, emulator, image, image_build, layers, qemu, recipe, snapshot
from testbed.machine.archives import boot_image
from testbed.machine.containers import Container
from testbed.machine.emulator import Emulator
from testbed.machine.image import Image
from testbed.machine.local import LocalMachine
from testbed.machine.qemu import Flavour
from testbed.protocol import LAYER

BASE = {"iproute2": "6.15", "libc6": "2.41"}
SOURCES = ["deb http://m/debian trixie main"]


@pytest.fixture
def base(cache_root: Path) -> Image:
    """An image of a few bytes that has the packages BASE."""
    place = cache_root / "images" / recipe.inputs_key()[:16]
    place.mkdir(parents=True)
    files = {}
    for name in recipe.FILES:
        (place / name).write_text(name)
        files[name] = {"size": len(name), "sha256": cache.file_digest(place / name)}
    manifest: dict[str, Any] = {
        "digest": cache.digest(*(str(entry["sha256"]) for entry in files.values())),
        "inputs": recipe.inputs_key(),
        "kernel": "7.3",
        "built": "2026-01-01T00:00:00Z",
        "build_s": 100.0,
        "files": files,
        "packages": BASE,
        "python": [],
        "sources": SOURCES,
    }
    (place / "manifest.json").write_text(json.dumps(manifest))
    return Image(place, manifest)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, bytes]]:
    """Lets layers be made without apt and without a machine; what each was made from."""
    jobs = []

    async def install(_: Image, debs: dict[str, bytes], out: Path, __: layers.Log) -> dict[str, str]:
        jobs.append(debs)
        (out / LAYER).write_bytes(b"".join(debs.values()))
        return {**BASE, "libc6": "2.42", **dict.fromkeys(debs, "1")}

    monkeypatch.setattr(layers, "install", install)
    monkeypatch.setattr(layers, "fetch", lambda _, names: {name: name.encode() for name in names})
    monkeypatch.setattr(layers, "SPACE", 0)
    return jobs


def ensure(base: Image, *names: str) -> Image:
    return asyncio.run(layers.ensure(base, names, lambda _: None))


def test_packages_are_named_in_any_order_and_once() -> None:
    assert layers.names(["tcpflow,iperf3", "iperf3 g++"]) == ["g++", "iperf3", "tcpflow"]
    assert layers.names([]) == []
    for wrong in ("-o", "Iperf3", "../x", "a=1", "x-"):
        with pytest.raises(InputError, match="is not a valid Debian package name"):
            layers.names([wrong])


def test_what_the_image_has_needs_no_layer(base: Image, made: list[dict[str, bytes]]) -> None:
    assert layers.find(base, ["iproute2"]) == ensure(base, "iproute2", "libc6") == base
    assert made == []


def test_a_layer_is_made_once_and_found_then(base: Image, made: list[dict[str, bytes]]) -> None:
    assert layers.find(base, ["tcpflow"]) is None
    one = ensure(base, "tcpflow")
    assert ensure(base, "tcpflow") == layers.find(base, ["tcpflow"]) == one
    assert made == [{"tcpflow": b"tcpflow"}]
    assert one.layer
    assert one.layer.manifest["packages"] == {"libc6": "2.42", "tcpflow": "1"}
    assert one.layer.file.stat().st_size == recipe.PMEM_ALIGNMENT
    assert [layer.asked for layer in layers.every(base)] == [["tcpflow"]]


def test_another_set_is_another_layer_with_snapshots_of_its_own(
    base: Image, made: list[dict[str, bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(emulator, "emulator", lambda: Emulator(("qemu",), "qemu", ""))
    several = [base, ensure(base, "tcpflow"), ensure(base, "iperf3"), ensure(base, "iperf3", "tcpflow")]
    assert len({one.digest for one in several}) == 4
    assert len({snapshot.stack(one, Flavour("virtual"))[0].key for one in several}) == 4


def test_a_machine_gets_the_layer_as_a_device_beside_the_root(
    base: Image, made: list[dict[str, bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(emulator, "emulator", lambda: Emulator(("qemu",), "qemu", ""))
    one = ensure(base, "tcpflow")
    assert one.layer
    command = qemu.command_line(one, Flavour("virtual"), qemu.Ram(3, shared=False), "in", "out", (1, 1))
    backends = [word for word in command if word.startswith("memory-backend-file,id=layer,")]
    assert backends == [
        f"memory-backend-file,id=layer,share=on,mem-path={one.layer.file},size={recipe.PMEM_ALIGNMENT},readonly=on"
    ]
    assert "nvdimm,memdev=layer,unarmed=on" in command


@pytest.mark.parametrize("harm", ["cut", "junk", "gone"])
def test_a_damaged_layer_is_made_anew(base: Image, made: list[dict[str, bytes]], harm: str) -> None:
    layer = ensure(base, "tcpflow").layer
    assert layer
    match harm:
        case "cut":
            layer.file.write_bytes(b"")
        case "junk":
            (layer.path / "manifest.json").write_text("{}")
        case "gone":
            layer.file.unlink()
    assert layers.find(base, ["tcpflow"]) is None
    again = ensure(base, "tcpflow").layer
    assert again
    assert (again.path, again.digest) == (layer.path, layer.digest)
    assert len(made) == 2


def test_changed_bytes_of_a_layer_are_seen_when_every_byte_is_read(base: Image, made: list[dict[str, bytes]]) -> None:
    one = ensure(base, "tcpflow")
    one.verify()
    assert one.layer
    one.layer.file.write_bytes(bytes(recipe.PMEM_ALIGNMENT))
    with pytest.raises(UnsupportedError, match="the layer with tcpflow is damaged"):
        one.verify()


def test_layers_travel_with_their_image(base: Image, made: list[dict[str, bytes]], tmp_path: Path) -> None:
    before = [ensure(base, "iperf3").digest, ensure(base, "tcpflow").digest]
    target = tmp_path / "image.tar"
    boot_image.export(base, target, layers.every(base))
    assert image.remove_all() == 1
    imported = boot_image.import_(target)
    assert [ensure(imported, name).digest for name in ("iperf3", "tcpflow")] == before
    assert len(made) == 2


@pytest.mark.parametrize("key", ["asked", "size", "base", "packages", "build_s"])
def test_a_layer_without_a_description_is_not_imported(
    base: Image, made: list[dict[str, bytes]], tmp_path: Path, key: str
) -> None:
    layer = ensure(base, "tcpflow").layer
    assert layer
    other = replace(layer, manifest={name: value for name, value in layer.manifest.items() if name != key})
    boot_image.export(base, tmp_path / "image.tar", [other])
    with pytest.raises(InputError, match=f"the image is damaged: its description is invalid: .*{key}"):
        boot_image.import_(tmp_path / "image.tar")


def test_an_export_without_its_layer_s_file_is_not_whole(
    base: Image, made: list[dict[str, bytes]], tmp_path: Path
) -> None:
    layer = ensure(base, "tcpflow").layer
    assert layer
    target, cut = tmp_path / "image.tar", tmp_path / "cut.tar"
    boot_image.export(base, target, layers.every(base))
    with tarfile.open(target) as source, tarfile.open(cut, "w") as tar:
        for member in source:
            if not member.name.endswith(layer.digest):
                tar.addfile(member, source.extractfile(member))
    with pytest.raises(InputError, match=f"the image is damaged: .*{layer.digest} is missing"):
        boot_image.import_(cut)


def test_a_layer_of_another_image_is_not_imported(base: Image, made: list[dict[str, bytes]], tmp_path: Path) -> None:
    layer = ensure(base, "tcpflow").layer
    assert layer
    other = replace(layer, manifest={**layer.manifest, "base": "0" * 64})
    boot_image.export(base, tmp_path / "image.tar", [other])
    with pytest.raises(InputError, match=f"the image is damaged: its layer {layer.path.name} is incomplete"):
        boot_image.import_(tmp_path / "image.tar")


def test_an_unknown_package_gets_the_one_that_was_meant() -> None:
    layers.require_known(["tcpflow"], ["iperf3", "tcpflow"])
    with pytest.raises(InputError, match="Debian trixie has no package 'tcpflwo'") as said:
        layers.require_known(["tcpflwo"], ["iperf3", "tcpflow"])
    assert said.value.hint == "Did you mean tcpflow?"


def test_apt_is_asked_about_the_image_s_suite_and_packages_not_this_machine_s(
    base: Image, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(image_build, "mirror", list)
    layers.Apt(tmp_path, base)
    assert "] http://m/debian trixie main\n" in (tmp_path / "sources.list").read_text()
    configuration = (tmp_path / "apt.conf").read_text()
    assert f'Dir::State::status "{base.path}/dpkg-status"' in configuration
    assert 'Dir::Etc::sourceparts "/dev/null"' in configuration
    monkeypatch.setattr(image_build, "mirror", lambda: ["http://mine/debian"])
    layers.Apt(tmp_path, base)
    assert "] http://mine/debian trixie main\n" in (tmp_path / "sources.list").read_text()


def test_too_many_packages_for_a_layer_are_refused_before_a_machine_starts(base: Image, tmp_path: Path) -> None:
    debs = {"large.deb": bytes(layers.LARGEST + 1)}
    with pytest.raises(UnsupportedError, match="these packages have 252 MiB; a layer takes at most 252"):
        asyncio.run(layers.install(base, debs, tmp_path, lambda _: None))


def test_without_apt_the_package_that_is_missing_is_named(
    base: Image, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UnsupportedError, match="adding packages to the image needs apt"):
        layers.fetch(base, ["tcpflow"])


def test_on_the_local_machine_the_packages_have_to_be_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "dpkg-query").write_text("#!/bin/sh\necho installed iperf3\necho config-files tcpflow\n")
    (tmp_path / "dpkg-query").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    checkup.require_packages(["iperf3"])
    with pytest.raises(UnsupportedError, match="this system lacks the packages tcpflow") as said:
        checkup.require_packages(["iperf3", "tcpflow"])
    assert said.value.hint == "Run: sudo apt-get install --no-install-recommends tcpflow"


def test_of_an_installation_only_what_the_packages_bring_stays(tmp_path: Path) -> None:
    stays = ("usr/bin/tcpflow", "var/lib/dpkg/status", "etc/tcpflow.conf", "usr/lib/python3/a.pyc")
    goes = (
        "var/log/dpkg.log",
        "var/lib/dpkg/status-old",
        "var/lib/dpkg/lock",
        "var/cache/apt/pkgcache.bin",
        "var/cache/debconf/config.dat-old",
        "etc/machine-id",
        "root/.cache/x",
        "usr/sbin/policy-rc.d",
    )
    for name in stays + goes:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"magi" + b"\0\0\0\0" + b"time" + b"size" + b"code")
    layer.clean(tmp_path)
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()) == sorted(stays)
    assert (tmp_path / stays[-1]).read_bytes() == b"magi" + b"\1\0\0\0" + bytes(8) + b"code"


def test_apt_s_words_become_one_message() -> None:
    with pytest.raises(TestbedError, match="apt failed:\n  E: broken"):
        image_build.raise_for("E: broken\n", "apt")


def test_two_who_want_one_layer_make_it_once(
    base: Image, made: list[dict[str, bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def both() -> list[Image]:
        return list(await asyncio.gather(*(layers.ensure(base, ["tcpflow"], lambda _: None) for _ in range(2))))

    one, other = asyncio.run(both())
    assert one == other
    assert len(made) == 1


@pytest.fixture
def tools(tmp_path: Path) -> Container:
    """The image of a container, in the cache."""
    archive = tmp_path / "tools.tar"
    archive.write_bytes(tar_of(docker_save("tools:1", tar_of({"etc/tool": b""}))))
    return containers.add(archive, "")


def test_a_machine_with_containers_has_docker_by_a_layer_and_their_images_as_devices(
    base: Image, made: list[dict[str, bytes]], tools: Container, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(emulator, "emulator", lambda: Emulator(("qemu",), "qemu", ""))
    one = asyncio.run(containers.equip(base, ["iperf3"], ["tools:1", "tools:1"], lambda _: None))
    assert one.layer
    assert one.layer.asked == ["docker.io", "iperf3", "python3-docker"]
    assert one.containers == (tools,)
    assert len({base.digest, ensure(base, *one.layer.asked).digest, one.digest}) == 3
    command = qemu.command_line(one, Flavour("virtual"), qemu.Ram(3, shared=False), "in", "out", (1, 1))
    [backend] = [word for word in command if f"mem-path={tools.file}," in word]
    assert backend.endswith(",readonly=on")
    assert any(word.endswith(",slots=5,maxmem=16G") for word in command)
    texts = [each.text for each in snapshot.stack(one, Flavour("virtual"), training=True)]
    assert texts[1:] == [
        "start Docker in it, with the images of the containers",
        "import torch in it",
        "load the packages below labs into it",
        "load this version of testbed into it",
    ]


def test_a_machine_without_containers_has_no_docker(base: Image, made: list[dict[str, bytes]]) -> None:
    assert asyncio.run(containers.equip(base, [], [], lambda _: None)) == base
    assert made == []


def test_containers_need_a_micro_vm() -> None:
    with pytest.raises(
        UnsupportedError, match=r"nodes with an image \(tools:1\) are containers, which need a micro-VM"
    ):
        asyncio.run(options.equip(LocalMachine(), [], ["tools:1"]))
