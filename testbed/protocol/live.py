"""Requests to a lab that lives. They come over the wire of its machine, beside each other; reports of a request that
goes on come until it ends, or until the outside stops it."""

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
    """Values of `Quality` for frames that this end sends, where they are not the default."""


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
    """Base of these requests, whose properties are keywords of their classes."""

    handler: ClassVar[str]
    """The function that serves it: a module of executor/live and its name there. It takes the request and a `Call`, and
    returns the response, or a `Task` that will give it. None of a request that the server serves itself."""
    touches: ClassVar[bool]
    """It can change the lab; others only look."""
    waits: ClassVar[bool]
    """It may wait for something in the lab; such requests come one after the other."""

    def __init_subclass__(cls, *, handler: str = "", touches: bool = True, waits: bool = False) -> None:
        super().__init_subclass__()
        cls.handler, cls.touches, cls.waits = handler, touches, waits


class Exec(LiveRequest[int], handler="node_programs:run"):
    """Run a command on a node; the response is its exit status, 128 + N of a signal. Reports are `out` and `err`, both
    base64, and of input that comes later `took`: how many bytes of it were taken. With a `terminal` it gets a terminal
    of its own, and without `given` and `input` no input at all."""

    node: str
    command: list[str]
    terminal: Terminal | None = None
    given: str | None = None
    """All its input, in base64: on the virtual clock what comes later comes at a moment of the host's."""
    input: bool = False
    """Input will come, and its end."""
    detach: bool = False
    """It goes on by itself: the response comes when it has started, its output is a file of the lab's."""


class Inspect(LiveRequest[LabState], handler="inspecting:inspect", touches=False):
    """Describe the lab as it is now."""


class Tables(LiveRequest[list[TableRow]], handler="inspecting:tables", touches=False):
    """Read the tables of a switch. With `follow` reports are the whole tables as `rows` whenever they changed."""

    switch: str
    follow: bool = False


class Events(LiveRequest[None], handler="inspecting:events", touches=False):
    """Read the events: reports have them, from the first or the last `last` ones on."""

    last: int | None = None
    follow: bool = False


class Logs(LiveRequest[None], handler="log_files:logs", touches=False):
    """Read the output of programs that run by themselves on a node, or on all. Reports are `out`, pieces in base64,
    with their `node` and `program`."""

    node: str = ""
    follow: bool = False


class Capture(LiveRequest[int], handler="node_programs:capture", touches=False):
    """Record an interface until the outside stops it. Reports are `out`, a pcap file in base64; the response is the
    number of frames that the kernel could not keep."""

    end: str
    filter: str = ""
    count: int | None = None
    """Frames after which it ends by itself."""


class FaultInject(LiveRequest[FaultRow | None], handler="changing:inject", waits=True):
    """Inject a fault now, or `after` seconds; take it back after it has lasted for `lasting`."""

    name: str
    parameters: Mapping[str, str] = field(default_factory=dict)
    after: float = 0.0
    lasting: float | None = None


class FaultRecover(LiveRequest[FaultRow], handler="changing:recover", waits=True):
    """Take a fault back, by its number or its name."""

    fault: str


class LinkSet(LiveRequest[LinkRow], handler="changing:set_link", waits=True):
    """Change an end of a link: up or down, or the quality of what it sends."""

    end: str
    up: bool | None = None
    quality: Mapping[str, str] = field(default_factory=dict)
    """Keys of a link in a topology file with their values as texts: ``{"rate": "100mbit"}``."""


class ProfileSet(LiveRequest[dict[str, Any]], handler="changing:set_profile"):
    """Change values of a switch's profile, given as texts; the response is all of them."""

    switch: str
    values: Mapping[str, str]


class PodAdd(LiveRequest[NodeRow], handler="changing:add_pod", waits=True):
    """Make a pod on a host, attached to networks: each the text of a conflist."""

    host: str
    pod: str
    networks: list[str]


class PodDelete(LiveRequest[None], handler="changing:delete_pod", waits=True):
    pod: str


class Announce(LiveRequest[None], handler="changing:announce"):
    """Have an interface of a host or pod announce its address: a gratuitous ARP, an unsolicited NA."""

    end: str
    ip: str | None = None


class RdmaWrite(LiveRequest[Written], handler="changing:write", waits=True):
    """Send one RDMA WRITE over a new connection. `source` and `target` are hosts or pods, or their interfaces."""

    source: str
    target: str
    size: int = 4096
    family: Literal[4, 6] = 4
    timeout: int | None = None
    retries: int | None = None
    """Attributes of the queue pair; those of testbed's verbs endpoints by default."""


class Advance(LiveRequest[float], handler="changing:advance"):
    """Let virtual time pass; the response is the time of the lab in seconds."""

    seconds: float


class Save(LiveRequest[str], handler="inspecting:save", touches=False):
    """Write the topology file of the lab as it is now."""


class Hold(LiveRequest[None], touches=False):
    """At a moment of a run: serve requests until `Continue`."""


class StopAt(LiveRequest[None], touches=False):
    """At a moment of a run: let the machine pause at this time too, in virtual nanoseconds of the run."""

    t: int


class Continue(LiveRequest[None], touches=False):
    """Let a run that was stopped go on."""


class Down(LiveRequest[None]):
    """Take the lab down, and end the machine's job."""


class Counted(TypedDict):
    """Counters of an end of a link since the lab was made: the kernel's, and `dropped` with those of its qdisc."""

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


class Top(LiveRequest[Overview], handler="inspecting:top", touches=False):
    """Read the overview of a screen: counters, sizes of tables, queue pairs, the latest events. With `follow` reports
    are that as `overview`, at first and, on the virtual clock, whenever it has changed and the lab comes to rest."""

    events: int = 20
    follow: bool = False


class Measured(LabState):
    """A measurement of a lab, from which its metrics are made."""

    counters: dict[str, dict[str, dict[str, dict[str, int]]]]
    """Counters by node, then ``interfaces`` or ``rdma``, then interface or RDMA device: as in counters.json."""
    tables: dict[str, list[TableRow]]
    """Entries by switch."""
    missing: list[str]
    """Counters and tables that could not be read."""


class Metrics(LiveRequest[Measured], handler="measuring:metrics", touches=False):
    """Measure the state of the lab with all counters and tables. With `follow`, on the virtual clock, reports are that
    as `measured` whenever the lab comes to rest."""

    follow: bool = False


register(*LiveRequest.__subclasses__())
