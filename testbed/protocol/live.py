"""Requests to a live lab. They arrive over its machine's wire, side by side. Reports of a long request arrive until it
ends, or the outside stops it."""

from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, NotRequired, TypeVar

from testbed.protocol import Chosen, Event, PlanRows
from testbed.protocol.job_states import JobState
from testbed.protocol.requests import Request, register

if TYPE_CHECKING:
    from typing import TypedDict
else:
    from typing_extensions import TypedDict  # typing's can be validated only from Python 3.12 on

R_co = TypeVar("R_co", covariant=True)

WINDOW = 256 << 10
"""Bytes of a stream (`Exec`, `Capture`, `Logs`) that the other side has not received yet: beyond it a writer waits."""
SETTLE_S = 0.01
"""Virtual seconds after the last request, for its packets to arrive, before time stands still."""


class Terminal(TypedDict):
    """The user's terminal; a program gets one of the same kind."""

    kind: str
    """The value of TERM."""
    rows: int
    columns: int


class LinkRow(TypedDict):
    """An end of a link, or another interface of a node, as the kernel has it now. `addresses` are without IPv6's
    link-local one; `unusable` has the reasons for those that the kernel does not use."""

    interface: str
    peer: str
    """The other end of its link; of a bond the first of `peers`."""
    peers: list[str]
    """Of a bond: what its members end at."""
    in_bond: Literal["", "carries", "idle", "out"]
    """Of a member of a bond: whether it carries the bond's traffic, or is not in it at all."""
    up: bool
    carrier: bool
    gone: bool
    """True if the kernel has it no more."""
    mac: str
    mtu: int
    addresses: list[str]
    unusable: dict[str, str]
    rdma: str | None
    rdma_state: NotRequired[str]
    quality: dict[str, Any]
    """Values of `Quality` for frames that this end sends, if not the default."""


class NodeRow(TypedDict):
    """A node. `profile` is a switch's; `host` is a pod's host, `namespace` its Kubernetes namespace."""

    name: str
    kind: str
    interfaces: list[LinkRow]
    programs: int
    profile: NotRequired[str]
    host: NotRequired[str]
    namespace: NotRequired[str]


class FaultRow(TypedDict):
    """A fault in the lab now. `number` identifies it for recovery."""

    number: int
    fault: str
    parameters: dict[str, Any]
    since_s: float
    lost: bool
    """True if the kernel did not hold it when it was looked at."""


class LabState(TypedDict):
    """The state of a lab. `now_s` is the lab's time since its creation, in seconds."""

    name: str
    now_s: float
    nodes: list[NodeRow]
    faults: list[FaultRow]


class TableRow(TypedDict):
    """An entry of a switch's table: ARP, ND or FDB; or an address of a virtual router, whose `state` is its vrrpd's; or
    of a pair of switches (MLAG): the peer link with the role (active, standby, or alone), and a port channel by where
    it is up (both, here, there, down). Missing texts are empty."""

    table: Literal["arp", "nd", "fdb", "vrrp", "mlag"]
    vlan: int
    """0 in rows of a pair."""
    ip: str
    mac: str
    port: str
    state: str
    age_s: float | None
    """Seconds since it was confirmed; None for an FDB entry, and a virtual router."""
    data_plane: str
    """The MAC by which the kernel forwards, if it is not that of the control plane; "none" if a command has deleted the
    kernel's entry, until the next packet for the address; else empty."""
    vteps: list[str]
    """FDB: the switches behind which a MAC is, by the addresses of their tunnels (EVPN)."""
    sequence: int | None
    """EVPN: the number of the last move between switches; None if it is not known."""
    duplicate: bool
    """EVPN: true if it has moved too often."""


class Written(TypedDict):
    """The result of an RDMA WRITE: its completion status, or the connection's error."""

    status: str
    elapsed_s: float
    text: str
    learned: list[str]
    """What switches learned meanwhile from ARP and ND of the two hosts, which may have healed what was to be seen."""


