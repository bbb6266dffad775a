"""`testbed bench` with few pods."""

from pathlib import Path

from testbed.executor import Context, benchmarks
from testbed.protocol.requests import IpamBench, PodsBench


def context(directory: Path) -> Context:
    return Context(directory, directory, lambda _: None)


def test_both_plugins_serve_as_many_pods_as_there_are_addresses_twice(tmp_path: Path) -> None:
    asked = IpamBench(ipam=["host-local", "ippool"], apps=2, replicas=2, nodes=2, spare=[0], at_once=4)
    rows = benchmarks.measure_ipam(asked, context(tmp_path))
    assert [(row["ipam"], row["pods"], row["addresses"]) for row in rows] == [("host-local", 4, 4), ("ippool", 4, 4)]
    for row in rows:
        assert (row["conflicts"], row["waste"], row["leaks"]) == (0, 0, 0)
        assert 0 < row["ipam_p50_ms"] <= row["ipam_p99_ms"] < row["add_p50_ms"] <= row["add_p99_ms"]


def test_pods_without_an_address_are_waste(tmp_path: Path) -> None:
    asked = IpamBench(ipam=["ippool"], apps=1, replicas=4, nodes=2, spare=[-1], at_once=4)
    (row,) = benchmarks.measure_ipam(asked, context(tmp_path))
    assert (row["waste"], row["conflicts"], row["leaks"]) == (2, 0, 0)  # of each wave one


def test_pods_with_rdma_devices_are_there_at_the_same_time_and_work(tmp_path: Path) -> None:
    row = benchmarks.measure_pods(PodsBench(pods=5, nodes=3, at_once=5), context(tmp_path))
    assert (row["writes"], row["failed"]) == (3, 0)  # two pairs, and the last one with the first
    assert 0 < row["pod_mb"] < row["memory_mb"]
