"""A conflist is read as libcni reads it, and what is wrong in it is told with its place."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from testbed.cni.spec import SUPPORTED, conflist
from testbed.errors import InputError

GOOD: dict[str, Any] = {"cniVersion": "1.0.0", "name": "rdma", "plugins": [{"type": "macvlan"}, {"type": "rxe"}]}


def refused(text: bytes | str) -> InputError:
    with pytest.raises(InputError) as said:
        conflist.parse(text.encode() if isinstance(text, str) else text, "rdma.conflist")
    return said.value


def test_a_conflist_has_a_name_a_version_and_plugins() -> None:
    found = conflist.make({**GOOD, "disableCheck": "True", "plugins": [{"type": "macvlan", "master": "eth1"}]})
    assert (found.name, found.version, found.disable_check) == ("rdma", "1.0.0", True)
    assert found.plugins == ({"type": "macvlan", "master": "eth1"},)
    assert found.types == ["macvlan"]
    assert json.loads(found.data)["disableCheck"] == "True"


@pytest.mark.parametrize(
    ("version", "more", "chosen"),
    [
        ("0.3.1", [], "0.3.1"),
        ("1.1.0", [], "1.1.0"),
        ("0.4.0", ["1.0.0", "0.3.1"], "1.0.0"),
        ("1.0.0", ["1.1.0", "1.2.0"], "1.1.0"),
        (None, ["0.4.0"], "0.4.0"),
        ("9.0.0", ["1.0.0"], "1.0.0"),
        ("0.2.0", [], "0.2.0"),
        (None, [], "0.1.0"),
    ],
)
def test_the_highest_version_that_is_spoken_comes_first(version: str | None, more: list[str], chosen: str) -> None:
    value = {**GOOD, "cniVersion": version, "cniVersions": more}
    assert conflist.make({key: item for key, item in value.items() if item is not None}).version == chosen


def test_capabilities_are_those_of_all_plugins() -> None:
    plugins = [
        {"type": "macvlan", "capabilities": {"mac": True, "ips": False}},
        {"type": "portmap", "capabilities": {"portMappings": True}},
    ]
    assert conflist.make({**GOOD, "plugins": plugins}).capabilities() == {"mac", "portMappings"}


@pytest.mark.parametrize(
    ("text", "where"), [('{"name": "x",\n  "plugins": [}', "rdma.conflist:2:15"), ("", "rdma.conflist:1:1")]
)
def test_malformed_json_is_at_a_line_and_column(text: bytes | str, where: str) -> None:
    assert refused(text).where == where
    assert refused(text).message.startswith("not valid JSON: ")


def test_a_byte_that_is_not_utf_8_is_at_a_line_and_column() -> None:
    error = refused(b'{\n "name": "\xff"}')
    assert (error.where, error.message) == ("rdma.conflist:2:11", "byte 0xff is not UTF-8")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"name": None}, "name is missing"),
        ({"name": 7}, "name must be letters"),
        ({"name": "-x"}, "not the string '-x'"),
        ({"name": "a/b"}, "not the string 'a/b'"),
        ({"cniVersion": None, "cniVersions_": []}, "cniVersion is missing; 'cniVersions_' is there"),
        ({"name": "n" * 129}, "128 at most, beginning with a letter or digit, not the string 'nnnn"),
        ({"cniVersion": "0.5.0"}, "cniVersion '0.5.0' is not supported"),
        ({"cniVersion": "one", "cniVersions": ["1.2.0"]}, "cniVersion 'one, 1.2.0' is not supported"),
        ({"cniVersion": 1}, "cniVersion must be a string, not the number 1"),
        ({"cniVersions": ["1.0.0", 5]}, "cniVersions[1] must be a string, not the number 5"),
        ({"cniVersions": "1.0.0"}, "cniVersions must be a list"),
        ({"plugins": None}, "plugins is missing"),
        ({"plugins": {}}, "plugins must be a list"),
        ({"plugins": []}, "too few entries in plugins: 0, at least 1"),
        ({"plugins": ["macvlan"]}, "plugins[0] must be a mapping, not the string 'macvlan'"),
        ({"plugins": [{"type": "x"}, {}]}, "plugins[1].type is missing"),
        ({"plugins": [{"type": "../x"}]}, "plugins[0].type must be the name of a plugin's file, not the string '../x'"),
        ({"plugins": [{"type": ".."}]}, "not the string '..'"),
        ({"plugins": [{"type": "a\0b"}]}, r"not the string 'a\x00b'"),
        ({"plugins": [{"type": "\ud800"}]}, r"not the string '\ud800'"),
        ({"plugins": [{"type": "x" * 256}]}, "plugins[0].type is too long for a file name"),
        ({"plugins": [{"type": "x", "capabilities": ["mac"]}]}, "plugins[0].capabilities must be a mapping"),
        ({"plugins": [{"type": "x", "ipam": "host-local"}]}, "plugins[0].ipam must be a mapping"),
        (
            {"plugins": [{"type": "x", "ipam": {"typ": "host-local"}}]},
            "plugins[0].ipam.type is missing; 'typ' is there, did you mean 'type'?",
        ),
        ({"disableCheck": "maybe"}, "disableCheck must be true or false"),
        ({"disableCheck": ["true"]}, "disableCheck must be true or false"),
    ],
)
def test_what_is_wrong_in_it_is_named(change: dict[str, Any], said: str) -> None:
    value = {key: item for key, item in {**GOOD, **change}.items() if item is not None}
    error = refused(json.dumps(value))
    assert said in error.message
    assert re.fullmatch(r"rdma\.conflist:1:[0-9]+", error.where)


LINES = """{
  "cniVersion": 1,
  "name": "a/b",
  "plugins": [
    {"typ": "macvlan"},
    {"type": "..", "capabilities": {"mac": 1}, "ipam": {"type": "x/y"}}, 5
  ]
}"""


def test_all_that_is_wrong_is_named_with_its_line_and_column() -> None:
    error = refused(LINES)
    assert [error.where, *(where for where, _ in error.also)] == [
        "rdma.conflist:2:17",
        "rdma.conflist:3:11",
        "rdma.conflist:5:5",
        "rdma.conflist:6:14",
        "rdma.conflist:6:44",
        "",
    ]
    assert error.also[1] == ("rdma.conflist:5:5", "plugins[0].type is missing; 'typ' is there, did you mean 'type'?")
    assert error.also[-1] == ("", "… and 2 more")


def test_the_place_in_the_configuration_of_one_plugin_is_its_own() -> None:
    error = refused('{"cniVersion": "1.0.0",\n "name": "x",\n "type": 1}')
    assert (error.where, error.message) == (
        "rdma.conflist:3:10",
        "plugins[0].type must be the name of a plugin's file, not the number 1",
    )


def test_a_definition_without_a_config_is_the_first_file_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "a.conflist").write_text("{")
    (tmp_path / "b.json").write_text('{"name": "rail"}')
    (tmp_path / "c.conf").write_text('{"name": "rail", "type": "macvlan"}')
    (tmp_path / "d.conflist").write_text(json.dumps({**GOOD, "name": "rail"}))
    assert conflist.of_name("rail", tmp_path).types == ["macvlan"]
    with pytest.raises(InputError, match="no file has a network of the name 'other'") as said:
        conflist.of_name("other", tmp_path)
    assert said.value.hint.endswith("Networks there: rail.")


@pytest.mark.parametrize(
    ("ipam", "near"),
    [
        ({"type": "host-local", "subnet": "10.0.0.0/24", "route": []}, "'route', which host-local does not read; did"),
        ({"type": "static", "address": []}, "'address', which static does not read; did you mean 'addresses'"),
        ({"type": "host-local", "comment": "mine"}, ""),
        ({"type": "mine", "route": []}, ""),
    ],
)
def test_a_key_of_a_known_ipam_plugin_is_spelt_right(ipam: dict[str, Any], near: str) -> None:
    value = {**GOOD, "plugins": [{"type": "macvlan", "ipam": ipam}]}
    if not near:
        assert conflist.make(value).types == ["macvlan"]
        return
    with pytest.raises(InputError) as said:
        conflist.make(value)
    assert near in said.value.message


def test_what_is_wrong_in_a_dict_is_named_by_its_path() -> None:
    with pytest.raises(InputError) as said:
        conflist.make({**GOOD, "plugins": [{"type": "macvlan"}, {"type": 7}]})
    assert said.value.where == "conflist rdma: plugins[1].type"


def test_a_version_that_is_not_supported_gets_those_that_are() -> None:
    assert refused(json.dumps({**GOOD, "cniVersion": "0.5.0"})).hint == f"Supported: {', '.join(SUPPORTED)}."


def test_the_configuration_of_one_plugin_is_a_list_of_one() -> None:
    """As libcni's ConfListFromConf makes it: the plugin keeps all its keys."""
    plugin = {"cniVersion": "0.4.0", "name": "mynet", "type": "macvlan", "master": "eth1", "ipam": {"type": "static"}}
    found = conflist.make(plugin)
    assert (found.name, found.version, found.plugins) == ("mynet", "0.4.0", (plugin,))
    assert json.loads(found.data) == {"cniVersion": "0.4.0", "name": "mynet", "plugins": [plugin]}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"type": "macvlan"}', "name is missing"),
        ('{"name": "x", "type": 1}', "plugins[0].type must be the name of a plugin's file, not the number 1"),
    ],
)
def test_the_configuration_of_one_plugin_needs_what_a_list_needs(text: str, said: str) -> None:
    assert said in str(refused(text))


