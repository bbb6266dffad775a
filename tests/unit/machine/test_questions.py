"""`testbed topology`: a file is read by a process of the inside, and its errors are of the file the user named."""

import os
from pathlib import Path

import pytest

from testbed.errors import TestbedError
from testbed.machine import questions
from testbed.protocol import GraphStyle, requests

pytestmark = pytest.mark.usefixtures("forked")

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


def test_a_gateway_is_shown_where_the_host_routes_by_it(file: Path) -> None:
    file.write_text("""\
name: rails
topology:
  nodes:
    leaf: {kind: switch, vlans: {10: 10.0.10.1/24, 20: 10.0.20.1/24}}
    a: {kind: host}
    b: {kind: host, routes: [{to: default, via: [10.0.10.1, 10.0.20.1]}]}
    c: {kind: host, routes: [{to: 10.0.10.0/24, via: 10.0.20.9}]}
    d: {kind: host, routes: []}
  links:
    - {endpoints: ["a:eth1", "leaf:e1"], vlan: 10}
    - {endpoints: ["a:eth2", "leaf:e2"], vlan: 20}
    - {endpoints: ["b:eth1", "leaf:e3"], vlan: 10}
    - {endpoints: ["b:eth2", "leaf:e4"], vlan: 20}
    - {endpoints: ["c:eth1", "leaf:e5"], vlan: 20}
    - {endpoints: ["d:eth1", "leaf:e6"], vlan: 20}
""")
    rows = questions.plan(file)["interfaces"]
    assert {f"{row['node']}:{row['interface']}": row["gateway"] for row in rows if row["kind"] == "host"} == {
        "a:eth1": "10.0.10.1",
        "a:eth2": "",
        "b:eth1": "10.0.10.1",
        "b:eth2": "10.0.20.1",
        "c:eth1": "10.0.20.9",
        "d:eth1": "",
    }


def refused(file: Path) -> TestbedError:
    with pytest.raises(TestbedError) as said:
        questions.plan(file)
    assert said.value.exit_status == 2
    return said.value


def test_a_plan_has_a_row_for_every_interface(file: Path) -> None:
    file.write_text(GOOD)
    plan = questions.plan(file)
    assert plan["name"] == "pair"
    assert {(row["node"], row["interface"], row["peer"]) for row in plan["interfaces"]} == {
        ("a", "eth1", "leaf:e1"),
        ("leaf", "e1", "a:eth1"),
        ("b", "eth1", "leaf:e2"),
        ("leaf", "e2", "b:eth1"),
    }
    assert len({row["mac"] for row in plan["interfaces"]}) == 4


def test_a_row_has_the_addresses_of_both_families(file: Path) -> None:
    file.write_text(GOOD.replace("{kind: switch}", '{kind: switch, vlans: {1: [10.0.0.1/24, "fd00::1/64"]}}'))
    rows = questions.plan(file)["interfaces"]
    assert [(row["node"], row["interface"], row["address"], row["address6"]) for row in rows] == [
        ("a", "eth1", "10.0.0.2/24", "fd00::2/64"),
        ("leaf", "e1", "", ""),
        ("leaf", "e2", "", ""),
        ("leaf", "vlan1", "10.0.0.1/24", "fd00::1/64"),
        ("b", "eth1", "10.0.0.3/24", "fd00::3/64"),
    ]
    assert [(row["gateway"], row["gateway6"]) for row in rows if row["gateway"]] == [("10.0.0.1", "fd00::1")] * 2


def test_a_row_tells_the_untagged_vlan_from_the_tagged_ones(file: Path) -> None:
    vlans, ends = "{kind: switch, vlans: {1: null, 2: null, 3: null}}", '"a:eth1", "leaf:e1"'
    file.write_text(
        GOOD.replace("{kind: switch}", vlans)
        .replace("b: {kind: host}", f"b: {vlans}")
        .replace(f"[{ends}]", f"[{ends}]\n      vlan: 1")
        + "      vlan: 1\n      trunk: [2, 3]\n"
    )
    rows = {(row["node"], row["interface"]): (row["vlan"], row["trunk"]) for row in questions.plan(file)["interfaces"]}
    assert rows == {
        ("a", "eth1"): (None, []),
        ("leaf", "e1"): (1, []),
        ("leaf", "e2"): (1, [2, 3]),
        ("b", "eth1"): (1, [2, 3]),
    }


@pytest.mark.parametrize(
    ("old", "new", "place"),
    [("kind: switch", "kind: swich", "5:18"), ('"leaf:e2"', '"leef:e2"', "9:29"), ("name: pair", "name: [pair", "2:9")],
)
def test_an_error_is_at_a_line_and_column_of_the_user_s_file(file: Path, old: str, new: str, place: str) -> None:
    assert GOOD.count(old) == 1
    file.write_text(GOOD.replace(old, new))
    assert refused(file).where == f"{file}:{place}"


