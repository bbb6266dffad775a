"""Commands far from this checkout, and a test that somebody may have in a repository."""

import os
import subprocess

from conftest import LIMIT_S

TEST = r"""import pytest


@pytest.mark.topology("name: one\ntopology: {nodes: {a: {kind: host}}, links: []}\n")
def test_a_lab(lab):
    assert list(lab.nodes) == ["a"]
"""


def run(*words, cwd, **environment):
    """A command that knows nothing of this checkout."""
    inherited = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    return subprocess.run(
        [str(word) for word in words], cwd=cwd, capture_output=True, text=True, timeout=LIMIT_S, check=False,
        env={**inherited, **environment},
    )  # fmt: skip
