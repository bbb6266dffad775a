"""Runs inside, as test_cases.py: each of cases.json is a pod or one error that names it, and nothing is left of it."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from testbed import Lab
from testbed.cni.ipam.address_store import Store
from testbed.errors import TestbedError
from testbed.lab.leaks import inventory

CASES = json.loads(Path("cases.json").read_text())
TOPOLOGY = """\
name: fuzz
topology:
  nodes:
    leaf: {kind: switch, vlans: {10: 10.0.10.1/24}}
    node: {kind: host}
  links:
    - {endpoints: ["leaf:e1", "node:eth1"], vlan: 10}
"""
PLUGIN = """\
#!/bin/sh
case $CNI_COMMAND in
VERSION) echo '{"cniVersion": "1.1.0", "supportedVersions": ["0.3.1", "0.4.0", "1.0.0", "1.1.0"]}' ;;
"""


def write_plugin(directory: Path, said: dict[str, tuple[int, str]]) -> None:
    """The plugin `odd`: what it prints, and its exit status, by command."""
    lines = [f"{command}) printf %s {shlex.quote(text)}; exit {status} ;;" for command, (status, text) in said.items()]
    file = directory / "odd"
    file.write_bytes((PLUGIN + "\n".join(lines) + "\nesac\n").encode(errors="surrogatepass"))
    file.chmod(0o755)


def kept(lab: Lab) -> set[Path]:
    """The files that IPAM plugins and the runtime keep of pods."""
    return {*lab.directory.glob("cni/*/lib/results/*"), *lab.directory.glob("cni/*/lib/networks/*/[0-9]*")}


def tried(lab: Lab, network: dict[str, Any]) -> tuple[bool, list[TestbedError]]:
    """Whether there was a pod, and what went wrong with it."""
    errors = []
    try:
        pod = lab.pods.create(lab.host("node"), "web", [network])
    except TestbedError as error:
        return False, [error]
    for act in pod.check, pod.delete:
        try:
            act()
        except TestbedError as error:
            errors.append(error)
    return True, errors


def tidy(lab: Lab) -> None:
    """Do what GC would: a DEL failed, which ends that of the network, and what its other plugins keep stays."""
    for file in kept(lab):
        file.unlink()
    with Store(lab.directory / "cluster/addresses.sqlite") as store:
        for lease in store.leases():
            store.give_back(lease.holder)


@pytest.mark.topology(TOPOLOGY)
def test_each_case_is_a_pod_or_one_error_and_nothing_is_left(lab, tmp_path, monkeypatch):
    plugins, node = tmp_path / "plugins", lab.host("node")
    plugins.mkdir()
    write_plugin(plugins, {})
    monkeypatch.setenv("CNI_PATH", f"{plugins}:/usr/lib/cni")
    lab.pods.create(node, "first", [CASES[0]["network"]]).delete()  # the node's agent stays from here on
    pods = not_deleted = 0
    for case in CASES:
        if "eth2" not in node.run("ip", "-br", "link").stdout:
            node.run("ip", "link", "add", "eth2", "type", "dummy")
        write_plugin(plugins, case["odd"])
        before = inventory()

        began, errors = tried(lab, case["network"])

        texts = ["\n".join([str(error), *getattr(error, "__notes__", ())]) for error in errors]
        assert all("pod web: " in text or error.where for text, error in zip(texts, errors, strict=True)), (case, texts)
        assert "web" not in lab.nodes, case
        if any("failed (delete)" in text for text in texts):
            tidy(lab)
            not_deleted += 1
        # After a DEL that failed the kernel takes the RDMA device with the namespace, a little later.
        lab.scheduler.wait_quietly(lambda before=before: inventory() <= before, within=1)
        with Store(lab.directory / "cluster/addresses.sqlite") as store:
            left = (inventory() - before) | {str(file) for file in kept(lab)} | {str(one) for one in store.leases()}
        assert not left, (case, texts)
        pods += began
    Path("pods.txt").write_text(f"{pods} of {len(CASES)} cases are pods, {not_deleted} have a DEL that fails\n")
    assert pods > len(CASES) / 10, "most cases are refused at once"
