"""docs/metrics.md has what there is."""

import re
from importlib import resources
from pathlib import Path

import yaml

from testbed.metrics.exposition import known

PAGE = (Path(__file__).parents[3] / "docs" / "metrics.md").read_text()


def test_the_page_has_every_family_of_our_own_and_no_other() -> None:
    named = set(re.findall(r"`(testbed_\w+)`", PAGE))
    own = {f"{row.name}_total" if row.kind == "counter" else row.name for row in known()}
    assert named == {name for name in own if name.startswith("testbed_")}


def test_the_page_has_every_alarm() -> None:
    alarms = yaml.safe_load(resources.files("testbed.metrics").joinpath("alerts.yml").read_text())["groups"][0]["rules"]
    assert re.findall(r"^\| `([A-Z]\w+)` \|", PAGE, re.MULTILINE) == [alarm["alert"] for alarm in alarms]
