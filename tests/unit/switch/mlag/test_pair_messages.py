"""The messages of a pair: what is packed is what is read."""

from ipaddress import ip_address

from testbed.switch.mlag.messages import (
    HELLO,
    LONGEST,
    SYNC,
    Channel,
    Hello,
    Mac,
    Neighbour,
    Record,
    Sync,
    pack_hello,
    pack_records,
    pack_sync,
    unpack,
    unpack_records,
)

MAC = "02:00:00:00:00:07"
RECORDS: list[Record] = [
    Channel(7, up=True),
    Mac(10, MAC, 7, present=True),
    Mac(4094, MAC, 0, present=False),
    Neighbour(10, ip_address("10.0.10.7"), MAC),
    Neighbour(20, ip_address("2001:db8::7"), MAC),
]


def test_a_hello_is_read_as_it_was_packed() -> None:
    hello = Hello("44:38:39:be:ef:aa", 3, 1234, 77, 9, 1 << 31)
    assert unpack(pack_hello(hello)) == hello
    assert pack_hello(hello)[0] == HELLO


def test_records_are_read_as_they_were_packed_and_padding_is_none() -> None:
    (body,) = pack_records(RECORDS)
    frame = pack_sync(Sync(5, 6, body))
    assert frame[0] == SYNC
    read = unpack(frame + bytes(20))
    assert isinstance(read, Sync)
    assert (read.session, read.sequence, [*unpack_records(read.records)]) == (5, 6, RECORDS)


def test_many_records_are_several_frames() -> None:
    many = [Mac(10, f"02:00:00:00:{number >> 8:02x}:{number & 255:02x}", 1, present=True) for number in range(1000)]
    bodies = [*pack_records(many)]
    assert max(map(len, bodies)) <= LONGEST
    assert [record for body in bodies for record in unpack_records(body)] == many


def test_another_protocols_frame_is_none() -> None:
    assert unpack(b"") is None
    assert unpack(bytes([7]) * 60) is None
