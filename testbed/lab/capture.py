"""Packet captures by tcpdump that lose nothing at either end."""

import re
import signal
import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.errors import DeadlineError, TestbedError
from testbed.lab.processes import Process

BUFFER_KIB = "16384"
HAND_OVER_S = 1.1
"""Seconds: tcpdump's buffer is handed over when a block is full or a second old."""
START_S = 10.0
DRAIN_S = 10.0
ROCE_PORT = 4791
_REPORT = re.compile(r"(\d+) packets? captured, (\d+) packets? received by filter, (\d+) packets? dropped by kernel")
_HEADER = 24
"""Bytes of a pcap file before its records."""
_RECORD = struct.Struct("=IIII")  # seconds, nanoseconds, bytes here, bytes on the wire


@dataclass(frozen=True, slots=True)
class Frame:
    """A captured Ethernet frame; `t_ns` is CLOCK_REALTIME."""

    t_ns: int
    data: bytes

    @property
    def dst(self) -> str:
        return self.data[:6].hex(":")

    @property
    def src(self) -> str:
        return self.data[6:12].hex(":")

    @property
    def packet(self) -> Any:
        """Return it as a packet of scapy's, an `Ether`, with the layers of `scapy.contrib.roce` behind UDP: BTH,
        AETH."""
        from scapy.contrib import roce  # noqa: F401  # takes a while; its import binds the layers to the port
        from scapy.layers.l2 import Ether

        return Ether(self.data)

    @property
    def roce(self) -> bool:
        """Return whether it is untagged RoCE v2: UDP port 4791 over IPv4 without options or IPv6 without extensions."""
        udp, port = 17, ROCE_PORT.to_bytes(2)
        if self.data[12:14] == b"\x86\xdd":
            return self.data[20] == udp and self.data[56:58] == port
        ipv4 = b"\x08\x00\x45"  # version 4, five words of header: no options
        return self.data[12:15] == ipv4 and self.data[23] == udp and self.data[36:38] == port


class Capture:
    """A recording of an interface into `file` (pcap, nanoseconds) from when it is made until `stop`."""

    def __init__(
        self, node: str, namespace: str, interface: str, filter_: str, file: Path, complete: Callable[[int], None]
    ) -> None:
        """`complete` gets the CLOCK_MONOTONIC time in ns up to which the file has all frames, once they are in it."""
        self.file = file
        self._complete = complete
        options = ["-n", "-U", "-B", BUFFER_KIB, "--time-stamp-precision=nano", "-i", interface, "-w", str(file)]
        log = file.with_suffix(".tcpdump.log")
        self._process = Process(node, namespace, ["tcpdump", *options, *filter_.split()], log)
        self._process.wait_output("listening on", START_S)
        self._stopped = False

    def stop(self) -> None:
        """End the capture when tcpdump has written all that the kernel gave it; TestbedError if frames were lost."""
        if self._stopped:
            return
        self._stopped = True
        until = time.monotonic_ns()
        if (status := self._process.status) is not None:
            raise TestbedError(f"{self._process}: ended too early with status {status}:\n{self._process.output}")
        deadline = time.monotonic() + DRAIN_S
        captured, received, dropped = before = self._report(deadline)
        while captured + dropped < received:  # the rest is in a block that the kernel hands over within a second
            time.sleep(HAND_OVER_S)
            captured, received, dropped = self._report(deadline)
            if (captured, received, dropped) == before:
                break  # what is missing was counted and not for us: libpcap discards some frames itself
            before = captured, received, dropped
        self._process.stop(signal.SIGINT)
        put_in_order(self.file)
        if dropped:
            raise TestbedError(f"{self._process}: {dropped} frames were lost", hint="Narrow the capture with a filter.")
        self._complete(until)

    def _report(self, deadline: float) -> tuple[int, int, int]:
        """Return tcpdump's own counts: packets captured, received by its filter (the dropped ones too), dropped."""
        asked = len(_REPORT.findall(self._process.output))
        self._process.send(signal.SIGUSR1)
        while len(found := _REPORT.findall(self._process.output)) == asked:
            if time.monotonic() > deadline:
                raise DeadlineError(f"{self._process} did not write all captured frames within {DRAIN_S:g} s")
            time.sleep(0.001)
        captured, received, dropped = found[-1]
        return int(captured), int(received), int(dropped)

    def frames(self) -> Iterator[Frame]:
        """Yield the frames that were captured. Stop the capture."""
        self.stop()
        for t_ns, record in _records(self.file.read_bytes()):
            yield Frame(t_ns, record[_RECORD.size :])

    def roce(self, to: str | None = None) -> list[Frame]:
        """Return the captured RoCE frames: all, or those to a MAC."""
        return [frame for frame in self.frames() if frame.roce and to in (None, frame.dst)]


def _records(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = _HEADER
    while at + _RECORD.size <= len(data):
        seconds, nanoseconds, length, _ = _RECORD.unpack_from(data, at)
        after = at + _RECORD.size + length
        yield seconds * 10**9 + nanoseconds, data[at:after]
        at = after


def put_in_order(file: Path) -> None:
    """Order the frames of a pcap file by their times, and those of one time as they are.

    The kernel takes the time of a frame that comes in when it gets it, and hands it to a capture some microseconds
    later: a frame that goes out meanwhile is before it in the file.
    """
    data = file.read_bytes()
    records = list(_records(data))
    ordered = sorted(records, key=lambda record: record[0])
    if ordered != records:
        file.write_bytes(data[:_HEADER] + b"".join(record for _, record in ordered))
