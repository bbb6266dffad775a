"""The kinds of events and the fields of their `data` in events.jsonl; the source of docs/events.md.

An emitter calls a kind, `LINK(interface="e1", state="down")`; `read` makes the same object from an event. The file has
only the fields that were given. Fields without a default are always there.
"""

from __future__ import annotations

import functools
import typing
from collections.abc import Callable, Mapping
from types import UnionType
from typing import Annotated, Any, Generic, Literal, ParamSpec, Protocol, Self, TypeVar, get_args, get_origin

from testbed.protocol import Event, Observed

Seconds = Annotated[float, "seconds"]
Nanoseconds = Annotated[int, "nanoseconds"]
LATEST_NS = 1 << 63
"""Bound of event times in nanoseconds, exclusive."""
LONGEST_S = 1e9
"""Bound of seconds, exclusive; none are negative."""


@typing.dataclass_transform(kw_only_default=True, frozen_default=True)
class Data:
    """The data of an event. `kind_name` is its kind's name in the file; ARP and ND have two names for one kind."""

    __slots__ = ("__dict__", "kind", "kind_name")
    kind: Kind[Any, Any]
    kind_name: str

    def __init__(self, /, **fields: Any) -> None:
        self.__dict__ = fields

    def plus(self, more: Mapping[str, Any]) -> Self:
        """Add fields that the kind leaves open."""
        vars(self).update(more)
        return self

    def sentence(self) -> str:
        """Return a control plane's action as one line, without the switch's name."""
        words = {
            key: ", ".join(value) or "none" if isinstance(value, list) else value for key, value in vars(self).items()
        }
        text = self.kind.special.get(words.get("reason"), self.kind.about)
        return (text.replace("ARP", "ND") if self.kind_name.startswith("nd.") else text).format_map(words)


class Emit(Protocol):
    """A receiver of the events of a lab; the scenario's event log in a run."""

    def __call__(self, data: Data, node: str, text: str, /, *, at_ns: int | None = None) -> None: ...


P = ParamSpec("P")
D_co = TypeVar("D_co", bound=Data, covariant=True)
KINDS: dict[str, Kind[Any, Any]] = {}


class Kind(Generic[P, D_co]):
    """A kind of event with the class of its data. `about` is the meaning; for a switch's control plane it is the text
    of the event, and `special` has the texts for certain reasons, or for none."""

    def __init__(
        self, name: str, fields: Callable[P, D_co], about: str, special: Mapping[str | None, str] = {}
    ) -> None:
        self.name, self.fields, self.about, self.special = name, fields, about, special
        self.nd = name.replace("arp.", "nd.")
        """The name of the ND kind that corresponds to an ARP kind."""
        KINDS[self.name] = KINDS[self.nd] = self

    def __call__(self, *args: P.args, **fields: P.kwargs) -> D_co:
        data = self.fields(*args, **fields)
        data.kind, data.kind_name = self, self.name
        return data

    def of(self, event: Event) -> D_co | None:
        """Return the data of an event of this kind; None for another kind, or if the data do not fit."""
        found: Any = read(event) if KINDS.get(event["kind"]) is self else None
        return found  # type: ignore[no-any-return]


def read(event: Event) -> Data | None:
    """Return the data of an event; None for an unknown kind, or if a field is missing or has a wrong type: the user's
    code runs beside the emitters."""
    kind, fields = KINDS.get(event["kind"]), event["data"]
    if kind is None:
        return None
    for field, required, fits in _checks(kind.fields):
        if not fits(fields[field]) if field in fields else required:
            return None
    return named(event["kind"], fields)


def named(name: str, fields: Mapping[str, Any]) -> Data:
    """Return the data of an event as they are, unchecked."""
    kind = KINDS[name]
    data: Data = kind.fields(**fields)
    data.kind, data.kind_name = kind, name
    return data


@functools.cache
def _checks(fields: type[Data]) -> list[tuple[str, bool, Callable[[Any], bool]]]:
    """Return a class's fields, whether each is required, and the check of its value."""
    own = {name: hint for name, hint in typing.get_type_hints(fields).items() if name not in Data.__slots__}
    return [(name, not hasattr(fields, name), _check(hint)) for name, hint in own.items()]


