"""Archives of container images: what is right is taken whoever wrote it, and a damaged one is named with its place."""

import bz2
import gzip
import json
import os
import subprocess
import sys
import tarfile
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from container_images import configuration, digest, docker_save, oci_layout, tar_of

from testbed.errors import InputError, UnsupportedError
from testbed.machine import cache, containers
from testbed.machine.archives import reader

LAYERS = tar_of({"etc/one": b"1"}), tar_of({"etc/two": b"2"})
SAVED = docker_save("tools:1", *LAYERS, Cmd=["/bin/sh"])
LAID_OUT = oci_layout("tools:1", *LAYERS, Cmd=["/bin/sh"])
SAVED_ENTRY = json.loads(SAVED["manifest.json"])[0]
Files = dict[str, bytes]


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def archive(tmp_path: Path) -> Callable[[Files], Path]:
    def write(files: Files) -> Path:
        path = tmp_path / "image.tar"
        path.write_bytes(tar_of(files))
        return path

    return write


def directory(path: Path, files: Files) -> Path:
    for name, data in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(data)
    return path


HOLDER = """
from testbed.machine import containers
containers.hold(["tools:1"])
print("held", flush=True)
input()
"""


def refused(path: Path, name: str = "") -> str:
    with pytest.raises(InputError) as caught:
        containers.add(path, name)
    assert caught.value.where == str(path)
    assert containers.every() == []
    left = list((cache.root() / "containers").glob("*"))
    assert left == []
    return caught.value.message


def changed(files: Files, name: str) -> Files:
    data = files[name]
    return {**files, name: data[:600] + bytes([data[600] ^ 1]) + data[601:]}


def test_all_forms_of_an_image_give_the_same_archive(archive: Callable[[Files], Path], tmp_path: Path) -> None:
    packed = [gzip.compress(layer) for layer in LAYERS]
    own = configuration(LAYERS, Cmd=["/bin/sh"])
    old_entry = {"Config": f"{digest(own)}.json", "RepoTags": ["tools:1"], "Layers": ["a/layer.tar", "b/layer.tar"]}
    old = {"manifest.json": json.dumps([old_entry]).encode(), f"{digest(own)}.json": own}
    old |= {"a/layer.tar": packed[0], "b/layer.tar": LAYERS[1]}
    forms = [archive(SAVED), directory(tmp_path / "layout", LAID_OUT)]
    digests = {containers.add(form, "").digest for form in forms}
    digests |= {containers.add(archive(files), "").digest for files in (LAID_OUT, old)}
    (tmp_path / "image.tar.gz").write_bytes(gzip.compress(archive(SAVED).read_bytes()))
    digests.add(containers.add(tmp_path / "image.tar.gz", "").digest)
    assert len(digests) == 1
    [one] = containers.every()
    with tarfile.open(one.file) as tar:
        names = tar.getnames()
        assert names == ["manifest.json", f"{digest(own)}.json", *(f"{digest(layer)}.tar" for layer in LAYERS)]
        assert [tar.extractfile(name).read() for name in names[2:]] == list(LAYERS)  # type: ignore[union-attr]


