"""Keys and names of a topology file that are wrong: an error says what is allowed there, and what was meant."""

import pytest
from refusals import assert_refused_at_caret, refused, with_links, with_node

from testbed.errors import InputError
from testbed.topology import Topology


def test_of_a_thousand_problems_five_are_shown() -> None:
    nodes = "".join(f"    n{index}: {{knid: host}}\n" for index in range(1000))
    lines = refused(f"name: lab\ntopology:\n  nodes:\n{nodes}")
    assert [line.split(": ")[0] for line in lines[:5]] == [f"t.yml:{line}:10" for line in range(4, 9)]
    assert lines[5:] == ["… and many more"]


def test_unknown_keys_are_named_with_what_is_allowed_and_what_was_meant() -> None:
    assert refused(with_node("{kind: host, nick: rxe}")) == [
        "t.yml:4:21: unknown key 'nick' in node 'n'; "
        "allowed: binds, bonds, cmd, congestion_control, congestion_values, ecmp_seed, entrypoint, env, exec, group, "
        "healthcheck, host_routes, image, kind, l3vni, labels, load_balancing, mgmt-ipv4, mgmt-ipv6, "
        "mlag, … (37 in all); "
        "did you mean 'nic'?"
    ]


def test_what_was_meant_is_found_in_any_case() -> None:
    assert refused(with_node("{kind: host, NIC: rxe}"))[0].endswith("; did you mean 'nic'?")


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("^link-down", "a fault must be a mapping with 'fault', its name, and parameters, not the string"),
        ("^{end: a:eth1}", "a fault lacks the key 'fault', its name"),
        ("^{fault: 7}", "'fault' must be a string, not the number 7"),
        ("{fault: link-loss, end: ^a:eth2, loss: 1}", "unknown end 'a:eth2'; there are: a:eth1, b:eth1; did you"),
        ("{fault: x, switch: ^b}", "unknown switch 'b'; there are: sw"),
        ("{fault: x, host: ^c}", "unknown host 'c'; there are: a, b"),
        ("{fault: x, source: a, target: ^c}", "unknown host 'c'; there are: a, b"),
        ("{fault: x, target: a, senders: [b, ^c]}", "unknown host 'c'; there are: a, b"),
        ("{fault: x, pairs: [[a, b], [b, ^c]]}", "unknown host 'c'; there are: a, b"),
        ("{fault: x, switch: sw, host: a, port: ^e7}", "unknown port 'e7'; there are: "),
        ("{fault: x, end: a:eth1, to: ^po7}", "unknown bond of its node 'po7'; there are: none"),
        ("{fault: lacp-lost, end: ^a:eth1}", "'a:eth1' is no member of a bond with LACP; there are: none"),
        ("{fault: bond-member-moved, end: ^a:eth1}", "'a:eth1' is no member of a bond; there are: none"),
        ("{fault: bond-hash, end: ^a:eth1}", "'a:eth1' is no bond; there are: none"),
        ("{fault: mlag-sync-lost, switch: ^sw}", "'sw' is no switch with 'mlag'; there are: none"),
        ("^{fault: bad}", "no such fault: bad {}"),
    ],
)
def test_a_fault_from_the_start(fault: str, message: str) -> None:
    def check(name: str, parameters: object) -> str:
        return f"no such fault: {name} {parameters}" if name == "bad" else ""

    text = with_links("{endpoints: [a:eth1, b:eth1]}") + f"  faults:\n    - {fault}\n"
    before, after = text.split("^")
    line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
    found = refused(before + after, check_fault=check)
    assert any(each.startswith(f"t.yml:{line}:{column}: ") and message in each for each in found), found


@pytest.mark.parametrize(
    ("text", "message"),
    [("toplogy: {}", "unknown key 'toplogy' in the file; allowed: mgmt, name, topology; did you mean 'topology'?")],
)
def test_keys_at_the_top(text: str, message: str) -> None:
    assert_refused_at_caret(f"name: lab\ntopology: {{nodes: {{a: {{kind: host}}}}}}\n^{text}\n", message)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "-a",
            "the string '-a' is not a usable name: letters, digits, '-', '_' and single '.', at most 63, a letter or "
            "a digit at either end",
        ),
        ("../etc", "is not a usable name"),
        ("_b", "is not a usable name"),
        ("a b", "is not a usable name"),
        ("n" * 64, "is not a usable name"),
        ("'a\\nb'", "is not a usable name"),
    ],
)
def test_names_of_labs_and_nodes(name: str, message: str) -> None:
    assert_refused_at_caret(f"name: ^{name}\ntopology: {{nodes: {{a: {{kind: host}}}}}}\n", message)
    assert_refused_at_caret(f"name: lab\ntopology:\n  nodes:\n    ^{name}: {{kind: host}}\n", message)


