"""The image: what comes out does not depend on who builds it or when."""

from pathlib import Path

import pytest


@pytest.mark.slow
def test_a_second_build_is_the_same_to_the_byte(testbed, tmp_path):
    """Built here anew and compared with the one in the cache; where Debian's packages moved on since, built twice."""

    def built(cache: Path) -> dict:
        assert testbed("image", "build", env={"XDG_CACHE_HOME": str(cache)}).status == 0
        return testbed("image", "info", "--json", env={"XDG_CACHE_HOME": str(cache)}).json

    one, other = testbed("image", "info", "--json").json, built(tmp_path / "first")
    if one["packages"] != other["packages"]:
        one = built(tmp_path / "second")
    assert one["packages"] == other["packages"]
    assert one["files"] == other["files"]
