"""Netlink's framing, and its one loop, against this kernel."""

from __future__ import annotations

import errno
import re
from ipaddress import ip_interface
from pathlib import Path

import pytest

import testbed
from testbed.kernel import links, netlink
from testbed.kernel.links import Links
from testbed.kernel.rtnetlink import Rtnetlink

PACKAGE = Path(testbed.__file__).parent
ELSEWHERE = {"machine/guest/boot.py", "workload/jobs/ranks.py", "machine/checkup.py"}
"""What runs before the package is there, or without it, and what looks outside whether a library is there at all."""


def test_attributes_come_back_whatever_their_length() -> None:
    values = {1: b"", 2: b"x", 3: b"four", 4: b"name\0"}
    data = b"".join(netlink.attribute(kind, value) for kind, value in values.items())
    assert len(data) % 4 == 0
    assert netlink.attributes(netlink.nested(7, data))[7] == data
    assert netlink.attributes(data) == values
    assert netlink.text(values[4]) == "name"


def test_an_interface_is_read_by_name_and_by_index() -> None:
    with Links() as kernel:
        assert kernel.index("lo") == 1
        _, _, by_index = kernel.read(1)
        assert netlink.text(by_index[links.IFLA_IFNAME]) == "lo"


def test_a_refusal_has_the_kernels_errno_and_the_socket_goes_on() -> None:
    with Links() as kernel:
        with pytest.raises(OSError, match="No such device") as refused:
            kernel.read("nobody")
        assert refused.value.errno == errno.ENODEV
        assert kernel.read("lo")


def test_a_dump_comes_to_its_end() -> None:
    with Rtnetlink() as kernel:
        assert (1, ip_interface("127.0.0.1/8")) in list(kernel.addresses())
        assert list(kernel.addresses()) == list(kernel.addresses())


def test_nobody_else_speaks_netlink_or_calls_the_c_library() -> None:
    speaks = re.compile(r"AF_NETLINK|CDLL|NFTables|\bos\.(setns|unshare)\b")
    found = {str(path.relative_to(PACKAGE)) for path in PACKAGE.rglob("*.py") if speaks.search(path.read_text())}
    assert {path for path in found if not path.startswith("kernel/")} <= ELSEWHERE
