"""What a lab that lives can be asked. The requests come over the wire of its machine, beside each other; reports of a
request that goes on come until it ends, or until the outside stops it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, NotRequired, TypeVar

from testbed.protocol import Event
from testbed.protocol.requests import Request, register

if TYPE_CHECKING:
    from typing import TypedDict
else:
    from typing_extensions import TypedDict  # typing's can be validated from Python 3.12 on

R_co = TypeVar("R_co", covariant=True)

WINDOW = 256 << 10
"""Bytes of a stream (`Exec`, `Capture`, `Logs`) that the other side has not taken yet: who writes more waits."""
SETTLE_S = 0.01
"""Virtual seconds that pass after the last request, for what it sent to arrive, before time stands still."""


class Terminal(TypedDict):
    """The terminal of the user's, of which a program gets one of the same kind."""

    kind: str
    """As TERM has it."""
    rows: int
    columns: int


class LinkRow(TypedDict):
    """An end of a link, or another interface of a node."""

    interface: str
    peer: str
    up: bool
    mac: str
    mtu: int
    addresses: list[str]
    rdma: str | None
    rdma_state: NotRequired[str]
    quality: dict[str, Any]
    """What the link does to what this end sends, where that is not the default: `Quality`."""


class NodeRow(TypedDict):
    """A node. `profile` is a switch's; `host` is the one that a pod runs on, `namespace` its Kubernetes namespace."""

    name: str
    kind: str
    interfaces: list[LinkRow]
    programs: int
    profile: NotRequired[str]
    host: NotRequired[str]
    namespace: NotRequired[str]


class FaultRow(TypedDict):
    """A fault that is in the lab now. `number` names it for its recovery."""

    number: int
    fault: str
    parameters: dict[str, Any]
    since_s: float


class LabState(TypedDict):
    """`now_s` is the time of the lab since it was made, in seconds."""

    name: str
    now_s: float
    nodes: list[NodeRow]
    faults: list[FaultRow]


class TableRow(TypedDict):
    """An entry of a switch's table: ARP, ND or FDB. Texts are empty where there is nothing."""

    table: Literal["arp", "nd", "fdb"]
    vlan: int
    ip: str
    mac: str
    port: str
    state: str
    age_s: float | None
    """Since it was confirmed; None of an FDB entry."""


class Written(TypedDict):
    """How an RDMA WRITE ended: the status of its completion, or the error of the connection."""

    status: str
    elapsed_s: float
    text: str


class LiveRequest(Request[R_co], Generic[R_co]):
    """Base of these requests."""

    touches: ClassVar[bool] = True
    """Whether it can change what happens in the lab; others only look."""
    waits: ClassVar[bool] = False
    """Whether it may wait for something in the lab; those come one after the other."""


class Exec(LiveRequest[int]):
    """Run a command on a node; the response is its exit status, 128 + N of a signal. Reports are `out` and `err`, both
    base64, and of input that comes later `took`: how many bytes of it were taken. With a `terminal` it gets a terminal
    of its own, and without `given` and `input` no input at all."""

    node: str
    command: list[str]
    terminal: Terminal | None = None
    given: str | None = None
    """All its input, in base64: on the virtual clock what comes later comes at a moment of the host's."""
    input: bool = False
    """Whether input will come, and its end."""
    detach: bool = False
    """Whether it goes on by itself: the response comes when it has started, its output is a file of the lab's."""


class Inspect(LiveRequest[LabState]):
    """What is in the lab now."""

    touches = False


class Tables(LiveRequest[list[TableRow]]):
    """The tables of a switch. With `follow` reports are the whole tables as `rows` whenever they changed."""

    touches = False
    switch: str
    follow: bool = False


class Events(LiveRequest[None]):
    """Reports are the lab's events, from the first or the last `last` ones on."""

    touches = False
    last: int | None = None
    follow: bool = False


class Logs(LiveRequest[None]):
    """What programs that run by themselves have written on a node, or on all. Reports are `out`, pieces in base64, with
    their `node` and `program`."""

    touches = False
    node: str = ""
    follow: bool = False


class Capture(LiveRequest[int]):
    """Record an interface until the outside stops it. Reports are `out`, a pcap file in base64; the response is the
    number of frames that the kernel could not keep."""

    touches = False
    end: str
    filter: str = ""
    count: int | None = None
    """Frames after which it ends by itself."""


