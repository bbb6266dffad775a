"""What the tests of lossless links share: queue pairs in the class, an incast, and CNPs as they are on the wire."""

import zlib
from typing import Literal

from testbed import Lab
from testbed.lab.capture import Capture
from testbed.workload.attributes import Attributes
from testbed.workload.verbs import Endpoint, connect_pair, open_endpoint

LOSSLESS, BEST_EFFORT = Attributes(timeout=16, traffic_class=26 << 2), Attributes(timeout=16)
ECT = Attributes(timeout=16, traffic_class=26 << 2 | 2)
CNP, CNP_DSCP = 0x81, 48


def pair(lab: Lab, near: str, far: str, attributes: Attributes, family: Literal[4, 6] = 4) -> Endpoint:
    here, there = (open_endpoint(lab.host(name)["eth1"], family, memory=1 << 18) for name in (near, far))
    connect_pair(here, there, attributes)
    return here


def incast(lab: Lab, attributes: Attributes, size: int = 200_000, family: Literal[4, 6] = 4) -> list[str]:
    """a and b write to c at once; how it ended."""
    ends = [pair(lab, name, "c", attributes, family) for name in ("a", "b")]
    posted = [(end, end.post_write(size)) for end in ends]
    return [end.wait(request, within=60).status for end, request in posted]


def cnps_of(capture: Capture, family: Literal[4, 6] = 4) -> list[bytes]:
    opcode = {4: 14 + 20 + 8, 6: 14 + 40 + 8}[family]
    return [frame.data for frame in capture.frames() if frame.data[opcode] == CNP]


def icrc_holds(data: bytes) -> bool:
    """Of an untagged packet (InfiniBand, annex A17.9.2): the fields that change on the way count as ones."""
    covered = bytearray(b"\xff" * 8 + data[14:-4])
    if data[14] >> 4 == 4:
        changing = {9: 0xFF, 16: 0xFF, 18: 0xFF, 19: 0xFF, 34: 0xFF, 35: 0xFF, 40: 0xFF}
    else:
        changing = {8: 0x0F, 9: 0xFF, 10: 0xFF, 11: 0xFF, 15: 0xFF, 54: 0xFF, 55: 0xFF, 60: 0xFF}
    for at, bits in changing.items():
        covered[at] |= bits
    return zlib.crc32(covered).to_bytes(4, "little") == data[-4:]
