"""Plugins that a module makes itself."""

from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def plugins(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The directory of a module's own plugins, which CNI_PATH has first, from the module's first lab on."""
    directory = tmp_path_factory.mktemp("own") / "plugins"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CNI_PATH", f"{directory}:/usr/lib/cni")
        yield directory
