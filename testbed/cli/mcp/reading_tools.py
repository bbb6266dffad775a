"""Tools that show a lab and change nothing in it. Their docstrings are what the model reads."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from testbed.cli.live.collecting import collected
from testbed.cli.live.lab_tables import brief
from testbed.cli.live.live_options import LineWriter
from testbed.cli.mcp.bounds import ROWS
from testbed.cli.mcp.lab_calls import Access, LabCalls
from testbed.errors import InputError, did_you_mean
from testbed.machine.live import labs as running
from testbed.machine.live.connection import Streams
from testbed.machine.questions import kept
from testbed.protocol import Event, live, requests
from testbed.protocol.live import FaultRow, LinkRow, Measured, TableRow
from testbed.records import counter_names

Node = Annotated[str, Field(description="Name of a node: a host, pod or switch. Empty: all.")]
Contains = Annotated[str, Field(description="Only rows in which this text occurs: an address, MAC, port or state.")]
LeftOut = Annotated[int, Field(description="Rows that did not fit: ask for less.")]
OPTIONAL = ("gone", "in_bond", "peer", "peers", "quality", "rdma", "unusable")
"""Values of an interface that are left out where there is nothing to say."""


class LabRow(TypedDict):
    """`clock` is real (time passes by itself) or virtual (only during calls); `age_s` are wall seconds."""

    name: str
    state: str
    clock: str
    age_s: float
    why: NotRequired[str]


class Labs(TypedDict):
    labs: list[LabRow]
    left_out: LeftOut


def labs(access: Access) -> Labs:
    """List the labs that are up. With one lab, other tools need no `lab`."""
    rows: list[LabRow] = []
    for lab in running.every():
        if access.only in ("", lab.name):
            age_s = max(0.0, round(time.time() - lab.since, 1))
            row: LabRow = {"name": lab.name, "state": lab.state, "clock": lab.clock, "age_s": age_s}
            rows.append({**row, "why": brief(lab)} if lab.why else row)
    return {"labs": rows, "left_out": 0}


class InterfaceRow(TypedDict):
    """An interface as the kernel has it now. `peer` is the other end of its link, `rdma` its RDMA device, `quality` the
    rate, delay and loss of what it sends. Keys that are not there have nothing to say."""

    interface: str
    up: bool
    carrier: bool
    mac: str
    mtu: int
    addresses: list[str]
    peer: NotRequired[str]
    peers: NotRequired[list[str]]
    in_bond: NotRequired[str]
    gone: NotRequired[bool]
    rdma: NotRequired[str]
    quality: NotRequired[dict[str, Any]]
    unusable: NotRequired[dict[str, str]]


class NodeRow(TypedDict):
    """`profile` is a switch's: how it treats ARP and MACs; `host` is that of a pod."""

    name: str
    kind: str
    programs: int
    profile: NotRequired[str]
    host: NotRequired[str]
    namespace: NotRequired[str]


class State(TypedDict):
    """`now_s` is the lab's time in seconds."""

    lab: str
    clock: str
    now_s: float
    nodes: list[NodeRow]
    interfaces: list[InterfaceRow]
    faults: list[FaultRow]
    left_out: LeftOut


def inspect(lab: LabCalls, node: Node = "") -> State:
    """Show nodes, their interfaces with addresses, MACs and links, and active faults. Begin here."""
    state = lab.ask(live.Inspect())
    nodes = [row for row in state["nodes"] if node in ("", row["name"])]
    if not nodes:
        raise no_node(node, [row["name"] for row in state["nodes"]])
    return {
        "lab": lab.lab.name,
        "clock": lab.lab.clock,
        "now_s": state["now_s"],
        "nodes": [{key: value for key, value in row.items() if key != "interfaces"} for row in nodes],  # type: ignore[misc]
        "interfaces": [interface_row(one) for row in nodes for one in row["interfaces"]],
        "faults": state["faults"],
        "left_out": 0,
    }


def no_node(node: str, there: list[str]) -> InputError:
    return InputError(f"there is no node {node}", hint=f"{did_you_mean(node, there)}There are: {', '.join(there)}.")


def interface_row(row: LinkRow) -> InterfaceRow:
    return {key: value for key, value in row.items() if value or key not in OPTIONAL}  # type: ignore[return-value]


class EntryRow(TypedDict):
    """An entry: of an `arp` or `nd` table the address `ip` is at `mac`, of `fdb` the MAC is behind `port`. `age_s` is
    seconds since it was confirmed; `data_plane` the MAC by which the kernel forwards, where it is another one."""

    table: str
    vlan: int
    ip: NotRequired[str]
    mac: NotRequired[str]
    port: NotRequired[str]
    state: NotRequired[str]
    age_s: NotRequired[float]
    data_plane: NotRequired[str]
    vteps: NotRequired[list[str]]
    sequence: NotRequired[int]
    duplicate: NotRequired[bool]


class Entries(TypedDict):
    rows: list[EntryRow]
    left_out: LeftOut


