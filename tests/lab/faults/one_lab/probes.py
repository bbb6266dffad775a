"""Traffic of a test's own in the lab of the contracts, and what becomes of it: raw frames, in virtual milliseconds.

What a probe returns is the same before a fault and after it, and for traffic that a fault spares also while it lasts.
"""

import itertools
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, closing
from ipaddress import IPv4Address

from testbed.kernel.netlink import mac_bytes
from testbed.kernel.packet_socket import PacketSocket
from testbed.lab import HostInterface, Interface, Lab
from testbed.lab.port import pause_frame
from testbed.lab.processes import Process
from testbed.switch import frames, nd, packets
from testbed.switch.frames import BROADCAST, REPLY, Arp
from testbed.switch.nd import Nd
from testbed.topology import Family, IPAddress

ALL, EXPERIMENTAL, IPV4, IPV6 = 0x0003, 0x88B5, 0x0800, 0x86DD
OUTGOING = 4
ROOM = 1 << 20
VRRP = 112
SHORTLY = 0.05
LOSSLESS_DSCP, LOSSLESS = 26, 3
WRITE_ONLY, SEND_ONLY, CNP = 0x0A, 0x04, 0x81
FAKE_MACS = [f"02:00:00:00:99:{number:02x}" for number in range(8)]
_numbers = itertools.count(1)


def nic(lab: Lab, end: str) -> HostInterface:
    """`b` is `b:eth1`."""
    name, _, interface = end.partition(":")
    return lab.host(name)[interface or "eth1"]


def frame(to: str, source: str, ethertype: int, payload: bytes) -> bytes:
    return mac_bytes(to) + mac_bytes(source) + ethertype.to_bytes(2) + payload


def delivered(lab: Lab, sent: Iterable[tuple[Interface, bytes]], at: Interface, within: float = SHORTLY) -> list[bytes]:
    """Sends frames, and returns those that come in at `at` within so many seconds."""
    with ExitStack() as sockets:
        with at.node.entered():
            receiver = sockets.enter_context(closing(PacketSocket(ALL, ROOM)))
        senders: dict[str, PacketSocket] = {}
        for interface, data in sent:
            if str(interface) not in senders:
                with interface.node.entered():
                    senders[str(interface)] = sockets.enter_context(closing(PacketSocket(EXPERIMENTAL, ROOM)))
            senders[str(interface)].send(interface.name, data)
        lab.scheduler.sleep(within)
        return [data for name, to, data in receiver.frames() if name == at.name and to != OUTGOING]


def numbered(
    lab: Lab,
    source: str,
    to: str,
    *,
    size: int = 60,
    count: int = 10,
    mac: str = "",
    at: str = "",
    within: float = SHORTLY,
) -> list[int]:
    """The numbers of the frames that arrive, in their order: of `count` from one host to another one's MAC, of that
    size. `mac` and `at` replace the MAC and the place where they are looked for."""
    run = next(_numbers).to_bytes(4)
    near, far = nic(lab, source), nic(lab, at or to)
    head = mac_bytes(nic(lab, to).mac) + mac_bytes(near.mac) + EXPERIMENTAL.to_bytes(2) + run
    found = delivered(
        lab, [(near, (head + bytes([number])).ljust(size, b"\0")) for number in range(count)], far, within
    )
    return [data[18] for data in found if data[:18] == head]


def passes(lab: Lab, source: str, to: str, size: int = 60) -> bool:
    """Whether each of ten frames arrives once, and in order."""
    return numbered(lab, source, to, size=size) == list(range(10))


def intact(lab: Lab, source: str, to: str) -> bool:
    """Whether what arrives is what was sent."""
    run = next(_numbers).to_bytes(4)
    near, far = nic(lab, source), nic(lab, to)
    whole = frame(BROADCAST, near.mac, EXPERIMENTAL, run + bytes(1400))
    found = delivered(lab, [(near, whole)] * 10, far)
    return [data for data in found if data[6:12] == whole[6:12]] == [whole] * 10


def answers(lab: Lab, source: str, ip: IPAddress | str, within: float = 1.0) -> bool:
    return lab[source].ping(str(ip), within=within)


def address(lab: Lab, end: str, family: Family = 4) -> IPAddress:
    return nic(lab, end).address(family).ip