def _check(hint: Any) -> Callable[[Any], bool]:
    origin, inner = get_origin(hint) or hint, get_args(hint)
    each = [] if origin is Literal else [*map(_check, inner)]
    checks: dict[Any, Callable[[Any], bool]] = {
        Any: lambda _: True,
        **dict.fromkeys((UnionType, typing.Union), lambda value: any(fits(value) for fits in each)),
        Literal: lambda value: value in inner,
        list: lambda value: isinstance(value, list) and all(map(each[0], value)),
        dict: lambda value: isinstance(value, dict) and all(map(each[1], value.values())),
        tuple: lambda value: isinstance(value, list) and [*map(type, value)] == [*inner],
        float: lambda value: type(value) in (int, float) and 0 <= value < LONGEST_S,
        int: lambda value: type(value) is int and abs(value) < LATEST_NS,
    }
    return checks.get(origin, lambda value: isinstance(value, origin))


AnyKind = Kind[Any, Any]


class NoFields(Data):
    pass


class Sleep(Data):
    seconds: Seconds


class Expectation(Data):
    met: bool
    actual: Any


class Observation(Data):
    observed: Observed


class Verdict(Data):
    failures: list[str]
    """Failures of expectations."""


class LeftOut(Data):
    number: int
    """Number of the fault in the run."""
    fault: str


class Fault(Data):
    fault: str
    """Name of the fault. Its parameters are fields too."""
    verified: dict[str, Any]
    """Evidence that it is there; empty when it is gone."""
    hits: int | None = None
    """Packets that it has acted on since its injection, where something counts them."""


class Lost(Data):
    records: int
    what: str | None = None
    """The text of a switch's control plane."""


STEP = Kind("step", NoFields, "A step of the scenario begins.")
SLEEP = Kind("sleep", Sleep, "The scenario lets time pass.")
EXPECT = Kind("expect", Expectation, "An expectation holds, or does not.")
EVIDENCE = Kind("evidence", Data, "Evidence for the verdict. Its fields are the scenario's; those in `_s` are seconds.")
OBSERVED = Kind("observed", Observation, "What users see in the end.")
VERDICT = Kind("verdict", Verdict, "A variant ends.")
LEFT_OUT = Kind("left-out", LeftOut, "`--without-fault` leaves out a fault.")
FAULT_INJECTED = Kind("fault.injected", Fault, "A fault is injected, and verified.")
FAULT_LOST = Kind("fault.lost", Fault, "A fault that had to hold is no longer in place.")
FAULT_RECOVERED = Kind("fault.recovered", Fault, "A fault is recovered, and gone.")
LOST = Kind(
    "lost",
    Lost,
    "Something could not be read in time: events may be missing.",
    {None: "its control plane was too late for {records} {what}"},
)
BENCH = Kind("bench", NoFields, "A part of `testbed bench` is done.")


class Lab(Data):
    nodes: int | None = None
    rdma_mode: str | None = None
    """RDMA netns mode; null keeps the kernel's."""
    up: bool = False


class Mtus(Data):
    sizes: dict[str, int]
    """By interface: ``leaf1:e3``."""


class LabChange(Data):
    what: Literal["node", "link", "fault"]
    name: str
    change: Literal["new", "gone", "anew", "changed"]


class Exec(Data):
    command: str
    status: int


class Program(Exec):
    """`status` is negative for a signal."""

    log: str
    """The file of its output in the run directory."""


class Typed(Data):
    command: str
    """The words after `testbed`."""
    status: int | None
    """The exit status of a program on a node, or of the command; null if the lab ended before."""
    back: str
    """What came back: the output of a program, its middle left out if it is long; the result of a WRITE; a message."""
    took_ns: Nanoseconds


class Container(Data):
    image: str
    digest: str
    command: list[str]


class Service(Data):
    address: str
    port: int
    to: str | None = None
    to_port: int | None = None


class Link(Data):
    interface: str
    state: Literal["up", "down", "new", "gone"] | None = None
    carrier: bool | None = None
    """Whether the other end of its link, or what is below it, is there, while the interface stays up."""
    mac: str | None = None
    mtu: int | None = None
    master: str | None = None
    """The bridge or bond that it is in from now on; empty: none."""
    name: str | None = None
    """Its new name."""
    active: bool | None = None
    """Whether it carries traffic of its bond from now on."""