def tables(
    lab: LabCalls,
    switch: Annotated[str, Field(description="Name of a switch.")],
    table: Annotated[Literal["", "arp", "nd", "fdb", "vrrp", "mlag"], Field(description="Empty: all tables.")] = "",
    contains: Contains = "",
) -> Entries:
    """Read the ARP, ND and FDB tables of a switch: which MAC it sends an address to, behind which port a MAC is.
    Compare an entry's MAC with the owner's in inspect: another one is stale. Example: switch="leaf1",
    contains="10.1.1.100"."""
    rows = [row for row in lab.ask(live.Tables(switch=switch)) if table in ("", row["table"]) and has(row, contains)]
    return {"rows": [entry_row(row) for row in rows], "left_out": 0}


def has(row: Any, text: str) -> bool:
    return not text or any(text.lower() in str(value).lower() for value in row.values())


def entry_row(row: TableRow) -> EntryRow:
    keys = ("table", "vlan")
    return {key: value for key, value in row.items() if key in keys or value not in ("", None, [], False)}  # type: ignore[return-value]


class EventRow(TypedDict):
    """An event of the lab; `t_s` is the lab's time in seconds. testbed://docs/events has the kinds with their data."""

    t_s: float
    kind: str
    node: str
    text: str
    data: dict[str, Any]


class Events(TypedDict):
    events: list[EventRow]
    left_out: LeftOut


def events(
    lab: LabCalls,
    since_s: Annotated[float, Field(description="Only events from this time of the lab on, in seconds.")] = 0.0,
    kinds: Annotated[Sequence[str], Field(description="Only these kinds: learned, updated, link, completion.")] = (),
    node: Node = "",
    most: Annotated[int, Field(ge=1, le=ROWS, description="The newest so many.")] = 50,
) -> Events:
    """List what happened: entries that switches learned, links, addresses, announcements, RDMA completions, faults.
    Newest last; `left_out` are older ones."""
    rows: list[EventRow] = []
    gone = 0

    def receive(report: dict[str, Any]) -> None:
        nonlocal rows, gone
        rows += [event_row(event) for event in report["events"] if wanted(event)]
        gone += max(0, len(rows) - most)
        rows = rows[-most:]

    def wanted(event: Event) -> bool:
        of_kind = not kinds or event["kind"] in kinds
        return of_kind and node in ("", event["node"]) and event["t"] >= since_s * 1e9

    lab.ask(live.Events(), receive)
    return {"events": rows, "left_out": gone}


def event_row(event: Event) -> EventRow:
    return {
        "t_s": event["t"] / 1e9,
        "kind": event["kind"],
        "node": event["node"],
        "text": event["text"],
        "data": event["data"],
    }


class LogRow(TypedDict):
    node: str
    program: str
    line: str


class Logs(TypedDict):
    lines: list[LogRow]
    left_out: LeftOut


def logs(
    lab: LabCalls,
    node: Node = "",
    most: Annotated[int, Field(ge=1, le=ROWS, description="The last so many lines.")] = 100,
) -> Logs:
    """Read the output of programs that run by themselves on nodes: routing daemons, commands of the topology file."""
    rows: list[LogRow] = []
    source = "", ""
    count = 0
    programs: dict[tuple[str, str], LineWriter] = {}

    def add(name: tuple[str, str]) -> LineWriter:
        def line(data: bytes) -> None:
            nonlocal count
            rows.append({"node": name[0], "program": name[1], "line": data.decode(errors="replace")})
            count += 1
            del rows[:-most]

        return LineWriter(line)

    def receive(report: dict[str, Any]) -> None:
        nonlocal source
        source = report["node"], report["program"]
        streams.receive(report)

    with lab.connected() as connection:
        streams = Streams(connection, lambda _, data: programs.setdefault(source, add(source)).write(data))
        streams.number = connection.ask(live.Logs(node=node), receive)
        connection.end(streams.number)
    for writer in programs.values():
        writer.finish()
    return {"lines": rows, "left_out": count - len(rows)}


class CounterRow(TypedDict):
    """`place` is an interface or an RDMA device of the node. `meaning` is error, congestion, level, peak or traffic."""

    node: str
    place: str
    counter: str
    value: int
    unit: str
    meaning: str


class Counters(TypedDict):
    """Counters since the lab's begin. `missing` could not be read."""

    now_s: float
    counters: list[CounterRow]
    missing: list[str]
    left_out: LeftOut


def counters(
    lab: LabCalls,
    node: Node = "",
    name: Annotated[str, Field(description="Only counters whose names have this text: drop, retry, pause.")] = "",
    meaning: Annotated[
        Literal["", "error", "congestion", "level", "peak", "traffic", "unknown"], Field(description="Empty: all.")
    ] = "",
    zero: Annotated[bool, Field(description="True: also counters that are 0.")] = False,
) -> Counters:
    """Read the counters of interfaces, queues and RDMA devices. To see what grows, call it twice with traffic between.
    testbed://docs/counters explains them. Example: meaning="error"."""
    measured = lab.ask(live.Metrics())
    rows = [
        row
        for row in counter_rows(measured)
        if (zero or row["value"])
        and node in ("", row["node"])
        and name in row["counter"]
        and meaning in ("", row["meaning"])
    ]
    return {"now_s": measured["now_s"], "counters": rows, "missing": measured["missing"], "left_out": 0}