def test_the_name_of_a_lab_is_no_number() -> None:
    assert_refused_at_caret(
        "name: ^7\ntopology: {nodes: {a: {kind: host}}}\n", "must be a string, not the number 7; quote it"
    )


def test_a_number_and_its_text_are_one_node() -> None:
    assert_refused_at_caret(
        "name: lab\ntopology:\n  nodes: ^{7: {kind: host}, '7': {kind: host}}\n", "the same node name"
    )


def test_missing_parts_are_named() -> None:
    assert refused("name: lab\n") == ["t.yml:1:1: the file lacks the key 'topology'"]
    assert refused("name: lab\ntopology: {}\n") == ["t.yml:2:11: 'topology' lacks the key 'nodes'"]
    assert refused("name: lab\ntopology: {nodes: {}}\n") == ["t.yml:2:19: too few entries in 'nodes': 0, at least 1"]


def test_groups_and_kinds_of_containerlab() -> None:
    lines = refused(
        "name: lab\ntopology:\n  groups: {rack: {port: []}}\n  kinds: {linux: {}, swich: }\n  nodes: {a: }\n"
    )
    assert lines[0].startswith(
        "t.yml:3:19: unknown key 'port' in group 'rack'; allowed: binds, bonds, cmd, congestion_control, "
    )
    assert lines[1].startswith(
        "t.yml:4:22: kind 'swich' is not supported; supported: host, switch, bridge, linux, ovs-br"
    )


def test_a_group_has_a_name() -> None:
    (line,) = refused("name: lab\ntopology:\n  groups: {'': {}}\n  nodes: {a: {kind: host}}\n")
    assert line.startswith("t.yml:3:12: ")


def test_keys_of_a_kind_are_checked_where_the_kind_is_described() -> None:
    lines = refused(
        "name: lab\ntopology:\n  kinds: {switch: {nic: rxe}, host: {kind: host}}\n  nodes: {a: {kind: host}}\n"
    )
    assert lines[0].startswith(
        "t.yml:3:20: 'nic' is a key of a host, not of a switch; allowed: stp, routes, sysctls, bonds, vrrp, mlag, "
        "profile"
    )
    assert lines[1] == "t.yml:3:38: 'kind' belongs to a node, a group or the defaults, not to a kind"


def test_independent_problems_come_in_the_order_of_the_lines() -> None:
    links = ["{endpoints: [sw:e1, a:eth1], vlan: x}", "{endpoints: [sw:e2, b:eth1], vlam: 10}", "{endpoints: []}"]
    lines = refused(with_links(*links))
    assert [line.split(": ")[0] for line in lines] == ["t.yml:9:42", "t.yml:10:36", "t.yml:11:19"]


def test_a_problem_in_an_alias_is_reported_where_it_is_written() -> None:
    text = "name: lab\ntopology:\n  nodes:\n    a: &h {kind: host, nic: x}\n    b: *h\n"
    assert [line.split(": ")[0] for line in refused(text)] == ["t.yml:4:29"]


def test_an_unknown_profile_is_refused_when_the_caller_knows_them() -> None:
    (line,) = refused(
        "name: lab\ntopology:\n  kinds: {switch: {profile: cisco-nxoss}}\n  nodes: {sw: {kind: switch}}\n",
        profiles={"sonic", "cisco-nxos"},
    )
    assert line == (
        "t.yml:3:29: unknown profile 'cisco-nxoss'; profiles: cisco-nxos, sonic; did you mean 'cisco-nxos'?"
    )


def test_a_topology_made_in_python_names_the_path_instead_of_a_line() -> None:
    topology = Topology.model_validate(
        {"name": "lab", "topology": {"nodes": {"a": {"kind": "host"}}, "links": [{"endpoints": ["a:eth1", "b:eth1"]}]}}
    )
    with pytest.raises(InputError, match=r"^topology\.links\[0\]\.endpoints\[1\]: unknown node 'b'; nodes: a$"):
        topology.plan()
