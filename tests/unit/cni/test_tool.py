"""Requests of `testbed cni` are checked before a machine is started."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from testbed.cni.tool import CniCommand
from testbed.errors import InputError
from testbed.protocol.requests import Cni

CONFLIST = {"cniVersion": "1.0.0", "name": "rdma", "plugins": [{"type": "macvlan", "capabilities": {"mac": True}}]}
TOPOLOGY = """\
name: two
topology:
  nodes:
    leaf: {kind: switch}
    a: {kind: host}
    b: {kind: host}
  links:
    - endpoints: ["a:eth1", "leaf:e1"]
    - endpoints: ["b:eth1", "leaf:e2"]
"""


@pytest.fixture(autouse=True)
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("rdma.conflist").write_text(json.dumps(CONFLIST))
    Path("two.clab.yml").write_text(TOPOLOGY)
    return Path("rdma.conflist")


def command(**changes: Any) -> CniCommand:
    return CniCommand(replace(Cni(command="add", conflist="rdma.conflist"), **changes))


def test_the_pod_s_node_is_the_first_host() -> None:
    assert command().node == "node"
    assert command(topology="two.clab.yml").node == "a"
    assert command(topology="two.clab.yml", node="b").node == "b"


def test_args_and_capability_args_are_those_of_cnitool() -> None:
    asked = command(arguments="IgnoreUnknown=1;MAC=06:00:00:00:00:01", capabilities='{"mac": "06:00:00:00:00:01"}')
    assert asked.arguments == {"IgnoreUnknown": "1", "MAC": "06:00:00:00:00:01"}
    assert asked.capabilities == {"mac": "06:00:00:00:00:01"}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"topology": "two.clab.yml", "node": "leaf"}, "the topology has no host leaf"),
        ({"node": "mode"}, "Did you mean node[?] Hosts: node."),
        ({"interface": "a/b"}, "cannot be an interface's name"),
        ({"interface": "sixteen-bytes-xx"}, "cannot be an interface's name"),
        ({"interface": ".."}, "cannot be an interface's name"),
        ({"interface": "é" * 8}, "cannot be an interface's name: at most 15 bytes"),
        ({"arguments": "MAC"}, "'MAC' is not of the form KEY=VALUE"),
        ({"capabilities": "{"}, "--capability-args: not valid JSON"),
        ({"capabilities": "[]"}, "--capability-args: expected a JSON object"),
        ({"capabilities": '{"mac": NaN}'}, "--capability-args: not valid JSON: NaN is not a JSON value"),
        ({"capabilities": "[" * 100_000}, "--capability-args: nested too deeply"),
        ({"capabilities": '{"mac": ' + "1" * 5000 + "}"}, "--capability-args: not valid JSON"),
        ({"capabilities": '{"mak": 1}'}, 'no plugin of network "rdma" has the capability .mak.\n  Did you mean mac?'),
    ],
)
def test_what_is_wrong_is_named(change: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        command(**change)
