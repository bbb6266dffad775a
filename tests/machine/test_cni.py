"""`testbed cni` answers as cnitool does."""

import json
from pathlib import Path

import pytest

IPAM = {"type": "host-local", "ranges": [[{"subnet": "10.0.10.0/24", "rangeStart": "10.0.10.100"}]]}
MACVLAN = {"type": "macvlan", "master": "eth1", "capabilities": {"mac": True}, "ipam": IPAM}
MAC = "06:00:00:00:00:07"


def written(directory: Path, *plugins: object) -> Path:
    file = directory / "rdma.conflist"
    file.write_text(json.dumps({"cniVersion": "1.0.0", "name": "rdma", "plugins": plugins}))
    return file


def test_add_prints_the_result(testbed, tmp_path):
    file = written(tmp_path, MACVLAN, {"type": "rxe"})
    done = testbed("cni", "add", file, "--ifname", "net1", "--capability-args", json.dumps({"mac": MAC}))
    assert done.status == 0, done.err
    result = done.json
    sandbox, device = (result["interfaces"][0].pop(key) for key in ("sandbox", "rdma-device"))
    assert result == {
        "cniVersion": "1.0.0",
        "interfaces": [{"name": "net1", "mac": MAC}],
        "ips": [{"interface": 0, "address": "10.0.10.100/24", "gateway": "10.0.10.1"}],
        "dns": {},
    }
    assert sandbox.startswith("/run/netns/")
    assert device.endswith("-net1")


def test_check_and_del_print_nothing(testbed, tmp_path):
    file = written(tmp_path, MACVLAN, {"type": "rxe"})
    for command in "check", "del":
        done = testbed("cni", command, file)
        assert (done.status, done.out) == (0, ""), done.err


def test_what_the_plugins_keep_is_told(testbed, tmp_path):
    bridge = {"type": "bridge", "bridge": "cni0", "isGateway": True, "ipam": IPAM}
    done = testbed("cni", "del", written(tmp_path, bridge))
    assert done.status == 0
    assert "interface cni0" in done.error


def test_a_plugin_s_error_is_1_with_its_code(testbed, tmp_path):
    done = testbed("cni", "add", written(tmp_path, {"type": "host-device", "device": "none"}))
    assert (done.status, done.out) == (1, "")
    assert 'plugin type="host-device" name="rdma" failed (add): failed to find host device' in done.error
    assert "(code 999)" in done.error


def test_a_conflist_that_the_plugins_cannot_be_asked_is_2(testbed, tmp_path):
    done = testbed("cni", "add", written(tmp_path, {"type": "macvlen"}))
    assert (done.status, done.out) == (2, "")
    begin = 'error: pod cnitool: plugin type="macvlen" name="rdma" failed (version): failed to find plugin "macvlen"'
    assert f"{begin} (code 7) Did you mean macvlan? There are: " in done.error


@pytest.mark.parametrize("given", [pytest.param("CNI_PATH", marks=pytest.mark.slow), "--plugin-dir"])
def test_a_plugin_of_one_s_own_is_called(testbed, tmp_path, given):
    """A script with its module, by the configuration of one plugin."""
    own = tmp_path / "own"
    own.mkdir()
    (own / "words.py").write_text('DOMAIN = "mine.example"\n')
    (own / "mine").write_text(
        "#!/usr/bin/env python3\n"
        "import json, os, words\n"
        'result = {"cniVersion": "1.0.0", "dns": {"domain": words.DOMAIN}}\n'
        'version = {"cniVersion": "1.0.0", "supportedVersions": ["1.0.0"]}\n'
        'print(json.dumps({"ADD": result, "VERSION": version}.get(os.environ["CNI_COMMAND"], {})))\n'
    )
    (own / "mine").chmod(0o755)
    (tmp_path / "mine.conf").write_text('{"cniVersion": "1.0.0", "name": "net", "type": "mine"}')
    if given == "CNI_PATH":
        done = testbed("cni", "add", "mine.conf", env={"CNI_PATH": f"{own}:/nowhere"})
    else:
        done = testbed("cni", "add", "mine.conf", "--plugin-dir", own)
    assert done.status == 0, done.err
    assert done.json == {"cniVersion": "1.0.0", "dns": {"domain": "mine.example"}}
    assert f"your plugins of {own}: mine, words.py" in done.error


def test_gc_finds_what_a_lost_pod_leaves(testbed, tmp_path):
    file = written(tmp_path, MACVLAN, {"type": "rxe"})
    done = testbed("cni", "gc", file)
    assert (done.status, done.out) == (0, ""), done.err
    file.write_text(json.dumps({**json.loads(file.read_text()), "disableGC": True}))
    done = testbed("cni", "gc", file)
    assert done.status == 1
    assert 'network "rdma": GC left: file node/lib/networks/rdma/10.0.10.101' in done.error


def test_status_asks_the_plugins(testbed, tmp_path):
    ipam = {"type": "ippool", "pools": [{"subnet": "10.0.10.0/24", "ips": ["10.0.10.7"]}]}
    file = tmp_path / "rdma.conflist"
    file.write_text(json.dumps({"cniVersion": "1.1.0", "name": "rdma", "plugins": [{"type": "ippool", "ipam": ipam}]}))
    done = testbed("cni", "status", file)
    assert (done.status, done.out) == (0, ""), done.err
    ipam["policy"] = "lowest"
    file.write_text(json.dumps({"cniVersion": "1.1.0", "name": "rdma", "plugins": [{"type": "ippool", "ipam": ipam}]}))
    done = testbed("cni", "status", file)
    assert done.status == 1
    assert (
        "ipam.policy must be 'lowest-free', 'round-robin', 'random' or 'cool-down', not the string 'lowest'"
        in done.error
    )