@pytest.mark.parametrize("text", ["[]", "3", '"x"', "null"])
def test_a_conflist_is_an_object(text: str) -> None:
    assert refused(text).message == "a conflist must be a JSON object"


@pytest.mark.parametrize(
    "text", ['{"cniVersion": "1.0.0", // which', '{// which\n"name": "x"}', '{"name": "x"\n# y\n}', "/* a */ {}"]
)
def test_comments_are_no_json_and_the_specification_s_example_has_some(text: str) -> None:
    assert refused(text).hint == "JSON has no comments; libcni refuses them too."


@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1" * 5000])
def test_what_no_plugin_could_read_is_no_json(number: str) -> None:
    text = json.dumps(GOOD)[:-1] + f', "mtu": {number}}}'
    assert refused(text).message.startswith("not valid JSON: ")


def test_capabilities_may_be_null_as_in_go() -> None:
    assert conflist.make({**GOOD, "plugins": [{"type": "macvlan", "capabilities": None}]}).capabilities() == set()


def test_json_without_end_or_bottom_is_refused() -> None:
    assert refused("[" * 100_000).message == "nested too deeply"
    assert refused(" " * (2 << 20)).message == "larger than 1 MiB, the limit for a conflist"


def test_a_dict_holds_what_json_can_hold() -> None:
    with pytest.raises(InputError, match="may only hold JSON values"):
        conflist.make({**GOOD, "plugins": {1, 2}})