class Address(Data):
    interface: str
    ip: str
    has: bool


class HostRoute(Data):
    to: str
    via: list[str]
    """Gateways, or interfaces where there is none."""
    has: bool
    type: str | None = None
    """blackhole, unreachable, prohibit or throw, if it leads nowhere."""


class Announcement(Data):
    interface: str
    ip: str
    mac: str


class Capture(Data):
    interface: str
    file: str
    filter: str
    """pcap-filter(7); empty: all frames."""
    running: bool
    """False at its end: up to then the file has all frames."""


class Pause(Data):
    interface: str
    priority: int
    lasted_ns: Nanoseconds
    frames: int
    """Pause frames."""


LAB = Kind("lab", Lab, "A lab begins to be built, or is up.")
MTUS = Kind("mtus", Mtus, "The MTUs other than Ethernet's 1500 of interfaces, when a lab is up.")
LAB_CHANGED = Kind("lab.changed", LabChange, "`testbed apply` changes a node, a link or a fault; `anew`: it is remade.")
EXEC = Kind("exec", Exec, "A command of the topology file has ended.")
PROGRAM_ENDED = Kind(
    "program.ended",
    Program,
    "A program that `spawn` started has ended by itself, or a daemon of FRR in a lab that lives.",
)
TYPED = Kind("typed", Typed, "A command that can change a live lab has ended. `t` is its begin.")
CONTAINER = Kind("container", Container, "The container of a node runs.")
SERVICE = Kind("service", Service, "A service forwards to an address, or, without `to`, is withdrawn.")
PROFILE = Kind("profile", Data, "`testbed profile set` changes a switch. Its fields are the values that it sets.")
LINK = Kind("link", Link, "An interface changes: its state, MAC, MTU, bridge, or quality, whose keys are fields.")
ADDRESS = Kind("address", Address, "An interface gets an address, or loses it.")
ROUTE = Kind("route", HostRoute, "A route is set or deleted by hand.")
GARP = Kind("garp", Announcement, "A host announces its address by a gratuitous ARP request.")
NA = Kind("na", Announcement, "A host announces its address by an unsolicited neighbour advertisement.")
CAPTURE = Kind("capture", Capture, "A capture of an interface begins or ends.")
PFC_PAUSED = Kind("pfc.paused", Pause, "PFC paused a port. `t` is the begin; the event comes when it is over.")


class Pod(Data):
    host: str | None = None
    networks: str | None = None
    """Networks that are injected."""


class PodRefused(Data):
    host: str
    attempt: int
    error: str


class Cni(Data):
    command: str
    network: str
    interface: str | None = None
    """The interface; missing for a command on a whole network, such as GC."""
    host: str | None = None
    took_s: Seconds | None = None
    result: dict[str, Any] | None = None
    """The CNI result; null for commands without one."""
    mac: str | None = None
    addresses: list[str] | None = None
    """Of ADD: what the kernel has for the interface, whatever the result says."""
    error: str | None = None


class Reclaimed(Data):
    address: str
    host: str


class Object(Data):
    object: str | None = None


POD = Kind("pod", Pod, "A pod is created, deleted, lost, pending or left behind, or networks are injected into it.")
POD_REFUSED = Kind("pod.refused", PodRefused, "A pod could not be created, and is tried again.")
CNI = Kind("cni", Cni, "A command of CNI has ended.")
IPAM = Kind("ipam", Reclaimed, "The address of a pod that is gone is taken back.")
OBJECT = Kind("object", Object, "A Kubernetes object is applied or deleted; without `object` a remark about objects.")


class Reboot(Data):
    state: Literal["off", "on"]


REBOOT = Kind("reboot", Reboot, "A host goes down, or is up again.")


class QueuePair(Data):
    interface: str
    state: str
    """INIT, RTR, RTS, SQD, SQE, ERR, or `closed`."""
    device: str
    qpn: int
    peer: str
    """Peer, such as `10.0.20.100 QP 18`; empty before it is connected."""


