"""Tools that run programs on nodes of a lab: commands and captures. Their docstrings are what the model reads."""

from __future__ import annotations

import base64
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, NotRequired, Self, final

from pydantic import Field
from typing_extensions import TypedDict

from testbed.cli.mcp.bounds import RESULT, ROWS, Ends
from testbed.cli.mcp.lab_calls import LabCalls
from testbed.cli.mcp.reading_tools import LeftOut
from testbed.machine.live.connection import Connection, Streams
from testbed.protocol import live
from testbed.protocol.live import Exec, RdmaWrite
from testbed.records.frame_decoder import decode
from testbed.records.pcap import Packet, Pcap
from testbed.report.described import describe
from testbed.report.packet_rows import text

LIMIT_S = 30.0
MOST_S = 3600.0
MOST_INPUT = 1 << 20
"""Characters of a program's input."""

Words = Annotated[list[str], Field(min_length=1)]
Command = Annotated[
    Words | str, Field(description='Words of a command, ["ip", "neigh"], or a line for sh: "ip neigh | wc -l".')
]
Limit = Annotated[float, Field(gt=0, le=MOST_S, description="Seconds of the lab after which the command is ended.")]
Interface = Annotated[str, Field(description="An interface as inspect names it: leaf1:e1, host1:eth1.")]
Filter = Annotated[str, Field(description='pcap-filter(7), such as "arp or udp port 4791" (RoCE). Empty: all.')]
Frames = Annotated[int, Field(ge=1, le=ROWS, description="End after so many frames.")]


class Ran(TypedDict):
    """`status` is the exit status, 128 + N of a signal; `late` is true if the limit ended it."""

    status: int
    late: bool
    stdout: str
    stderr: str


def exec_(
    lab: LabCalls,
    node: Annotated[str, Field(description="Name of a host, pod or switch.")],
    command: Command,
    timeout_s: Limit = LIMIT_S,
    stdin: Annotated[str, Field(max_length=MOST_INPUT, description="Input of the command.")] = "",
) -> Ran:
    """Run a command on a node to its end, as root: ip, ping, ethtool, rdma, ss, bridge, vtysh, perftest. Long output
    loses its middle: filter it there. On the virtual clock the lab's time passes meanwhile. Example: node="host1",
    command=["ip", "neigh"]."""
    given = base64.b64encode(stdin.encode()).decode() if stdin else None
    request = Exec(node=node, command=words(command), given=given, limit_s=timeout_s)
    with lab.connected() as connection:
        return ran(connection, request)


def words(command: list[str] | str) -> list[str]:
    return ["sh", "-c", command] if isinstance(command, str) else command


