"""What a soft-RoCE device counts (hw_counters in sysfs), over netlink: with no cache, and in both RDMA netns modes."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from testbed.errors import InputError
from testbed.kernel import netns, rdma

STAT_GET = 17
DEV_INDEX, PORT_INDEX, STAT_HWCOUNTERS, STAT_NAME, STAT_VALUE = 1, 3, 80, 82, 83
PORT = 1
NESTED = 0x8000
_ATTRIBUTE = struct.Struct("=HH")


def counters(device: str, namespace: str) -> dict[str, int]:
    """The counters of `device`, which is in `namespace`, by the kernel's names: sent_pkts, completer_retry_err, …

    Source: RDMA_NLDEV_CMD_STAT_GET in include/uapi/rdma/rdma_netlink.h; names in drivers/infiniband/sw/rxe.
    """
    with netns.entered(namespace), rdma.Rdma() as here:
        index = here.devices().get(device)
        if index is None:
            raise InputError(f"there is no RDMA device {device} in {namespace}")
        request = _attribute(DEV_INDEX, struct.pack("=I", index)) + _attribute(PORT_INDEX, struct.pack("=I", PORT))
        (answer,) = here.request(STAT_GET, request)
    found = {}
    for _, entry in _attributes(answer[STAT_HWCOUNTERS | NESTED]):
        fields = dict(_attributes(entry))
        found[fields[STAT_NAME].rstrip(b"\0").decode()] = int(struct.unpack("=Q", fields[STAT_VALUE])[0])
    return found


def _attribute(kind: int, value: bytes) -> bytes:
    return _ATTRIBUTE.pack(_ATTRIBUTE.size + len(value), kind) + value


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    while data:
        length, kind = _ATTRIBUTE.unpack_from(data)
        yield kind, data[_ATTRIBUTE.size : length]
        data = data[length + (-length % 4) :]
