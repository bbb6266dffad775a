"""Requests that inspect a lab that lives: nodes, tables, events, the overview of a screen."""

import os
import re
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import yaml

from testbed.documents.json import value_of
from testbed.executor.live.server import Call, Subscription
from testbed.faults import Injection
from testbed.faults.rule import partners
from testbed.faults.secret import SecretInjection
from testbed.kernel import rxe_devices
from testbed.kernel.rdma import Rdma
from testbed.lab import Host, HostInterface, Lab, Pod
from testbed.lab.interface import Interface
from testbed.lab.namespace import Namespace
from testbed.lab.node import Node
from testbed.lab.nodes.switch_node import Switch
from testbed.protocol import Event, PlanRows, live
from testbed.protocol.events import FAULT_INJECTED, FAULT_LOST
from testbed.protocol.job_states import JobStates
from testbed.protocol.live import Counted, FaultRow, LabState, LinkRow, Measured, NodeRow, Overview, QueuePair, TableRow
from testbed.scenario.evidence import counters
from testbed.scenario.rows import as_built, plan_rows
from testbed.switch.profile import DEFAULT as DEFAULT_PROFILE
from testbed.switch.profile import Profile, configured, load_profiles, profile, settable
from testbed.topology import Quality
from testbed.topology.models import QUALITY_KEYS

TABLES = "arp", "nd", "fdb"
LINES = 500
"""Events sent in a report, at most."""


def inspect(_: live.Inspect, call: Call) -> LabState:
    lab = call.lab
    running = programs()
    nodes = [node_row(node, running.get(node.namespace, 0)) for node in lab.nodes.values()]
    return {"name": lab.plan.name, "now_s": call.log.now / 1e9, "nodes": nodes, "faults": fault_rows(call)}


def node_row(node: Node[Any], programs: int) -> NodeRow:
    kind = "pod" if isinstance(node, Pod) else node.plan.kind if node.plan else ""
    devices = rdma_devices(node)
    known = {end.index: end for end in node.interfaces.values()}
    rows = [interface_row(end, devices) for end in known.values()]
    rows += [other_row(node, index, devices) for index in others(node) if index not in known]
    row: NodeRow = {"name": node.name, "kind": kind, "interfaces": rows, "programs": programs}
    if isinstance(node, Switch):
        row["profile"] = node.first_profile.name
    if isinstance(node, Pod):
        row["host"] = node.host.name
        row["namespace"] = node.metadata.namespace
    return row


def rdma_devices(node: Namespace) -> dict[str, str]:
    """Return the RDMA devices of a node by their interfaces, as the kernel has them."""
    with node.entered(), Rdma() as here:
        return here.links()


OWN, OF_SWITCHES = re.compile(r"lo|ifb[0-9]+"), "br0"
"""Interfaces that are shown only with addresses of their own: those by which the lab works. A host's br0 is its own."""
LOOPBACK = "127.0.0.1/8", "::1/128"


def others(node: Node[Any]) -> list[int]:
    """Return the interfaces of a node that are no ends of links: SVIs, and those that somebody made."""
    now = node.now()
    hidden = {
        index
        for index, link in now.links.items()
        if OWN.fullmatch(link.name) or (link.name == OF_SWITCHES and not isinstance(node, Host))
    }
    return [index for index in now.links if index not in hidden or addresses(node, index)]


def addresses(node: Namespace, index: int) -> list[str]:
    return [text for one in node.now().addresses.get(index, []) if (text := str(one)) not in LOOPBACK]


def interface_row(interface: Interface, devices: Mapping[str, str] | None = None) -> LinkRow:
    normal = asdict(Quality())
    plan = interface.plan
    quality = asdict(interface.sends.told) if plan and not plan.bond and interface.sends.in_place else normal
    row = other_row(interface.node, interface.index, rdma_devices(interface.node) if devices is None else devices)
    if row["gone"]:
        row |= {"interface": str(interface), "mac": interface.mac}
    row["peer"] = str(interface.peer) if interface.peer else ""
    row["peers"] = sorted(partners(interface))
    row["in_bond"] = in_bond(interface)
    row["quality"] = {name: value for name, value in quality.items() if value != normal[name]}
    return row