@pytest.mark.parametrize("files", [SAVED, LAID_OUT])
def test_each_small_file_is_read_once(
    archive: Callable[[Files], Path], files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, was = [], reader.Archive.read
    monkeypatch.setattr(reader.Archive, "read", lambda self, name: read.append(name) or was(self, name))
    containers.add(archive(files), "")
    small = {name for name, data in files.items() if data.startswith((b"{", b"["))} - {"oci-layout"}
    assert sorted(read) == sorted(small)


def test_an_index_of_several_platforms_has_one_image_for_machines(tmp_path: Path) -> None:
    index = json.loads(LAID_OUT["index.json"])
    [entry] = index["manifests"]
    inner = json.dumps(
        {
            "manifests": [
                {**entry, "platform": {"os": "linux", "architecture": "amd64"}},
                {**entry, "platform": {"os": "linux", "architecture": "arm64"}},
                {**entry, "platform": {"os": "unknown", "architecture": "unknown"}},
            ]
        }
    ).encode()
    outer = json.dumps({"manifests": [{"digest": f"sha256:{digest(inner)}"}]}).encode()
    files = {**LAID_OUT, "index.json": outer, f"blobs/sha256/{digest(inner)}": inner}
    assert containers.add(directory(tmp_path / "layout", files), "").name == "tools:1"


@pytest.mark.parametrize("files", [SAVED, LAID_OUT])
def test_a_changed_layer_is_named(archive: Callable[[Files], Path], files: Files) -> None:
    blob = f"blobs/sha256/{digest(LAYERS[1])}"
    assert f"the contents of {blob} do not match its digest" in refused(archive(changed(files, blob)))


def test_a_changed_layer_without_a_digest_in_its_name_is_named(archive: Callable[[Files], Path]) -> None:
    entry = {**SAVED_ENTRY, "Layers": ["a/layer.tar", SAVED_ENTRY["Layers"][1]]}
    files = {**SAVED, "manifest.json": json.dumps([entry]).encode(), "a/layer.tar": LAYERS[1]}
    assert refused(archive(files)) == "the image is damaged: the contents of a/layer.tar do not match its digest"


def test_a_file_outside_the_directory_of_an_archive_is_missing(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(configuration(LAYERS))
    entry = {**SAVED_ENTRY, "Config": "../secret"}
    saved = directory(tmp_path / "saved", {**SAVED, "manifest.json": json.dumps([entry]).encode()})
    assert refused(saved) == "the image is damaged: ../secret is missing"


def test_a_changed_configuration_is_named(archive: Callable[[Files], Path]) -> None:
    blob = SAVED_ENTRY["Config"]
    files = {**SAVED, blob: SAVED[blob].replace(b"/bin/sh", b"/bin/ls")}
    assert f"the contents of {blob} do not match its digest" in refused(archive(files))


def test_a_missing_blob_is_named(archive: Callable[[Files], Path]) -> None:
    blob = f"blobs/sha256/{digest(LAYERS[0])}"
    files = {name: data for name, data in SAVED.items() if name != blob}
    assert refused(archive(files)) == f"the image is damaged: {blob} is missing"


@pytest.mark.parametrize("length", [0, 100, 700, 5000, -11000])
def test_a_cut_archive_is_refused(archive: Callable[[Files], Path], length: int) -> None:
    path = archive(SAVED)
    path.write_bytes(path.read_bytes()[:length])
    assert "the image is damaged" in refused(path)


def linked(name: str, to: str) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = tarfile.LNKTYPE, to
    return info


def header(name: str, kind: bytes = tarfile.REGTYPE, size: int = 0) -> bytes:
    info = tarfile.TarInfo(name)
    info.type, info.size = kind, size
    return info.tobuf(tarfile.GNU_FORMAT)


def negative(size: int) -> bytes:
    """A header with its size in base 256, as GNU tar writes large ones, which tarfile does not."""
    block = bytearray(header("big"))
    block[124:136] = (256**12 + size).to_bytes(12) if size < 0 else b"\x80" + size.to_bytes(11)
    block[148:156] = b"%06o\0 " % (sum(block[:148]) + 8 * 32 + sum(block[156:]))
    return bytes(block)


def pax(*records: bytes) -> bytes:
    text = b"".join(records)
    return header("pax", tarfile.XHDTYPE, len(text)) + text.ljust(-(-len(text) // 512) * 512, b"\0")


END = bytes(1024)
HOSTILE = {
    "negative-size": negative(-1024) + END,
    "size-beyond-the-file": negative(1 << 60) + END,
    "negative-pax-size": pax(b"13 size=-1024\n") + header("a") + END,
    "odd-pax-size": pax(b"999999999999999999999 size=1\n") + header("a") + END,
    "sparse-without-end": pax(b"22 GNU.sparse.major=1\n", b"22 GNU.sparse.minor=0\n") + header("a") + b"9" * 512,
    "long-name": gzip.compress(header("n", tarfile.GNUTYPE_LONGNAME, 1 << 28) + bytes(1 << 28)),
    "long-pax": gzip.compress(header("n", tarfile.XHDTYPE, 1 << 28) + bytes(1 << 28)),
    "chain-of-headers": 5000 * pax(b"7 a=bc\n") + header("a") + END,
    "many-members": gzip.compress(20_000 * header("a") + END),
    "zeros": gzip.compress(header("a", size=1 << 28) + bytes(1 << 28) + END, 9),
    "links-in-a-circle": b"".join(
        tarfile.TarInfo.tobuf(info) for info in map(linked, ("manifest.json", "b"), ("b", "manifest.json"))
    )
    + END,
}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("what", HOSTILE)
def test_a_tar_that_no_tool_wrote_is_refused_within_bounds(tmp_path: Path, what: str) -> None:
    path = tmp_path / "image.tar"
    path.write_bytes(HOSTILE[what])
    tracemalloc.start()
    try:
        refused(path)
        assert tracemalloc.get_traced_memory()[1] < 200 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.timeout(60)
def test_an_index_that_lists_one_many_times_reads_it_once(tmp_path: Path) -> None:
    """As near to it as digests allow: three levels with 2000 entries each, 8 billion in all."""
    inner = json.dumps({"manifests": []}).encode()
    files = dict(LAID_OUT)
    for _ in range(3):
        files[f"blobs/sha256/{digest(inner)}"] = inner
        inner = json.dumps({"manifests": 2000 * [{"digest": f"sha256:{digest(inner)}"}]}).encode()
    assert "has 0 images" in refused(directory(tmp_path / "layout", {**files, "index.json": inner}))


def test_an_index_has_a_thousand_manifests_at_most(tmp_path: Path) -> None:
    blobs = [json.dumps({"number": number}).encode() for number in range(1001)]
    index = json.dumps({"manifests": [{"digest": f"sha256:{digest(blob)}"} for blob in blobs]}).encode()
    files = {f"blobs/sha256/{digest(blob)}": blob for blob in blobs}
    assert "more than 1000 manifests" in refused(directory(tmp_path / "layout", {**files, "index.json": index}))


def test_a_layer_of_zeros_is_not_unpacked_to_its_end(archive: Callable[[Files], Path]) -> None:
    layer = gzip.compress(bytes(1 << 28))
    entry = {**SAVED_ENTRY, "Layers": ["a/layer.tar", SAVED_ENTRY["Layers"][1]]}
    files = {**SAVED, "manifest.json": json.dumps([entry]).encode(), "a/layer.tar": layer}
    assert "a/layer.tar cannot be unpacked: it has more than 100 times its bytes" in refused(archive(files))


def test_all_layers_together_have_a_bound(archive: Callable[[Files], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "SPARE", 1 << 20)
    layers = [tar_of({f"zeros{number}": bytes(1 << 20)}) for number in range(20)]
    saved = docker_save("tools:1", *layers)
    entry = json.loads(saved["manifest.json"])[0]
    packed = {name: gzip.compress(saved[name]) for name in entry["Layers"]}
    renamed = {f"{number}.tar": data for number, data in enumerate(packed.values())}
    manifest = json.dumps([{**entry, "Layers": [*renamed]}]).encode()
    text = refused(archive({entry["Config"]: saved[entry["Config"]], **renamed, "manifest.json": manifest}))
    assert "cannot be unpacked: it has more than 100 times its bytes, or the image has" in text


def test_an_image_has_as_many_layers_as_docker_takes(archive: Callable[[Files], Path]) -> None:
    layers = [LAYERS[0]] * 200_000
    own = configuration(layers)
    entry = {"Config": "own.json", "RepoTags": ["tools:1"], "Layers": ["one.tar"] * len(layers)}
    files = {"own.json": own, "one.tar": LAYERS[0], "manifest.json": json.dumps([entry]).encode()}
    assert "it has 200000 layers; an image has 127 at most" in refused(archive(files))


def test_an_error_has_no_more_than_some_names(archive: Callable[[Files], Path]) -> None:
    entries = [{**SAVED_ENTRY, "RepoTags": [f"{'x' * 1000}:{number}"]} for number in range(1000)]
    assert len(refused(archive({**SAVED, "manifest.json": json.dumps(entries).encode()}))) < 2000


def test_a_bz2_that_cannot_be_unpacked_is_damaged(archive: Callable[[Files], Path], tmp_path: Path) -> None:
    data = bytearray(bz2.compress(archive(SAVED).read_bytes()))
    data[len(data) // 2] ^= 0xFF
    (tmp_path / "image.tar.bz2").write_bytes(data)
    assert "the image is damaged" in refused(tmp_path / "image.tar.bz2")


def test_a_layer_that_cannot_be_unpacked_is_named(archive: Callable[[Files], Path]) -> None:
    cut = gzip.compress(LAYERS[0])[:-20]
    entry = {**SAVED_ENTRY, "Layers": ["a/layer.tar", SAVED_ENTRY["Layers"][1]]}
    files = {**SAVED, "manifest.json": json.dumps([entry]).encode(), "a/layer.tar": cut}
    assert "a/layer.tar cannot be unpacked" in refused(archive(files))


@pytest.mark.parametrize(
    ("manifest", "message"),
    [
        (b"[", "manifest.json is invalid: Invalid JSON"),
        (b"{}", "manifest.json is invalid: Input should be a valid array"),
        (b"[]", "the archive has 0 images"),
        (b"[{}]", "manifest.json is invalid: 0.Config: Field required"),
        (b"[7]", "manifest.json is invalid: 0: Input should be an object"),
        (json.dumps([{**SAVED_ENTRY, "RepoTags": [tag]} for tag in ("a:1", "b:1")]).encode(), "2 images: 'a:1', 'b:1'"),
    ],
)
def test_a_manifest_that_is_none_is_refused(archive: Callable[[Files], Path], manifest: bytes, message: str) -> None:
    assert message in refused(archive({**SAVED, "manifest.json": manifest}))


def test_an_image_of_a_layout_without_layers_is_refused(archive: Callable[[Files], Path]) -> None:
    [entry] = json.loads(LAID_OUT["index.json"])["manifests"]
    manifest = json.loads(LAID_OUT[f"blobs/{entry['digest'].replace(':', '/')}"])
    del manifest["layers"]
    inner = json.dumps(manifest).encode()
    index = json.dumps({"manifests": [{**entry, "digest": f"sha256:{digest(inner)}"}]}).encode()
    files = {**LAID_OUT, "index.json": index, f"blobs/sha256/{digest(inner)}": inner}
    assert refused(archive(files)) == "the image is damaged: it lists 0 layers, but its configuration lists 2"


def test_other_files_are_no_archives(archive: Callable[[Files], Path], tmp_path: Path) -> None:
    assert "neither manifest.json nor index.json" in refused(archive({"etc/passwd": b""}))
    (tmp_path / "empty").mkdir()
    assert "neither manifest.json nor index.json" in refused(tmp_path / "empty")


def test_what_cannot_be_read_is_no_archive(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert refused(tmp_path / "pipe") == "is neither a file nor a directory"
    (tmp_path / "text").write_text("text")
    none = "the image is damaged: the file is cut off or is not a tar: truncated header"
    assert refused(tmp_path / "text") == none
    (tmp_path / "link").symlink_to("nowhere")
    assert refused(tmp_path / "link") == "no such file"


def test_a_layer_may_be_a_link_to_another_file(archive: Callable[[Files], Path], tmp_path: Path) -> None:
    own = configuration(LAYERS[:1])
    entry = {"Config": "config.json", "RepoTags": ["linked:1"], "Layers": ["b/layer.tar"]}
    files = {"manifest.json": json.dumps([entry]).encode(), "config.json": own, "a/layer.tar": LAYERS[0]}
    path = tmp_path / "linked.tar"
    path.write_bytes(tar_of(files, links={"b/layer.tar": "../a/layer.tar"}))
    assert containers.add(path, "").name == "linked:1"
    containers.remove("linked:1")
    path.write_bytes(tar_of(files, links={"b/layer.tar": "../c/layer.tar"}))
    assert refused(path) == "the image is damaged: b/layer.tar is missing"


def test_an_image_for_another_machine_is_refused(archive: Callable[[Files], Path]) -> None:
    own = configuration(LAYERS).replace(b"amd64", b"arm64")
    entry = {"Config": "config.json", "RepoTags": ["tools:1"], "Layers": ["a", "b"]}
    files = {"manifest.json": json.dumps([entry]).encode(), "config.json": own}
    assert refused(archive(files)) == "the image is for linux/arm64, not for linux/amd64"


def test_an_image_has_one_name_and_a_name_one_image(archive: Callable[[Files], Path]) -> None:
    containers.add(archive(SAVED), "")
    containers.add(archive(SAVED), "docker.io/library/other")
    assert [one.name for one in containers.every()] == ["other:latest", "tools:1"]
    newer = containers.add(archive(docker_save("tools:1", LAYERS[0])), "")
    assert [one.digest for one in containers.find(["tools:1", "tools:1"])] == [newer.digest]
    containers.remove("tools:1")
    assert [one.name for one in containers.every()] == ["other:latest"]


@pytest.mark.parametrize("replaced", [True, False])
def test_an_image_that_a_lab_has_stays_for_it_when_it_is_replaced_or_removed(
    archive: Callable[[Files], Path], replaced: bool
) -> None:
    containers.add(archive(SAVED), "")
    with subprocess.Popen([sys.executable, "-c", HOLDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as lab:
        assert lab.stdout is not None
        assert lab.stdout.readline() == b"held\n"
        [held] = containers.every()
        assert containers.add(archive(SAVED), "") == held
        if replaced:
            containers.add(archive(docker_save("tools:1", LAYERS[0])), "")
        else:
            containers.remove("tools:1")
        assert held not in containers.every()
        held.verify()
    containers.add(archive(SAVED), "other")
    assert held.path.exists() is False


def test_an_image_that_is_damaged_is_mended_by_adding_it_again(archive: Callable[[Files], Path]) -> None:
    one = containers.add(archive(SAVED), "")
    one.file.write_bytes(b"")
    assert containers.add(archive(SAVED), "").whole()


def test_an_image_without_a_name_needs_one(archive: Callable[[Files], Path]) -> None:
    nameless = archive({**SAVED, "manifest.json": json.dumps([{**SAVED_ENTRY, "RepoTags": None}]).encode()})
    assert refused(nameless) == "the image has no name in this archive"
    assert containers.add(nameless, "mine").name == "mine:latest"
    containers.remove("mine")
    with pytest.raises(InputError, match="'Mine:' is not the name of an image"):
        containers.add(nameless, "Mine:")


def test_an_image_that_was_not_added_is_named_with_what_adds_it(archive: Callable[[Files], Path]) -> None:
    containers.add(archive(SAVED), "")
    with pytest.raises(InputError) as caught:
        containers.find(["tolls:1"])
    assert caught.value.message == "the image tolls:1 has not been added"
    assert "Did you mean tools:1?" in caught.value.hint
    assert "docker save tolls:1 -o FILE && testbed image add FILE" in caught.value.hint
    with pytest.raises(InputError, match="image other:latest does not exist"):
        containers.remove("other")


def test_images_that_do_not_fit_a_machine_are_refused(
    archive: Callable[[Files], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    containers.add(archive(SAVED), "")
    monkeypatch.setattr(containers, "LARGEST", 1 << 20)
    with pytest.raises(UnsupportedError, match=r"the images of the lab have 2 MiB; the limit is 1"):
        containers.find(["tools:1"])


def test_an_image_that_changed_in_the_cache_is_named(archive: Callable[[Files], Path]) -> None:
    one = containers.add(archive(SAVED), "")
    one.verify()
    data = one.file.read_bytes()
    one.file.write_bytes(data[:-1] + b"\1")
    with pytest.raises(UnsupportedError, match="tools:1 is damaged: its contents have changed"):
        one.verify()
    one.file.write_bytes(data[:-1])
    with pytest.raises(UnsupportedError, match="tools:1 is damaged: the size of its archive has changed"):
        _ = one.file
