"""Addresses as callers of the public API give them: as objects of `ipaddress` or as text."""

import re
from collections.abc import Callable
from ipaddress import ip_address, ip_interface, ip_network
from typing import TypeVar

from testbed.documents.text import describe
from testbed.errors import InputError
from testbed.topology.plan import IPAddress, IPInterface, IPNetwork

T = TypeVar("T")
AnAddress = IPAddress | str
"""An address such as 10.0.10.2. Of one with a prefix length the address counts."""
AnInterface = IPInterface | str
"""An address with the prefix length of its subnet, such as 10.0.10.2/24."""
ANetwork = IPNetwork | str
"""A subnet such as 10.0.10.0/24, or ``default``, which is IPv4's."""


def address_of(value: AnAddress) -> IPAddress:
    """Return an address. InputError if it is none."""
    if isinstance(value, IPInterface):
        return value.ip
    if isinstance(value, IPAddress):
        return value
    return _read(ip_address, value, "an IP address such as 10.0.10.2")


def interface_of(value: AnInterface) -> IPInterface:
    """Return an address with its prefix length. InputError if it is none, or has no length."""
    expected = "an address with its prefix length, such as 10.0.10.2/24"
    if isinstance(value, IPInterface):
        return value
    if not isinstance(value, str) or "/" not in value:
        raise InputError(f"{describe(value)} is not {expected}")
    return _read(ip_interface, value, expected)


def network_of(value: ANetwork) -> IPNetwork:
    """Return a subnet. InputError if it is none."""
    if isinstance(value, IPNetwork):
        return value
    return _read(ip_network, "0.0.0.0/0" if value == "default" else value, "a subnet such as 10.0.10.0/24")


def mac_of(value: str) -> str:
    """Return a MAC in small letters. InputError if it is none."""
    if not isinstance(value, str) or not re.fullmatch("(?i)[0-9a-f]{2}(:[0-9a-f]{2}){5}", value):
        raise InputError(f"{describe(value)} is not a MAC address such as 02:00:00:00:0a:01")
    return value.lower()


def _read(read: Callable[[str], T], value: object, expected: str) -> T:
    try:
        if isinstance(value, str):
            return read(value)
    except ValueError:
        pass
    raise InputError(f"{describe(value)} is not {expected}")