def in_bond(interface: Interface) -> Literal["", "carries", "idle", "out"]:
    """Return what a member of the file's bonds does in its bond, as the kernel has it."""
    if not (interface.plan and interface.plan.master and isinstance(interface.node, Node)):
        return ""
    link = interface.node.now().links.get(interface.index)
    if link is None or link.master != interface.node.interfaces[interface.plan.master].index:
        return "out"
    return "carries" if link.active else "idle"


def other_row(node: Namespace, index: int, devices: Mapping[str, str]) -> LinkRow:
    link = node.now().links.get(index)
    found = addresses(node, index)
    six = any(":" in address for address in found)
    unusable = {str(address): reason for address, reason in node.kernel.unusable_addresses()} if six else {}
    return {
        "interface": f"{node}:{link.name if link else ''}",
        "peer": "",
        "peers": [],
        "in_bond": "",
        "up": bool(link and link.up),
        "carrier": bool(link and link.carrier),
        "gone": link is None,
        "mac": link.mac if link else "",
        "mtu": link.mtu if link else 0,
        "addresses": found if link else [],
        "unusable": {address: reason for address, reason in unusable.items() if address in found},
        "rdma": devices.get(link.name) if link else None,
        "quality": {},
    }


def programs() -> dict[str, int]:
    """Count the programs in each network namespace that has a name."""
    names = {os.stat(entry.path).st_ino: entry.name for entry in os.scandir("/run/netns")}
    found: dict[str, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                name = names.get(os.stat(entry / "ns" / "net").st_ino)
            except OSError:  # it has ended
                continue
            if name and entry.name != str(os.getpid()):
                found[name] = found.get(name, 0) + 1
    return found


def fault_rows(call: Call) -> list[FaultRow]:
    return [fault_row(call, number) for number, one in enumerate(known_faults(call), 1) if one.active]


def known_faults(call: Call) -> list[Injection]:
    """Return the faults that the user may know of, in their order."""
    return [one for one in call.lab.injections if not isinstance(one, SecretInjection)]


def fault_row(call: Call, number: int) -> FaultRow:
    faults = known_faults(call)
    injection = faults[number - 1]
    name = injection.fault.name
    same = [one for one in faults[:number] if one.fault.name == name]
    came = call.log.find(FAULT_INJECTED.name, fault=name)[: len(same)]
    parameters = injection.fault.model_dump(mode="json", exclude_defaults=True)
    since = came[-1]["t"] / 1e9 if came else call.log.now / 1e9
    lost = any(event["t"] / 1e9 >= since for event in call.log.find(FAULT_LOST.name, fault=name))
    return {"number": number, "fault": name, "parameters": parameters, "since_s": since, "lost": lost}


# Tables

_NO_ADDRESS: TableRow = {
    "table": "mlag",
    "vlan": 0,
    "ip": "",
    "mac": "",
    "port": "",
    "state": "",
    "age_s": None,
    "data_plane": "",
    "vteps": [],
    "sequence": None,
    "duplicate": False,
}


def _pair_rows(switch: Switch) -> list[TableRow]:
    """Return the rows of a pair (MLAG): the other switch, behind the peer link, and each port channel of both."""
    state = switch.mlag()
    if not state:
        return []
    heard = state["session"] == "up"
    where = {(True, True): "both", (True, False): "here", (False, True): "there"}
    found = [(state["peer_link"]["port"], state["role"] if heard else "alone")]
    found += [(one["port"], where.get((one["up"], bool(one["peer_up"])), "down")) for one in state["channels"]]
    system = switch.planned.mlag.system if switch.planned.mlag else ""
    return [{**_NO_ADDRESS, "table": "mlag", "mac": system, "port": port, "state": words} for port, words in found]


def table_rows(lab: Lab, switch: Switch) -> list[TableRow]:
    found = switch.tables()
    routers: list[TableRow] = [
        {
            **_NO_ADDRESS,
            "table": "vrrp",
            "vlan": row["vlan"],
            "ip": row["address"],
            "mac": row["mac"],
            "state": row["state"].lower(),
        }
        for row in lab.control_planes.virtual_routers(switch)
    ]
    return (
        routers
        + _pair_rows(switch)
        + [
            {
                "table": table,  # type: ignore[typeddict-item]
                "vlan": row["vlan"],
                "ip": row.get("ip") or "",
                "mac": row.get("mac") or "",
                "port": row.get("port") or "",
                "state": row.get("state", "learned"),
                "age_s": row.get("age"),
                "data_plane": row.get("data_plane") or "",
                "vteps": row.get("vteps") or [],
                "sequence": row.get("sequence"),
                "duplicate": bool(row.get("duplicate")),
            }
            for table in TABLES
            for row in found[table]
        ]
    )


class TableReports:
    """A Task that reports the tables of a switch when they have changed."""

    def __init__(self, call: Call, switch: Switch) -> None:
        self._call, self._switch = call, switch
        self._shown: list[Any] = []
        self._changed = True

    def note(self, event: Event) -> None:
        self._changed |= event["node"] == self._switch.name

    def report(self) -> None:
        if self._changed:
            self._changed = False
            rows = table_rows(self._call.lab, self._switch)
            if (now := [{**row, "age_s": None} for row in rows]) != self._shown:
                self._shown = now
                self._call.report(rows=rows, now_s=self._call.log.now / 1e9)


def tables(request: live.Tables, call: Call) -> list[TableRow] | Subscription:
    switch = call.lab.switch(request.switch)
    if not request.follow:
        return table_rows(call.lab, switch)
    reports, server = TableReports(call, switch), call.server
    reports.report()
    listeners = (server.event_listeners, reports.note), (server.activity_listeners, reports.report)
    return Subscription(call, list, *listeners)


# Events


def events(request: live.Events, call: Call) -> Subscription | None:
    call.lab.scheduler.catch_up()
    found = sorted(call.log.events, key=lambda event: event["t"])
    found = found if request.last is None else found[len(found) - min(request.last, len(found)) :]
    for start in range(0, len(found), LINES):
        call.report(events=found[start : start + LINES])
    if not request.follow:
        return None
    return Subscription(call, lambda: None, (call.server.event_listeners, lambda event: call.report(events=[event])))


# A screen


def top(request: live.Top, call: Call) -> Overview | Subscription:
    shown = overview(call, request.events)
    if not request.follow:
        return shown
    call.report(overview=shown)

    def report() -> None:
        nonlocal shown
        now = overview(call, request.events)
        if now != {**shown, "now_s": now["now_s"]}:
            call.report(overview=now)
        shown = now

    return Subscription(call, lambda: shown, (call.server.rest_listeners, report))


def overview(call: Call, events: int) -> Overview:
    lab = call.lab
    lab.scheduler.catch_up()
    sizes = {}
    for switch in lab.switches():
        found = switch.tables()
        sizes[switch.name] = {table: len(found[table]) for table in TABLES}
    ends = [end for node in lab.nodes.values() for end in node.interfaces.values() if end.counters()]
    latest = sorted(call.log.events, key=lambda event: event["t"])[-events:] if events else []
    return {
        "now_s": call.log.now / 1e9,
        "ports": [counted(end) for end in ends],
        "tables": sizes,
        "queue_pairs": queue_pairs(lab),
        "faults": fault_rows(call),
        "events": latest,
    }


def counted(end: Interface) -> Counted:
    counters = end.counters()
    queue = end.sends.counters() if end.plan else {"dropped": 0, "lost": 0}
    return {
        "end": str(end),
        "rx_bytes": counters["rx_bytes"],
        "tx_bytes": counters["tx_bytes"],
        "rx_packets": counters["rx_packets"],
        "tx_packets": counters["tx_packets"],
        "dropped": counters["rx_dropped"] + counters["tx_dropped"] + queue["dropped"] + queue["lost"],
        "up": end.is_up,
    }


def queue_pairs(lab: Lab) -> list[QueuePair]:
    """Return the queue pairs of programs, without the kernel's own, one a device."""
    rows: list[QueuePair] = []
    for node in lab.nodes.values():
        for end in node.interfaces.values():
            if isinstance(end, HostInterface) and end.rdma:
                rows += [
                    {
                        "node": node.name,
                        "device": end.rdma,
                        "number": one.number,
                        "state": one.state,
                        "kind": one.kind,
                        "remote": one.remote,
                        "program": program(one.pid),
                    }
                    for one in rxe_devices.queue_pairs(end.rdma, node.namespace)
                    if one.pid
                ]
    return rows


def program(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def save(_: live.Save, call: Call) -> str:
    return call.server.source if call.lab.seal else _file_now(call)


def rows(_: live.Rows, call: Call) -> PlanRows:
    return as_built(plan_rows(call.lab.plan, call.lab.profiles), call.lab)


def metrics(request: live.Metrics, call: Call) -> Measured | Subscription:
    if not request.follow:
        return measured(call)
    listener = call.server.rest_listeners, lambda: call.report(measured=measured(call))
    return Subscription(call, lambda: measured(call), listener)


def measured(call: Call) -> Measured:
    call.lab.scheduler.catch_up()
    missing: list[str] = []
    jobs = JobStates()
    for event in call.log.events:
        jobs.take(event)
    return {
        **inspect(live.Inspect(), call),
        "counters": counters(call.lab, missing),
        "tables": {switch.name: table_rows(call.lab, switch) for switch in call.lab.switches()},
        "jobs": jobs.rows(),
        "missing": missing,
    }


DEFAULT = "none"
Words = Mapping[str, Mapping[str, str]]
"""Keys of a link and their values, as in a file, which were set by hand, by the end of the link."""


def _profile_now(switch: Switch) -> dict[str, Any]:
    """Return the keys of a switch in the file that make its profile what it is now, if the file's do not."""
    now = Profile.model_validate(switch.profile())
    name = now.name if now.name in load_profiles() else DEFAULT_PROFILE
    of_file = configured(switch.planned.profile, switch.planned.profile_values)
    base = profile(name).model_dump(mode="json", include=set(settable()))
    values = now.model_dump(mode="json", include=set(settable()))
    if (name, values) == (of_file.name, of_file.model_dump(mode="json", include=set(settable()))):
        return {}
    given = dict(switch.planned.profile_values)
    other = {key: value for key, value in values.items() if value != base[key] or key in given}
    return {"profile": name, **({"profile_values": other} if other else {})}


def _file_now(call: Call) -> str:
    """Write the topology file of a lab as it is now. Comments at the top name what a file cannot express."""
    lab, server = call.lab, call.server
    qualities, down, by_hand = server.qualities, sorted(server.held), server.by_hand
    document = yaml.safe_load(server.source)
    topology = document["topology"]
    for switch in lab.switches():
        if keys := _profile_now(switch):
            topology["nodes"][switch.name] = {**(topology["nodes"][switch.name] or {}), **keys}
    left_out = [
        f"pod {node} on {node.host}: a topology file cannot have pods"
        for node in lab.nodes.values()
        if isinstance(node, Pod)
    ]
    for name, node in lab.nodes.items():
        if not node.plan:
            continue
        left_out += [f"{name}: {what}" for what in by_hand.left_out(node)]
        commands = by_hand.commands(node)
        if isinstance(node, Host) and commands:
            kept = topology["nodes"][name] = topology["nodes"][name] or {}
            kept["exec"] = [*kept.get("exec", []), *commands]
        else:
            left_out += [f"{name}: {command}" for command in commands]
    topology["links"] = [_changed(link, qualities) for link in topology.get("links") or []]
    faults = [
        {"fault": one.fault.name, **one.fault.model_dump(mode="json", exclude_defaults=True)}
        for one in known_faults(call)
        if one.active
    ]
    faults += [{"fault": "link-down", "end": end} for end in down]
    if faults or "faults" in topology:
        topology["faults"] = faults
    return "".join(f"# {line}\n" for line in left_out) + yaml.safe_dump(document, sort_keys=False, allow_unicode=True)


def _changed(link: Mapping[str, Any], qualities: Words) -> Mapping[str, Any]:
    """Return a link of the file with the values set by hand, which its ends have."""
    ends = [_endpoint(end) for end in link.get("endpoints", [])]
    names = [f"{end['node']}:{end['interface']}" for end in ends]
    if not any(name in qualities for name in names):
        return link
    both = {key: value for key, value in link.items() if key in QUALITY_KEYS}
    made = [
        {**end, **_set_by_hand({**both, **end}, qualities.get(name, {}))} for name, end in zip(names, ends, strict=True)
    ]
    return {**{key: value for key, value in link.items() if key not in both}, "endpoints": made}


def _endpoint(given: str | Mapping[str, Any]) -> Mapping[str, Any]:
    if not isinstance(given, str):
        return given
    node, _, interface = given.partition(":")
    return {"node": node, "interface": interface}


def _set_by_hand(before: Mapping[str, Any], words: Mapping[str, str]) -> dict[str, Any]:
    now = {**{key: value for key, value in before.items() if key in QUALITY_KEYS}, **words}
    return {key: value_of(value) if isinstance(value, str) else value for key, value in now.items() if value != DEFAULT}
