"""Images that go from one machine to another: archives, directories, signatures, and damage."""

import os
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest
from small_image import CONTENTS, make_image, nothing_in_cache, place_of_this_version

from testbed.errors import InputError, UnsupportedError
from testbed.machine import image
from testbed.machine.archives import boot_image
from testbed.machine.recipe import FILES

ALGORITHMS = {
    "Ed25519": ["-algorithm", "ed25519"],
    "ECDSA": ["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"],
    "RSA": ["-algorithm", "RSA"],
}


def exported(tmp_path: Path, key: Path | None = None, **changes: str) -> Path:
    target = tmp_path / "image.tar"
    boot_image.export(make_image(tmp_path / "elsewhere", **changes), target, key=key)
    return target


def make_keys(tmp_path: Path, algorithm: str = "Ed25519") -> tuple[Path, Path]:
    """A publisher's private and public key."""
    private, public = tmp_path / "publisher.pem", tmp_path / "publisher.pub"
    subprocess.run(["openssl", "genpkey", *ALGORITHMS[algorithm], "-quiet", "-out", private], check=True)
    subprocess.run(["openssl", "pkey", "-in", private, "-pubout", "-out", public], check=True)
    return private, public


@pytest.mark.parametrize("key", ["built", "build_s", "packages", "python", "sources"])
@pytest.mark.parametrize("value", [None, {"a": []}])
def test_an_image_that_is_not_described_is_not_imported(tmp_path: Path, key: str, value: Any) -> None:
    changes: dict[str, Any] = {key: value}
    with pytest.raises(InputError, match=f"its description is invalid: {key}"):
        boot_image.import_(exported(tmp_path, **changes))


def test_an_exported_image_is_the_same_after_its_import(tmp_path: Path, cache_root: Path) -> None:
    target = tmp_path / "image.tar"
    checksum = boot_image.export(make_image(tmp_path / "elsewhere"), target)
    assert (tmp_path / "image.tar.sha256").read_text() == f"{checksum}  image.tar\n"
    assert not (tmp_path / "image.tar.partial").exists()

    imported = boot_image.import_(target)
    assert imported.path == place_of_this_version(cache_root)
    assert image.find() == imported
    imported.verify()
    assert {name: imported.file(name).read_bytes() for name in FILES} == CONTENTS
    assert [path.name for path in imported.path.parent.iterdir()] == [imported.path.name]


