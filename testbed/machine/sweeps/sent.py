"""Files that the hosts of a cluster get, once each, by names with their digests."""

from __future__ import annotations

import io
import pickle
import zipfile
from dataclasses import dataclass
from mmap import mmap

from testbed.machine.record import digest
from testbed.machine.shipped import LOCK, PACKAGE
from testbed.machine.sweeps.points import Work
from testbed.version import version


@dataclass(frozen=True)
class HostFile:
    """A file for hosts of a cluster. On them `name` is that of a file, or of a directory for a zip."""

    name: str
    digest: str
    data: bytes | mmap

    @classmethod
    def of(cls, kind: str, data: bytes) -> HostFile:
        return cls(f"{kind}-{digest(data)}", digest(data), data)


def code() -> HostFile:
    """Return this testbed as a zip, the same bytes for the same code: files beside the package that machines need are
    where an installed one has them."""
    names = (path.relative_to(PACKAGE) for path in sorted(PACKAGE.rglob("*")) if path.is_file())
    files = {f"testbed/{name}": (PACKAGE / name).read_bytes() for name in names if not _left_out(name.parts)}
    files["testbed/shipped/requirements.lock"] = LOCK.read_bytes()
    files["pyproject.toml"] = f'[project]\nversion = "{version()}"\n'.encode()
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)
    return HostFile.of("code", packed.getvalue())


def _left_out(parts: tuple[str, ...]) -> bool:
    return parts[0] == "shipped" or "__pycache__" in parts


def work(asked: Work) -> HostFile:
    return HostFile.of("work", pickle.dumps(asked))
