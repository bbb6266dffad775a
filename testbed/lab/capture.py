"""Packet captures by tcpdump that lose nothing at either end."""

from __future__ import annotations

import re
import signal
import time
from pathlib import Path

from testbed.errors import DeadlineError
from testbed.lab.processes import Process

START_S = 10.0
DRAIN_S = 10.0


class Capture:
    """Records an interface into `file` (pcap, nanoseconds) from when it is made until `stop`."""

    def __init__(self, node: str, namespace: str, interface: str, filter_: str, file: Path) -> None:
        self.file = file
        command = ["tcpdump", "-n", "-U", "--immediate-mode", "-B", "8192", "--time-stamp-precision=nano", "-i", interface]
        self._process = Process(node, namespace, [*command, "-w", str(file), *filter_.split()], file.with_suffix(".tcpdump.log"))
        self._process.wait_output("listening on", START_S)

    def stop(self) -> None:
        """Ends the capture when tcpdump has written all that the kernel gave it."""
        if not self._process.running:
            return
        deadline = time.monotonic() + DRAIN_S
        reports = 0
        while True:
            self._process.send(signal.SIGUSR1)
            reports += 1
            while len(found := re.findall(r"(\d+) packets? captured, (\d+) packets? received", self._process.output)) < reports:
                if time.monotonic() > deadline:
                    raise DeadlineError(f"{self._process} does not answer:\n{self._process.output}")
                time.sleep(0.001)
            captured, received = found[-1]
            if captured == received:
                break
        self._process.stop(signal.SIGINT)
