"""Pools as users write them."""

from ipaddress import ip_address

import pytest

from testbed.cni.ipam import pool
from testbed.cni.ipam.pool import Route
from testbed.errors import InputError


def addresses(subnet: str, *ranges: str, without: tuple[str, ...] = (), gateway: str = "") -> list[str]:
    return [str(address) for address in pool.make("p", subnet, ranges, without, gateway)[1]]


def test_ranges_single_addresses_and_exceptions() -> None:
    found = addresses("10.0.10.0/24", "10.0.10.100-10.0.10.103", "10.0.10.7", without=("10.0.10.101-10.0.10.102",))
    assert found == ["10.0.10.7", "10.0.10.100", "10.0.10.103"]


def test_the_gateway_is_nobody_else_s() -> None:
    assert addresses("10.0.10.0/29", "10.0.10.1-10.0.10.2", gateway="10.0.10.1") == ["10.0.10.2"]


@pytest.mark.parametrize(
    ("subnet", "ranges", "without"),
    [
        ("10.0.10.0/24", (), ()),
        ("10.0.0.0/8", (), ()),
        ("10.0.10.0/24", ("10.0.10.9",), ("10.0.10.1-10.0.10.20",)),
        ("10.0.10.0/24", ("10.0.10.9-10.0.10.5",), ()),
        ("10.0.10.0/24", ("10.0.10.9",), ("10.0.10.20-10.0.10.10",)),
    ],
)
def test_a_pool_may_have_no_addresses(subnet: str, ranges: tuple[str, ...], without: tuple[str, ...]) -> None:
    assert addresses(subnet, *ranges, without=without) == []


def test_ipv6() -> None:
    assert addresses("fd00::/64", "fd00::a-fd00::c") == ["fd00::a", "fd00::b", "fd00::c"]


def test_what_is_common_to_them() -> None:
    made, _ = pool.make("p", "10.0.10.0/24", ["10.0.10.9"], (), "10.0.10.1", [Route("10.0.0.0/8", "10.0.10.1")])
    assert (made.name, made.family, made.gateway) == ("p", 4, ip_address("10.0.10.1"))
    assert made.routes == (Route("10.0.0.0/8", "10.0.10.1"),)


@pytest.mark.parametrize(
    ("subnet", "ranges", "gateway", "said"),
    [
        ("10.0.10.1/24", [], "", "subnet: 10.0.10.1/24 has host bits set"),
        ("ten", [], "", "subnet: 'ten' does not appear to be an IPv4 or IPv6 network"),
        ("10.0.10.0/24", ["10.0.11.1"], "", "ips: 10.0.11.1 is not in 10.0.10.0/24"),
        ("10.0.10.0/24", ["fd00::1"], "", "ips: fd00::1 is not in 10.0.10.0/24"),
        ("10.0.10.0/24", ["10.0.10.9-"], "", "ips: '' does not appear to be an IPv4 or IPv6 address"),
        ("10.0.10.0/24", ["10.0.10.9"], "10.0.11.1", "gateway: 10.0.11.1 is not in 10.0.10.0/24"),
        (
            "fd00::/64",
            ["fd00::-fd00::1:0"],
            "",
            "it has more than 65536 addresses, the most that a pool of a lab may have",
        ),
    ],
)
def test_what_is_wrong_is_named(subnet: str, ranges: list[str], gateway: str, said: str) -> None:
    with pytest.raises(InputError) as error:
        pool.make("p", subnet, ranges, (), gateway)
    assert (error.value.where, error.value.message) == ("pool p", said)
