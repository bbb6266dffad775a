"""Requests that change a lab that lives: faults, links, profiles, pods, RDMA WRITEs, time."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from ipaddress import ip_address
from typing import Any

from testbed import faults
from testbed.documents.json import loads, value_of
from testbed.errors import DeadlineError, InputError, did_you_mean
from testbed.executor.live.inspecting import fault_row, fault_rows, interface_row, known_faults, node_row
from testbed.executor.live.node_programs import interface_of
from testbed.executor.live.server import Call, refusal
from testbed.faults.catalogue import KINDS
from testbed.faults.fault import make
from testbed.lab import HostInterface, Pod
from testbed.lab.namespace import Namespace
from testbed.lab.nodes.host_node import Host
from testbed.protocol import events, live
from testbed.protocol.live import Applied, FaultRow, LinkRow, NodeRow, Written
from testbed.topology import Family, IPAddress, address_of, virtual_mac_of
from testbed.topology.models import quality_of
from testbed.workload.attributes import Attributes
from testbed.workload.queue_pair import ConnectError
from testbed.workload.verbs import connected

WRITE_S = 120.0
PATTERN = b"\xa5"
SUCCESS = "SUCCESS"
LOOPBACK = "lo"
UNENDED = "NONE"
"""In place of the status of a WRITE that has not completed."""


def inject(request: live.FaultInject, call: Call) -> FaultRow | None:
    parameters = {key: value_of(value) for key, value in request.parameters.items()}
    fault = make(KINDS, request.name, parameters)
    injection = faults.Injection(call.lab, fault)
    try:
        injection.inject_after(request.after, request.lasting)
    except BaseException:
        call.lab.injections.remove(injection)
        raise
    return fault_row(call, len(known_faults(call))) if injection.active else None


def recover(request: live.FaultRecover, call: Call) -> FaultRow:
    rows = fault_rows(call)
    found = [row for row in rows if request.fault in (str(row["number"]), row["fault"])]
    there = ", ".join(f"{row['number']} ({row['fault']})" for row in rows) or "none"
    if not found:
        raise InputError(f"the lab has no active fault {request.fault}", hint=f"There are: {there}.")
    if len(found) > 1:
        raise InputError(
            f"the lab has {len(found)} active faults {request.fault}: give a number", hint=f"There are: {there}."
        )
    known_faults(call)[found[0]["number"] - 1].recover()
    return found[0]


def set_link(request: live.LinkSet, call: Call) -> LinkRow:
    interface = interface_of(call.lab, request.end)
    values = quality_of(request.quality)
    if values and call.lab.seal:
        raise refusal()
    if values:
        interface.sends.change(**values)
        call.server.qualities.setdefault(str(interface), {}).update(request.quality)
        changed = events.LINK(interface=interface.name).plus(request.quality)
        interface.emit(changed, f"{interface.name} sends with {words(request.quality)}")
    if request.up is True:
        release = call.server.held.pop(str(interface), None)
        (release or interface.up)()
    elif request.up is False and str(interface) not in call.server.held:
        call.server.held[str(interface)] = interface.hold_down()
    return interface_row(interface)


def words(values: Any) -> str:
    return " ".join(f"{key}={value}" for key, value in values.items())


def set_profile(request: live.ProfileSet, call: Call) -> dict[str, Any]:
    switch = call.lab.switch(request.switch)
    values = {key: value_of(text) for key, text in request.values.items()}
    switch.change_profile(**values)
    switch.context.emit(events.PROFILE(**values), switch.name, f"profile: {words(request.values)}")
    return switch.profile()


def add_pod(request: live.PodAdd, call: Call) -> NodeRow:
    networks: list[Any] = [loads(text, f"network {place}") for place, text in enumerate(request.networks, 1)]
    made = call.lab.pods.create(call.lab.host(request.host), request.pod, networks, annotations=request.annotations)
    return node_row(made, 0)


def delete_pod(request: live.PodDelete, call: Call) -> None:
    pod = call.lab[request.pod]
    if not isinstance(pod, Pod):
        pods = [node.name for node in call.lab.nodes.values() if isinstance(node, Pod)]
        hint = f"{did_you_mean(request.pod, pods)}Pods: {', '.join(pods) or 'none'}."
        raise InputError(f"{request.pod} is not a pod", hint=hint)
    pod.delete()
    call.lab.pods.reconcile()


class Rebooting:
    """A Task that lasts until hosts that are off have come up again. Other requests go on meanwhile."""

    drives = True

    def __init__(self, request: live.RebootHosts, call: Call) -> None:
        nodes = call.lab.nodes.values()
        self._hosts = request.hosts or [
            node.name for node in nodes if isinstance(node, Host) and not isinstance(node, Pod)
        ]
        self._power_on, self._late_del = call.lab.power_off(*self._hosts, gracefully=True), request.late_del
        boot = partial(call.server.take_turn, call, request, self._boot)
        call.lab.scheduler.after(request.down, boot)

    def _boot(self) -> Applied:
        done = self._power_on(late_del=self._late_del)
        running = [pod.name for pod in done.pods]
        return {"applied": self._hosts, "notes": [], "running": running, "waiting": done.waiting}

    def receive(self, message: dict[str, Any]) -> None:
        """Hosts come up again though nobody waits for it."""


def announce(request: live.Announce, call: Call) -> str:
    interface = nic(call, request.end)
    family: Family = min(interface.addresses, default=4)
    interface.announce(family, ip=request.ip)
    return request.ip or str(interface.address(family).ip)


def change_address(request: live.AddressChange, call: Call) -> LinkRow:
    interface = nic(call, request.end)
    match request.change:
        case "add":
            interface.add_address(request.address)
        case "del":
            interface.remove_address(request.address)
        case "move":
            ip = address_of(request.address.partition("/")[0])
            owners = [owner for owner in having(call, ip) if owner is not interface]
            if len(owners) != 1:
                who = ", ".join(map(str, owners)) or "no other interface of the lab"
                raise InputError(f"{who} {'has' if len(owners) < 2 else 'have'} {ip}: one must have it to be moved")
            interface.add_address(owners[0].remove_address(ip))
    return interface_row(interface)


def having(call: Call, ip: IPAddress) -> list[HostInterface]:
    """Return the interfaces of hosts and pods that have an address, as the kernel has it."""
    hosts = [node for node in call.lab.nodes.values() if isinstance(node, Host)]
    found = [(node, link.name) for node in hosts for index, link in node.now().links.items() if has(node, index, ip)]
    ends = [node[name] for node, name in found if name != LOOPBACK]
    usable = [end for end in ends if not unusable(end, ip)]
    return usable or ends


def has(node: Namespace, index: int, ip: IPAddress) -> bool:
    return ip in [address.ip for address in node.now().addresses.get(index, [])]


def destination(call: Call, name: str) -> tuple[HostInterface, IPAddress | None]:
    """Return the interface that a WRITE is to, and the address, if it was given by one."""
    try:
        ip = ip_address(name)
    except ValueError:
        return nic(call, name), None
    owners = having(call, ip)
    if len(owners) != 1:
        others = [*map(str, owners)] or elsewhere(call, ip)
        what = (
            f"{', '.join(others)} {'has' if len(others) == 1 else 'have'}" if others else "no interface of the lab has"
        )
        if len(owners) > 1:
            hint = "Name the interface that is to receive."
        elif others:
            hint = "A WRITE goes to an end of a link, or to an interface of a pod, with an RDMA device."
        else:
            hint = "`testbed inspect` shows the addresses."
        raise InputError(f"{what} the address {ip}", hint=hint)
    return owners[0], ip


def elsewhere(call: Call, ip: IPAddress) -> list[str]:
    """Return the other interfaces that have an address, such as SVIs."""
    nodes = call.lab.nodes.values()
    return [f"{node}:{link.name}" for node in nodes for index, link in node.now().links.items() if has(node, index, ip)]


def nic(call: Call, name: str) -> HostInterface:
    """Return an interface of a host or pod, or the only one with an address of a node of that name."""
    if ":" in name:
        found = interface_of(call.lab, name)
        if not isinstance(found, HostInterface):
            raise InputError(f"{name} is not an interface of a host")
        return found
    node = call.lab[name]
    if not isinstance(node, Host):
        raise InputError(f"{name} is not a host")
    ends = [end for end in node.interfaces.values() if not end.gone]
    if not ends:
        raise InputError(f"{name} has no interface")
    return next((end for end in ends if end.rdma), ends[0])


def with_rdma(end: HostInterface) -> HostInterface:
    if not end.rdma:
        raise InputError(f"{end} has no RDMA device", hint="A host has one unless its file says `rdma: false`.")
    return end


def write(request: live.RdmaWrite, call: Call) -> Written:
    near, (far, to) = nic(call, request.source), destination(call, request.target)
    call.node = near.node.name
    family = to.version if to else request.family
    for end in near, far:
        check_usable(end, to if to and end is far else end.address(family).ip)
        with_rdma(end)
    given = {"timeout": request.timeout, "retry_cnt": request.retries}
    attributes = replace(Attributes(), **{key: value for key, value in given.items() if value is not None})
    call.lab.scheduler.catch_up()
    asked = began = call.log.now

    def ended(status: str, text: str) -> Written:
        elapsed_s = (call.log.now - began) / 1e9
        call.lab.scheduler.catch_up()
        call.back.add(text.encode())
        call.status = int(status != SUCCESS)
        return {"status": status, "elapsed_s": elapsed_s, "text": text, "learned": learned(call, asked, near, far)}

    with ExitStack() as stack:
        if request.silent:
            stack.enter_context(silent(call, near, to or far.address(family).ip))
            stack.enter_context(silent(call, far, near.address(family).ip))
        try:
            here, there = stack.enter_context(
                connected(near, far, attributes, family=family, memory=request.size, to=to)
            )
            began = call.log.now
            here.store(PATTERN * request.size)
            done = here.write(request.size, within=WRITE_S)
        except ConnectError as error:
            text = f"no connection to {far.node}: {error.error}"
            near.node.context.emit(events.CONNECT(error=error.error), near.node.name, text)
            return ended(error.error, error.message)
        except DeadlineError as error:
            return ended(UNENDED, error.message)
        whom = f"{to} at {far.node}" if to else str(far.node)
        text = f"{done.opcode} to {whom} ends with {done.status} after {done.elapsed_s * 1e3:.3f} ms"
        data = events.COMPLETION(opcode=done.opcode, status=done.status, elapsed_s=done.elapsed_s, to=str(far))
        near.node.context.emit(data, near.node.name, text)
        if done.ok and there.load(0, request.size) != here.load(0, request.size):
            text += ", but the bytes did not arrive"
        return {**ended(done.status, text), "elapsed_s": done.elapsed_s}


def unusable(end: HostInterface, ip: IPAddress) -> str:
    """Return why the kernel does not use an address of an interface; empty if it does."""
    found = end.node.kernel.unusable_addresses() if ip.version == 6 else ()
    return next((reason for address, reason in found if address.ip == ip), "")


def check_usable(end: HostInterface, ip: IPAddress) -> None:
    """Raise InputError for an address that the kernel does not use."""
    if reason := unusable(end, ip):
        raise InputError(f"{end} cannot use {ip}, {reason}")


def learned(call: Call, since: int, *ends: HostInterface) -> list[str]:
    """Return what switches learned from ARP or ND of these interfaces since then, and why they sent it."""
    owners = {end.mac: end for end in ends}
    found = [
        (event["node"], data)
        for event in call.log.events
        for kind in (events.LEARNED, events.UPDATED)
        if event["t"] >= since and (data := kind.of(event))
    ]
    return [
        f"{_why(data.reason, owners[data.mac], switch)}: {switch} learned that {data.ip} is at {data.mac}"
        for switch, data in found
        if data.mac in owners
    ]


def _why(reason: str, owner: HostInterface, switch: str) -> str:
    if reason == "request":
        return f"{owner} asked for its gateway"
    if reason == "garp":
        return f"{owner} announced its address"
    return f"{switch} asked, and {owner} answered" if reason == "reply" else f"{owner}, {reason}"


@contextmanager
def silent(call: Call, end: HostInterface, to: IPAddress) -> Iterator[None]:
    """Give an interface a static entry of the gateway to `to` for the block, unless it knows a MAC of it."""
    hop = end.next_hop(to)
    mac = gateway_mac(call, hop) if hop and end.neighbour(hop) is None else None
    if not hop or not mac:
        yield
        return
    end.set_neighbour(hop, mac)
    try:
        yield
    finally:
        end.node.kernel.delete_neighbour(end.index, hop)


def gateway_mac(call: Call, ip: IPAddress) -> str | None:
    """Return the MAC of the virtual router, switch or host of the lab that has an address."""
    if mac := virtual_mac_of(call.lab.plan, ip):
        return mac
    for switch in call.lab.switches():
        for svi in switch.planned.svis:
            if ip in [address.ip for address in svi.addresses]:
                return switch.svi_mac(svi.vlan)
    return next((owner.mac for owner in having(call, ip)), None)


class Waiting:
    """A Task that lasts until a time has passed."""

    drives = True

    def __init__(self, call: Call, seconds: float) -> None:
        self._call = call
        self._cancel = call.lab.scheduler.after(seconds, self._end)

    def _end(self) -> None:
        self._call.end(self._call.log.now / 1e9)

    def receive(self, message: dict[str, Any]) -> None:
        if message.get("stop"):
            self._cancel()
            self._end()


def advance(request: live.Advance, call: Call) -> Waiting:
    if not call.server.wire.virtual:
        raise InputError("this lab is on the real clock: time passes by itself", hint="testbed up --clock virtual …")
    return Waiting(call, request.seconds)
