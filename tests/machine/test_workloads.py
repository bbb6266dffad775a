"""A user's manifest in a lab that lives: its pods start, change and end as in a cluster."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import COMMAND, LIMIT_S, Done
from test_live_cli import environment, run_in

Run = Callable[..., Done]
TOPOLOGY = """\
name: cluster
topology:
  kinds: {host: {rdma: false}}
  nodes:
    leaf: {kind: switch, vlans: {20: 10.0.20.1/24}}
    node1: {kind: host}
    node2: {kind: host}
  links:
    - {endpoints: ["leaf:e1", "node1:eth1"], vlan: 20}
    - {endpoints: ["leaf:e2", "node2:eth1"], vlan: 20}
"""
MANIFEST = Path(__file__).parents[1] / "lab" / "cni" / "workloads.yaml"


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Run]:
    def run(*arguments: str, text: str = "") -> Done:
        return run_in(tmp_path, *arguments, text=text)

    (tmp_path / "cluster.clab.yml").write_text(TOPOLOGY)
    (tmp_path / "apps.yaml").write_text(MANIFEST.read_text())
    try:
        assert run("up", "cluster.clab.yml", "--clock", "virtual").status == 0
        yield run
    finally:
        run("down", "--all")


def rows(lab: Run, *arguments: str) -> list[list[str]]:
    return [line.split() for line in lab("get", *arguments).out.splitlines()[1:]]


def test_a_deployment_starts_grows_and_ends(lab: Run, tmp_path: Path) -> None:
    applied = lab("apply", "-f", "apps.yaml")
    assert applied.status == 0, applied.err
    assert applied.out.splitlines()[-2:] == [
        "Pod/default/agent is applied",
        "5 pods run: `testbed get pods` lists them",
    ]
    assert "ServiceAccount is passed over: nothing in a lab reads it" in applied.err
    assert "the lab has no image registry.example/web:1: its pods start without their program" in applied.err
    assert rows(lab, "deploy") == [["default", "web", "4/4", "4", "4"]]
    pods = rows(lab, "pods")
    assert [row[2:] for row in pods if row[1] == "agent"] == [["Running", "0", "10.0.20.3", "node2"]]
    name = next(row[1] for row in pods if row[1].startswith("web-"))
    assert lab("exec", name, "--", "printenv", "WORLD_SIZE").out == "4\n"
    assert lab("delete", "pod", name).status == 0
    assert rows(lab, "deploy") == [["default", "web", "4/4", "4", "4"]]
    grown = lab("apply", "-f", "-", text=MANIFEST.read_text().replace("replicas: 4", "replicas: 6"))
    assert "no address is free in rail1" in grown.err
    waiting = [row for row in rows(lab, "pods", "-o", "wide") if row[2] == "ContainerCreating"]
    assert len(waiting) == 1
    more = "\n---\n".join(MANIFEST.read_text().split("---\n")[:1]).replace("20.104", "20.105")
    assert lab("apply", "-f", "-", text=more).status == 0
    assert lab("get", "deploy", "web", "-o", "json").status == 0
    assert json.loads(lab("get", "deploy", "web", "-o", "json").out)["status"]["readyReplicas"] == 6
    deleted = lab("delete", "-f", "apps.yaml")
    assert deleted.status == 0, deleted.err
    assert lab("get", "pods").err == "No resources found\n"


@pytest.mark.parametrize(
    ("right", "wrong", "place", "said"),
    [
        ("{app: web}}\n", "{app: db}}\n", "{app: web}\n", "spec.template.metadata.labels: Invalid value: `selector`"),
        ("replicas: 4", "replicas: four", "4\n", "spec.replicas must be an integer"),
        ('value: "4"', "value: 4", '"4"', "spec.template.spec.containers[0].env[0].value must be a string"),
    ],
)
def test_a_wrong_manifest_has_a_place(lab: Run, right: str, wrong: str, place: str, said: str) -> None:
    text = MANIFEST.read_text()
    assert right in text
    refused = lab("apply", "-f", "-", text=text.replace(right, wrong))
    assert refused.status == 2
    before = text[: text.index(place, text.index("\nkind: Deployment"))]
    line, column = before.count("\n") + 1, len(before) - before.rindex("\n")
    assert f"error: standard input:{line}:{column}: {said}" in refused.err
    assert lab("get", "sp").err == "No resources found\n"


def there(directory: Path) -> dict[str, Any]:
    return {"cwd": directory, "env": environment(directory), "stdout": subprocess.DEVNULL}


def test_a_killed_command_loses_nothing_and_does_nothing_twice(lab: Run, tmp_path: Path) -> None:
    """As with kubectl: the cluster goes on."""
    command = [*COMMAND, "apply", "-f", "apps.yaml"]
    with subprocess.Popen(command, **there(tmp_path)) as process:
        deadline = time.monotonic() + LIMIT_S
        while not rows(lab, "deploy"):
            assert time.monotonic() < deadline
        os.kill(process.pid, signal.SIGKILL)
    while rows(lab, "deploy") != [["default", "web", "4/4", "4", "4"]]:
        assert time.monotonic() < deadline
    before = lab("get", "pods").out
    assert lab("apply", "-f", "apps.yaml").status == 0
    assert lab("get", "pods").out == before
    held = json.loads(lab("get", "sp", "rail1", "-o", "json").out)["status"]
    assert held["allocatedIPCount"] == 4


def test_a_cluster_restarts_and_its_pods_have_their_addresses(lab: Run, tmp_path: Path) -> None:
    assert lab("apply", "-f", "apps.yaml").status == 0
    assert lab("exec", "node1", "--", "sh", "-c", "sleep 1000 &").status == 0
    before = rows(lab, "pods")
    restarted = lab("reboot", "--all", "--down", "2m", "--del", "never")
    assert restarted.status == 0, restarted.err
    assert restarted.out.splitlines()[0] == "node1, node2 are up again"
    assert restarted.out.splitlines()[1].startswith("5 pods run")
    assert [row[3] for row in before] == ["0"] * 5
    assert rows(lab, "pods") == [[*row[:3], "1", *row[4:]] for row in before]
    assert lab("exec", "node1", "--", "pgrep", "sleep").status == 1
    assert lab("exec", "node1", "--", "ping", "-c1", "-W2", "10.0.20.3").status == 0
    with subprocess.Popen([*COMMAND, "reboot", "node1", "--down", "12h"], **there(tmp_path)) as process:
        deadline = time.monotonic() + LIMIT_S
        while rows(lab, "nodes")[0][1] != "NotReady":
            assert time.monotonic() < deadline
        down = [lab("reboot", "node1"), lab("apply", "cluster.clab.yml"), lab("pod", "add", "node1", "x")]
        assert [one.status for one in down] == [2, 2, 2], "others are answered while it is down"
        assert lab("scale", "deploy", "web", "--replicas", "2").out.startswith("Deployment/default/web is scaled")
        process.kill()
    refused = lab("reboot", before[0][1])
    assert refused.status == 2
    assert "is a pod" in refused.err
    assert lab("reboot").status == 2


def test_what_kubectls_users_type(lab: Run, tmp_path: Path) -> None:
    (tmp_path / "all").mkdir()
    parts = MANIFEST.read_text().split("---\n")
    for number, part in enumerate(parts):
        (tmp_path / "all" / f"{number}.yaml").write_text(part)
    assert lab("apply", "-f", "all", "-f", "apps.yaml").status == 0
    assert [row[0] for row in rows(lab, "nodes")] == ["node1", "node2"]
    assert len(rows(lab, "pods", "-l", "app=web")) == 4
    assert len(rows(lab, "pod", "agent")) == 1
    exported = lab("get", "pods,deploy", "-o", "json").out
    assert lab("apply", "-f", "-", text=exported).status == 0
    assert lab("scale", "deploy/web", "--replicas=1").status == 0
    (before,) = rows(lab, "pods", "-l", "app=web")
    assert lab("rollout", "restart", "deploy", "web").status == 0
    (after,) = rows(lab, "pods", "-l", "app=web")
    assert before[1] != after[1]
    done = lab("delete", "pod", "agent", "nothing")
    assert (done.out, done.status) == ("Pod/default/agent is deleted\n", 2)
    assert "there is no Pod/default/nothing" in done.err
    assert "Apply its Node" in lab("cordon", "node1").err
    empty = lab("apply", "-f", "-", text="\n")
    assert (empty.status, empty.err.splitlines()[0]) == (2, "error: standard input: it is empty")
    assert lab("delete", "deploy", "--all").out == "Deployment/default/web is deleted\n"
    assert lab("delete", "deploy", "--all").err == "No resources found\n"