# ARP and ND


def owners(lab: Lab, asker: str, ip: IPAddress, within: float = SHORTLY) -> set[str]:
    """The MACs that answer when a host asks for an address."""
    near = nic(lab, asker)
    asked = packets.request(near.mac, near.address(ip.version).ip, ip)
    found = map(parsed, delivered(lab, [(near, packets.pack(BROADCAST, near.mac, asked))], near, within))
    return {one.sender_mac for one in found if one and one.op == REPLY and one.sender_ip == ip}


def parsed(data: bytes) -> Arp | Nd | None:
    if arp := frames.parse(data):
        return arp
    found = nd.parse(data)
    return found[1] if found else None


def heard(lab: Lab, source: str, at: str, family: Family = 4) -> set[str]:
    """Which of the ARP or ND packets of a host arrive at another: request, reply, announcement."""
    near, far = nic(lab, source), nic(lab, at)
    own, other = near.address(family).ip, far.address(family).ip
    reply: Arp | Nd
    if isinstance(own, IPv4Address) and isinstance(other, IPv4Address):
        reply = Arp(REPLY, near.mac, own, far.mac, other)
    else:
        assert own.version == other.version == 6
        reply = Nd(REPLY, near.mac, own, other, solicited=True)
    sent = {
        "request": packets.pack(BROADCAST, near.mac, packets.request(near.mac, own, other)),
        "reply": packets.pack(far.mac, near.mac, reply),
        "announcement": packets.gratuitous(near.mac, own),
    }
    found = delivered(lab, [(near, data) for data in sent.values()], far)
    return {name for name, data in sent.items() if data in found}


def advertised(lab: Lab, source: str, at: str, family: Family = 4) -> bool:
    """Whether a VRRP advertisement of a host arrives at another."""
    near, far = nic(lab, source), nic(lab, at)
    own, body = near.address(family).ip.packed, bytes(8)
    if family == 4:
        head = bytes([0x45, 0, 0, 20 + len(body), 0, 0, 0, 0, 255, VRRP, 0, 0]) + own + bytes([224, 0, 0, 18])
        data = frame("01:00:5e:00:00:12", near.mac, IPV4, head + body)
    else:
        head = bytes([0x60, 0, 0, 0, 0, len(body), VRRP, 255]) + own + bytes([0xFF, 2, *bytes(13), 0x12])
        data = frame("33:33:00:00:00:12", near.mac, IPV6, head + body)
    return data in delivered(lab, [(near, data)], far)


def synchronised(lab: Lab) -> bool:
    """Whether t2 soon has a MAC that t1, the other switch of its pair, has just learned."""
    mac = f"02:bb:00:00:00:{next(_numbers) & 255:02x}"
    nic(lab, "x").send(frame(BROADCAST, mac, EXPERIMENTAL, bytes(46)))
    return lab.scheduler.wait(lambda: mac in lab.switch("t2").fdb_table(), 0.5, pause=0.05)


def stormed(lab: Lab, source: str, at: str) -> bool:
    """Whether a host hears many requests of another in a short while."""
    mac = nic(lab, source).mac
    found = map(parsed, delivered(lab, [], nic(lab, at), 0.1))
    return sum(1 for one in found if one and one.op != REPLY and one.sender_mac == mac) > 10


def remembered(lab: Lab, *, burst: int = 8) -> int:
    """How many of eight new neighbours that ask `leaf` by ARP are in its table then."""
    leaf, near = lab.switch("leaf"), nic(lab, "c")
    ips = [IPv4Address(f"10.0.20.{100 + number}") for number in range(burst)]
    asked = [packets.request(mac, ip, IPv4Address("10.0.20.1")) for mac, ip in zip(FAKE_MACS, ips, strict=False)]
    sent = [(near, packets.pack(BROADCAST, one.sender_mac, one)) for one in asked]
    delivered(lab, sent, near, 0.2)
    table = leaf.arp_table()
    for ip in ips:
        leaf.clear_arp(ip=ip)
    for mac in FAKE_MACS:
        leaf.clear_fdb(mac=mac)
    lab.scheduler.sleep(1)
    return sum(str(ip) in table for ip in ips)


