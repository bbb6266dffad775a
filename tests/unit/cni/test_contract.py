"""The contract with a plugin: its input, its answer, and the cache of its results."""

import base64
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from testbed.cni import spec
from testbed.cni.plugins import contract, rxe
from testbed.cni.runtime import libcni, plugin_call
from testbed.cni.runtime.plugin_call import CniError, NoAnswerError, NotCallableError
from testbed.cni.runtime.result_cache import Cache
from testbed.cni.spec import conflist
from testbed.cni.spec.conflist import Attachment
from testbed.errors import InputError

NETWORK = conflist.make(
    {
        "cniVersion": "1.0.0",
        "name": "rdma",
        "plugins": [{"type": "macvlan", "capabilities": {"mac": True, "ips": False}, "own": 1}, {"type": "rxe"}],
    }
)
POD = Attachment(
    "web", "c0ffee", "/run/netns/web", "eth0", {"A": "1", "B": "2"}, {"mac": "06:00:00:00:00:01", "ips": []}
)
NEW: dict[str, Any] = {
    "cniVersion": "1.1.0",
    "interfaces": [
        {"name": "eth0", "mac": "06:00:00:00:00:01", "mtu": 9000, "sandbox": "/run/netns/web", "pciID": "1"}
    ],
    "ips": [{"interface": 0, "address": "10.0.0.2/24"}, {"address": "fd00::2/64"}],
    "routes": [{"dst": "0.0.0.0/0", "gw": "10.0.0.1", "table": 7}],
    "dns": {"nameservers": ["10.0.0.1"]},
}
INTERFACE = {"name": "eth0", "mac": "06:00:00:00:00:01", "sandbox": "/run/netns/web"}


# Environment and stdin


def test_the_six_variables_are_there() -> None:
    variables = libcni.variables_of("ADD", POD, [Path("/opt/cni/bin"), Path("/usr/lib/cni")])
    assert variables == {
        "CNI_COMMAND": "ADD",
        "CNI_CONTAINERID": "c0ffee",
        "CNI_NETNS": "/run/netns/web",
        "CNI_IFNAME": "eth0",
        "CNI_ARGS": "A=1;B=2",
        "CNI_PATH": "/opt/cni/bin:/usr/lib/cni",
    }
    assert set(variables) == set(plugin_call.VARIABLES)


def test_a_plugin_reads_its_own_part_completed() -> None:
    assert libcni.stdin_of(NETWORK, NETWORK.plugins[0], POD, None) == {
        "type": "macvlan",
        "own": 1,
        "name": "rdma",
        "cniVersion": "1.0.0",
        "runtimeConfig": {"mac": "06:00:00:00:00:01"},
    }


def test_a_plugin_without_capabilities_gets_no_runtime_config_and_the_result_before_it() -> None:
    stdin = libcni.stdin_of(NETWORK, NETWORK.plugins[1], POD, {"cniVersion": "1.0.0"})
    assert stdin == {"type": "rxe", "name": "rdma", "cniVersion": "1.0.0", "prevResult": {"cniVersion": "1.0.0"}}


def test_plugins_of_the_user_s_own_come_first(tmp_path: Path) -> None:
    assert libcni.search_path([tmp_path])[:2] == [tmp_path, plugin_call.OURS]