class LiveRequest(Request[R_co], Generic[R_co]):
    """Base of these requests; their properties are keywords of their classes."""

    handler: ClassVar[str]
    """The function that serves it: a module of executor/live and its name there. It takes the request and a `Call`, and
    returns the response, or a `Task` that will. None for a request that the server serves itself."""
    touches: ClassVar[bool]
    """True if it can change the lab; others only read."""
    waits: ClassVar[bool]
    """True if it may wait for something in the lab; such requests run one after the other."""
    open_only: ClassVar[bool]
    """True if a sealed lab refuses it: it starts programs that see the machine, or it is no work on a cluster."""

    def __init_subclass__(
        cls, *, handler: str = "", touches: bool = True, waits: bool = False, open_only: bool = False
    ) -> None:
        super().__init_subclass__()
        cls.handler, cls.touches, cls.waits, cls.open_only = handler, touches, waits, open_only


class Exec(LiveRequest[int], handler="node_programs:run"):
    """Run a command on a node; the response is its exit status, 128 + N of a signal. Reports are `out` and `err`, both
    base64, `took`: the bytes received of input that comes later, and `late`: its limit is over. With `terminal` it gets
    its own terminal, without `given` and `input` no input."""

    node: str
    command: list[str]
    terminal: Terminal | None = None
    given: str | None = None
    """Its whole input in base64: on the virtual clock, later input arrives at a moment of the host's."""
    input: bool = False
    """True if input will come, and its end."""
    detach: bool = False
    """True if it runs on by itself: the response comes at its start, its output is a file of the lab."""
    limit_s: float | None = None
    """Seconds of the lab after which it is ended, as a terminal that goes away does it."""


class Inspect(LiveRequest[LabState], handler="inspecting:inspect", touches=False):
    """Describe the lab's current state."""


class Tables(LiveRequest[list[TableRow]], handler="inspecting:tables", touches=False):
    """Read a switch's tables. With `follow` reports are the whole tables as `rows` after each change."""

    switch: str
    follow: bool = False


class Events(LiveRequest[None], handler="inspecting:events", touches=False):
    """Read the events. Reports have them, from the first or the last `last` ones on."""

    last: int | None = None
    follow: bool = False


class Logs(LiveRequest[None], handler="log_files:logs", touches=False):
    """Read the output of programs that run by themselves on a node, or on all. Reports are `out`, pieces in base64,
    with their `node` and `program`."""

    node: str = ""
    follow: bool = False


class Capture(LiveRequest[int], handler="node_programs:capture", touches=False):
    """Record an interface until the outside stops it. Reports are `out`, in base64: a pcap file, or with `text` lines
    as tcpdump prints them. The response is the number of frames that the kernel dropped, which the lines have."""

    end: str
    text: bool = False
    filter: str = ""
    count: int | None = None
    """Frames after which it ends by itself."""


class FaultInject(LiveRequest[FaultRow | None], handler="changing:inject", waits=True, open_only=True):
    """Inject a fault now or `after` seconds; recover it after `lasting` seconds."""

    name: str
    parameters: Mapping[str, str] = field(default_factory=dict)
    after: float = 0.0
    lasting: float | None = None


class FaultRecover(LiveRequest[FaultRow], handler="changing:recover", waits=True, open_only=True):
    """Recover a fault, by number or name."""

    fault: str


class LinkSet(LiveRequest[LinkRow], handler="changing:set_link", waits=True):
    """Change an end of a link: up or down, or the quality of its outbound traffic."""

    end: str
    up: bool | None = None
    quality: Mapping[str, str] = field(default_factory=dict)
    """Keys of a link in a topology file with their values as texts: ``{"rate": "100mbit"}``."""


class ProfileSet(LiveRequest[dict[str, Any]], handler="changing:set_profile"):
    """Change values of a switch's profile, given as texts; the response has all values."""

    switch: str
    values: Mapping[str, str]


class PodAdd(LiveRequest[NodeRow], handler="changing:add_pod", waits=True, open_only=True):
    """Create a pod on a host, attached to networks: each the text of a conflist; and to those of its annotations."""

    host: str
    pod: str
    networks: list[str]
    annotations: dict[str, str] = field(default_factory=dict)


class PodDelete(LiveRequest[None], handler="changing:delete_pod", waits=True):
    pod: str


class Announce(LiveRequest[str], handler="changing:announce"):
    """Make a host's or pod's interface announce its address: a gratuitous ARP, an unsolicited NA. The answer is that
    address."""

    end: str
    ip: str | None = None


class AddressChange(LiveRequest[LinkRow], handler="changing:change_address"):
    """Give an interface an address with its prefix length, take one away, or move one from the interface that has it.
    The response is the interface that it is about."""

    change: Literal["add", "del", "move"]
    end: str
    address: str