class FaultInject(LiveRequest[FaultRow | None]):
    """Inject a fault now, or `after` seconds; take it back after it has lasted for `lasting`."""

    waits = True
    name: str
    parameters: Mapping[str, str] = field(default_factory=dict)
    after: float = 0.0
    lasting: float | None = None


class FaultRecover(LiveRequest[FaultRow]):
    """Take a fault back, by its number or its name."""

    waits = True
    fault: str


class LinkSet(LiveRequest[LinkRow]):
    """Change an end of a link: up or down, or the quality of what it sends."""

    waits = True
    end: str
    up: bool | None = None
    quality: Mapping[str, str] = field(default_factory=dict)
    """By the keys of a link in a topology file, as texts: ``{"rate": "100mbit"}``."""


class ProfileSet(LiveRequest[dict[str, Any]]):
    """Change values of a switch's profile, given as texts; the response is all of them."""

    switch: str
    values: Mapping[str, str]


class PodAdd(LiveRequest[NodeRow]):
    """Make a pod on a host, attached to networks: each the text of a conflist."""

    waits = True
    host: str
    pod: str
    networks: list[str]


class PodDelete(LiveRequest[None]):
    waits = True
    pod: str


class Announce(LiveRequest[None]):
    """Have an interface of a host or pod announce its address: a gratuitous ARP, an unsolicited NA."""

    end: str
    ip: str | None = None


class RdmaWrite(LiveRequest[Written]):
    """One RDMA WRITE over a new connection. `source` and `target` are hosts or pods, or their interfaces."""

    waits = True
    source: str
    target: str
    size: int = 4096
    family: Literal[4, 6] = 4
    timeout: int | None = None
    retries: int | None = None
    """Attributes of the queue pair; those of testbed's verbs endpoints by default."""


class Advance(LiveRequest[float]):
    """Let virtual time pass; the response is the time of the lab in seconds."""

    seconds: float


class Save(LiveRequest[str]):
    """The topology file of the lab as it is now."""

    touches = False


class Hold(LiveRequest[None]):
    """At a moment of a run: serve requests until `Continue`."""

    touches = False


class StopAt(LiveRequest[None]):
    """At a moment of a run: let the machine pause at this time too, in virtual nanoseconds of the run."""

    touches = False
    t: int


class Continue(LiveRequest[None]):
    """Let a run that was stopped go on."""

    touches = False


class Down(LiveRequest[None]):
    """Take the lab down, and end the machine's job."""


class Counted(TypedDict):
    """Of an end of a link since the lab was made: bytes and packets of the kernel, and what its qdisc dropped."""

    end: str
    rx_bytes: int
    tx_bytes: int
    rx_packets: int
    tx_packets: int
    dropped: int
    up: bool


class QueuePair(TypedDict):
    """A queue pair, as `rdma resource show qp` has it."""

    node: str
    device: str
    number: int
    state: str
    kind: str
    remote: int | None
    program: str


class Overview(TypedDict):
    now_s: float
    ports: list[Counted]
    tables: dict[str, dict[str, int]]
    """Entries of each switch by table."""
    queue_pairs: list[QueuePair]
    faults: list[FaultRow]
    events: list[Event]


class Top(LiveRequest[Overview]):
    """What a screen shows of the lab: counters, sizes of tables, queue pairs, the latest events. With `follow` reports
    are that as `overview`, at first and, on the virtual clock, whenever it has changed and the lab comes to rest."""

    touches = False
    events: int = 20
    follow: bool = False


class Measured(LabState):
    """What the metrics of a lab are made of."""

    counters: dict[str, dict[str, dict[str, dict[str, int]]]]
    """By node, then ``interfaces`` or ``rdma``, then the name of an interface or RDMA device: as in counters.json."""
    tables: dict[str, list[TableRow]]
    """By switch."""
    missing: list[str]
    """What could not be read."""


class Metrics(LiveRequest[Measured]):
    """The state of the lab with all counters and tables. With `follow`, on the virtual clock, reports are that as
    `measured` whenever the lab comes to rest."""

    touches = False
    follow: bool = False


register(*LiveRequest.__subclasses__())
