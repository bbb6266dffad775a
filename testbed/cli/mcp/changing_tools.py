"""Tools that change a lab. Their docstrings are what the model reads."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import Field
from typing_extensions import TypedDict

from testbed.cli.live.probe_command import sentences
from testbed.cli.mcp.lab_calls import LabCalls
from testbed.cli.mcp.program_tools import Interface
from testbed.cli.mcp.reading_tools import InterfaceRow, LeftOut, interface_row
from testbed.protocol import live
from testbed.protocol.live import Applied, ChangeRow, Deleted, FaultRow, Written

MOST_ADVANCE_S = 86_400.0
MOST_TEXT = 1 << 20
"""Characters of a topology file or a manifest."""
EDITED = "the edited topology"
"""The name of a text, for places in errors."""

Nic = Annotated[str, Field(description="A host or pod, or its interface: host1, host1:eth1.")]
Values = dict[str, str | int | float | bool | list[Any]]
Seconds = Annotated[float, Field(ge=0, description="Seconds of the lab.")]


class Injected(TypedDict):
    """`fault` has the number for recover; without it the fault comes later."""

    fault: FaultRow | None


def inject(
    lab: LabCalls,
    fault: Annotated[str, Field(description="A kind that faults lists.")],
    parameters: Annotated[Values | None, Field(description='Such as {"end": "leaf1:e1", "loss": 5}.')] = None,
    after_s: Seconds = 0.0,
    for_s: Annotated[float | None, Field(ge=0, description="Recover it after so many seconds of the lab.")] = None,
) -> Injected:
    """Break something on purpose: inject a fault, and verify it. faults(kind=…) has its parameters."""
    request = live.FaultInject(name=fault, parameters=texts(parameters or {}), after=after_s, lasting=for_s)
    return {"fault": lab.ask(request)}


def texts(values: Values) -> dict[str, str]:
    """Return values as they are typed behind KEY=."""
    return {key: value if isinstance(value, str) else json.dumps(value) for key, value in values.items()}


class Recovered(TypedDict):
    fault: FaultRow


def recover(lab: LabCalls, fault: Annotated[int | str, Field(description="Its number, or its name.")]) -> Recovered:
    """Recover an active fault, and verify that it is gone."""
    return {"fault": lab.ask(live.FaultRecover(fault=str(fault)))}


class Now(TypedDict):
    now_s: float


def advance(lab: LabCalls, seconds: Annotated[float, Field(gt=0, le=MOST_ADVANCE_S)]) -> Now:
    """Let time pass in a lab on the virtual clock: entries age, timers fire. Hours take seconds."""
    return {"now_s": lab.ask(live.Advance(seconds=seconds))}


class Interfaces(TypedDict):
    interface: InterfaceRow


def link_set(
    lab: LabCalls,
    end: Interface,
    up: Annotated[bool | None, Field(description="True: set up, false: set down.")] = None,
    quality: Annotated[
        dict[str, str] | None, Field(description='Of frames that this end sends: {"rate": "100mbit", "delay": "5us"}.')
    ] = None,
) -> Interfaces:
    """Set an end of a link up or down, or change rate, delay and loss (percent) of what it sends; "none" resets one."""
    return {"interface": interface_row(lab.ask(live.LinkSet(end=end, up=up, quality=quality or {})))}


def address(
    lab: LabCalls,
    change: Literal["add", "del", "move"],
    end: Nic,
    address: Annotated[str, Field(description="With its prefix length for add: 10.0.0.9/24.")],
) -> Interfaces:
    """Give an interface an address, take one away, or move one here from the interface that has it. Nobody announces
    it: switches keep their entries. See announce."""
    return {"interface": interface_row(lab.ask(live.AddressChange(change=change, end=end, address=address)))}


class Announced(TypedDict):
    end: str
    ip: str


def announce(
    lab: LabCalls, end: Nic, ip: Annotated[str, Field(description="Empty: the interface's own address.")] = ""
) -> Announced:
    """Send a gratuitous ARP (IPv6: an unsolicited NA) for an address: switches learn where it is. It mends a stale
    entry."""
    return {"end": end, "ip": lab.ask(live.Announce(end=end, ip=ip or None))}


def rdma_write(
    lab: LabCalls,
    source: Nic,
    target: Annotated[str, Field(description="A host, pod, interface, or an address of the lab.")],
    size: Annotated[int, Field(ge=1, le=1 << 30, description="Bytes.")] = 4096,
    family: Literal[4, 6] = 4,
    silent: Annotated[bool, Field(description="True: neither host asks for its gateway by ARP or ND.")] = False,
) -> Written:
    """Send one RDMA WRITE over a new connection: the ping of RoCE. `status` is SUCCESS, or RETRY_EXC_ERR if nothing
    answers. `learned` is what switches learned meanwhile, which may have mended the fault: `silent` prevents it."""
    return lab.ask(live.RdmaWrite(source=source, target=target, size=size, family=family, silent=silent))


class PairRow(TypedDict):
    """Probes from one NIC to another; times in µs. `paths` are the sending interfaces in order, with probes."""

    protocol: str
    source: str
    target: str
    sent: int
    arrived: int
    median_us: float | None
    error: str
    paths: dict[str, int]


class Probed(TypedDict):
    """`summary` is what is remarkable. `pairs` has pairs with losses first."""

    summary: list[str]
    pairs: list[PairRow]
    left_out: LeftOut


def probe(
    lab: LabCalls,
    nodes: Annotated[Sequence[str], Field(description="Hosts, pods or interfaces. Empty: all with RDMA.")] = (),
    protocols: Sequence[Literal["rdma", "tcp"]] = ("rdma", "tcp"),
    count: Annotated[int, Field(ge=1, le=64, description="Probes for each pair.")] = 8,
) -> Probed:
    """Probe all pairs of NICs in both directions: who reaches whom, how fast, where packets get lost."""
    meshes = lab.ask(live.Probe(nodes=list(nodes), protocols=list(protocols), count=count))
    keys = PairRow.__annotations__.keys()
    pairs: list[Any] = [
        {key: value for key, value in {**pair, "protocol": mesh["protocol"]}.items() if key in keys}
        for mesh in meshes
        for pair in mesh["pairs"]
    ]
    pairs.sort(key=lambda pair: (not pair["error"], pair["arrived"] - pair["sent"]))
    summary = [f"{mesh['protocol']}: {line.strip()}" for mesh in meshes for line in sentences(mesh)]
    return {"summary": summary, "pairs": pairs, "left_out": 0}


class Profile(TypedDict):
    values: dict[str, Any]


def profile_set(
    lab: LabCalls,
    switch: Annotated[str, Field(description="Name of a switch.")],
    values: Annotated[Values, Field(min_length=1, description='Such as {"arp_age": 60}; times are in seconds.')],
) -> Profile:
    """Change how a switch treats ARP, ND and MACs; the result has the new values. testbed://docs/switches has all."""
    found = lab.ask(live.ProfileSet(switch=switch, values=texts(values)))
    return {"values": {key: found[key] for key in values}}