def test_a_fabric_is_a_file_that_can_be_planned(file: Path) -> None:
    file.write_text(
        questions.ask(
            requests.Fabric(fabric="leaf-spine", options={"leaves": 2, "spines": 1, "hosts": 1, "bridged": True})
        )
    )
    assert {row["node"] for row in questions.plan(file)["interfaces"]} == {"spine1", "leaf1", "leaf2", "host1", "host2"}


def test_a_fabric_that_cannot_be_made_is_wrong_input() -> None:
    with pytest.raises(TestbedError, match="k is 3") as said:
        questions.ask(requests.Fabric(fabric="fat-tree", options={"k": 3}))
    assert (said.value.exit_status, said.value.where) == (2, "")


@pytest.mark.parametrize(
    ("style", "begins"), [("svg", "<svg "), ("mermaid", "flowchart TB"), ("dot", 'graph "pair" {')]
)
def test_a_graph_is_a_text(file: Path, style: GraphStyle, begins: str) -> None:
    file.write_text(GOOD)
    picture = questions.draw(file, style)
    assert picture["text"].startswith(begins)
    assert picture["notes"] == []


def test_a_graph_of_a_wrong_file_is_refused_at_its_place(file: Path) -> None:
    file.write_text(GOOD.replace("kind: switch", "kind: swich"))
    with pytest.raises(TestbedError) as said:
        questions.draw(file, "svg")
    assert (said.value.where, said.value.exit_status) == (f"{file}:5:18", 2)


def test_a_graph_is_refused_where_a_plan_is(file: Path) -> None:
    file.write_text(f"{GOOD}  faults: [{{fault: no-such-fault}}]\n")
    with pytest.raises(TestbedError, match="there is no fault 'no-such-fault'"):
        questions.draw(file, "svg")


def test_each_of_several_errors_has_the_path_that_the_user_gave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "labs").mkdir()
    file = Path("labs/pair.clab.yml")
    file.write_text(GOOD.replace("kind: switch", "kind: swich").replace('"leaf:e2"', '"leaf"'))
    assert [line.split(": ")[0] for line in str(refused(file)).splitlines()] == [f"{file}:5:18", f"{file}:9:29"]


def test_what_is_no_file_is_told_by_what_it_is(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name, message in (
        (".", "is a directory; expected a topology file"),
        ("pipe", "is not a regular file"),
        ("a" * 300, "cannot be read: "),
    ):
        assert refused(tmp_path / name).message.startswith(message)


def test_the_schema_is_one_that_editors_read() -> None:
    schema = questions.ask(requests.Schema())
    assert {"name", "topology"} <= set(schema["properties"])
    assert schema["type"] == "object"


MININET = """\
from mininet.topo import Topo

class Mine(Topo):
    def build(self, hosts=2):
        print("built")
        switch = self.addSwitch("s1")
        for number in range(hosts):
            self.addLink(self.addHost(f"h{number}"), switch)
"""


@pytest.mark.usefixtures("own_process")
def test_a_topo_of_mininet_is_planned_and_told_in_our_format(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(MININET)
    plan = questions.plan_of_mininet(file, "Mine,3")
    assert [row["rdma"] for row in plan["interfaces"] if row["rdma"]] == ["h0-eth0", "h1-eth0", "h2-eth0"]
    (tmp_path / "mine.clab.yml").write_text(plan["text"])
    assert questions.plan(tmp_path / "mine.clab.yml")["interfaces"] == plan["interfaces"]


@pytest.mark.usefixtures("own_process")
@pytest.mark.parametrize(
    ("old", "new", "where"),
    [("switch)", "switch, enable_ecn=True)", ""), ("print(", "print(1 / 0,", ":5"), ('f"h{number}"', '"h 0"', " as")],
)
def test_an_error_of_mininet_s_file_is_at_a_place_of_the_user_s_file(
    tmp_path: Path, old: str, new: str, where: str
) -> None:
    file = tmp_path / "mine.py"
    file.write_text(MININET.replace(old, new))
    with pytest.raises(TestbedError) as said:
        questions.plan_of_mininet(file, "")
    assert said.value.exit_status == 2
    assert said.value.where.startswith(f"{file}{where}")


@pytest.mark.usefixtures("own_process")
def test_a_mininet_file_that_does_not_end_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(questions, "LIMIT_S", 1)
    file = tmp_path / "mine.py"
    file.write_text("while True: pass\n")
    with pytest.raises(TestbedError, match="cannot be loaded: still running after 1 s") as said:
        questions.plan_of_mininet(file, "")
    assert (said.value.where, said.value.exit_status) == (str(file), 2)


@pytest.mark.usefixtures("own_process")
def test_each_of_several_refusals_of_mininet_s_file_has_its_path(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(MININET.replace("switch)", "switch, enable_ecn=True)"))
    with pytest.raises(TestbedError) as said:
        questions.plan_of_mininet(file, "")
    assert [line.split(": ")[0] for line in str(said.value).splitlines()] == [str(file)] * 2