def test_a_place_where_no_archive_can_be_written_is_wrong_input(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be written: "):
        boot_image.export(make_image(tmp_path / "elsewhere"), Path("/proc/self/image.tar"))


def test_a_directory_with_the_layout_is_imported(tmp_path: Path) -> None:
    with tarfile.open(exported(tmp_path)) as tar:
        tar.extractall(tmp_path / "layout", filter="data")
    assert boot_image.import_(tmp_path / "layout").file("vmlinuz").read_bytes() == CONTENTS["vmlinuz"]


def test_a_damaged_image_is_not_exported(tmp_path: Path) -> None:
    found = make_image(tmp_path / "elsewhere")
    (found.path / "initrd").write_bytes(b"RAMFS")
    with pytest.raises(UnsupportedError, match="damaged"):
        boot_image.export(found, tmp_path / "image.tar")
    assert not list(tmp_path.glob("image.tar*"))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_signed_image_is_imported_with_the_key_and_without(tmp_path: Path, algorithm: str) -> None:
    private, public = make_keys(tmp_path, algorithm)
    target = exported(tmp_path, private)
    for key in public, None:
        assert boot_image.import_(target, key).file("vmlinuz").read_bytes() == CONTENTS["vmlinuz"]


def test_an_image_of_somebody_else_is_refused(tmp_path: Path, cache_root: Path) -> None:
    (tmp_path / "other").mkdir()
    target = exported(tmp_path, make_keys(tmp_path / "other")[0])
    with pytest.raises(InputError, match="this image is signed with another key"):
        boot_image.import_(target, make_keys(tmp_path)[1])
    assert not cache_root.exists() or nothing_in_cache(cache_root)


def test_an_unsigned_image_is_refused_where_a_key_is_given(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="this image is not signed"):
        boot_image.import_(exported(tmp_path), make_keys(tmp_path)[1])


def test_a_signature_holds_for_the_contents_it_was_made_for(tmp_path: Path) -> None:
    """Another image under the signature of the first."""
    private, public = make_keys(tmp_path)
    target, forged = exported(tmp_path, private), tmp_path / "forged.tar"
    config = target.read_bytes()
    forged.write_bytes(config.replace(b'"kernel":"7.3"', b'"kernel":"7.4"'))
    assert forged.read_bytes() != config
    with pytest.raises(InputError, match="is not signed"):
        boot_image.import_(forged, public)
    shutil.copy(f"{target}.sig", f"{forged}.sig")
    with pytest.raises(InputError, match="is signed with another key, or was changed"):
        boot_image.import_(forged, public)


def test_nothing_of_an_archive_without_a_signature_is_interpreted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, (_, public) = exported(tmp_path), make_keys(tmp_path)
    monkeypatch.setattr(boot_image, "opened", None)
    with pytest.raises(InputError, match="is not signed"):
        boot_image.import_(target, public)


def test_a_directory_has_the_signature_within(tmp_path: Path) -> None:
    private, public = make_keys(tmp_path)
    with tarfile.open(exported(tmp_path, private)) as tar:
        tar.extractall(tmp_path / "layout")
    assert boot_image.import_(tmp_path / "layout", public).file("vmlinuz").read_bytes() == CONTENTS["vmlinuz"]
    (tmp_path / "other").mkdir()
    with pytest.raises(InputError, match="this image is signed with another key"):
        boot_image.import_(tmp_path / "layout", make_keys(tmp_path / "other")[1])


@pytest.mark.parametrize("what", ["public", "junk"])
def test_a_file_that_is_no_key_is_named(tmp_path: Path, what: str) -> None:
    private, public = make_keys(tmp_path)
    junk = tmp_path / "junk"
    junk.write_text("junk")
    wrong = {"public": public, "junk": junk}[what]
    with pytest.raises(InputError, match="openssl cannot sign with this key") as said:
        exported(tmp_path, wrong)
    assert said.value.where == str(wrong)
    (tmp_path / "signed").mkdir()
    target = exported(tmp_path / "signed", private)
    with pytest.raises(InputError, match="openssl finds no public key in it") as said:
        boot_image.import_(target, junk)
    assert said.value.where == str(junk)


def test_without_openssl_the_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key, _ = make_keys(tmp_path)
    (tmp_path / "bin").mkdir()
    for program in "sh", "rm", "seq":
        (tmp_path / "bin" / program).symlink_to(shutil.which(program) or program)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    with pytest.raises(UnsupportedError, match="signatures need openssl"):
        exported(tmp_path, key)


def test_junk_is_not_imported(tmp_path: Path, cache_root: Path) -> None:
    junk = tmp_path / "image.tar"
    for data in (b"", b"junk" * 1000, bytes(100_000)):
        junk.write_bytes(data)
        with pytest.raises(InputError, match="the image is damaged") as said:
            boot_image.import_(junk)
        assert said.value.where == str(junk)
        assert nothing_in_cache(cache_root)


@pytest.mark.parametrize(
    "index", ["junk", "[]", '{"manifests": []}', '{"manifests": ["sha256:"]}', '{"manifests": [{"digest": "../../x"}]}']
)
def test_a_layout_without_an_artifact_is_not_imported(tmp_path: Path, cache_root: Path, index: str) -> None:
    (tmp_path / "index.json").write_text(index)
    with pytest.raises(InputError, match="the image is damaged"):
        boot_image.import_(tmp_path)
    assert nothing_in_cache(cache_root)


@pytest.mark.parametrize("share", [0.2, 0.4])
def test_a_cut_file_is_not_imported(tmp_path: Path, cache_root: Path, share: float) -> None:
    target = exported(tmp_path)
    os.truncate(target, int(target.stat().st_size * share))
    with pytest.raises(InputError, match="the image is damaged"):
        boot_image.import_(target)
    assert nothing_in_cache(cache_root)


def test_a_changed_byte_is_not_imported(tmp_path: Path, cache_root: Path) -> None:
    target = exported(tmp_path)
    target.write_bytes(target.read_bytes().replace(b"rootroot", b"rootruut", 1))
    with pytest.raises(InputError, match=r"the contents of blobs/sha256/\w+ do not match its digest"):
        boot_image.import_(target)
    assert nothing_in_cache(cache_root)


def test_an_image_whose_digest_is_not_that_of_its_files_is_not_imported(tmp_path: Path, cache_root: Path) -> None:
    target = exported(tmp_path, digest="0" * 64)
    with pytest.raises(InputError, match=r"the image is damaged: .* its digest does not match its files"):
        boot_image.import_(target)
    assert nothing_in_cache(cache_root)


def test_another_version_s_image_is_not_imported(tmp_path: Path, cache_root: Path) -> None:
    target = exported(tmp_path, inputs="0" * 64)
    with pytest.raises(InputError, match="another version of testbed"):
        boot_image.import_(target)
    assert nothing_in_cache(cache_root)


def test_an_import_follows_no_link_out_of_the_file(tmp_path: Path, cache_root: Path) -> None:
    whole, target = exported(tmp_path), tmp_path / "linked.tar"
    secret = tmp_path / "elsewhere/vmlinuz"
    with tarfile.open(whole) as source, tarfile.open(target, "w") as tar:
        for member in source:
            if member.size == len(CONTENTS["vmlinuz"]):
                member.type, member.linkname, member.size = tarfile.SYMTYPE, str(secret), 0
            tar.addfile(member, source.extractfile(member) if member.isfile() else None)
    with pytest.raises(InputError, match=r"the image is damaged: blobs/sha256"):
        boot_image.import_(target)
    assert nothing_in_cache(cache_root)
