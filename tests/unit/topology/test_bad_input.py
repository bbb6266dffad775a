"""Bad input: each is one InputError (exit status 2) that names the place and says what would be right."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from testbed.errors import InputError
from testbed.topology import Topology

HEAD = """\
name: lab
topology:
  nodes:
    sw: {kind: switch, vlans: {10: 10.0.10.1/24, 20: null}}
    a: {kind: host}
    b: {kind: host}
    br: {kind: bridge}
  links:
"""
"""Eight lines: the first link that a test adds is in line 9."""


def refused(text: str, **options: object) -> list[str]:
    """The lines of the error for a topology that must not pass."""
    with pytest.raises(InputError) as caught:
        Topology.parse(text, source="t.yml").plan(**options)  # type: ignore[arg-type]
    assert caught.value.exit_status == 2
    return str(caught.value).splitlines()


def assert_refused_at_caret(text: str, message: str) -> None:
    """Some line of the error names the place where `text` has a ^ (which is taken out) and contains `message`."""
    before, after = text.split("^")
    line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
    lines = refused(before + after)
    assert any(found.startswith(f"t.yml:{line}:{column}: ") and message in found for found in lines), lines


def with_links(*links: str) -> str:
    return HEAD + "".join(f"    - {link}\n" for link in links)


def with_node(body: str) -> str:
    return f"name: lab\ntopology:\n  nodes:\n    n: {body}\n"


class TestFiles:
    def test_a_missing_file_is_named_with_its_neighbours(self, tmp_path: Path) -> None:
        (tmp_path / "topology.clab.yml").touch()
        with pytest.raises(InputError, match=r"topolgy\.clab\.yml: no such file") as caught:
            Topology.load(tmp_path / "topolgy.clab.yml")
        assert "did you mean 'topology.clab.yml'?" in caught.value.hint

    def test_a_directory_is_refused_with_the_file_in_it(self, tmp_path: Path) -> None:
        (tmp_path / "x.clab.yml").touch()
        with pytest.raises(InputError, match="is a directory") as caught:
            Topology.load(tmp_path)
        assert str(tmp_path / "x.clab.yml") in caught.value.hint

    def test_a_pipe_is_refused_without_waiting_for_it(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(InputError, match="is not a regular file"):
            Topology.load(tmp_path / "pipe")

    def test_a_file_below_a_file_cannot_be_read(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        with pytest.raises(InputError, match=r"x\.yml: cannot be read: Not a directory$"):
            Topology.load(tmp_path / "file" / "x.yml")

    def test_a_name_with_a_zero_byte_cannot_be_read(self) -> None:
        with pytest.raises(InputError, match="cannot be read"):
            Topology.load("a\0b")

    def test_text_that_is_not_utf_8_is_refused_at_the_byte(self, tmp_path: Path) -> None:
        (file := tmp_path / "t.yml").write_bytes(b"name: lab\nx: \xff\n")
        with pytest.raises(InputError, match=r"t\.yml:2:4: byte 0xff is not UTF-8"):
            Topology.load(file)

    def test_a_file_beyond_the_limit_is_refused(self, tmp_path: Path) -> None:
        (file := tmp_path / "t.yml").write_bytes(b"#" * (1 << 20) + b"#")
        with pytest.raises(InputError, match="larger than 1 MiB"):
            Topology.load(file)

    def test_places_start_with_the_files_name(self, tmp_path: Path) -> None:
        (file := tmp_path / "t.yml").write_text("name: lab\ntopology: []\n")
        with pytest.raises(InputError) as caught:
            Topology.load(file)
        assert str(caught.value) == f"{file}:2:11: 'topology' must be a mapping, not a list"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "t.yml:1:1: the file is empty; a topology needs 'name' and 'topology'"),
        ("# nothing\n", "t.yml:1:1: the file is empty"),
        ("- a\n", "t.yml:1:1: a topology is a mapping with 'name' and 'topology', not a list"),
        ("just text", "t.yml:1:1: a topology is a mapping with 'name' and 'topology', not the string 'just text'"),
        ("null", "t.yml:1:1: a topology is a mapping with 'name' and 'topology', not null"),
        ("name: a\ntopology: [1,\n", "t.yml:3:1: not valid YAML"),
        ("name: 'a\n", "not valid YAML"),
        ("name: a\nname: b\n", "t.yml:2:1: key 'name' is given twice; the first is in line 1"),
        ("name: a\n---\nname: b\n", "t.yml:2:1: a topology is one YAML document; a second one starts here"),
        ("name: a\nx: \x07\n", "t.yml:2:4: character U+0007 is not allowed in YAML"),
        ("name: \ud800\n", "t.yml:1:7: character U+D800 is not allowed"),
        ("name: !!python/object/apply:os.system [id]\n", "t.yml:1:7: tag '!!python/object/apply:os.system'"),
        ("name: !!int 5\n", "t.yml:1:7: tag '!!int' is not supported; allowed: !!str, !!map, !!seq"),
        ("? [a]\n: b\n", "t.yml:1:3: a key must be a string or an integer, not a list"),
        ("true: b\n", "t.yml:1:1: a key must be a string or an integer, not true"),
        ("name: ${LAB:=x}\n", "t.yml:1:7: the string '${LAB:=x}' uses an environment variable"),
        ("a: 1\n<<: 5\n", "t.yml:2:5: '<<' merges mappings, not the number 5"),
        ("a: *b\n", "t.yml:1:4: alias '*b' has no complete anchor before it"),
    ],
)
def test_text_that_is_no_topology(text: str, message: str) -> None:
    assert message in refused(text)[0]


class TestHostileYaml:
    def test_a_billion_laughs_end_at_the_limit_of_values(self) -> None:
        laughs = "a: &a [" + ", ".join(["lol"] * 10) + "]\n"
        for this, previous in zip("bcdefghij", "abcdefghi", strict=True):
            laughs += f"{this}: &{this} [{', '.join([f'*{previous}'] * 10)}]\n"
        (line,) = refused(laughs)
        assert line.startswith("t.yml:5:")
        assert "more than 50000 values" in line

    def test_a_billion_laughs_of_merge_keys_end_there_too(self) -> None:
        laughs = "a0: &a0 {k: v}\n" + "".join(f"a{i}: &a{i} {{<<: *a{i - 1}, k{i}: v}}\n" for i in range(1, 2000))
        assert "more than 50000 values" in refused(laughs)[0]

    def test_an_alias_inside_its_own_anchor_is_refused(self) -> None:
        assert refused("a: &a [*a]\n") == ["t.yml:1:8: alias '*a' has no complete anchor before it"]

    @pytest.mark.parametrize(
        "text",
        ["[" * 100_000, "{" * 100_000, "- " * 100_000, "? " * 100_000, "".join(" " * n + "a:\n" for n in range(1000))],
        ids=["[", "{", "-", "?", "block"],
    )
    def test_deep_nesting_is_refused_at_the_limit(self, text: str) -> None:
        assert "nested deeper than 20 levels" in refused(text)[0]

    def test_depth_by_aliases_counts_as_depth(self) -> None:
        chain = "a0: &a0 [x]\n" + "".join(f"a{i}: &a{i} [*a{i - 1}]\n" for i in range(1, 100))
        assert "nested deeper than 20 levels" in refused(chain)[0]

    def test_many_values_are_refused_at_the_limit(self) -> None:
        assert "more than 50000 values" in refused("[" + "a," * 60_000 + "]")[0]

    def test_a_text_beyond_the_limit_is_refused(self) -> None:
        assert "larger than 1 MiB" in refused("#" * ((1 << 20) + 1))[0]

    def test_a_number_too_long_to_convert_is_a_string(self) -> None:
        assert_refused_at_caret(with_node(f"{{kind: ^{'9' * 5000}}}"), "kind '999")

    def test_of_a_thousand_problems_five_are_shown(self) -> None:
        nodes = "".join(f"    n{index}: {{knid: host}}\n" for index in range(1000))
        lines = refused(f"name: lab\ntopology:\n  nodes:\n{nodes}")
        assert [line.split(": ")[0] for line in lines[:5]] == [f"t.yml:{line}:10" for line in range(4, 9)]
        assert lines[5:] == ["… and many more"]


class TestForm:
    def test_unknown_keys_are_named_with_what_is_allowed_and_what_was_meant(self) -> None:
        assert refused(with_node("{kind: host, nick: rxe}")) == [
            "t.yml:4:21: unknown key 'nick' in node 'n'; "
            "allowed: env, exec, group, host_routes, image, kind, labels, nic, profile, profile_values, proxy_arp, "
            "rdma, routes, sysctls, vlans; "
            "did you mean 'nic'?"
        ]

    def test_what_was_meant_is_found_in_any_case(self) -> None:
        assert refused(with_node("{kind: host, NIC: rxe}"))[0].endswith("; did you mean 'nic'?")

    @pytest.mark.parametrize(
        ("keys", "message"),
        [
            ("rate: ^100", "the number 100 is not a number with a unit (kbit, mbit, gbit), such as 100mbit"),
            ("rate: ^100mb", "the string '100mb' is not a number with a unit"),
            ("rate: ^1kbit", "rate 1kbit is not in 8kbit..800gbit"),
            ("rate: ^900gbit", "rate 900gbit is not in 8kbit..800gbit"),
            ("delay: ^-1us", "the string '-1us' is not a number with a unit (us, ms, s), such as 50us"),
            ("delay: ^101s", "delay 101s is longer than 100s"),
            ("loss: ^101", "less than or equal to 100"),
            ("queue: ^0, rate: 1gbit", "greater than or equal to 1"),
            ("queue: ^100", "'queue' needs 'rate'"),
            ("ecn: ^100", "'ecn' needs 'rate'"),
            ("jitter: ^1ms", "'jitter' needs 'delay'"),
            ("rate: 1gbit, queue: 64, ecn: ^65", "'ecn' is above the queue's 64 packets"),
            ("rate: 1gbit, ecn: ^1001", "'ecn' is above the queue's 1000 packets"),
        ],
    )
    def test_the_quality_of_a_link(self, keys: str, message: str) -> None:
        assert_refused_at_caret(with_links(f"{{endpoints: [a:eth1, b:eth1], {keys}}}"), message)

    @pytest.mark.parametrize(
        ("fault", "message"),
        [
            ("^link-down", "a fault is a mapping with its name under 'fault' and its parameters, not the string"),
            ("^{end: a:eth1}", "a fault lacks the key 'fault', its name"),
            ("^{fault: 7}", "'fault' must be a string, not the number 7"),
            ("{fault: link-loss, end: ^a:eth2, loss: 1}", "unknown end 'a:eth2'; there are: a:eth1, b:eth1; did you"),
            ("{fault: x, switch: ^b}", "unknown switch 'b'; there are: sw"),
            ("{fault: x, host: ^c}", "unknown host 'c'; there are: a, b"),
            ("{fault: x, source: a, target: ^c}", "unknown host 'c'; there are: a, b"),
            ("{fault: x, target: a, senders: [b, ^c]}", "unknown host 'c'; there are: a, b"),
            ("{fault: x, pairs: [[a, b], [b, ^c]]}", "unknown host 'c'; there are: a, b"),
            ("{fault: x, switch: sw, host: a, port: ^e7}", "unknown port 'e7'; there are: "),
            ("^{fault: bad}", "no such fault: bad {}"),
        ],
    )
    def test_a_fault_from_the_start(self, fault: str, message: str) -> None:
        def check(name: str, parameters: object) -> str:
            return f"no such fault: {name} {parameters}" if name == "bad" else ""

        text = with_links("{endpoints: [a:eth1, b:eth1]}") + f"  faults:\n    - {fault}\n"
        before, after = text.split("^")
        line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
        found = refused(before + after, check_fault=check)
        assert any(each.startswith(f"t.yml:{line}:{column}: ") and message in each for each in found), found

    def test_the_quality_of_one_direction(self) -> None:
        link = "{endpoints: [a:eth1, {node: b, interface: eth1, ecn: ^9, queue: 8}], rate: 1gbit}"
        assert_refused_at_caret(with_links(link), "'ecn' is above the queue's 8 packets")

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("toplogy: {}", "unknown key 'toplogy' in the file; allowed: name, topology; did you mean 'topology'?"),
        ],
    )
    def test_keys_at_the_top(self, text: str, message: str) -> None:
        assert_refused_at_caret(f"name: lab\ntopology: {{nodes: {{a: {{kind: host}}}}}}\n^{text}\n", message)

    @pytest.mark.parametrize(
        ("body", "message"),
        [
            (
                "{kind: host, ^image: alpine}",
                "'image' is a key of a linux, not of a host; allowed: nic, rdma, routes, exec, env, sysctls, "
                "labels, group",
            ),
            (
                "{kind: linux, ^network-mode: 'container:x'}",
                "containerlab's key 'network-mode' is not supported in node 'n': the node would share the network of a "
                "container, and each node has one of its own; supported: ",
            ),
            (
                "{kind: linux, ^stages: {create: {exec: [{command: ls}]}}}",
                "in node 'n': commands of a stage are not run; put them into 'exec'; supported: ",
            ),
            ("{kind: linux, sysctls: ^{a: 1}}", "'a' is not the name of a sysctl such as net.ipv4.ip_forward"),
            ("{kind: linux, sysctls: ^{net.ipv4/../../vm: 1}}", "'net.ipv4/../../vm' is not the name of a sysctl"),
            (
                "{kind: linux, sysctls: ^{vm.swappiness: 1}}",
                "sysctl 'vm.swappiness' is the machine's and not a node's; a node has those of net",
            ),
            (
                "{kind: linux, sysctls: ^{net.ipv4.ip_forward: true}}",
                "sysctl 'net.ipv4.ip_forward' must be a number or a string, not true",
            ),
            ("{kind: switch, ^sysctls: {net.ipv4.ip_forward: 1}}", "'sysctls' is a key of a host, not of a switch"),
            ("{kind: bridge, ^exec: [ls]}", "'exec' is a key of a host, not of a bridge; allowed: labels, group"),
            ("{kind: linux, exec: [^'echo \"a']}", "the string 'echo \"a' is not a command: no closing quotation"),
            ("{kind: linux, exec: [^' ']}", "a command is empty"),
            ("{kind: linux, exec: ^ls}", "'exec' must be a list, not the string 'ls'"),
            ("{kind: linux, env: ^{A: 1.10}}", "variable 'A' must be a string, not the number 1.1; quote it"),
            ("{kind: linux, env: ^{a-b: x}}", "'a-b' is not the name of an environment variable"),
            ("{kind: linux, env: ^{__IMPORT_ENV: 'true'}}", "'__IMPORT_ENV' imports variables; testbed does not"),
            ("{kind: ^nokia_srlinux}", "kind 'nokia_srlinux' is not supported; supported: host, switch, bridge"),
            (
                "{kind: ^swich}",
                "kind 'swich' is not supported; supported: host, switch, bridge, linux; did you mean 'switch'?",
            ),
            ("{kind: ^[host]}", "kind a list is not supported"),
            ("^{}", "node 'n' has no kind; add one to it, its group or topology.defaults: host, switch, bridge"),
            ("^null", "node 'n' has no kind"),
            ("^host", "'n' must be a mapping, not the string 'host'"),
            (
                "{kind: host, nic: ^hardwar}",
                "'nic' must be 'hardware' or 'rxe', not the string 'hardwar'; did you mean 'hardware'?",
            ),
            ("{kind: host, rdma: ^yes}", "'rdma' must be true or false, not the string 'yes'"),
            (
                "{kind: host, ^vlans: {1: }}",
                "'vlans' is a key of a switch, not of a host; allowed: nic, rdma, routes",
            ),
            ("{kind: bridge, ^nic: rxe}", "'nic' is a key of a host, not of a bridge; allowed: labels, group"),
            ("{kind: switch, profile: ^7}", "'profile' must be a string, not the number 7; quote it"),
            ("{kind: switch, vlans: ^[10]}", "'vlans' must be a mapping, not a list"),
            ("{kind: switch, vlans: {^4095: }}", "VLAN 4095 is not in 1..4094"),
            ("{kind: switch, vlans: {^0: }}", "VLAN 0 is not in 1..4094"),
            ("{kind: switch, vlans: {^'10': }}", "key '10' must be an integer, not the string '10'"),
            (
                "{kind: switch, vlans: {1: ^10.0.0.1}}",
                "the string '10.0.0.1' lacks the length of its prefix; for example 10.0.0.1/24",
            ),
            ("{kind: switch, vlans: {1: ^10.0.0.256/24}}", "the string '10.0.0.256' is not an IPv4 address"),
            (
                "{kind: switch, vlans: {1: ^10.0.0.0/24}}",
                "10.0.0.0/24 is the network or broadcast address of 10.0.0.0/24",
            ),
            (
                "{kind: switch, vlans: {1: ^10.0.0.1/33}}",
                "prefix length '33' of the string '10.0.0.1/33' is not in 1..31",
            ),
            ("{kind: switch, vlans: {1: ^224.0.0.1/24}}", "224.0.0.1 cannot be the address of an interface"),
            ("{kind: switch, vlans: {1: ^2001:db8::1::/64}}", "the string '2001:db8::1::' is not an IPv6 address"),
            ("{kind: switch, vlans: {1: ^2001:db8::1}}", "lacks the length of its prefix; for example 2001:db8::1/64"),
            (
                "{kind: switch, vlans: {1: ^2001:db8::/64}}",
                "2001:db8::/64 is the address of any router in 2001:db8::/64",
            ),
            (
                "{kind: switch, vlans: {1: ^2001:db8::1/128}}",
                "prefix length '128' of the string '2001:db8::1/128' is not in 1..127",
            ),
            ("{kind: switch, vlans: {1: ^fe80::1/64}}", "fe80::1 cannot be the address of an interface"),
            ("{kind: switch, vlans: {1: ^'::ffff:10.0.0.1/96'}}", "cannot be the address of an interface"),
            ("{kind: switch, vlans: {1: ^ff02::1/64}}", "ff02::1 cannot be the address of an interface"),
            (
                "{kind: switch, vlans: {1: [10.0.0.1/24, ^10.0.1.1/24]}}",
                "an SVI has one IPv4 address; the first is 10.0.0.1/24",
            ),
            (
                "{kind: switch, vlans: {1: [10.0.0.1/24, ^7]}}",
                "an address such as 10.0.10.1/24 is due here, not the number 7",
            ),
            ("{kind: switch, vlans: {1: ^{}}}", "an address such as 10.0.10.1/24 is due here, not a mapping"),
            ("{kind: switch, vlans: {1: ^24}}", "an address such as 10.0.10.1/24 is due here, not the number 24"),
            ("{kind: host, labels: ^{a: [1]}}", "label 'a' must be a string, a number or a boolean, not a list"),
            ("{kind: host, routes: [^{to: default}]}", "a route lacks the key 'via'"),
            ("{kind: host, routes: [{to: ^any, via: 10.0.0.1}]}", "'to' is 'default' or a subnet such as"),
            ("{kind: host, routes: [{to: ^10.0.0.1/8, via: 10.0.0.1}]}", "10.0.0.1/8 has host bits set"),
            ("{kind: host, routes: [{to: default, via: ^5}]}", "'via' is the next hop's address"),
            ("{kind: host, routes: [{to: default, via: ^[]}]}", "'via' is an empty list"),
            ("{kind: host, routes: [{to: default, via: ^[10.0.0.1, x]}]}", "the string 'x' is not an IPv4 address"),
            ("{kind: host, routes: [{to: default, via: ^[10.0.0.1, 10.0.0.1]}]}", "10.0.0.1 is twice in 'via'"),
            ("{kind: host, routes: [{to: default, via: ^fe80::1}]}", "link-local next hops are not supported"),
            ("{kind: host, routes: [{to: default, via: ^ff02::1}]}", "ff02::1 cannot be the address of an interface"),
            (
                "{kind: switch, vlans: {1: 10.0.0.1/24}, routes: [{to: default, via: [10.0.0.2, ^10.0.9.1]}]}",
                "10.0.9.1 is in no subnet of 'n'; its subnets: 10.0.0.0/24",
            ),
            (
                "{kind: host, routes: [{to: default, via: ^10.0.0.1}]}",
                "10.0.0.1 is in no subnet of 'n'; its subnets: none",
            ),
        ],
    )
    def test_a_node(self, body: str, message: str) -> None:
        assert_refused_at_caret(with_node(body), message)

    @pytest.mark.parametrize(
        ("name", "message"),
        [
            (
                "-a",
                "the string '-a' is not a usable name: letters, digits, '-' and '_', at most 63, a letter or a digit "
                "at either end",
            ),
            ("../etc", "is not a usable name"),
            ("_b", "is not a usable name"),
            ("a b", "is not a usable name"),
            ("n" * 64, "is not a usable name"),
            ("'a\\nb'", "is not a usable name"),
        ],
    )
    def test_names_of_labs_and_nodes(self, name: str, message: str) -> None:
        assert_refused_at_caret(f"name: ^{name}\ntopology: {{nodes: {{a: {{kind: host}}}}}}\n", message)
        assert_refused_at_caret(f"name: lab\ntopology:\n  nodes:\n    ^{name}: {{kind: host}}\n", message)

    @pytest.mark.parametrize(
        ("link", "message"),
        [
            ("{endpoints: ^[a:eth1]}", "too few entries in 'endpoints': 1, at least 2"),
            ("{endpoints: ^[a:eth1, b:eth1, b:eth2]}", "too many entries in 'endpoints': 3, at most 2"),
            ("{endpoints: ^a:eth1}", "'endpoints' must be a list, not the string 'a:eth1'"),
            ("{endpoints: [^a, b:eth1]}", "the string 'a' is not an endpoint such as 'leaf:e1' (node:interface)"),
            ("{endpoints: [^'a:b:c', b:eth1]}", "the string 'a:b:c' is not an endpoint"),
            ("{endpoints: [^5, b:eth1]}", "an entry of 'endpoints' must be a mapping, not the number 5"),
            ("^{vlan: 10}", "a link lacks the key 'endpoints'"),
            ("{endpoints: [^'a:e/1', b:eth1]}", "the string 'e/1' is not a usable interface name: letters, digits"),
            ("{endpoints: [^'a:e123456789012345', b:eth1]}", "is not a usable interface name"),
            ("{endpoints: [^'a:lo', b:eth1]}", "interface name 'lo' is taken by Linux in every network namespace"),
            ("{endpoints: [a:eth1, b:eth1], mtu: ^67}", "MTU 67 is not in 68..65535 bytes"),
            ("{endpoints: [a:eth1, b:eth1], mtu: ^65536}", "MTU 65536 is not in 68..65535 bytes"),
            ("{endpoints: [a:eth1, b:eth1], mtu: ^1500.0}", "'mtu' must be an integer, not the number 1500.0"),
            ("{endpoints: [a:eth1, b:eth1], mtu: ^0150}", "'mtu' must be an integer, not the string '0150'"),
            ("{endpoints: [sw:e1, b:eth1], vlan: ^4095}", "VLAN 4095 is not in 1..4094"),
            ("{endpoints: [sw:e1, b:eth1], vlan: ^true}", "'vlan' must be an integer, not true"),
            ("{endpoints: [sw:e1, b:eth1], trunk: ^[]}", "too few entries in 'trunk': 0, at least 1"),
            ("{endpoints: [a:eth1, b:eth1], ipv6: ^[]}", "too few entries in 'ipv6': 0, at least 1"),
            (
                "{endpoints: [a:eth1, b:eth1], ipv6: [^10.0.0.1/24]}",
                "10.0.0.1/24 is an IPv4 address; write it under 'ipv4'",
            ),
            (
                "{endpoints: [a:eth1, b:eth1], ipv4: [^2001:db8::1/64]}",
                "2001:db8::1/64 is an IPv6 address; write it under 'ipv6'",
            ),
            (
                "{endpoints: [{node: a, interface: eth1, ipv6: ^2001:db8::1/64}, b:eth1], ipv6: [2001:db8::2/64]}",
                "a:eth1 has an address here and in the link's 'ipv6'",
            ),
            (
                "{endpoints: [a:eth1, b:eth1], ^impairment: {}}",
                "containerlab's key 'impairment' is not supported in a link: a link has 'delay', 'jitter'",
            ),
            (
                "{type: ^macvlan, endpoint: {node: a, interface: eth1}, host-interface: eno1}",
                "containerlab's link type 'macvlan' is not supported: it needs an interface of the machine that runs",
            ),
            ("{type: ^vet, endpoints: [a:eth1, b:eth1]}", "link type 'vet' is not supported; supported: veth, host"),
            ("^{type: host, endpoint: a:eth1}", "a link of type 'host' lacks the key 'host-interface'"),
            (
                "{endpoints: [{node: a, interface: eth1, mac: ^'03:00:00:00:00:01'}, b:eth1]}",
                "03:00:00:00:00:01 is not a unicast MAC address",
            ),
            (
                "{endpoints: [{node: a, interface: eth1, mac: ^x}, b:eth1]}",
                "the string 'x' is not a MAC address such as",
            ),
            (
                "{endpoints: [{node: a, interface: eth1, mac: ^'06:00:00:00:00:01'}, b:eth1]}",
                "addresses that start with 06 are kept for what is made while a lab runs",
            ),
            (
                "{endpoints: [{node: a, ^iface: eth1}, b:eth1]}",
                "unknown key 'iface' in an endpoint; allowed: delay, ecn, interface",
            ),
        ],
    )
    def test_a_link(self, link: str, message: str) -> None:
        assert_refused_at_caret(with_links(link), message)

    def test_the_name_of_a_lab_is_no_number(self) -> None:
        assert_refused_at_caret(
            "name: ^7\ntopology: {nodes: {a: {kind: host}}}\n", "must be a string, not the number 7; quote it"
        )

    def test_a_number_and_its_text_are_one_node(self) -> None:
        assert_refused_at_caret("name: lab\ntopology:\n  nodes: ^{7: {kind: host}, '7': {kind: host}}\n", "one name of")

    def test_missing_parts_are_named(self) -> None:
        assert refused("name: lab\n") == ["t.yml:1:1: the file lacks the key 'topology'"]
        assert refused("name: lab\ntopology: {}\n") == ["t.yml:2:11: 'topology' lacks the key 'nodes'"]
        assert refused("name: lab\ntopology: {nodes: {}}\n") == [
            "t.yml:2:19: too few entries in 'nodes': 0, at least 1"
        ]

    def test_groups_and_kinds_of_containerlab(self) -> None:
        lines = refused(
            "name: lab\ntopology:\n  groups: {rack: {port: []}}\n  kinds: {linux: {}, swich: }\n  nodes: {a: }\n"
        )
        assert lines[0].startswith("t.yml:3:19: unknown key 'port' in group 'rack'; allowed: env, exec, group")
        assert lines[1].startswith(
            "t.yml:4:22: kind 'swich' is not supported; supported: host, switch, bridge, linux; did"
        )

    def test_a_group_has_a_name(self) -> None:
        (line,) = refused("name: lab\ntopology:\n  groups: {'': {}}\n  nodes: {a: {kind: host}}\n")
        assert line.startswith("t.yml:3:12: ")

    def test_keys_of_a_kind_are_checked_where_the_kind_is_described(self) -> None:
        lines = refused(
            "name: lab\ntopology:\n  kinds: {switch: {nic: rxe}, host: {kind: host}}\n  nodes: {a: {kind: host}}\n"
        )
        assert lines[0].startswith("t.yml:3:20: 'nic' is a key of a host, not of a switch; allowed: profile, vlans")
        assert lines[1] == "t.yml:3:38: 'kind' belongs to a node, a group or the defaults, not to a kind"

    def test_independent_problems_come_in_the_order_of_the_lines(self) -> None:
        links = ["{endpoints: [sw:e1, a:eth1], vlan: x}", "{endpoints: [sw:e2, b:eth1], vlam: 10}", "{endpoints: []}"]
        lines = refused(with_links(*links))
        assert [line.split(": ")[0] for line in lines] == ["t.yml:9:42", "t.yml:10:36", "t.yml:11:19"]

    def test_a_problem_in_an_alias_is_reported_where_it_is_written(self) -> None:
        text = "name: lab\ntopology:\n  nodes:\n    a: &h {kind: host, nic: x}\n    b: *h\n"
        assert [line.split(": ")[0] for line in refused(text)] == ["t.yml:4:29"]


class TestMeaning:
    @pytest.mark.parametrize(
        ("links", "message"),
        [
            (["{endpoints: [sw:e1, ^aa:eth1], vlan: 10}"], "unknown node 'aa'; nodes: sw, a, b, br; did you mean 'a'?"),
            (
                ["{endpoints: [a:eth1, ^'mgmt-net:x']}"],
                "unknown node 'mgmt-net'; nodes: sw, a, b, br; as containerlab's special endpoint it is there in files",
            ),
            (
                ["{endpoints: [a:eth1, ^'macvlan:x']}"],
                "containerlab's special endpoint 'macvlan' is not supported: it needs an interface of the machine",
            ),
            (
                ["{endpoints: [a:eth1, b:eth1]}", "{endpoints: [^a:eth1, b:eth2]}"],
                "interface a:eth1 is used twice; the first is in line 9",
            ),
            (["^{endpoints: [a:eth1, a:eth2]}"], "both ends of the link are on node 'a'"),
            (["{endpoints: [a:eth1, ^a:eth1]}"], "interface a:eth1 is used twice"),
            (
                ["{endpoints: [^sw:vlan10, a:eth1], vlan: 10}"],
                "port name 'vlan10' is kept for the switch's own interfaces",
            ),
            (["{endpoints: [^br:br0, a:eth1]}"], "port name 'br0' is kept for the bridge's own interfaces"),
            (["{endpoints: [sw:e1, a:eth1], vlan: ^30}"], "VLAN 30 is not among the VLANs of 'sw': 10, 20"),
            (["^{endpoints: [sw:e1, a:eth1]}"], "which VLAN of 'sw'? Add 'vlan' or 'trunk'; VLANs of 'sw': 10, 20"),
            (["{endpoints: [a:eth1, b:eth1], ^vlan: 10}"], "'vlan' needs a switch at one end of the link"),
            (["{endpoints: [a:eth1, br:p1], ^trunk: [10]}"], "'trunk' needs a switch at one end of the link"),
            (["{endpoints: [sw:e1, a:eth1], ^trunk: [10]}"], "host 'a' reads untagged frames only: add 'vlan'"),
            (["{endpoints: [sw:e1, br:p1], ^trunk: [10]}"], "bridge 'br' does not know VLANs"),
            (["{endpoints: [sw:e1, a:eth1], vlan: 10, trunk: [20, ^20]}"], "VLAN 20 is twice in the trunk"),
            (
                ["{endpoints: [sw:e1, a:eth1], vlan: 10, trunk: [^10]}"],
                "VLAN 10 is both the access VLAN and in the trunk",
            ),
            (["{endpoints: [sw:e1, a:eth1], vlan: 10, trunk: [^30]}"], "VLAN 30 is not among the VLANs of 'sw'"),
            (
                ["{endpoints: [sw:e1, a:eth1], vlan: 10, ipv4: [^10.0.10.7/24]}"],
                "sw:e1 is a port of a switch and has no address;",
            ),
            (["{endpoints: [br:p1, a:eth1], ipv4: [^10.0.10.7/24]}"], "br:p1 is a port of a bridge and has no address"),
            (
                ["{endpoints: [sw:e1, a:eth1], vlan: 10, ipv4: [null, ^10.0.11.7/24]}"],
                "10.0.11.7/24 of a:eth1 is outside 10.0.10.0/24, the subnet of VLAN 10 of sw",
            ),
            (
                ["{endpoints: [sw:e1, a:eth1], vlan: 10, ipv4: [null, ^10.0.10.7/25]}"],
                "10.0.10.7/25 of a:eth1 has another prefix length than 10.0.10.0/24, the subnet of VLAN 10 of sw",
            ),
            (
                ["{endpoints: [sw:e1, a:eth1], vlan: 10, ipv4: [null, ^10.0.10.1/24]}"],
                "10.0.10.1 of a:eth1 is also that of the SVI of VLAN 10 on sw, in line 4",
            ),
            (
                ["{endpoints: [a:eth1, b:eth1], ipv4: [10.0.9.1/24, ^10.0.9.1/24]}"],
                "10.0.9.1 of b:eth1 is also that of a:eth1, in line 9",
            ),
            (
                ["{endpoints: [a:eth1, b:eth1], ipv4: [^10.0.10.9/25]}"],
                "10.0.10.0/25 of the link a:eth1 – b:eth1 overlaps 10.0.10.0/24 of VLAN 10 of sw, in line 4",
            ),
            (
                ["{endpoints: [{node: a, interface: eth1, ipv4: ^10.0.9.1/24}, b:eth1], ipv4: [10.0.9.2/24]}"],
                "a:eth1 has an address here and in the link's 'ipv4'",
            ),
            (
                [
                    "{endpoints: [{node: a, interface: eth1, mac: 02:00:00:00:00:aa}, b:eth1]}",
                    "{endpoints: [{node: a, interface: eth2, mac: ^02:00:00:00:00:AA}, b:eth2]}",
                ],
                "02:00:00:00:00:aa of a:eth2 is also that of a:eth1",
            ),
            (
                ["{endpoints: [{node: a, interface: eth1, mac: ^02:00:03:00:00:01}, b:eth1]}"],
                "02:00:03:00:00:01 of a:eth1 is also that of b:eth1",
            ),
            (
                ["{endpoints: [br:p1, sw:e1], vlan: 10}", "^{endpoints: [br:p2, sw:e2], vlan: 10}"],
                "this link closes a layer-2 loop (bridge br), and nothing here runs spanning tree",
            ),
        ],
    )
    def test_links(self, links: list[str], message: str) -> None:
        assert_refused_at_caret(with_links(*links), message)

    @pytest.mark.parametrize(
        ("links", "message"),
        [
            (
                ["{endpoints: [sw:e1, a:eth1], ipv6: [null, ^fd01::7/64]}"],
                "fd01::7/64 of a:eth1 is outside fd00::/64, the subnet of VLAN 1 of sw",
            ),
            (
                ["{endpoints: [sw:e1, a:eth1], ipv6: [null, ^fd00::1/64]}"],
                "fd00::1 of a:eth1 is also that of the SVI of VLAN 1 on sw, in line 4",
            ),
            (
                ["{endpoints: [sw:e1, a:eth1], ipv6: [^fd00::7/64]}"],
                "sw:e1 is a port of a switch and has no address; give the address to a VLAN in 'vlans'",
            ),
            (
                ["{endpoints: [a:eth1, b:eth1], ipv6: [^fd00::7/48]}"],
                "fd00::/48 of the link a:eth1 – b:eth1 overlaps fd00::/64 of VLAN 1 of sw, in line 4",
            ),
            (["{endpoints: [sw:e1, a:eth1], mtu: ^1279}"], "MTU 1279 is below 1280, which the IPv6 of 'sw' needs"),
            (
                ["{endpoints: [a:eth1, b:eth1], mtu: ^1000, ipv6: [fd09::7/64]}"],
                "MTU 1000 is below 1280, which the IPv6 of 'a' needs",
            ),
        ],
    )
    def test_links_with_ipv6(self, links: list[str], message: str) -> None:
        head = HEAD.replace("10: 10.0.10.1/24, 20: null", "1: [10.0.10.1/24, fd00::1/64]")
        assert_refused_at_caret(head + "".join(f"    - {link}\n" for link in links), message)

    def test_an_ipv6_subnet_without_room_for_its_hosts(self) -> None:
        (line,) = refused(
            "name: lab\ntopology:\n  nodes: {sw: {kind: switch, vlans: {1: fd00::1/126}}, a: {kind: host},"
            " b: {kind: host}, c: {kind: host}}\n"
            "  links: [{endpoints: [sw:e1, a:e]}, {endpoints: [sw:e2, b:e]}, {endpoints: [sw:e3, c:e]}]\n"
        )
        assert "fd00::/126 of VLAN 1 of sw has 3 usable addresses, 4 are needed" in line

    def test_subnets_of_two_vlans_overlap(self) -> None:
        assert_refused_at_caret(
            with_node("{kind: switch, vlans: {10: 10.0.10.1/24, 20: ^10.0.0.1/16}}"),
            "10.0.0.0/16 of VLAN 20 of n overlaps 10.0.10.0/24 of VLAN 10 of n, in line 4",
        )

    def test_one_subnet_on_two_switches_that_no_link_joins(self) -> None:
        lines = refused(
            "name: lab\ntopology:\n  nodes:\n    s1: {kind: switch, vlans: {10: 10.0.0.1/24}}\n"
            "    s2: {kind: switch, vlans: {10: 10.0.0.2/24}}\n"
        )
        assert lines == [
            "t.yml:5:36: 10.0.0.0/24 of VLAN 10 of s2 overlaps 10.0.0.0/24 of VLAN 10 of s1, in line 4: "
            "segments that no link joins need subnets of their own"
        ]

    def test_a_subnet_without_room_for_its_hosts(self) -> None:
        hosts = "".join(f"    h{i}: {{kind: host}}\n" for i in range(6))
        links = "".join(f"    - {{endpoints: ['sw:e{i}', 'h{i}:eth1']}}\n" for i in range(6))
        (line,) = refused(
            "name: lab\ntopology:\n  nodes:\n    sw: {kind: switch, vlans: {1: 10.0.0.1/29}}\n"
            f"{hosts}  links:\n{links}"
        )
        assert line == "t.yml:4:35: 10.0.0.0/29 of VLAN 1 of sw has 6 usable addresses, 7 are needed"

    def test_a_trunk_with_two_links_is_a_loop_in_its_vlan(self) -> None:
        lines = refused(
            "name: lab\ntopology:\n  nodes: {s1: {kind: switch}, s2: {kind: switch}}\n  links:\n"
            "    - {endpoints: [s1:e1, s2:e1], trunk: [1]}\n    - {endpoints: [s1:e2, s2:e2]}\n"
        )
        assert lines == [
            "t.yml:6:7: this link closes a layer-2 loop (VLAN 1 of s1), and nothing here runs spanning tree"
        ]

    @pytest.mark.parametrize(
        ("routes", "message"),
        [
            ("[{to: default, via: ^10.0.0.2}]", "10.0.0.2 is an address of 'a' itself"),
            ("[{to: default, via: ^10.1.0.1}]", "10.1.0.1 is in no subnet of 'a'; its subnets: 10.0.0.0/24, fd00::/64"),
            (
                "[{to: default, via: 10.0.0.1}, {to: ^0.0.0.0/0, via: 10.0.0.9}]",
                "'a' has two routes to 0.0.0.0/0",
            ),
            ("[{to: 10.9.0.0/16, via: ^fd00::1}]", "fd00::1 is IPv6, and 10.9.0.0/16 is not"),
            ("[{to: default, via: ^fd01::1}]", "fd01::1 is in no subnet of 'a'; its subnets: 10.0.0.0/24, fd00::/64"),
        ],
    )
    def test_routes(self, routes: str, message: str) -> None:
        assert_refused_at_caret(
            "name: lab\ntopology:\n  nodes:\n    sw: {kind: switch, vlans: {1: [10.0.0.1/24, fd00::1/64]}}\n"
            f"    a: {{kind: host, routes: {routes}}}\n  links:\n    - endpoints: [sw:e1, a:eth1]\n",
            message,
        )

    def test_a_name_too_long_for_an_rdma_device(self) -> None:
        long = "n" * 60
        (line,) = refused(
            f"name: lab\ntopology:\n  nodes: {{a: {{kind: host}}, {long}: {{kind: host}}}}\n"
            f"  links:\n    - endpoints: [a:eth1, {long}:eth1]\n"
        )
        assert line.startswith("t.yml:5:27: ")
        assert "is too long for an RDMA device: at most 63 characters" in line

    def test_two_interfaces_with_one_rdma_name(self) -> None:
        (line,) = refused(
            "name: lab\ntopology:\n  nodes: {a: {kind: host}, a-b: {kind: host}}\n"
            "  links:\n    - endpoints: [a:b-c, a-b:c]\n"
        )
        assert line == "t.yml:5:26: a-b:c and a:b-c would both have the RDMA device 'a-b-c'; rename one"

    def test_an_unknown_profile_is_refused_when_the_caller_knows_them(self) -> None:
        (line,) = refused(
            "name: lab\ntopology:\n  kinds: {switch: {profile: cisco-nxoss}}\n  nodes: {sw: {kind: switch}}\n",
            profiles={"sonic", "cisco-nxos"},
        )
        assert line == (
            "t.yml:3:29: unknown profile 'cisco-nxoss'; profiles: cisco-nxos, sonic; did you mean 'cisco-nxos'?"
        )

    def test_the_pool_is_used_up(self) -> None:
        hosts = "".join(f"    h{i}: {{kind: host}}\n" for i in range(1026))
        links = "".join(f"    - endpoints: ['h{i}:eth1', 'h{i + 1}:eth1']\n" for i in range(0, 1026, 2))
        (line,) = refused(f"name: lab\ntopology:\n  nodes:\n{hosts}  links:\n{links}")
        assert line.startswith("t.yml:1543:7: no subnet is left in the pool for the link h1024:eth1 – h1025:eth1")

    def test_a_topology_made_in_python_names_the_path_instead_of_a_line(self) -> None:
        topology = Topology.model_validate(
            {
                "name": "lab",
                "topology": {"nodes": {"a": {"kind": "host"}}, "links": [{"endpoints": ["a:eth1", "b:eth1"]}]},
            }
        )
        with pytest.raises(InputError, match=r"^topology\.links\[0\]\.endpoints\[1\]: unknown node 'b'; nodes: a$"):
            topology.plan()


class TestRouting:
    LINKS = """\
  nodes:
    a: {kind: switch, vlans: {10: 10.0.10.1/24}}
    b: {kind: switch, vlans: {10: null}}
  links:
"""

    def test_an_unknown_routing_is_refused_with_those_there_are(self) -> None:
        link = '    - {endpoints: ["a:e1", "b:e1"]}\n'
        assert_refused_at_caret(
            f"name: lab\ntopology:\n  routing: ^ospf\n{self.LINKS}{link}",
            "'routing' must be 'static' or 'frr', not the string 'ospf'",
        )

    @pytest.mark.parametrize(
        "link", ['{endpoints: ["a:e1", "b:e1"], vlan: 10}', '{endpoints: ["a:e1", "b:e1"], trunk: [10]}']
    )
    def test_frr_without_a_routed_link_is_refused(self, link: str) -> None:
        assert_refused_at_caret(
            f"name: lab\ntopology:\n  ^routing: frr\n{self.LINKS}    - {link}\n",
            "'routing: frr' needs a routed link: one between two switches, without 'vlan' and 'trunk'",
        )

    def test_host_routes_without_bgp_to_announce_them(self) -> None:
        assert_refused_at_caret(
            with_node("{kind: switch, ^host_routes: true}"),
            "'host_routes' needs a routed link of 'n' ('routing: frr'): BGP announces them",
        )

    RACKS = (
        "name: lab\ntopology:\n  routing: frr\n  nodes:\n"
        "    s1: {kind: switch, vlans: {10: 10.0.0.1/24}, host_routes: true}\n"
        "    s2: {kind: switch, vlans: {10: 10.0.0.1/24, 20: null}, host_routes: true}\n"
        "    a: {kind: host}\n    b: {kind: host}\n  links:\n    - {endpoints: [s1:u, s2:u]}\n"
    )

    @pytest.mark.parametrize(
        ("links", "message"),
        [
            (
                ["{endpoints: [s1:e1, a:eth1], vlan: 10, ipv4: [null, ^10.0.0.1/24]}"],
                "10.0.0.1 of a:eth1 is also that of the SVI of VLAN 10 on s1, in line 5",
            ),
            (
                [
                    "{endpoints: [s1:e1, a:eth1], vlan: 10, ipv4: [null, 10.0.0.9/24]}",
                    "{endpoints: [s2:e1, b:eth1], vlan: 10, ipv4: [null, ^10.0.0.9/24]}",
                ],
                "10.0.0.9 of b:eth1 is also that of a:eth1, in line 11",
            ),
        ],
    )
    def test_an_address_twice_in_a_subnet_of_several_switches(self, links: list[str], message: str) -> None:
        assert_refused_at_caret(self.RACKS + "".join(f"    - {link}\n" for link in links), message)

    def test_a_gateway_address_twice_in_one_broadcast_domain(self) -> None:
        link = "    - {endpoints: [s1:t, s2:t], trunk: [10]}\n"
        assert_refused_at_caret(
            self.RACKS.replace("vlans: {10: 10.0.0.1/24, 20", "vlans: {10: ^10.0.0.1/24, 20") + link,
            "10.0.0.1 of the SVI of VLAN 10 on s2 is also that of the SVI of VLAN 10 on s1, in line 5",
        )

    def test_the_mtu_of_a_routed_link_is_one_for_ipv6(self) -> None:
        link = '    - {endpoints: ["a:e1", "b:e1"], mtu: ^1000}\n'
        assert_refused_at_caret(
            f"name: lab\ntopology:\n  routing: frr\n{self.LINKS}{link}",
            "MTU 1000 is below 1280, which the IPv6 of 'a' needs",
        )