def test_a_plugin_that_cannot_be_executed_is_named(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("#!/bin/sh\n")
    with pytest.raises(NotCallableError) as said:
        plugin_call.find("mine", [tmp_path], "test")
    assert str(said.value) == f"test: it cannot be executed (code 5)\n  chmod +x {tmp_path.name}/mine"
    assert (said.value.code, said.value.exit_status) == (5, InputError.exit_status)


def test_plugins_are_looked_for_in_ours_and_in_cni_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("CNI_PATH", raising=False)
    assert libcni.search_path()[1:] == [Path("/usr/lib/cni"), Path("/opt/cni/bin")]
    monkeypatch.setenv("CNI_PATH", f"{tmp_path}:/else")
    assert libcni.search_path()[1:] == [tmp_path, Path("/else")]
    assert plugin_call.find("rxe", libcni.search_path(), "test").name == "rxe"
    with pytest.raises(NotCallableError) as said:
        plugin_call.find("rxf", libcni.search_path(), "test")
    assert str(said.value).startswith('test: failed to find plugin "rxf" (code 7)\n  Did you mean rxe')
    assert (said.value.code, said.value.exit_status) == (7, InputError.exit_status)


# Results


def test_a_result_of_1_1_loses_what_1_0_does_not_know() -> None:
    assert spec.convert(NEW, "1.0.0") == {
        "cniVersion": "1.0.0",
        "interfaces": [INTERFACE],
        "ips": [{"interface": 0, "address": "10.0.0.2/24"}, {"address": "fd00::2/64"}],
        "routes": [{"dst": "0.0.0.0/0", "gw": "10.0.0.1"}],
        "dns": {"nameservers": ["10.0.0.1"]},
    }
    assert spec.convert(NEW, "1.1.0") == NEW


def test_before_1_0_an_address_tells_its_family() -> None:
    old = spec.convert(NEW, "0.4.0")
    assert old["ips"] == [
        {"version": "4", "interface": 0, "address": "10.0.0.2/24"},
        {"version": "6", "address": "fd00::2/64"},
    ]
    assert spec.convert(old, "1.0.0") == spec.convert(NEW, "1.0.0")


def test_a_result_is_written_in_the_order_of_the_specification() -> None:
    shuffled = dict(reversed(NEW.items()))
    assert list(spec.convert(shuffled, "1.1.0")) == ["cniVersion", "interfaces", "ips", "routes", "dns"]
    assert spec.convert({"cniVersion": "1.0.0"}, "1.0.0") == {"cniVersion": "1.0.0", "dns": {}}


def test_a_result_without_a_version_is_of_that_of_the_conflist() -> None:
    assert libcni.understood({"interfaces": [INTERFACE]}, "1.0.0", "test")["interfaces"] == [INTERFACE]
    with pytest.raises(CniError, match=r"its result has version 0\.5\.0"):
        libcni.understood({"cniVersion": "0.5.0"}, "0.3.1", "test")
    with pytest.raises(CniError, match="its result is malformed"):
        libcni.understood({"cniVersion": "0.2.0", "ip4": {"gateway": "10.0.0.1"}}, "0.2.0", "test")


def test_before_0_3_a_result_has_an_address_a_family_and_no_interfaces() -> None:
    """CNI 0.2.0, "Result"."""
    ip4 = {"ip": "10.0.0.2/24", "gateway": "10.0.0.1", "routes": [{"dst": "0.0.0.0/0"}]}
    ip6 = {"ip": "fd00::2/64", "routes": [{"dst": "::/0", "gw": "fd00::1"}]}
    old = {"cniVersion": "0.2.0", "ip4": ip4, "ip6": ip6, "dns": {}}
    read = libcni.understood(old, "0.2.0", "test")
    assert read["ips"] == [
        {"version": "4", "address": "10.0.0.2/24", "gateway": "10.0.0.1"},
        {"version": "6", "address": "fd00::2/64"},
    ]
    assert read["routes"] == [*ip4["routes"], *ip6["routes"]]
    assert spec.written(read) == old
    assert spec.written(spec.convert(NEW, "1.0.0")) == spec.convert(NEW, "1.0.0")


# Errors


def test_an_error_object_is_told_with_its_code() -> None:
    error = plugin_call.refusal(
        1, b'{"cniVersion": "1.0.0", "code": 11, "msg": "try later", "details": "busy"}', "pod web: x"
    )
    assert str(error) == "pod web: x: try later (code 11): busy"
    assert (error.code, error.details, error.exit_status) == (11, "busy", 1)
    assert not isinstance(error, NoAnswerError), "its stderr is no part of the message"


@pytest.mark.parametrize(
    ("status", "output", "said"),
    [
        (3, b" \n", "status 3 and no error object"),
        (-9, b"", "signal 9 and no error object"),
        (1, b"panic: nil", "status 1 and, instead of an error object: 'panic: nil'"),
        (1, b"[]", "status 1 and, instead of an error object: '[]'"),
        (1, b'{"code": "many"}', 'status 1 and, instead of an error object: \'{"code": "many"}\''),
        (1, b"\xff" * 200, f"status 1 and, instead of an error object: '{chr(0xFFFD) * 77}...'"),
    ],
)
def test_without_one_stderr_is_what_there_is(status: int, output: bytes, said: str) -> None:
    error = plugin_call.refusal(status, output, "x")
    assert (error.message, error.code) == (f"x: it ended with {said} (code 6)", 6)
    assert isinstance(error, NoAnswerError)
    error.add_stderr(io.BytesIO(b"its last words"), 0)
    assert error.hint == "On stderr: its last words"


# The cache


def test_the_cache_is_a_file_of_libcni(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    cache.write(NETWORK, POD, {"cniVersion": "1.0.0", "dns": {}})
    file = tmp_path / "results/rdma-c0ffee-eth0"
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700
    entry = json.loads(file.read_text())
    assert json.loads(base64.b64decode(entry.pop("config"))) == json.loads(NETWORK.data)
    assert entry == {
        "kind": "cniCacheV1",
        "containerId": "c0ffee",
        "ifName": "eth0",
        "networkName": "rdma",
        "netns": "/run/netns/web",
        "cniArgs": [["A", "1"], ["B", "2"]],
        "capabilityArgs": {"mac": "06:00:00:00:00:01", "ips": []},
        "result": {"cniVersion": "1.0.0", "dns": {}},
    }
    assert cache.read("rdma", POD) == {"cniVersion": "1.0.0", "dns": {}}
    cache.delete("rdma", POD)
    cache.delete("rdma", POD)
    assert cache.read("rdma", POD) is None


def test_the_cache_knows_what_was_added_and_not_deleted(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    assert cache.attachments("rdma") == []
    named = replace(POD, container="beef", pod="db", arguments={"K8S_POD_NAME": "db"})
    for attachment in POD, named:
        cache.write(NETWORK, attachment, {"cniVersion": "1.0.0"})
    (tmp_path / "results/rdma-broken-eth0").write_text("{")
    (tmp_path / "results/legacy").write_text('{"cniVersion": "0.2.0"}')
    assert cache.attachments("rdma") == [named, replace(POD, pod="c0ffee")]
    assert cache.attachments("other") == []


@pytest.mark.parametrize("text", ["", "{", "[]", '{"kind": "other", "result": {}}', '{"kind": "cniCacheV1"}'])
def test_a_cache_file_that_cannot_be_read_is_deleted(tmp_path: Path, text: str) -> None:
    cache = Cache(tmp_path)
    file = cache.file("rdma", POD)
    file.parent.mkdir()
    file.write_text(text)
    assert cache.read("rdma", POD) is None
    assert not file.exists()


# The plugin rxe


def test_rxe_names_a_device_by_container_and_interface() -> None:
    assert rxe.device_name("0123456789" * 6, "net1") == "012345678-net1"
    assert rxe.device_name("c0ffee", "eth0") == "c0ffee-eth0"


def test_rxe_answers_what_it_cannot_do_with_an_error_object() -> None:
    environment = {
        "CNI_COMMAND": "ADD",
        "CNI_CONTAINERID": "c",
        "CNI_NETNS": "/run/netns/nobody",
        "CNI_IFNAME": "eth0",
        "CNI_PATH": "/",
    }
    config = {"cniVersion": "0.4.0", "name": "rdma", "type": "rxe", "prevResult": {}}
    status, answer = contract.answer(rxe.call, environment, json.dumps(config).encode())
    assert status == 1
    assert json.loads(answer) == {
        "cniVersion": "0.4.0",
        "code": 8,
        "msg": "network namespace /run/netns/nobody does not exist",
        "details": "",
    }