class Pod(TypedDict):
    name: str
    interfaces: list[InterfaceRow]


def pod_add(
    lab: LabCalls,
    host: Annotated[str, Field(description="Name of a host.")],
    pod: Annotated[str, Field(description="Name of the new pod.")],
    networks: Annotated[
        Sequence[dict[str, Any]], Field(description="CNI conflists, whole: the first is eth0, then net1, …")
    ] = (),
    annotations: Annotated[dict[str, str] | None, Field(description="Annotations of the pod.")] = None,
) -> Pod:
    """Create a pod on a host with real CNI plugins. testbed://docs/cni-plugins has conflists."""
    conflists = [json.dumps(network) for network in networks]
    row = lab.ask(live.PodAdd(host=host, pod=pod, networks=conflists, annotations=annotations or {}))
    return {"name": row["name"], "interfaces": [interface_row(one) for one in row["interfaces"]]}


class Gone(TypedDict):
    gone: str


def pod_delete(lab: LabCalls, pod: Annotated[str, Field(description="Name of a pod.")]) -> Gone:
    """Delete a pod: its programs, its networks, its namespace."""
    lab.ask(live.PodDelete(pod=pod))
    return {"gone": pod}


def reboot(
    lab: LabCalls,
    hosts: Annotated[list[str], Field(min_length=1, description="Names of hosts.")],
    down_s: Annotated[float, Field(gt=0, le=3600, description="Seconds of the lab for which they are off.")] = 60.0,
) -> Applied:
    """Reboot hosts, all at once: programs, pods and addresses made by hand are gone."""
    return lab.ask(live.RebootHosts(hosts=hosts, down=down_s))


class Changes(TypedDict):
    changes: list[ChangeRow]
    left_out: LeftOut


def apply(
    lab: LabCalls,
    text: Annotated[str, Field(max_length=MOST_TEXT, description="A topology file as topology prints it, edited.")],
    dry: Annotated[bool, Field(description="True: only say what would change.")] = False,
) -> Changes:
    """Bring the lab to an edited topology: nodes, links, their values, faults. What the text does not change stays."""
    return {"changes": lab.ask(live.Apply(name=EDITED, text=text, dry=dry)), "left_out": 0}


def apply_objects(
    lab: LabCalls, text: Annotated[str, Field(max_length=MOST_TEXT, description="A Kubernetes manifest, YAML or JSON.")]
) -> Applied:
    """Add or replace the Kubernetes objects of a manifest, and start its pods, as kubectl apply."""
    return lab.ask(live.ApplyObjects(name="the manifest", text=text))


def delete_objects(
    lab: LabCalls,
    kind: Annotated[str, Field(description="kubectl's name of a kind: pod, deploy, sp.")],
    names: Annotated[list[str], Field(min_length=1, description="Names of objects.")],
    namespace: str = "",
) -> Deleted:
    """Delete Kubernetes objects, as kubectl delete."""
    return lab.ask(live.DeleteObjects(resources=[kind], names=names, namespace=namespace))
