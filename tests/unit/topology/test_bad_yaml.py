"""Texts that are no topology, and hostile ones: a limit or one error with a line and a column."""

import pytest
from refusals import assert_refused_at_caret, refused, with_links, with_node

from testbed.topology import Topology


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "t.yml:1:1: the file is empty; a topology needs 'name' and 'topology'"),
        ("# nothing\n", "t.yml:1:1: the file is empty"),
        ("- a\n", "t.yml:1:1: a topology must be a mapping with 'name' and 'topology', not a list"),
        ("just text", "t.yml:1:1: a topology must be a mapping with 'name' and 'topology', not the string 'just text'"),
        ("null", "t.yml:1:1: a topology must be a mapping with 'name' and 'topology', not null"),
        ("name: a\ntopology: [1,\n", "t.yml:3:1: not valid YAML"),
        ("name: 'a\n", "not valid YAML"),
        ("name: a\nname: b\n", "t.yml:2:1: key 'name' is given twice; the first is in line 1"),
        ("name: a\n---\nname: b\n", "t.yml:3:1: a topology must be one YAML document; a second one starts here"),
        ("name: a\nx: \x07\n", "t.yml:2:4: character U+0007 is not allowed in YAML"),
        ("name: \ud800\n", "t.yml:1:7: character U+D800 is not allowed"),
        ("name: !!python/object/apply:os.system [id]\n", "t.yml:1:7: tag '!!python/object/apply:os.system'"),
        ("name: !!int 5\n", "t.yml:1:7: tag '!!int' is not supported; allowed: !!str, !!map, !!seq"),
        ("? [a]\n: b\n", "t.yml:1:3: a key must be a string or an integer, not a list"),
        ("true: b\n", "t.yml:1:1: a key must be a string or an integer, not true"),
        ("name: ${LAB}\n", "t.yml:1:7: the string '${LAB}' uses an environment variable"),
        ("a: 1\n<<: 5\n", "t.yml:2:5: '<<' merges mappings, not the number 5"),
        ("a: *b\n", "t.yml:1:4: alias '*b' has no complete anchor before it"),
    ],
)
def test_text_that_is_no_topology(text: str, message: str) -> None:
    assert message in refused(text)[0]


def test_a_billion_laughs_end_at_the_limit_of_values() -> None:
    laughs = "a: &a [" + ", ".join(["lol"] * 10) + "]\n"
    for this, previous in zip("bcdefghij", "abcdefghi", strict=True):
        laughs += f"{this}: &{this} [{', '.join([f'*{previous}'] * 10)}]\n"
    (line,) = refused(laughs)
    assert line.startswith("t.yml:5:")
    assert "more than 50000 values" in line


def test_a_billion_laughs_of_merge_keys_end_there_too() -> None:
    laughs = "a0: &a0 {k: v}\n" + "".join(f"a{i}: &a{i} {{<<: *a{i - 1}, k{i}: v}}\n" for i in range(1, 2000))
    assert "more than 50000 values" in refused(laughs)[0]


def test_an_alias_of_a_scalar_is_that_scalar() -> None:
    text = with_links(
        "{endpoints: [sw:e1, a:eth1], vlan: &v 10, mtu: &m 9000}", "{endpoints: [sw:e2, b:eth1], vlan: *v, mtu: *m}"
    )
    assert {end.mtu for link in Topology.parse(text).plan().links for end in link} == {9000}


def test_an_alias_inside_its_own_anchor_is_refused() -> None:
    assert refused("a: &a [*a]\n") == ["t.yml:1:8: alias '*a' has no complete anchor before it"]


@pytest.mark.parametrize(
    "text",
    ["[" * 100_000, "{" * 100_000, "- " * 100_000, "? " * 100_000, "".join(" " * n + "a:\n" for n in range(1000))],
    ids=["[", "{", "-", "?", "block"],
)
def test_deep_nesting_is_refused_at_the_limit(text: str) -> None:
    assert "nested deeper than 20 levels" in refused(text)[0]


def test_depth_by_aliases_counts_as_depth() -> None:
    chain = "a0: &a0 [x]\n" + "".join(f"a{i}: &a{i} [*a{i - 1}]\n" for i in range(1, 100))
    assert "nested deeper than 20 levels" in refused(chain)[0]


def test_many_values_are_refused_at_the_limit() -> None:
    assert "more than 50000 values" in refused("[" + "a," * 60_000 + "]")[0]


def test_a_text_beyond_the_limit_is_refused() -> None:
    assert "larger than 1 MiB" in refused("#" * ((1 << 20) + 1))[0]


def test_a_number_too_long_to_convert_is_a_string() -> None:
    assert_refused_at_caret(with_node(f"{{kind: ^{'9' * 5000}}}"), "kind '999")
