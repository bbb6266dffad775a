"""`testbed bench`: what it asks of a machine, its tables, and what makes it fail."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from testbed.cli import bench, options
from testbed.cli.main import invoke
from testbed.protocol import IpamRow, PodsRow
from testbed.protocol.requests import IpamBench, PodsBench


def row(ipam: str, addresses: int = 1000, **other: Any) -> IpamRow:
    found: IpamRow = {
        "ipam": ipam,
        "pods": 1000,
        "addresses": addresses,
        "create_s": 203.4,
        "recreate_s": 260.25,
        "delete_s": 41.5,
        "add_p50_ms": 2031.24,
        "add_p99_ms": 2312.0,
        "ipam_p50_ms": 10.04,
        "ipam_p99_ms": 12.0,
        "conflicts": 0,
        "waste": 0,
        "leaks": 0,
    }
    return {**found, **other}  # type: ignore[typeddict-item]


PODS: PodsRow = {
    "pods": 1000,
    "nodes": 10,
    "create_s": 250.0,
    "delete_s": 60.0,
    "add_p50_ms": 2100.0,
    "add_p99_ms": 2500.5,
    "memory_mb": 2601.4,
    "pod_mb": 2.414,
    "writes": 9,
    "failed": 0,
}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Any]:
    """The requests; the answers are the rows that are put in front of them."""
    found: list[Any] = []

    async def measure(request: object, *_: object) -> object:
        found.append(request)
        return found.pop(0)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(options, "choose", lambda *_: None)
    monkeypatch.setattr(bench, "measure", measure)
    return found


def lines(table: object) -> list[str]:
    console = Console(file=io.StringIO(), width=100)
    console.print(table)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]  # type: ignore[attr-defined]


def test_the_default_is_the_published_comparison(asked: list[Any]) -> None:
    asked.append([row("host-local"), row("ippool")])
    assert invoke(["bench", "ipam"]) == 0
    ipam = ["host-local", "ippool"]
    assert asked == [IpamBench(ipam=ipam, apps=100, replicas=10, nodes=10, spare=[0, 100], at_once=10)]


def test_fewer_pods_of_one_plugin(asked: list[Any]) -> None:
    asked.append([row("ippool")])
    assert invoke(["bench", "ipam", "--ipam", "ippool", "--apps", "3", "--replicas", "4", "--nodes", "4"]) == 0
    assert asked == [IpamBench(ipam=["ippool"], apps=3, replicas=4, nodes=4, spare=[0, 4], at_once=10)]


def test_pods_that_nodes_do_not_share_evenly_are_2(asked: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["bench", "ipam", "--apps", "3", "--replicas", "1", "--nodes", "2"]) == 2
    assert "3 pods cannot be shared out evenly to 2 nodes" in capsys.readouterr().err
    assert asked == []


def test_the_figures_are_printed_and_kept(asked: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    asked.append([row("host-local"), row("ippool", ipam_p50_ms=12.5)])
    assert invoke(["bench", "ipam", "--json"]) == 0
    (kept,) = Path("runs/bench-ipam").glob("2*/bench.json")
    assert json.loads(kept.read_text()) == json.loads(capsys.readouterr().out)
    assert json.loads(kept.read_text())[1]["ipam_p50_ms"] == 12.5


@pytest.mark.parametrize("count", ["conflicts", "waste", "leaks"])
def test_a_count_that_is_not_0_is_1_and_named(count: str, asked: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    asked.append([row("host-local"), row("ippool", **{count: 3})])
    assert invoke(["bench", "ipam"]) == 1
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("ippool with 1000 addresses: ")
    assert f"{count} 3" in last


def test_an_ippool_that_takes_too_long_is_1(asked: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    asked.append([row("host-local"), row("ippool", ipam_p50_ms=15.2)])
    assert invoke(["bench", "ipam"]) == 1
    out = capsys.readouterr().out
    assert "1000 addresses: IPAM of ippool takes 1.51 times that of host-local (at most 1.5)" in out


def test_plugins_are_compared_with_the_same_number_of_addresses_only() -> None:
    rows = [row("host-local", 1000), row("ippool", 1100, ipam_p50_ms=99.0)]
    assert (bench.ratios(rows), bench.faults(rows)) == ([], [])


def test_the_table_has_a_column_for_each_row() -> None:
    assert lines(bench.ipam_table([row("host-local"), row("ippool", 1100, leaks=2)])) == [
        "1000 pods   host-local       ippool",
        "addresses         1000         1100",
        "create      3 min 23 s   3 min 23 s",
        "recreate    4 min 20 s   4 min 20 s",
        "delete         41.50 s      41.50 s",
        "ADD p50      2031.2 ms    2031.2 ms",
        "ADD p99      2312.0 ms    2312.0 ms",
        "IPAM p50       10.0 ms      10.0 ms",
        "IPAM p99       12.0 ms      12.0 ms",
        "conflicts            0            0",
        "waste                0            0",
        "leaks                0            2",
    ]


def test_pods_with_rdma_devices(asked: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    asked.append(PODS)
    assert invoke(["bench", "pods", "--pods", "20", "--nodes", "2"]) == 0
    assert asked == [PodsBench(pods=20, nodes=2, at_once=10)]
    assert ["of", "a", "pod", "2.41", "MB"] in map(str.split, capsys.readouterr().out.splitlines())


def test_a_pod_without_a_device_is_1(asked: list[Any]) -> None:
    asked.append({**PODS, "failed": 1})
    assert invoke(["bench", "pods"]) == 1
