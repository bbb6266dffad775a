"""A capture is what Wireshark's dissectors take it for: RoCE v2 with the fields that were meant."""

import pytest

from testbed.faults import ExactPacket, injected
from testbed.lab import Lab
from testbed.lab.capture import Capture
from testbed.workload.attributes import Attributes
from testbed.workload.verbs import Endpoint, connect_pair

SIZE = 3 * 1024
WRITE_FIRST, WRITE_MIDDLE, WRITE_LAST, ACKNOWLEDGE = 0x06, 0x07, 0x08, 0x11
FIELDS = {
    "src": "ip.src",
    "tos": "ip.dsfield",
    "port": "udp.dstport",
    "opcode": "infiniband.bth.opcode",
    "qp": "infiniband.bth.destqp",
    "psn": "infiniband.bth.psn",
    "address": "infiniband.reth.va",
    "rkey": "infiniband.reth.r_key",
    "length": "infiniband.reth.dmalen",
    "syndrome": "infiniband.aeth.syndrome",
    "icrc": "infiniband.invariant.crc",
}
ECT, CE = 106, 107
"""ToS: DSCP 26, ECN-capable, and what is left of that when a switch marks it."""
pytestmark = pytest.mark.topology("""
name: captures
topology:
  nodes:
    leaf: {kind: switch}
    a: {kind: host}
    b: {kind: host}
  links:
    - endpoints: ["leaf:e1", "a:eth1"]
    - endpoints: ["leaf:e2", "b:eth1"]
""")


def dissected(lab: Lab, capture: Capture) -> list[dict[str, int | str | None]]:
    """What tshark makes of each RoCE packet; numbers as numbers, None where a field is not there."""
    wanted = [word for field in FIELDS.values() for word in ("-e", field)]
    said = lab["a"].run("tshark", "-r", str(capture.file), "-Y", "infiniband", "-T", "fields", *wanted).stdout
    rows = [dict(zip(FIELDS, line.split("\t"), strict=True)) for line in said.splitlines()]
    return [{key: _value(text) for key, text in row.items()} for row in rows]


def _value(text: str) -> int | str | None:
    if not text:
        return None
    return text if "." in text else int(text, 0)


@pytest.mark.slow
def test_tshark_reads_a_write_with_its_fields(lab: Lab) -> None:
    hosts = [lab.host(name) for name in "ab"]
    near, far = (
        Endpoint(host["eth1"].device, host.namespace, host["eth1"].address().ip, memory=SIZE, ready=lab.scheduler.ready)
        for host in hosts
    )
    with near, far:
        connect_pair(near, far, Attributes(traffic_class=ECT))
        capture = lab["leaf"]["e2"].capture("udp port 4791")
        with injected(lab, ExactPacket(end="a:eth1", action="mark-ce", opcode="WRITE_MIDDLE")):
            assert near.write(SIZE, within=5).ok
        capture.stop()
        packets = dissected(lab, capture)
        to_far, to_near = far.address, near.address

    assert [packet["opcode"] for packet in packets] == [WRITE_FIRST, WRITE_MIDDLE, WRITE_LAST, ACKNOWLEDGE]
    requests, acknowledgement = packets[:3], packets[3]
    assert [packet["psn"] for packet in requests] == [(to_near.psn + number) % (1 << 24) for number in range(3)]
    assert {packet["qp"] for packet in requests} == {to_far.qpn}
    assert {packet["src"] for packet in requests} == {str(hosts[0]["eth1"].address().ip)}
    assert [packet["tos"] for packet in requests] == [ECT, CE, ECT]
    assert {packet["port"] for packet in packets} == {4791}
    assert all(packet["icrc"] for packet in packets)
    assert (requests[0]["rkey"], requests[0]["length"]) == (to_far.rkey, SIZE)
    assert to_far.address <= int(requests[0]["address"] or 0) < to_far.address + SIZE
    assert [packet["rkey"] for packet in requests[1:]] == [None, None]
    assert (acknowledgement["qp"], acknowledgement["psn"]) == (to_near.qpn, requests[-1]["psn"])
    assert acknowledgement["src"] == str(hosts[1]["eth1"].address().ip)
    assert acknowledgement["syndrome"] is not None