def test_a_file_that_is_not_there_gets_the_names_of_those_that_are(tmp_path: Path) -> None:
    (tmp_path / "rdma.conflist").write_text(json.dumps(GOOD))
    assert conflist.load(tmp_path / "rdma.conflist").name == "rdma"
    with pytest.raises(InputError, match=r"Did you mean rdma\.conflist\? Conflists in .*: rdma\.conflist\.") as said:
        conflist.load(tmp_path / "rmda.conflist")
    assert said.value.where == f"{tmp_path}/rmda.conflist"


# Plugins in files of their own


def written(directory: Path, *parts: str, **keys: Any) -> Path:
    """A conflist, and files beside it in the directory of its network."""
    (directory / "rdma").mkdir()
    for part in parts:
        (directory / "rdma" / part).write_text(json.dumps({"type": part.partition(".")[0]}))
    file = directory / "rdma.conflist"
    file.write_text(json.dumps({key: value for key, value in {**GOOD, **keys}.items() if value is not None}))
    return file


def test_plugins_of_the_network_s_directory_come_behind_those_of_the_list(tmp_path: Path) -> None:
    file = written(tmp_path, "tuning.conf", "bandwidth.conf", "README", "no.conflist")
    assert conflist.load(file).types == ["macvlan", "rxe", "bandwidth", "tuning"]


def test_only_inlined_plugins_are_all_there_are(tmp_path: Path) -> None:
    file = written(tmp_path, "tuning.conf", loadOnlyInlinedPlugins="True")
    assert conflist.load(file).types == ["macvlan", "rxe"]


def test_a_list_may_have_its_plugins_in_files_only(tmp_path: Path) -> None:
    assert conflist.load(written(tmp_path, "macvlan.conf", plugins=None)).types == ["macvlan"]


def test_without_any_plugins_is_missing(tmp_path: Path) -> None:
    file = written(tmp_path, "macvlan.conf", plugins=None, loadOnlyInlinedPlugins=True)
    with pytest.raises(InputError, match="plugins is missing"):
        conflist.load(file)


def test_an_empty_list_of_plugins_is_refused_whatever_is_beside_it(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="too few entries in plugins"):
        conflist.load(written(tmp_path, "macvlan.conf", plugins=[]))


def test_the_configuration_of_one_plugin_has_none_beside_it(tmp_path: Path) -> None:
    file = written(tmp_path, "tuning.conf")
    file.write_text('{"cniVersion": "1.0.0", "name": "rdma", "type": "macvlan"}')
    assert conflist.load(file).types == ["macvlan"]


def test_what_is_wrong_in_such_a_file_is_told_with_its_place(tmp_path: Path) -> None:
    file = written(tmp_path)
    (tmp_path / "rdma/a.conf").write_text('{\n "typ": "tuning"}')
    with pytest.raises(InputError, match="type is missing; 'typ' is there, did you mean 'type'") as said:
        conflist.load(file)
    assert said.value.where == f"{tmp_path}/rdma/a.conf:1:1"


def test_gc_can_be_switched_off() -> None:
    assert conflist.make({**GOOD, "disableGC": True}).disable_gc is True
    assert conflist.make(GOOD).disable_gc is False