def learned(lab: Lab, after: float = 0.0) -> int:
    """How many of eight MACs that are heard on a port `leaf` knows some time later."""
    leaf = lab.switch("leaf")
    for mac in FAKE_MACS:
        nic(lab, "c").teach(mac)
    lab.scheduler.sleep(SHORTLY + after)
    table = leaf.fdb_table()
    for mac in FAKE_MACS:
        leaf.clear_fdb(mac=mac)
    return sum(mac in table for mac in FAKE_MACS)


def keeps_neighbour(lab: Lab, seconds: float) -> bool:
    """Whether `leaf` knows a neighbour after so many seconds in which it is away, and does not ask for it."""
    leaf, ip = lab.switch("leaf"), IPv4Address("10.0.20.100")
    asked = packets.request(FAKE_MACS[0], ip, IPv4Address("10.0.20.1"))
    delivered(lab, [(nic(lab, "c"), packets.pack(BROADCAST, FAKE_MACS[0], asked))], nic(lab, "c"))
    lab.scheduler.sleep(seconds)
    kept = leaf.neighbour(ip) is not None
    leaf.clear_arp(ip=ip)
    return kept


# RoCE


def roce(
    source: HostInterface,
    to: HostInterface,
    psn: int,
    *,
    family: Family = 4,
    dscp: int = 0,
    ect: bool = False,
    opcode: int | None = None,
    size: int = 20,
) -> bytes:
    """A RoCE packet as no queue pair waits for: WRITE_ONLY with an even PSN and SEND_ONLY with an odd one, for queue
    pair 17 up to PSN 4 and 18 from there on; of other numbers in other classes, for a queue pair stays in its own."""
    code = opcode if opcode is not None else SEND_ONLY if psn % 2 else WRITE_ONLY
    bth = bytes([code, 0, 0xFF, 0xFF]) + (dscp << 8 | (17 if psn < 5 else 18)).to_bytes(4) + psn.to_bytes(4)
    udp = (49152).to_bytes(2) + (4791).to_bytes(2) + (8 + len(bth) + size + 4).to_bytes(2) + bytes(2)
    payload = udp + bth + next(_numbers).to_bytes(4) + bytes(size)
    tos, ends = dscp << 2 | 2 * ect, source.address(family).ip.packed + to.address(family).ip.packed
    if family == 4:
        head = bytes([0x45, tos]) + (20 + len(payload)).to_bytes(2) + bytes(4) + bytes([64, 17, 0, 0])
        return frame(to.mac, source.mac, IPV4, head + ends + payload)
    head = (6 << 28 | tos << 20).to_bytes(4) + len(payload).to_bytes(2) + bytes([17, 64])
    return frame(to.mac, source.mac, IPV6, head + ends + payload)


def roce_marks(lab: Lab, source: str, to: str, family: Family = 4) -> list[str]:
    """Of ten RoCE packets, PSN 0 to 9, what arrives, in that order: `7`, `7 CE`, `7 damaged`."""
    near, far = nic(lab, source), nic(lab, to)
    sent = [roce(near, far, psn, family=family, ect=True) for psn in range(10)]
    arrived = delivered(lab, [(near, data) for data in sent], far)
    bth = 14 + (20 if family == 4 else 40) + 8
    found = []
    for data in arrived:
        if data[12:14] == sent[0][12:14] and data[bth - 6 : bth - 4] == (4791).to_bytes(2):
            psn = int.from_bytes(data[bth + 9 : bth + 12])
            ce = data[15] & 3 == 3 if family == 4 else data[15] >> 4 & 3 == 3
            found.append(f"{psn}{' CE' * ce}{' damaged' * (data[bth:] != sent[psn][bth:])}")
    return found


# Lossless links: `bridge` with `p` and `q`, which send to each other at 20 Mbit/s, and `d`, which has no rate


def classed(
    lab: Lab,
    source: str,
    to: str,
    dscp: int = LOSSLESS_DSCP,
    *,
    opcode: int | None = None,
    count: int = 5,
    size: int = 1000,
    ect: bool = False,
    within: float = SHORTLY,
) -> list[bytes]:
    """What arrives of RoCE packets of a DSCP."""
    near, far = nic(lab, source), nic(lab, to)
    sent = [roce(near, far, psn % 10, dscp=dscp, opcode=opcode, size=size, ect=ect, family=4) for psn in range(count)]
    wanted = {data[42:] for data in sent}
    return [data for data in delivered(lab, [(near, data) for data in sent], far, within) if data[42:] in wanted]


