"""The qdiscs of a node as the kernel dumps them to any program (RTM_GETQDISC), without tc: the numbers of netem."""

import socket
import struct

RTM_GETQDISC, DUMP, DONE = 38, 0x301, 3
KIND, OPTIONS, CORRUPT = 1, 2, 4
HEADER, TC_MESSAGE, NETEM = 16, 20, struct.Struct("=IIIIII")


def attributes(data):
    while len(data) >= 4:
        length, kind = struct.unpack_from("=HH", data)
        yield kind & 0x7FFF, data[4:length]
        data = data[-(-length // 4) * 4 :]


def messages(data):
    while len(data) >= HEADER:
        length, kind = struct.unpack_from("=IH", data)
        yield kind, data[HEADER:length]
        data = data[-(-length // 4) * 4 :]


link = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
link.send(struct.pack("=IHHII", HEADER + TC_MESSAGE, RTM_GETQDISC, DUMP, 1, 0) + bytes(TC_MESSAGE))
more = True
while more:
    for kind, body in messages(link.recv(1 << 20)):
        more = more and kind != DONE
        found = dict(attributes(body[TC_MESSAGE:]))
        if found.get(KIND) == b"netem\0":
            _, _, loss, _, duplicate, jitter = NETEM.unpack_from(found[OPTIONS])
            corrupt = int.from_bytes(dict(attributes(found[OPTIONS][NETEM.size :])).get(CORRUPT, b"")[:4], "little")
            print(f"netem loss {loss} corrupt {corrupt} duplicate {duplicate} jitter {jitter}")
