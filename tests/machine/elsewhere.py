"""Commands far from this checkout, in roots of other distributions too, and a test that somebody may have in a
repository."""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from conftest import LIMIT_S

from testbed.machine.image_build import mirror

USER = 1000
PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
NOT_COPIED = "site-packages", "dist-packages", "test", "__pycache__"
BESIDE_LIBC = "libgcc_s.so.1", "librt.so.1", "libpthread.so.0", "libdl.so.2"
"""Libraries that wheels need, too."""
ENTER = """
mount --rbind /dev "$0/dev"
mount -t proc proc "$0/proc"
exec chroot "$@"
"""

TEST = r"""import pytest


@pytest.mark.topology("name: one\ntopology: {nodes: {a: {kind: host}}, links: []}\n")
def test_a_lab(lab):
    assert list(lab.nodes) == ["a"]
"""


def run(*words, cwd, **environment):
    """A command that knows nothing of this checkout."""
    inherited = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    return subprocess.run(
        [str(word) for word in words],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
        env={**inherited, **environment},
    )


def make_root(suite, packages, root):
    """The root of a distribution with these packages and what they need."""
    words = ("mmdebstrap", "--variant=minbase", f"--include={','.join(packages)}", suite, root, *mirror())
    done = run(*words, cwd=root.parent)
    assert done.returncode == 0, done.stderr


def make_busybox_root(root):
    """A root that is no Debian: Busybox, and the Python that runs this, with the libraries of both."""
    for name in ("bin", "lib", "lib64", "proc", "dev", "tmp", "home/user"):
        (root / name).mkdir(parents=True)
    (root / "tmp").chmod(0o1777)
    done = run("apt-get", "download", "-q", "busybox-static", cwd=root / "tmp")
    assert done.returncode == 0, done.stderr
    [package] = (root / "tmp").glob("busybox-static*.deb")
    assert run("dpkg", "-x", package, root / "tmp/package", cwd=root).returncode == 0
    [busybox] = (root / "tmp/package").rglob("bin/busybox")
    shutil.move(busybox, root / "bin/busybox")
    for name in run(root / "bin/busybox", "--list", cwd=root).stdout.split():
        if name != "busybox":
            (root / "bin" / name).symlink_to("busybox")
    python = Path(sys.base_prefix)
    library = Path(sysconfig.get_path("stdlib"))
    there = root / library.relative_to("/")
    shutil.copytree(library, there, ignore=shutil.ignore_patterns(*NOT_COPIED))
    program = Path(sys.executable).resolve()
    (root / python.relative_to("/") / "bin").mkdir(parents=True, exist_ok=True)
    shutil.copy(program, root / python.relative_to("/") / "bin/python3")
    (root / "bin/python3").symlink_to(python / "bin/python3")
    programs = [program, *(library / "lib-dynload").glob("*.so")]
    lines = [line.split() for one in programs for line in run("ldd", one, cwd=root).stdout.splitlines()]
    libraries = {words[2] for words in lines if words[1:2] == ["=>"] and words[2].startswith("/")}
    [libc] = [name for name in libraries if name.endswith("/libc.so.6")]
    beside = [
        str(Path(libc).with_name(name)) for name in ("libgcc_s.so.1", "librt.so.1", "libpthread.so.0", "libdl.so.2")
    ]
    for name in {*libraries, *beside, "/usr/lib/x86_64-linux-gnu/libstdc++.so.6"}:
        if Path(name).exists():
            shutil.copy(name, root / "lib")
    shutil.copy("/lib64/ld-linux-x86-64.so.2", root / "lib64")


def run_in(root, *words, user, home, directory, path=PATH):
    """A command in a root, of a user by number; its processes end with it."""
    return run(
        *("unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-ec", ENTER, root),
        *(f"--userspec={user}:{user}", root, "sh", "-c", 'cd "$0" && exec "$@"', directory, *words),
        cwd=root.parent,
        PATH=path,
        LC_ALL="C.UTF-8",
        HOME=home,
    )