def arrive(lab: Lab, source: str, to: str, dscp: int = LOSSLESS_DSCP, opcode: int | None = None) -> int:
    """How many of five packets do."""
    return len(classed(lab, source, to, dscp, opcode=opcode))


def marked(lab: Lab, source: str, to: str) -> bool:
    """Whether a burst that waits in the switch is marked CE."""
    return any(data[15] & 3 == 3 for data in classed(lab, source, to, count=40, ect=True, within=0.2))


def stops(lab: Lab, host: str, port: str, to: str) -> bool:
    """Whether a host stops sending when its switch pauses it."""
    at = lab["bridge"][port]
    delivered(lab, [(at, pause_frame(at.mac, LOSSLESS))], nic(lab, host), 0.01)
    arrived = arrive(lab, host, to)
    delivered(lab, [(at, pause_frame(at.mac, LOSSLESS, 0))], nic(lab, host), SHORTLY)
    return arrived == 0


def pauses(lab: Lab, host: str, source: str) -> bool:
    """Whether a NIC pauses its switch when a burst comes in."""

    def sent() -> int:
        return nic(lab, host).lossless.counters()[f"tx_prio{LOSSLESS}_pause"]

    before = sent()
    classed(lab, source, host, count=40, within=1.0)
    return sent() > before


def held_up(lab: Lab, source: str, to: str, port: str) -> tuple[bool, bool, int]:
    """A host sends 400 kB to one that pauses the switch: whether the switch pauses it in turn, whether all arrives when
    the other lets go, and the KiB that the switch held at most."""
    near, far, bridge = nic(lab, source), nic(lab, to), lab["bridge"]
    before = near.lossless.counters()[f"rx_prio{LOSSLESS}_pause"]
    delivered(lab, [(far, pause_frame(far.mac, LOSSLESS))], far, 0.001)
    sent = [(near, roce(near, far, psn % 10, dscp=LOSSLESS_DSCP, size=1000, family=4)) for psn in range(400)]
    delivered(lab, sent, far, 0.4)
    group = bridge[port].lossless.group(LOSSLESS)
    held = (group.reserve + group.shared + group.headroom) // 1024
    arrived = delivered(lab, [(far, pause_frame(far.mac, LOSSLESS, 0))], far, 0.5)
    wanted = {data[42:] for _, data in sent}
    paused = near.lossless.counters()[f"rx_prio{LOSSLESS}_pause"] > before
    return paused, len({data[42:] for data in arrived} & wanted) == len(sent), held


def classes(lab: Lab, source: str, to: str, port: str) -> list[int]:
    """The priorities in which a switch sends the packets of the lossless DSCP."""

    def sent() -> list[int]:
        return [lab["bridge"][port].lossless.queue(priority).sent_packets for priority in range(8)]

    before = sent()
    arrive(lab, source, to)
    return [number for number, (now, then) in enumerate(zip(sent(), before, strict=True)) if now - then >= 5]


# Traffic of faults


def arriving(lab: Lab, ends: Sequence[str], span: float) -> list[bool]:
    """At which of these ends of links more than 20 kB come in within so many seconds."""
    before = [lab.interface(end).counters()["rx_bytes"] for end in ends]
    lab.scheduler.sleep(span)
    return [lab.interface(end).counters()["rx_bytes"] - then > 20_000 for end, then in zip(ends, before, strict=True)]


_ranks: dict[str, list[Process]] = {}
TIMES = 3
"""A probe asks before, during and after a fault."""


def rank_runs(lab: Lab, host: str, number: int) -> bool:
    """Whether a rank that was started before still runs. After the fault another one is started, as with its job."""
    asked = _ranks.setdefault(host, [])
    if len(asked) in (0, TIMES - 1) and not (asked and asked[-1].running):
        asked.append(lab.host(host).launch("env", f"RANK={number}", "sleep", "infinity"))
    else:
        asked.append(asked[-1])
    runs = asked[-1].running
    if len(asked) == TIMES:
        _ranks.pop(host)[-1].stop()
    return runs
