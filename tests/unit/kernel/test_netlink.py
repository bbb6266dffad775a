"""Netlink's framing, and its one loop, against this kernel."""

import errno
import re
import struct
from ipaddress import ip_interface
from pathlib import Path

import pytest

import testbed
from testbed.kernel import link_readings, netlink
from testbed.kernel.links import Links
from testbed.kernel.rtnetlink import Rtnetlink

PACKAGE = Path(testbed.__file__).parent
ELSEWHERE = {
    "machine/guest/boot.py",
    "workload/jobs/fork_server.py",
    "machine/checkup.py",
    "machine/child_processes.py",
}
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
        assert netlink.text(by_index[link_readings.IFLA_IFNAME]) == "lo"


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


class Dumps:
    """Stands for a socket: each request is answered by the next of some dumps, of one message with these flags."""

    def __init__(self, *flags: int) -> None:
        self.flags = [*flags]

    def send(self, data: bytes) -> None: ...

    def close(self) -> None: ...

    def recv(self, _: int) -> bytes:
        header = netlink._HEADER.pack
        flags = self.flags.pop(0)
        return header(20, 16, flags, 0, 0) + bytes([len(self.flags)] * 4) + header(20, netlink.DONE, 0, 0, 0) + bytes(4)


def test_a_dump_of_a_table_that_changed_meanwhile_is_repeated() -> None:
    with Links() as kernel:
        kernel._socket.close()
        kernel._socket = Dumps(netlink.INTERRUPTED, netlink.INTERRUPTED, 0)  # type: ignore[assignment]
        assert kernel.request(18, b"", netlink.DUMP) == [(16, bytes(4))]


def test_a_table_that_changes_in_each_dump_is_an_error() -> None:
    with Links() as kernel:
        kernel._socket.close()
        kernel._socket = Dumps(*[netlink.INTERRUPTED] * 99)  # type: ignore[assignment]
        with pytest.raises(OSError, match="changed during each of 10 dumps"):
            kernel.request(18, b"", netlink.DUMP)


def test_a_dump_that_the_kernel_breaks_off_is_an_error() -> None:
    class Broken(Dumps):
        def recv(self, _: int) -> bytes:
            return netlink._HEADER.pack(20, netlink.DONE, 0, 0, 0) + struct.pack("=i", -errno.EMSGSIZE)

    with Links() as kernel:
        kernel._socket.close()
        kernel._socket = Broken()  # type: ignore[assignment]
        with pytest.raises(OSError, match="Message too long"):
            kernel.request(18, b"", netlink.DUMP)


def test_nobody_else_speaks_netlink_or_calls_the_c_library() -> None:
    speaks = re.compile(r"AF_NETLINK|CDLL|NFTables|\bos\.(setns|unshare)\b")
    found = {str(path.relative_to(PACKAGE)) for path in PACKAGE.rglob("*.py") if speaks.search(path.read_text())}
    assert {path for path in found if not path.startswith("kernel/")} <= ELSEWHERE
