"""What the kernel's trace says of a queue pair, and the source port that follows from it."""

import sys
from ipaddress import IPv4Address, IPv6Address

import pytest

from testbed.errors import TestbedError
from testbed.nic.connections import Connection, parse, source_port

LINE = (
    "         ib_write_bw-144     [000] .....    10.389659: ready_to_receive: (rxe_modify_qp+0xbf/0x1b0 [rdma_rxe] <- "
    'rxe_qp_from_attr) device="left-eth1" qpn=17 remote_qpn=18 gid=0x0 gid_low=0x200000affff0000 flow_label=0 '
    "mac=0xbeef030000000002 mask=1216897 status=0"
)


@pytest.mark.parametrize(
    ("flow_label", "qpn", "remote_qpn", "port"),
    [
        (0, 43, 43, 51001),
        (0, 44, 44, 51088),
        (0, 45, 45, 51177),
        (1, 17, 17, 49153),
        (0x12345, 17, 17, 58177),
        (0xFFFFF, 17, 17, 65472),
        (0xFFFFFFFF, 17, 17, 65472),
    ],
)
def test_source_ports_are_those_seen_on_the_wire(flow_label: int, qpn: int, remote_qpn: int, port: int) -> None:
    assert source_port(flow_label, qpn, remote_qpn) == port


@pytest.mark.skipif(sys.byteorder == "big", reason="the line was written by a little-endian machine")
@pytest.mark.parametrize(
    ("gid", "ip"),
    [
        ("gid=0x0 gid_low=0x200000affff0000", IPv4Address("10.0.0.2")),
        ("gid=0x1000b80d0120 gid_low=0x200000000000000", IPv6Address("2001:db8:10::2")),
    ],
    ids=["IPv4", "IPv6"],
)
def test_a_line_of_the_trace(gid: str, ip: IPv4Address | IPv6Address) -> None:
    line = LINE.replace("gid=0x0 gid_low=0x200000affff0000", gid)
    assert parse(line) == Connection("left-eth1", 17, ip, 18, source_port(0, 17, 18), "02:00:00:00:00:03")


def test_a_line_of_something_else_is_an_error() -> None:
    with pytest.raises(TestbedError, match="cannot be read: 'CPU:0'"):
        parse("CPU:0")
