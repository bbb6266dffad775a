from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from lab_traffic import CLIENT, SERVER, SWITCH, ZERO, pcap, row
from pcapng_reader import Read, Written, read

from testbed.protocol import Event, Made
from testbed.records import merged_captures


@pytest.fixture
def made() -> Made:
    rows: Any = [
        row("leaf", "e1", "02:00:01:00:00:01", "client:eth1"),
        row("leaf", "e2", "02:00:01:00:00:02", "server:eth1"),
        row("leaf", "vlan20", SWITCH),
        row("client", "eth1", CLIENT, "leaf:e1"),
        row("server", "eth1", SERVER, "leaf:e2"),
    ]
    epoch: Any = {"realtime_ns": ZERO, "monotonic_ns": 0, "kernel_ns": None}
    return {"parameters": {}, "topology": {"name": "pair", "interfaces": rows}, "epoch": epoch}


@pytest.fixture
def written(tmp_path: Path, made: Made) -> Written:
    """Write captures and have them merged."""

    def write(events: Sequence[Event] = (), **captures: Sequence[tuple[int, bytes]]) -> Read:
        for name, found in captures.items():
            pcap(tmp_path / f"{name.replace('_', '-')}.pcap", found)
        merged_captures.write(tmp_path, made, events)
        return read(tmp_path / "packets.pcapng")

    return write
