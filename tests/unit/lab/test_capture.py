"""Frames of a capture file."""

import struct
from pathlib import Path

from testbed.lab.capture import Capture, put_in_order

SERVER, OTHER = "02:00:00:00:00:02", "02:00:00:00:00:03"


class Recorded(Capture):
    """A capture of frames that a test gives, which has been stopped."""

    def __init__(self, file: Path, *frames: bytes) -> None:
        self.file = file
        self._stopped = True
        records = [
            struct.pack("=IIII", 1, number, len(frame), len(frame)) + frame for number, frame in enumerate(frames)
        ]
        file.write_bytes(bytes(24) + b"".join(records))


def frame(to: str, port: int) -> bytes:
    """A UDP packet over IPv4 without options."""
    ip = b"\x45" + bytes(8) + b"\x11" + bytes(10)
    udp = bytes(2) + port.to_bytes(2) + bytes(4)
    return bytes.fromhex(to.replace(":", "")) + bytes(6) + b"\x08\x00" + ip + udp


def test_roce_frames_are_told_from_others_and_by_their_destination(tmp_path: Path) -> None:
    sent = [frame(SERVER, 4791), frame(SERVER, 4792), frame(OTHER, 4791)]
    capture = Recorded(tmp_path / "leaf-e1.pcap", *sent)
    assert [found.data for found in capture.frames()] == sent
    assert [found.data for found in capture.roce()] == [sent[0], sent[2]]
    assert [found.data for found in capture.roce(to=OTHER)] == [sent[2]]
    assert capture.roce(to="02:00:00:00:00:04") == []


def test_frames_are_put_in_order_of_time_and_those_of_one_time_stay(tmp_path: Path) -> None:
    """A frame went out while one that came in was on its way to the capture; the end is torn."""
    file = tmp_path / "leaf-e1.pcap"
    times = [(1, 500), (1, 700), (1, 600), (0, 999_999_999), (1, 600)]
    records = [struct.pack("=IIII", *time, 1, 1) + bytes([number]) for number, time in enumerate(times)]
    file.write_bytes(b"H" * 24 + b"".join(records) + b"torn")
    put_in_order(file)
    assert file.read_bytes() == b"H" * 24 + b"".join(records[number] for number in (3, 0, 2, 4, 1))
    put_in_order(file)
    assert file.read_bytes()[24 + 16] == 3
