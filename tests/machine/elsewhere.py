"""Commands far from this checkout, in roots of other distributions too, and a test that somebody may have in a
repository."""

import os
import subprocess

from conftest import LIMIT_S

from testbed.machine.image_build import mirror

USER = 1000
PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
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


def run_in(root, *words, user, home, directory, path=PATH):
    """A command in a root, of a user by number; its processes end with it."""
    return run(
        *("unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-ec", ENTER, root),
        *(f"--userspec={user}:{user}", root, "env", f"--chdir={directory}", *words),
        cwd=root.parent,
        PATH=path,
        LC_ALL="C.UTF-8",
        HOME=home,
    )
