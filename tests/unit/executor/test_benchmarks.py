"""The networks and the figures of `testbed bench`; tests/lab/cni/test_bench.py has its pods."""

import itertools
from ipaddress import ip_address

import pytest

from testbed.cni.spec import conflist
from testbed.executor.benchmarks import host_local, ippool, macvlan, percentile


@pytest.mark.parametrize("ipam", [host_local(8, 4), ippool(12)])
def test_networks_are_conflists(ipam: dict[str, object]) -> None:
    (plugin,) = conflist.make(macvlan(ipam)).plugins
    assert plugin["ipam"] == ipam


def test_nodes_have_parts_of_the_addresses_that_touch_and_do_not_overlap() -> None:
    parts = [host_local(node * 4, 4)["ranges"] for node in range(3)]
    for family in range(2):
        ends = [(ip_address(part[family][0]["rangeStart"]), ip_address(part[family][0]["rangeEnd"])) for part in parts]
        assert all(int(last) - int(first) == 3 for first, last in ends)
        assert all(int(one[1]) + 1 == int(two[0]) for one, two in itertools.pairwise(ends))


def test_ippool_has_the_same_addresses() -> None:
    low, high = (host_local(0, 12)["ranges"][0][0][key] for key in ("rangeStart", "rangeEnd"))
    assert ippool(12)["pools"][0]["ips"] == [f"{low}-{high}"]


@pytest.mark.parametrize(("percent", "expected"), [(50, 5.0), (99, 10.0), (100, 10.0), (1, 1.0)])
def test_percentiles_are_values_that_were_measured(percent: int, expected: float) -> None:
    assert percentile([float(value) for value in range(10, 0, -1)], percent) == expected


def test_nothing_measured_is_0() -> None:
    assert percentile([], 50) == 0