class Completion(Data):
    opcode: str
    status: str
    """Status of verbs, without IBV_WC_."""
    elapsed_s: Seconds
    near: tuple[str, int] | None = None
    """Address and queue pair number of this end."""
    far: tuple[str, int] | None = None
    """Address and queue pair number of the other end."""
    to: str | None = None
    """The interface at the other end."""


class Failed(Data):
    error: str


class Probed(Data):
    protocol: Literal["rdma", "tcp"]
    nics: list[str]
    bytes: int
    """Bytes of a probe's data."""
    sent: list[list[int]]
    """Number of probes: a row for each NIC that sends, a column for each that receives."""
    arrived: list[list[int]]
    median_us: list[list[float | None]]
    """The median of those that arrived: of RDMA one way, of TCP from the SYN to its answer; null without any."""
    errors: list[list[str]]
    """Of a pair that was not probed to the end: the NIC that sends, the one that receives, the reason."""
    lost_at: list[dict[str, Any]]
    """RDMA probes that did not arrive, by where their packet was seen last: `place` in words, `end`, the interface that
    should have sent them on, or did, and `count`."""
    slow_ports: dict[str, float]
    """Interfaces that keep probes for much longer than others do, with the median in µs."""
    resent: int
    """TCP connections whose SYN, or the answer to it, was lost and sent again."""


class Ranks(Data):
    late: bool = False
    """True if it was not done at its deadline."""
    rank: int | None = None
    """The first rank that failed."""
    status: str | None = None
    """Status of its completion."""


class Collective(Ranks):
    ok: bool
    operation: str
    elapsed_s: Seconds
    finished_s: list[Seconds | None]
    """When each rank was done, since the start."""
    computed_s: list[Seconds]
    """Compute time of each rank."""
    hosts: list[str]
    devices: list[str]
    peer: int | None = None
    """The rank to which `rank` failed."""
    matrix: list[tuple[int, int, int]] | None = None
    """Rank, rank, and the bytes from the first to the second."""


class Job(Ranks):
    name: str
    ranks: int | None = None
    hosts: list[str] | None = None
    """Hosts of the ranks, in rank order."""
    devices: list[str] | None = None
    """RDMA devices of the ranks, empty for TCP."""
    ok: bool | None = None
    host: str | None = None
    """Host of the rank that failed first."""
    failure: str | None = None
    """Output of the rank."""


class JobPaths(Data):
    name: str
    flows: list[list[Any]]
    """Of each flow the rank that sends, the one that receives, the UDP source port, and the interfaces that send its
    packets, in order."""
    unknown: list[str]
    """Flows whose path is not known, and why."""


class JobStep(Data):
    name: str | None = None
    """The job."""
    number: int
    seconds: list[Seconds]
    """Time of each rank."""


class Resumed(Data):
    name: str


class Stalled(Resumed):
    since_ns: Nanoseconds
    waiting: list[dict[str, Any]]
    """Calls of waiting ranks, as in flight.jsonl."""
    queue_pairs: dict[str, dict[str, int]]
    """Number of queue pairs by host and state."""
    addresses: list[str] | None = None
    """Address of the GID that each rank uses; empty where it is unknown."""


QP = Kind("qp", QueuePair, "A queue pair changes its state.")
COMPLETION = Kind("completion", Completion, "A work request completes.")
CONNECT = Kind("connect", Failed, "A queue pair does not connect.")
PROBED = Kind("probed", Probed, "All pairs of NICs have been probed.")
COLLECTIVE = Kind("collective", Collective, "A collective over queue pairs ends.")
JOB = Kind("job", Job, "A job begins, with `ranks`, `hosts` and `devices`, or ends, with `ok`.")
JOB_PATHS = Kind("job.paths", JobPaths, "The paths between the ranks of a job, when it has ended.")
JOB_STEP = Kind("job.step", JobStep, "All ranks of a training job have done a step.")
JOB_STALLED = Kind("job.stalled", Stalled, "No rank of a job goes on.")
JOB_RESUMED = Kind("job.resumed", Resumed, "The ranks of a job go on.")


class Converged(Data):
    seconds: Seconds
    """Time to the last route change."""


class Neighbour(Data):
    vlan: int | None = None
    ip: str | None = None


class Entry(Neighbour):
    mac: str


