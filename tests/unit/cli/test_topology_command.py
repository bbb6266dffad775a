"""`testbed topology new` and `check`, `testbed graph`: what is written where, and what is refused."""

import errno
import io
import json
from pathlib import Path
from typing import cast

import pytest

from testbed.cli.main import invoke
from testbed.cli.output import give
from testbed.cli.topology_command import far_ends
from testbed.protocol import InterfaceRow


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_fabric_is_printed_or_written(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["topology", "new", "single", "--hosts", "2"]) == 0
    printed = capsys.readouterr().out
    assert invoke(["topology", "new", "single", "--hosts", "2", "-o", "lab.clab.yml"]) == 0
    assert capsys.readouterr().out == ""
    assert Path("lab.clab.yml").read_text() == printed
    assert "# Made by `testbed topology new single --hosts 2 --routed`." in printed


def test_evpn_has_a_short_name(capsys: pytest.CaptureFixture[str]) -> None:
    texts = []
    for words in ["--evpn"], ["--routing", "evpn"]:
        assert invoke(["topology", "new", "leaf-spine", "--dual-tor", *words]) == 0
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1]
    assert "es_id: 1" in texts[0]


def test_what_was_edited_is_not_written_over(capsys: pytest.CaptureFixture[str]) -> None:
    Path("lab.clab.yml").write_text("mine")
    assert invoke(["topology", "new", "single", "-o", "lab.clab.yml"]) == 2
    assert "error: lab.clab.yml: the file exists" in capsys.readouterr().err
    assert Path("lab.clab.yml").read_text() == "mine"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["leaf-spain"], "Did you mean leaf-spine?"),
        (["fat-tree", "--k", "5"], "k is 5; it must be an even number"),
        (["fat-tree", "--bridged"], "is a layer-2 loop"),
        (["single", "--spines", "2"], "single has no option 'spines'"),
        (["single", "--hosts", "many"], "'many' is not a valid integer"),
        (["single", "-o", "no/such/lab.yml"], "error: no/such/lab.yml: cannot be written: No such file or directory"),
    ],
)
def test_what_cannot_be_made_is_2(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["topology", "new", *words]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert said in " ".join(err.split())


def test_check_says_which_vlan_a_port_is_in_or_that_it_routes(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ["--leaves", "2", "--spines", "1", "--hosts", "1"]
    assert invoke(["topology", "new", "leaf-spine", *sizes, "--routing", "frr", "-o", "lab.clab.yml"]) == 0
    assert invoke(["topology", "check", "lab.clab.yml"]) == 0
    rows = {words[0]: words[3:] for words in map(str.split, capsys.readouterr().out.splitlines())}
    assert rows["leaf1:e1"] == ["10"]
    assert rows["leaf1:e2"] == rows["spine1:e1"] == ["routed"]
    assert rows["host1:eth1"] == ["10.1.1.2/24", "10.1.1.1", "host1-eth1"]


def test_check_shows_svis_and_gateways_in_their_columns(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["topology", "new", "single", "--hosts", "1", "--family", "dual", "-o", "lab.clab.yml"]) == 0
    assert invoke(["topology", "check", "lab.clab.yml"]) == 0
    head, _, svi, host = capsys.readouterr().out.splitlines()
    assert svi.startswith("leaf1:vlan10 ")
    place = {name: head.index(name) for name in ("MAC", "address", "gateway", "VLAN", "RDMA device")}
    assert svi[place["MAC"] : place["gateway"]].split() == ["02:00:01:01:00:00", "10.1.1.1/24,", "2001:db8:1:1::1/64"]
    assert svi[place["VLAN"] :] == "10"
    assert host[place["gateway"] : place["VLAN"]].split() == ["10.1.1.1,", "2001:db8:1:1::1"]
    assert host[place["RDMA device"] :] == "host1-eth1"


TRUNKS = """\
name: trunks
topology:
  defaults: {kind: switch, vlans: {1: null, 10: null, 20: null}}
  nodes: {s1: {}, s2: {}, s3: {}}
  links:
    - {endpoints: [s1:e1, s2:e1], vlan: 10, trunk: [1, 20]}
    - {endpoints: [s2:e2, s3:e2], trunk: [20]}
"""


def test_check_tells_the_untagged_vlan_from_the_tagged_ones(capsys: pytest.CaptureFixture[str]) -> None:
    Path("lab.clab.yml").write_text(TRUNKS)
    assert invoke(["topology", "check", "lab.clab.yml"]) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split() == ["interface", "peer", "MAC", "VLAN"]
    place = head.index("VLAN")
    assert [row[place:] for row in rows] == ["10, tagged 1, 20", "10, tagged 1, 20", "tagged 20", "tagged 20"]
    assert invoke(["graph", "lab.clab.yml"]) == 0
    assert "s1:e1 VLAN 10, tagged 1, 20 – s2:e1 VLAN 10, tagged 1, 20" in capsys.readouterr().out


def test_a_graph_is_printed_or_written(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["topology", "new", "single", "-o", "lab.clab.yml"]) == 0
    assert invoke(["graph", "lab.clab.yml"]) == 0
    printed = capsys.readouterr().out
    assert invoke(["graph", "lab.clab.yml", "-o", "lab.svg"]) == 0
    assert invoke(["graph", "lab.clab.yml", "-o", "lab.svg"]) == 0  # a picture may be written over
    assert Path("lab.svg").read_text() == printed
    assert printed.startswith("<svg ")


def test_a_picture_does_not_replace_its_topology(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["topology", "new", "single", "-o", "lab.clab.yml"]) == 0
    text = Path("lab.clab.yml").read_text()
    Path("same.svg").hardlink_to("lab.clab.yml")
    for name in ("./lab.clab.yml", "same.svg"):
        assert invoke(["graph", "lab.clab.yml", "-o", name]) == 2
        assert "is the topology itself" in capsys.readouterr().err
    assert Path("lab.clab.yml").read_text() == text


class FullDisk(io.StringIO):
    def write(self, _: str) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("over", [True, False])
def test_on_a_full_disk_no_half_file_stays(over: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def begin(file: Path, _: str) -> FullDisk:
        file.touch()
        return FullDisk()

    monkeypatch.setattr(Path, "open", begin)
    with pytest.raises(OSError, match="No space left on device"):
        give("a picture", Path("lab.svg"), over=over)
    assert not Path("lab.svg").exists()


def test_a_device_that_is_full_is_not_removed(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["topology", "new", "single", "-o", "lab.clab.yml"]) == 0
    Path("device").symlink_to("/dev/full")
    assert invoke(["graph", "lab.clab.yml", "-o", "device"]) == 3
    assert "error: device: the disk is full" in capsys.readouterr().err
    assert Path("device").is_char_device()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["lab.yml"], "error: lab.yml: no such file"),
        (["bad.yml"], "error: bad.yml:1:42: kind 'hots' is not supported"),
        (["bad.yml", "--format", "png"], "'png' is not one of 'svg', 'mermaid', 'dot'"),
    ],
)
def test_what_cannot_be_drawn_is_2(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("bad.yml").write_text("{name: bad, topology: {nodes: {a: {kind: hots}}}}")
    assert invoke(["graph", *words]) == 2
    assert said in " ".join(capsys.readouterr().err.split())


NOTED = """\
name: noted
debug: true
topology:
  nodes:
    a: {kind: linux, cpu: 2}
    b: {kind: linux, cpu: 4}
"""


def test_what_has_no_effect_is_noted_once_with_its_place(capsys: pytest.CaptureFixture[str]) -> None:
    Path("lab.clab.yml").write_text(NOTED)
    notes = [
        "note: lab.clab.yml:2:1: 'debug' has no effect: the run directory has the output of a lab",
        "note: lab.clab.yml:5:22: 'cpu' has no effect: a container of a lab runs without it (also in line 6)",
    ]
    for words in (["topology", "check"], ["graph"]):
        assert invoke([*words, "lab.clab.yml"]) == 0
        out, err = capsys.readouterr()
        assert err.splitlines() == notes
        assert "no effect" not in out


def test_notes_are_part_of_the_json(capsys: pytest.CaptureFixture[str]) -> None:
    Path("lab.clab.yml").write_text(NOTED)
    assert invoke(["topology", "check", "--json", "lab.clab.yml"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert json.loads(out)["notes"][1] == {
        "key": "cpu",
        "where": "lab.clab.yml:5:22",
        "text": "'cpu' has no effect: a container of a lab runs without it",
        "lines": [5, 6],
    }


def test_a_bond_to_two_switches_is_shown_with_both() -> None:
    rows = [
        {"node": "h", "interface": "bond0", "peer": "a:po1", "members": ["eth1", "eth2", "eth3"]},
        *({"node": "h", "interface": f"eth{n}", "peer": f"{to}:e{n}"} for n, to in ((1, "a"), (2, "a"), (3, "b"))),
        *({"node": "a", "interface": f"e{n}", "peer": f"h:eth{n}", "master": "po1"} for n in (1, 2)),
        {"node": "b", "interface": "e3", "peer": "h:eth3"},
    ]
    ends = cast("dict[str, InterfaceRow]", {f"{row['node']}:{row['interface']}": row for row in rows})
    assert far_ends(ends["h:bond0"], ends) == "a:po1, b:e3"
    assert far_ends(ends["h:eth3"], ends) == "b:e3"
