"""Nodes of `kind: linux` with an image, and what of containers is refused."""

import pytest

from testbed.errors import InputError
from testbed.topology import Container, Topology
from testbed.topology.plan import Bind


def nodes(text: str) -> str:
    return f"name: lab\ntopology:\n  nodes:\n{text}"


def refused(text: str) -> str:
    with pytest.raises(InputError) as caught:
        Topology.parse(nodes(text), source="t.yml").plan()
    return str(caught.value)


def test_an_image_makes_a_container_of_a_linux_node() -> None:
    topology = Topology.parse(
        "name: lab\n"
        "topology:\n"
        "  defaults: {kind: linux, image: 'example.org:5000/tools:1', binds: ['conf:/etc/conf']}\n"
        "  nodes:\n"
        "    a: {cmd: sh -c 'echo a b', entrypoint: /bin/env -i, binds: ['./a/../b.txt:/b:ro', 'c:/c:rw']}\n"
        "    b: {image: other}\n"
    )
    plan = topology.plan()
    binds = Bind("conf", "/etc/conf", read_only=False), Bind("b.txt", "/b", read_only=True), Bind("c", "/c", False)
    assert plan.nodes["a"].container == Container(
        "example.org:5000/tools:1", ("sh", "-c", "echo a b"), ("/bin/env", "-i"), binds
    )
    assert plan.nodes["b"].container == Container("other", binds=binds[:1])
    assert (plan.images, plan.binds) == (
        ["example.org:5000/tools:1", "other"],
        {"b.txt": "b.txt", "c": "c", "conf": "conf"},
    )
    assert topology.notes == ()


def test_without_an_image_it_is_a_host() -> None:
    plan = Topology.parse(nodes("    a: {kind: linux}\n")).plan()
    assert (plan.nodes["a"].kind, plan.nodes["a"].container, plan.images) == ("host", None, [])


@pytest.mark.parametrize("key", ["cmd: ls", "entrypoint: ls", "binds: ['a:/a']"])
def test_keys_of_a_container_need_an_image(key: str) -> None:
    name = key.partition(":")[0]
    assert (
        refused(f"    a: {{kind: linux, {key}}}\n")
        == f"t.yml:4:22: {name!r} is for a container, but 'a' has no 'image'"
    )


@pytest.mark.parametrize("key", ["cmd: ls", "entrypoint: ls", "binds: ['a:/a']", "image: tools"])
def test_other_kinds_have_no_containers(key: str) -> None:
    name = key.partition(":")[0]
    assert f"{name!r} is a key of a linux, not of a switch" in refused(f"    a: {{kind: switch, {key}}}\n")


@pytest.mark.parametrize(
    ("bind", "message"),
    [
        ("__clabDir__/a:/a", "bind '__clabDir__/a:/a': that is the directory which containerlab makes for a lab"),
        ("a", "the string 'a' is not a bind such as 'conf/frr.conf:/etc/frr/frr.conf:ro'"),
        ("a:b", "the string 'a:b' is not a bind such as"),
        ("a:/b:zz", "the string 'a:/b:zz' is not a bind such as"),
    ],
)
def test_a_bind_names_a_file_and_a_place(bind: str, message: str) -> None:
    assert f"t.yml:4:44: {message}" in refused(f"    a: {{kind: linux, image: tools, binds: ['{bind}']}}\n")


@pytest.mark.parametrize(
    ("bind", "source", "beside", "read_only"),
    [
        ("../a/./b:/b:ro", "../a/b", "../a/b", True),
        ("/etc/hosts:/etc/hosts:ro,z", "/etc/hosts", ".absolute/etc/hosts", True),
        ("~/keys:/keys:Z", "~/keys", ".absolute/~/keys", False),
    ],
)
def test_a_bind_may_lead_upwards_or_begin_at_the_root(bind: str, source: str, beside: str, read_only: bool) -> None:
    container = (
        Topology.parse(nodes(f"    a: {{kind: linux, image: t, binds: ['{bind}']}}\n")).plan().nodes["a"].container
    )
    assert container
    (found,) = container.binds
    assert (found.source, found.beside, found.read_only) == (source, beside, read_only)


@pytest.mark.parametrize(
    ("key", "message"), [("image: '-x'", "'-x' is not the name of an image"), ("cmd: ''", "empty")]
)
def test_what_is_no_image_or_command_is_refused(key: str, message: str) -> None:
    assert message in refused(f"    a: {{kind: linux, image: tools, {key}}}\n".replace("image: tools, image", "image"))


@pytest.mark.parametrize(("mode", "members"), [("bridge", {"a", "b"}), ("none", {"b"}), ("container:b", {"b"})])
def test_the_network_mode_decides_who_is_in_the_management_network(mode: str, members: set[str]) -> None:
    text = nodes(f"    a: {{kind: linux, image: t, network-mode: '{mode}'}}\n    b: {{kind: linux, image: t}}\n")
    plan = Topology.parse(f"mgmt: {{ipv4-subnet: 10.9.0.0/24}}\n{text}").plan()
    assert {name for name, node in plan.nodes.items() if any(end.name == "eth0" for end in node.interfaces)} == members
