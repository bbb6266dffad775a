"""Files of other tools are named, with the way from there."""

from pathlib import Path

import pytest
from refusals import refused

from testbed.errors import InputError
from testbed.topology import Topology


def test_a_topology_of_netlab() -> None:
    lines = refused("provider: clab\nmodule: [bgp]\nnodes: [r1, r2]\nlinks: [r1-r2]\n")
    assert lines == [
        "t.yml:1:1: this is a topology of netlab, which writes a file for containerlab from it",
        "  Run `netlab create --provider clab FILE`, and use the clab.yml that it writes.",
    ]


def test_a_project_of_gns3() -> None:
    line, hint = refused('{"name": "x", "project_id": "1", "type": "topology", "topology": {"nodes": [], "links": []}}')
    assert line.startswith("t.yml:1:1: this is a project of GNS3")
    assert "docs/mininet.md" in hint


def test_nodes_at_the_top_of_a_topology_are_a_mistake_of_its_own() -> None:
    assert refused("name: x\nnodes: {a: {kind: host}}\n")[0].startswith("t.yml:1:1: the file lacks the key 'topology'")


def test_a_directory_of_a_kathara_lab(tmp_path: Path) -> None:
    (tmp_path / "lab.conf").write_text("a[0]=X\n")
    with pytest.raises(InputError) as caught:
        Topology.load(tmp_path)
    assert caught.value.hint == f"It is a Kathará lab: testbed topology from-kathara {tmp_path} -o lab.clab.yml"
