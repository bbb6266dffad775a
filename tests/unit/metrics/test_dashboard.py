"""The dashboard and the alarms use what a lab exports, in words that Prometheus understands."""

import itertools
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

from testbed.metrics.exposition import known

FILES = resources.files("testbed.metrics")
DASHBOARD = json.loads(FILES.joinpath("dashboard.json").read_text())
RULES = yaml.safe_load(FILES.joinpath("alerts.yml").read_text())["groups"][0]["rules"]


def exported() -> set[str]:
    """The names of all series."""
    return {f"{row.name}_total" if row.kind == "counter" else row.name for row in known()}


def panels() -> list[dict[str, Any]]:
    return [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


def expressions() -> Iterator[str]:
    """As Prometheus gets them from Grafana, and those of the rules."""
    asked = [target["expr"] for panel in panels() for target in panel["targets"]]
    for text in (*asked, *(one["expr"] for one in DASHBOARD["annotations"]["list"])):
        yield text.replace("$__rate_interval", "1m").replace("$lab", ".*")
    yield from (rule["expr"] for rule in RULES)


def names_in(expression: str) -> set[str]:
    return set(re.findall(r"\b(?:rdma|node|testbed)_\w+", re.sub(r"\b(?:on|by|without) \([^)]*\)", "", expression)))


@pytest.mark.parametrize("expression", dict.fromkeys(expressions()))
def test_an_expression_has_names_that_are_exported(expression: str) -> None:
    assert names_in(expression) <= exported()


def test_every_family_of_testbed_s_own_is_shown_but_for_a_few() -> None:
    shown = {name for expression in expressions() for name in names_in(expression)}
    own = {name for name in exported() if name.startswith("testbed_")}
    left = {"testbed_queue_packets_total", "testbed_queue_bytes_total", "testbed_link_packets_total"}
    left |= {"testbed_link_rate_bits_per_second", "testbed_priority_group_occupancy_bytes", "testbed_unread"}
    assert own - shown == left


@pytest.mark.skipif(not shutil.which("promtool"), reason="there is no promtool: sudo apt-get install prometheus")
def test_prometheus_can_read_every_expression(tmp_path: Path) -> None:
    rules = [{"record": f"panel:{number}", "expr": expression} for number, expression in enumerate(expressions())]
    file = tmp_path / "rules.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    done = subprocess.run(["promtool", "check", "rules", file], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert f"{len(rules)} rules found" in done.stdout


def keys(found: Any, place: str = "") -> Iterator[str]:
    """The places of all values."""
    rows = found.items() if isinstance(found, dict) else enumerate(found) if isinstance(found, list) else ()
    for key, value in rows:
        yield f"{place}.{key}"
        yield from keys(value, f"{place}.{key}")


def test_grafana_knows_every_key() -> None:
    """Its own model of dashboards keeps what it knows."""
    register_default_plugins()
    kept = json.loads(JSONEncoder().encode(Dashboard.from_json(DASHBOARD)))
    assert set(keys(DASHBOARD)) - set(keys(kept)) == {".annotations.list.0.titleFormat"}, "of the Prometheus plugin"


def test_panels_have_their_own_place_and_number() -> None:
    every = DASHBOARD["panels"]
    assert len({panel["id"] for panel in every}) == len(every)
    places = [
        (panel["gridPos"]["x"] + across, panel["gridPos"]["y"] + down)
        for panel in every
        for across, down in itertools.product(range(panel["gridPos"]["w"]), range(panel["gridPos"]["h"]))
    ]
    assert len(set(places)) == len(places)
    assert max(x for x, _ in places) < 24, "a dashboard of Grafana has 24 columns"


def test_panels_ask_the_data_source_that_is_chosen() -> None:
    variables = {one["name"]: one for one in DASHBOARD["templating"]["list"]}
    chosen = {"type": "prometheus", "uid": "${datasource}"}
    assert variables["datasource"]["type"] == "datasource"
    for panel in panels():
        assert panel["datasource"] == chosen
        assert [target["datasource"] for target in panel["targets"]] == [chosen] * len(panel["targets"])
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])