def counter_rows(measured: Measured) -> Iterator[CounterRow]:
    for node, kinds in measured["counters"].items():
        for places in kinds.values():
            for place, values in places.items():
                for name, value in values.items():
                    known = counter_names.find(name)
                    yield {
                        "node": node,
                        "place": place,
                        "counter": name,
                        "value": value,
                        "unit": known.unit,
                        "meaning": known.meaning,
                    }


class Metrics(TypedDict):
    """`lines` are in Prometheus' text format."""

    lines: list[str]
    left_out: LeftOut


def metrics(
    lab: LabCalls,
    name: Annotated[str, Field(description="Only metrics whose names have this text, such as rdma_ or testbed_pfc.")],
) -> Metrics:
    """Read the lab's metrics under the names that Prometheus has of real clusters. testbed://docs/metrics lists them.
    Example: name="retry"."""
    from prometheus_client import CollectorRegistry, generate_latest

    from testbed.metrics.exposition import LabCollector

    measured = lab.ask(live.Metrics())
    registry = CollectorRegistry(auto_describe=False)
    registry.register(LabCollector(lambda: measured))
    text = generate_latest(registry).decode()
    lines = [line for line in text.splitlines() if name in line.removeprefix("# ").split("{")[0]]
    return {"lines": lines[:ROWS], "left_out": len(lines[ROWS:])}


class Diagnoses(TypedDict):
    """`jobs` is what `testbed diagnose --json` prints of each: its cause, the link, since when, the evidence."""

    jobs: list[dict[str, Any]]
    note: str
    left_out: LeftOut


def diagnose(lab: LabCalls) -> Diagnoses:
    """Diagnose the jobs that ran in the lab: which rank stalled first, on which link, since when, why. It reads only
    what a real cluster shows, never which faults were injected. Without a job there is nothing to diagnose."""
    from testbed.report.diagnosis import diagnose as diagnoses

    with lab.connected() as connection, collected(connection) as place:
        found = [{"variant": lab.lab.name, **one.json()} for one in diagnoses(place)]
    note = "" if found else "No job of several ranks ran in this lab. See `probe`, `counters`, `tables` and `events`."
    return {"jobs": found, "note": note, "left_out": 0}


class FaultKind(TypedDict):
    name: str
    title: str


class Faults(TypedDict):
    """`active` faults are in the lab now. `text` and `parameters`, a JSON Schema, are of the asked `kind`."""

    active: list[FaultRow]
    kinds: list[FaultKind]
    text: str
    parameters: dict[str, Any]
    left_out: LeftOut


def faults(
    lab: LabCalls, kind: Annotated[str, Field(description="Name of a kind, for its parameters. Empty: list all.")] = ""
) -> Faults:
    """List the faults that are in the lab, and the kinds that `inject` knows."""
    found = {entry["name"]: entry for entry in kept(requests.Faults())}
    if kind and kind not in found:
        raise InputError(f"there is no fault {kind}", hint=f"{did_you_mean(kind, found)}Call faults for a list.")
    return {
        "active": lab.ask(live.Inspect())["faults"],
        "kinds": [] if kind else [{"name": name, "title": entry["title"]} for name, entry in found.items()],
        "text": found[kind]["text"] if kind else "",
        "parameters": dict(found[kind]["parameters"]) if kind else {},
        "left_out": 0,
    }


class Objects(TypedDict):
    """`rows` are as kubectl shows them, with the column names as keys; `objects` are whole, if wanted."""

    rows: list[dict[str, str]]
    objects: list[dict[str, Any]]
    left_out: LeftOut


def get(
    lab: LabCalls,
    kinds: Annotated[list[str], Field(description="kubectl's names: pods, svc, sp; all.")],
    names: Annotated[Sequence[str], Field(description="Only objects of these names.")] = (),
    namespace: Annotated[str, Field(description="Empty: all.")] = "",
    selector: Annotated[str, Field(description="Labels, such as app=web,tier!=db.")] = "",
    whole: Annotated[bool, Field(description="True: also the whole objects.")] = False,
) -> Objects:
    """List the Kubernetes objects of the lab, as kubectl get. Example: kinds=["pods"]."""
    request = live.GetObjects(resources=kinds, names=list(names), namespace=namespace, selector=selector)
    listings = lab.ask(request)
    rows = [
        {"KIND": listing["kind"], **dict(zip([*listing["columns"], *listing["wide"]], row, strict=False))}
        for listing in listings
        for row in listing["rows"]
    ]
    objects = [one for listing in listings for one in listing["objects"]] if whole else []
    return {"rows": rows, "objects": objects, "left_out": 0}


class Topology(TypedDict):
    text: str


def topology(lab: LabCalls) -> Topology:
    """Write the lab's present state as a topology file, with the changes made by hand, for people to keep."""
    return {"text": lab.ask(live.Save())}