class Claim(Entry):
    old_mac: str | None = None
    port: str | None = None
    old_port: str | None = None
    reason: str
    """The packet (`garp`, `request`, `reply`), `evpn` for an announcement of another switch, `mlag` for what the other
    switch of a pair says, or another reason."""


class Unresolved(Neighbour):
    reason: str


class Change(Neighbour):
    mac: str | None = None
    reason: str | None = None
    probe: int | None = None
    """Number of the probe, from 1."""
    entries: int | None = None


class Limited(Unresolved):
    packets: int


class Restored(Neighbour):
    entries: int


class Fdb(Data):
    vlan: int
    mac: str
    port: str
    old_port: str | None = None
    reason: str | None = None
    """`evpn`: another switch has announced it; `mlag`: the other switch of a pair sees it."""
    vteps: list[str] | None = None
    """The switches behind which it is, by the addresses of their tunnels."""


class Port(Data):
    vlan: int | None = None
    mac: str | None = None
    port: str
    moves: int | None = None


class Lossless(Data):
    vlan: int
    ip: str
    mac: str


class VirtualRouter(Data):
    vlan: int
    ip: str
    mac: str


class Pair(Data):
    peer: str
    """The other switch."""
    role: str
    """`active` or `standby`."""
    reason: str | None = None
    """`timeout`: it is not heard; `unheard`: it does not hear this one; `restarted`: it has begun anew."""


class PairPorts(Data):
    ports: list[str]
    system: str | None = None
    """The pair's LACP system."""


class Route(Data):
    to: str
    ports: list[str]


class Segment(Data):
    port: str
    esi: str
    """The identifier of the Ethernet segment."""
    others: list[str]
    """The other switches that have it, by the addresses of their tunnels."""
    reason: str | None = None
    """`not-forwarder`: another one delivers floods."""


class Duplicate(Data):
    vlan: int
    mac: str
    ip: str | None = None
    """The address, if that has moved too often."""


class Bfd(Data):
    port: str
    peer: str
    """The peer's address."""
    state: str
    """admin-down, down, init or up."""
    old_state: str
    reason: str
    """The local diagnostic (RFC 5880 section 4.1): why it went down last."""
    remote_state: str | None = None
    """The peer's state in its last packet."""


class BfdRefused(Data):
    port: str
    peer: str
    reason: str