def ran(connection: Connection, request: Exec) -> Ran:
    outputs = {"out": Ends(RESULT // 8), "err": Ends(RESULT // 8)}
    late = False

    def receive(report: dict[str, Any]) -> None:
        nonlocal late
        late |= "late" in report
        streams.receive(report)

    streams = Streams(connection, lambda name, data: outputs[name].write(data))
    streams.number = connection.ask(request, receive)
    status = int(connection.end(streams.number))
    return {"status": status, "late": late, "stdout": outputs["out"].text(), "stderr": outputs["err"].text()}


@final
class DuringExec(TypedDict):
    """A command on a node, for 30 seconds of the lab at most."""

    node: str
    command: Command


@final
class DuringWrite(TypedDict):
    """One RDMA WRITE, as of rdma_write."""

    source: str
    target: str
    silent: NotRequired[bool]


class FrameRow(TypedDict):
    """A frame. `t_us` is the time since the first one, `kind` arp, nd, roce, cnp, pause, tcp, icmp, udp or other; RoCE
    has the destination queue pair and the PSN in its text."""

    t_us: float
    src_mac: str
    dst_mac: str
    src: str
    dst: str
    kind: str
    text: str
    length: int


class Captured(TypedDict):
    """`missed` frames passed while others were written. `result` is that of `during`."""

    frames: list[FrameRow]
    missed: int
    result: dict[str, Any]
    left_out: LeftOut


class Recording:
    """A capture of an interface, from its begin on; a context manager."""

    def __init__(self, connection: Connection, end: str, filter_: str, packets: int) -> None:
        self._connection = connection
        self._request = live.Capture(end=end, filter=filter_, count=packets)
        self._file = tempfile.NamedTemporaryFile(prefix="testbed-")  # noqa: SIM115 (it stays open)
        self._begun = False
        self._number = 0

    def __enter__(self) -> Self:
        try:
            self._begin()
        except BaseException:
            self._file.close()
            raise
        return self

    def _begin(self) -> None:
        streams = Streams(self._connection, self._write)
        self._number = streams.number = self._connection.ask(self._request, streams.receive)
        while not (self._begun or self._connection.done(self._number)):
            self._connection.receive()
        if not self._begun:
            self._connection.end(self._number)  # raise why not

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def _write(self, _: str, data: bytes) -> None:
        self._begun = True
        self._file.write(data)

    def wait(self, seconds: float) -> None:
        """Wait for so many wall seconds, or until it has all its frames."""
        deadline = time.monotonic() + seconds
        while not self._connection.done(self._number) and (left := deadline - time.monotonic()) > 0:
            self._connection.receive(left)

    def finish(self, result: dict[str, Any]) -> Captured:
        """End it. Return the frames, and the result of what ran meanwhile."""
        if not self._connection.done(self._number):
            self._connection.send({"id": self._number, "stop": True})
        missed = int(self._connection.end(self._number))
        self._file.flush()
        found = Pcap.open(Path(self._file.name))
        rows = list(frame_rows(found.packets() if found else ()))
        return {"frames": rows, "missed": missed, "result": result, "left_out": 0}


def frame_rows(packets: Iterable[Packet]) -> Iterator[FrameRow]:
    began = None
    for packet in packets:
        began = packet.t_ns if began is None else began
        found = describe(decode(packet.data))
        yield {
            "t_us": (packet.t_ns - began) / 1000,
            "src_mac": found.src,
            "dst_mac": found.dst,
            "src": found.source,
            "dst": found.target,
            "kind": found.kind,
            "text": text(found, found),
            "length": packet.length,
        }


def capture(
    lab: LabCalls,
    end: Interface,
    filter: Filter = "",
    packets: Frames = 50,
    seconds: Annotated[
        float, Field(ge=0, le=MOST_S, description="Seconds of the lab to capture for, after the end of `during`.")
    ] = 1.0,
    during: Annotated[
        DuringExec | DuringWrite | None,
        Field(description="Traffic to capture: a command, or an RDMA WRITE. Without it only time passes."),
    ] = None,
) -> Captured:
    """Capture frames of an interface, with traffic of yours or of others. Example: end="leaf1:e1",
    filter="udp port 4791", during={"source": "host3", "target": "host1"}."""
    with lab.connected() as connection, Recording(connection, end, filter, packets) as recording:
        result = carried_out(connection, during) if during else {}
        if lab.virtual:
            connection.end(connection.ask(live.Advance(seconds=seconds)))
        else:
            recording.wait(seconds)
        return recording.finish(result)


def carried_out(connection: Connection, during: DuringExec | DuringWrite) -> dict[str, Any]:
    if "node" in during:
        return {**ran(connection, Exec(node=during["node"], command=words(during["command"]), limit_s=LIMIT_S))}
    silent = during.get("silent", False)
    return {**connection.answer(RdmaWrite(source=during["source"], target=during["target"], silent=silent))}


def watch(
    lab: LabCalls,
    end: Interface,
    filter: Filter = "",
    packets: Frames = 50,
    seconds: Annotated[float, Field(ge=0, le=60, description="Seconds of the wall clock to capture for.")] = 5.0,
) -> Captured:
    """Capture frames of an interface. In a lab on the virtual clock they pass only while somebody else uses it."""
    with lab.connected() as connection, Recording(connection, end, filter, packets) as recording:
        recording.wait(seconds)
        return recording.finish({})
