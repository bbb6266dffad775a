"""Ends of links that are hardware of this machine: how they are planned, and what of them is refused."""

from pathlib import Path
from unittest.mock import Mock

import pytest
from refusals import assert_refused_at_caret

from testbed.errors import InputError, UnsupportedError
from testbed.lab import Lab
from testbed.lab.interface import Direction
from testbed.topology import Plan, Topology

PORT = "{node: leaf, interface: e1, hardware: ens2f0}"
ANOTHER = "{node: leaf, interface: e3, hardware: ens2f2}"
LINK = f'{{endpoints: [{PORT}, "a:eth1"]}}'


def text(link: str, *more: str, nic: str = "{device: mlx5_0}", keys: str = "") -> str:
    lines = "".join(f"    - {one}\n" for one in (link, *more))
    return f"""\
name: lab
topology:
  {keys}
  nodes:
    leaf: {{kind: switch}}
    a: {{kind: host, rdma: {nic}}}
    b: {{kind: host, rdma: {{device: mlx5_1}}}}
    c: {{kind: host}}
  links:
    - {{endpoints: ["b:eth1", {{node: leaf, interface: e2, hardware: ens2f1}}]}}
{lines}"""


def plan(link: str, *more: str) -> Plan:
    return Topology.parse(text(link, *more), source="t.yml").plan()


def test_a_nic_has_the_name_that_it_has_and_a_port_its_interface() -> None:
    planned = plan(LINK, '{endpoints: ["a:mgmt0", "c:eth1"], rdma: false}')
    nic, management = planned.nodes["a"].interfaces
    port = planned.nodes["leaf"].interface("e1")
    assert (nic.rdma, nic.nic, nic.hardware, nic.is_hardware) == ("mlx5_0", "mlx5_0", "", True)
    assert (port.nic, port.hardware, port.is_hardware) == ("", "ens2f0", True)
    assert (management.rdma, management.is_hardware) == (None, False)


def test_soft_roce_on_an_interface_of_this_machine() -> None:
    planned = plan(LINK, f"{{endpoints: [{{node: c, interface: eth1, hardware: eno1}}, {ANOTHER}]}}")
    nic = planned.nodes["c"].interface("eth1")
    assert (nic.rdma, nic.nic, nic.hardware) == ("c-eth1", "", "eno1")


def test_what_a_switch_sends_and_gets_may_have_a_quality() -> None:
    assert plan(f'{{endpoints: [{PORT}, "a:eth1"], rate: 1gbit}}').nodes["a"].interface("eth1").sends.rate == 10**9


def test_a_link_of_hardware_is_not_lossless_by_itself() -> None:
    classes = "lossless: {dscp: 26, priority: 3}"
    made = '{endpoints: ["c:eth1", "leaf:e3"]}'
    planned = Topology.parse(text(LINK, made, keys=classes), source="t.yml").plan()
    leaf = planned.nodes["leaf"]
    assert [leaf.interface(name).lossless for name in ("e1", "e3")] == [False, True]


@pytest.mark.parametrize(
    ("link", "message"),
    [
        ('^{endpoints: ["a:eth1", "leaf:e1"]}', "is mlx5_0 of this machine, but its cable does not end at leaf:e1"),
        (f'^{{endpoints: [{PORT}, "c:eth1"]}}', "is ens2f0 of this machine, but its cable does not end at c:eth1"),
        ('{endpoints: ["a:eth1", {node: leaf, interface: e1, hardware: ^ens2f1}]}', "ens2f1 is already leaf:e2"),
        (
            f"{{endpoints: [{PORT}, {{node: a, interface: eth1, hardware: ^eno1}}]}}",
            "a:eth1 is the NIC mlx5_0, which has its own interface: remove 'hardware'",
        ),
        (f'{{endpoints: [{PORT}, "a:eth1"], lossless: ^true}}', "the cable of leaf:e1 is real"),
        ('{endpoints: [{node: leaf, interface: e1, hardware: ^5}, "a:eth1"]}', "'hardware' must be a string"),
    ],
)
def test_links(link: str, message: str) -> None:
    assert_refused_at_caret(text(link, keys="lossless: {dscp: 26, priority: 3}"), message)


def test_a_host_has_one_nic_and_a_link_for_it() -> None:
    assert_refused_at_caret(
        text(LINK, f'^{{endpoints: ["a:eth2", {ANOTHER}]}}'),
        "'a' has one NIC, mlx5_0, which is a:eth1: give a:eth2 'rdma: false'",
    )
    assert_refused_at_caret(
        text('{endpoints: ["a:eth1", "c:eth1"], rdma: false}', nic="^{device: mlx5_0}"),
        "'a' has the NIC mlx5_0 but no link with RDMA for it",
    )
    twice = text(LINK, nic="{device: mlx5_1}").replace('"b:eth1"', '^"b:eth1"')
    assert_refused_at_caret(twice, "b:eth1 and a:eth1 would both have the RDMA device 'mlx5_1'")


@pytest.mark.parametrize("key", ["rate: ^1gbit", "loss: ^1", "delay: ^1ms"])
def test_between_two_nics_is_nothing_of_the_lab(key: str) -> None:
    cable = 'endpoints: ["a:eth1", {node: b, interface: eth2}]'
    given = text(f"{{{cable}}}").replace('    - {endpoints: ["b:eth1"', "#")  # b's NIC is at this cable instead
    assert Topology.parse(given).plan().nodes["b"].interface("eth2").nic == "mlx5_1"
    wrong = f"'{key.partition(':')[0]}': no switch of the lab is between a:eth1 and b:eth2"
    assert_refused_at_caret(given.replace(cable, f"{cable}, {key}"), wrong)


@pytest.mark.parametrize(
    ("nic", "message"),
    [
        ("^{device: mlx5/0}", "the string 'mlx5/0' is not the name of an RDMA device such as 'mlx5_0'"),
        ("^{device: 5}", "the number 5 is not the name of an RDMA device"),
        ("^{port: 1}", "'rdma' of a NIC must have the key 'device' only, not 'port'"),
        ("^mlx5_0", "'rdma' must be true, false or a NIC such as {device: mlx5_0}, not the string 'mlx5_0'"),
        ("^{}", "'rdma' of a NIC must have the key 'device' only, not none"),
    ],
)
def test_the_nic_of_a_host(nic: str, message: str) -> None:
    assert_refused_at_caret(text(LINK, nic=nic), message)


def test_nor_is_there_while_a_lab_runs() -> None:
    """A fault that would delay what one NIC sends to another."""
    cable = text('{endpoints: ["a:eth1", {node: b, interface: eth2}]}').replace('    - {endpoints: ["b:eth1"', "#")
    left, right = Topology.parse(cable, source="t.yml").plan().links[0]
    sender, peer = Mock(plan=left, queues_at_peer=True), Mock(plan=right)
    sender.peer = peer
    with pytest.raises(InputError, match="no switch of the lab is between"):
        Direction(sender, left)


def test_a_micro_vm_has_no_hardware(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="does not have the RDMA device mlx5_1 of your machine") as raised:
        Lab(plan(LINK), tmp_path, lambda *_, **__: None)
    assert "--machine local" in raised.value.hint