MISS = Kind("arp.miss", Neighbour, "a packet for {ip} meets no ARP entry")
LEARNED = Kind(
    "arp.learned",
    Claim,
    "ARP {ip} is at {mac}",
    {"evpn": "ARP {ip} is at {mac}, as EVPN says", "mlag": "ARP {ip} is at {mac}, as the other switch says"},
)
UPDATED = Kind(
    "arp.updated",
    Claim,
    "ARP {ip} moves from {old_mac} to {mac}",
    {
        "port-changed": "ARP {ip} at {mac} moves from port {old_port} to {port}",
        "evpn": "ARP {ip} is at {mac} on {port} from now on, as EVPN says",
        "mlag": "ARP {ip} moves from {old_mac} to {mac}, as the other switch says",
    },
)
REFRESH = Kind(
    "arp.refresh", Change, "ARP asks {mac} whether it still has {ip}", {"daemon": "ARP asks for all {entries} entries"}
)
CONFIRMED = Kind("arp.confirmed", Entry, "ARP {ip} at {mac} is confirmed")
AGED = Kind("arp.aged", Entry, "ARP {ip} at {mac} ages out")
FAILED = Kind("arp.failed", Unresolved, "ARP for {ip} gets no answer")
IGNORED = Kind("arp.ignored", Claim, "ARP from {ip} at {mac} is ignored: {reason}")
REFUSED = Kind("arp.refused", Unresolved, "ARP {ip} does not fit the table")
UNASKED = Kind("arp.unasked", Neighbour, "ARP asks nobody for {ip}: packets for it are dropped")
EVICTED = Kind(
    "arp.evicted", Change, "ARP {ip} at {mac} is evicted", {"not-found": "ARP {ip}, which was not found, is evicted"}
)
LIMITED = Kind("arp.limited", Limited, "ARP to the CPU is over its rate: {packets} dropped")
CLEARED = Kind(
    "arp.cleared",
    Change,
    "ARP {ip} is cleared",
    {
        "no-carrier": "ARP {ip} is cleared: its VLAN has no carrier",
        "evpn": "ARP {ip} is cleared: the kernel has the entry of EVPN no longer",
        "port-down": "ARP {ip} is cleared: the port of {mac} is down",
    },
)
PROXIED = Kind("arp.proxied", Entry, "ARP for {ip} is answered to {mac} in its owner's place")
RESTORED = Kind("arp.restored", Restored, "ARP has {entries} entries from before the reboot, and asks for each")
FDB_LEARNED = Kind(
    "fdb.learned",
    Fdb,
    "FDB {mac} is on {port}",
    {"evpn": "FDB {mac} is on {port}, behind {vteps}", "mlag": "FDB {mac} is on {port}, as the other switch says"},
)
FDB_MOVED = Kind(
    "fdb.moved",
    Fdb,
    "FDB {mac} moves from {old_port} to {port}",
    {
        "evpn": "FDB {mac} moves from {old_port} to {port}, behind {vteps}",
        "mlag": "FDB {mac} moves from {old_port} to {port}, as the other switch says",
    },
)
FDB_AGED = Kind("fdb.aged", Fdb, "FDB {mac} on {port} ages out")
FDB_FLUSHED = Kind(
    "fdb.flushed",
    Fdb,
    "FDB {mac} on {port} is flushed",
    {
        "evpn": "FDB {mac} on {port} is withdrawn by EVPN",
        "mlag": "FDB {mac} on {port} is gone: neither switch of the pair sees it, or they do not hear each other",
    },
)
PORT_DISABLED = Kind("port.disabled", Port, "{port} is disabled: {mac} moves too often")
PORT_ENABLED = Kind("port.enabled", Port, "{port} is enabled again")
BLOCKED = Kind("lossless.blocked", Lossless, "lossless packets for {ip} are dropped")
UNBLOCKED = Kind("lossless.unblocked", Lossless, "lossless packets for {ip} are forwarded")
EVPN_SEGMENT = Kind(
    "evpn.segment",
    Segment,
    "{port} gets the floods of other switches ({esi}, also on {others})",
    {"not-forwarder": "{port} does not get the floods of other switches ({esi}, also on {others})"},
)
EVPN_DUPLICATE = Kind("evpn.duplicate", Duplicate, "A MAC or an address moves too often between switches (EVPN).")
VRRP_MASTER = Kind("vrrp.master", VirtualRouter, "VRRP: it is master for {ip} at {mac}")
VRRP_BACKUP = Kind("vrrp.backup", VirtualRouter, "VRRP: it is master for {ip} at {mac} no longer")
MLAG_UP = Kind("mlag.up", Pair, "MLAG: it hears {peer} and is {role}")
MLAG_LOST = Kind(
    "mlag.lost",
    Pair,
    "MLAG: {peer} is lost, it is {role} and alone",
    {
        "unheard": "MLAG: {peer} does not hear it, it is {role} and alone",
        "restarted": "MLAG: {peer} has begun anew, it is {role}",
    },
)
MLAG_LEFT = Kind("mlag.left", PairPorts, "MLAG: {ports} leave the LACP system {system}")
MLAG_JOINED = Kind("mlag.joined", PairPorts, "MLAG: {ports} are in the LACP system {system} again")
MLAG_DISABLED = Kind("mlag.disabled", PairPorts, "MLAG: {ports} are disabled without the peer link")
MLAG_ENABLED = Kind("mlag.enabled", PairPorts, "MLAG: {ports} are enabled again")
ROUTE_INSTALLED = Kind("route.installed", Route, "{to} is reached by {ports}")
ROUTE_LOST = Kind("route.lost", Route, "there is no route to {to}")
ROUTING_CONVERGED = Kind("routing.converged", Converged, "FRR has found all routes.")
BFD_CHANGED = Kind(
    "bfd.changed",
    Bfd,
    "BFD with {peer} by {port} is {state}: {reason}",
    {"no diagnostic": "BFD with {peer} by {port} is {state}"},
)
BFD_REFUSED = Kind("bfd.refused", BfdRefused, "BFD with {peer} by {port} is not possible: {reason}")