class RdmaWrite(LiveRequest[Written], handler="changing:write", waits=True):
    """Send one RDMA WRITE over a new connection. `source` and `target` are hosts or pods, or their interfaces; `target`
    may be an address that one interface of the lab has."""

    source: str
    target: str
    size: int = 4096
    family: Literal[4, 6] = 4
    timeout: int | None = None
    retries: int | None = None
    """Queue pair attributes; by default those of testbed's verbs endpoints."""
    silent: bool = False
    """True if neither host asks for its gateway meanwhile: it has a static entry of it."""


class ProbedPair(TypedDict):
    """Probes from one NIC to another. Times in µs; of RDMA one way, of TCP from the SYN to its answer."""

    source: str
    target: str
    sent: int
    arrived: int
    shortest_us: float | None
    median_us: float | None
    longest_us: float | None
    error: str
    """The reason why it was not probed to the end."""
    paths: dict[str, int]
    """Probes by the interfaces that sent them, in order."""


class LostAt(TypedDict):
    """Where lost RDMA probes were seen last, in words. `end` is the interface that should have sent them on, or did,
    empty if there is none."""

    place: str
    end: str
    count: int


class ProbedMesh(TypedDict):
    """Probes of one protocol between all pairs of NICs."""

    protocol: Literal["rdma", "tcp"]
    nics: list[str]
    bytes: int
    pairs: list[ProbedPair]
    lost_at: list[LostAt]
    slow_ports: dict[str, float]
    """Interfaces that keep probes for much longer than others do, with the median in µs."""
    resent: int
    """TCP connections whose SYN, or the answer to it, was lost and sent again."""
    unseen: int
    """Packets that could not be looked at in time: places and paths are not all known."""


class Probe(LiveRequest[list[ProbedMesh]], handler="probing:probe", waits=True):
    """Probe all pairs of NICs with RDMA, or of `nodes`."""

    nodes: list[str] = field(default_factory=list)
    """Hosts, pods or their interfaces."""
    protocols: list[Literal["rdma", "tcp"]] = field(default_factory=lambda: ["rdma", "tcp"])
    count: int = 8
    size: int = 0
    """Bytes of data; 0: as many as the smallest MTU of the RDMA devices."""
    traffic_class: int = 0
    family: Literal[4, 6] = 4


class Advance(LiveRequest[float], handler="changing:advance"):
    """Advance virtual time; the response is the lab's time in seconds."""

    seconds: float


class ChangeRow(TypedDict):
    """A difference between a lab and its edited file. `text` has the details, or the reason why it is made anew."""

    what: Literal["node", "link", "fault"]
    name: str
    change: Literal["new", "gone", "anew", "changed"]
    text: str


class Apply(LiveRequest[list[ChangeRow]], handler="applying:apply", waits=True, open_only=True):
    """Bring the lab to its edited file; what is not changed is not touched. With `dry` only report."""

    name: str
    """The name of the file, for places in errors."""
    text: str
    files: dict[str, str] = field(default_factory=dict)
    """The files that containers mount, in base64, by their paths from the directory of the topology file."""
    executable: list[str] = field(default_factory=list)
    dry: bool = False


class Applied(TypedDict):
    """The names of objects that were applied, and remarks: on kinds that nothing reads, on what could not be had."""

    applied: list[str]
    notes: list[str]
    running: list[str]
    """The pods of manifests that run, by name."""
    waiting: dict[str, str]
    """Why others wait, by name."""


class ApplyObjects(LiveRequest[Applied], handler="applying:apply_objects", waits=True, open_only=True):
    """Add or replace the objects of a Kubernetes manifest, and start the pods that follow."""

    name: str
    """The name of the file, for places in errors."""
    text: str


class Listing(TypedDict):
    """Objects of a kind as a table, and whole, with what the lab has of them as their `status`."""

    kind: str
    columns: list[str]
    wide: list[str]
    """The last columns, for `-o wide`."""
    rows: list[list[str]]
    objects: list[dict[str, Any]]


class GetObjects(LiveRequest[list[Listing]], handler="objects:get", touches=False):
    """List objects by kinds, `resources`, each of which may be one of kubectl's names, or ``all``. Without `namespace`
    those of all."""

    resources: list[str]
    names: list[str] = field(default_factory=list)
    namespace: str = ""
    selector: str = ""
    """Labels, in kubectl's words: ``app=web,tier!=db``."""


