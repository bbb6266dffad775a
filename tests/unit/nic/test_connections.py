"""What the kernel's trace says of a queue pair, and the source port that follows from it."""

import sys
from ipaddress import IPv4Address

import pytest

from testbed.errors import TestbedError
from testbed.nic.connections import Connection, parse, source_port

LINE = (
    "         ib_write_bw-144     [000] .....    10.389659: ready_to_receive: (rxe_modify_qp+0xbf/0x1b0 [rdma_rxe] <- "
    'rxe_qp_from_attr) device="left-eth1" qpn=17 remote_qpn=18 family=2 ip=0x200000a flow_label=0 '
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
    ],
)
def test_source_ports_are_those_seen_on_the_wire(flow_label: int, qpn: int, remote_qpn: int, port: int) -> None:
    assert source_port(flow_label, qpn, remote_qpn) == port


@pytest.mark.skipif(sys.byteorder == "big", reason="the line was written by a little-endian machine")
def test_a_line_of_the_trace() -> None:
    assert parse(LINE) == Connection(
        "left-eth1", 17, IPv4Address("10.0.0.2"), 18, source_port(0, 17, 18), "02:00:00:00:00:03"
    )


def test_a_line_of_something_else_is_an_error() -> None:
    with pytest.raises(TestbedError, match="cannot be read: 'CPU:0'"):
        parse("CPU:0")
