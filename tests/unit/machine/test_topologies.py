"""`testbed topology`: a file is read by a process of the inside, and its errors are of the file the user named."""

from pathlib import Path

import pytest

from testbed.errors import TestbedError
from testbed.machine import topologies

GOOD = """\
name: pair
topology:
  nodes:
    a: {kind: host}
    leaf: {kind: switch}
    b: {kind: host}
  links:
    - endpoints: ["a:eth1", "leaf:e1"]
    - endpoints: ["b:eth1", "leaf:e2"]
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "pair.clab.yml"


def refused(file: Path) -> TestbedError:
    with pytest.raises(TestbedError) as said:
        topologies.plan(file)
    assert said.value.exit_status == 2
    return said.value


def test_a_plan_has_a_row_for_every_interface(file: Path) -> None:
    file.write_text(GOOD)
    plan = topologies.plan(file)
    assert plan["name"] == "pair"
    assert {(row["node"], row["interface"], row["peer"]) for row in plan["interfaces"]} == {
        ("a", "eth1", "leaf:e1"),
        ("leaf", "e1", "a:eth1"),
        ("b", "eth1", "leaf:e2"),
        ("leaf", "e2", "b:eth1"),
    }
    assert len({row["mac"] for row in plan["interfaces"]}) == 4


@pytest.mark.parametrize(
    ("old", "new", "place"),
    [
        ("kind: switch", "kind: swich", "5:18"),
        ('"leaf:e2"', '"leef:e2"', "9:29"),
        ("name: pair", "name: [pair", "2:9"),
    ],
)
def test_an_error_is_at_a_line_and_column_of_the_user_s_file(file: Path, old: str, new: str, place: str) -> None:
    assert GOOD.count(old) == 1
    file.write_text(GOOD.replace(old, new))
    assert refused(file).where == f"{file}:{place}"


def test_the_schema_is_one_that_editors_read() -> None:
    schema = topologies.schema()
    assert {"name", "topology"} <= set(schema["properties"])
    assert schema["type"] == "object"