class Deleted(TypedDict):
    """Objects that are deleted, that stay until others let them go, and why others could not be deleted."""

    deleted: list[str]
    staying: list[str]
    failed: list[str]


class DeleteObjects(LiveRequest[Deleted], handler="objects:delete", waits=True):
    """Delete objects, or those of a manifest; a pod with its networks."""

    resources: list[str] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    """Empty: all of `namespace` that `selector` chooses."""
    namespace: str = ""
    selector: str = ""
    manifest: str = ""
    """The text of a manifest, in place of kinds and names."""
    file: str = ""
    """The name of its file, for places in errors."""


class ChangeWorkload(LiveRequest[Applied], handler="objects:change", waits=True, open_only=True):
    """Give a workload another size, or new pods of the same template (`restart`)."""

    resource: str
    name: str
    namespace: str = ""
    replicas: int | None = None
    restart: bool = False


class RebootHosts(LiveRequest[Applied], handler="changing:Rebooting", waits=True):
    """Reboot hosts, all at once. `down` in seconds."""

    hosts: list[str]
    """Empty: all hosts of the topology."""
    down: float = 60.0
    late_del: bool = True


class Save(LiveRequest[str], handler="inspecting:save", touches=False):
    """Write the topology file of the lab's current state; of a sealed lab the one that it was made of."""


class Rows(LiveRequest[PlanRows], handler="inspecting:rows", touches=False):
    """Describe the interfaces of the lab's topology as topology.json does, with what the kernel has now."""


class Choose(LiveRequest[None], touches=False):
    """Choose the variant to run in a lab that has just come up. There is no response."""

    chosen: Chosen


class Hold(LiveRequest[None], touches=False):
    """Serve requests at a moment of a run until `Continue`."""


class StopAt(LiveRequest[None], touches=False):
    """Let the machine pause at this time of a run too, in virtual nanoseconds."""

    t: int


class Continue(LiveRequest[None], touches=False):
    """Let a stopped run continue."""


class RunFiles(LiveRequest[None], handler="collecting:collect", touches=False):
    """Read the files of a run directory as they would be if the lab ended now, without captures and topology.json.
    Reports are parts of one: `file`, its path there, and `out`."""


class IncidentTicket(LiveRequest[str], handler="incident:ticket", touches=False):
    """What the users of a lab with an incident see."""


class IncidentHint(LiveRequest[str], handler="incident:hint"):
    """Give the next hint, which costs points."""


class IncidentAnswer(LiveRequest[None], handler="incident:answer"):
    """Answer an incident: what is wrong, where, and since when. What is empty is not answered. Who `gives_up` does not
    wait until the job is well."""

    causes: list[str] = field(default_factory=list)
    places: list[str] = field(default_factory=list)
    since: str = ""
    gives_up: bool = False


class Down(LiveRequest[None]):
    """Take the lab down, and end the machine's job."""


class Counted(TypedDict):
    """Counters of an end of a link since the lab's creation: the kernel's, and `dropped` with those of its qdisc."""

    end: str
    rx_bytes: int
    tx_bytes: int
    rx_packets: int
    tx_packets: int
    dropped: int
    up: bool


class QueuePair(TypedDict):
    """A queue pair, as in `rdma resource show qp`."""

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
    """Number of entries by switch and table."""
    queue_pairs: list[QueuePair]
    faults: list[FaultRow]
    events: list[Event]


class Top(LiveRequest[Overview], handler="inspecting:top", touches=False):
    """Read the overview for a screen: counters, table sizes, queue pairs, latest events. With `follow` reports have it
    as `overview`, at first and, on the virtual clock, after each change when the lab comes to rest."""

    events: int = 20
    follow: bool = False


class Measured(LabState):
    """A measurement of a lab, the source of its metrics."""

    counters: dict[str, dict[str, dict[str, dict[str, int]]]]
    """Counters by node, then ``interfaces`` or ``rdma``, then interface or RDMA device: as in counters.json."""
    tables: dict[str, list[TableRow]]
    """Entries by switch."""
    jobs: list[JobState]
    missing: list[str]
    """Counters and tables that could not be read."""


class Metrics(LiveRequest[Measured], handler="inspecting:metrics", touches=False):
    """Measure all counters and tables of the lab. With `follow`, on the virtual clock, reports have them as `measured`
    whenever the lab comes to rest."""

    follow: bool = False


register(*LiveRequest.__subclasses__())
