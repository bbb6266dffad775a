"""Link ends on this machine's hardware: NICs, and interfaces on which the cables of NICs end. A cable has two ends, so
both ends of a link are hardware, or neither."""

from collections.abc import Mapping, Sequence

from testbed.documents.problems import Problems
from testbed.topology.kinds import KINDS
from testbed.topology.models import QUALITY_KEYS
from testbed.topology.resolve import ResolvedLink
from testbed.topology.resolved import Port, ResolvedNode


def has_rdma(link: ResolvedLink, port: Port) -> bool:
    """Return whether an end has an RDMA device."""
    wanted = port.node.rdma if link.definition.rdma is None else link.definition.rdma
    return KINDS[port.node.kind].is_host and wanted


def is_nic(link: ResolvedLink, port: Port) -> bool:
    return bool(port.node.nic) and has_rdma(link, port)


def is_hardware(link: ResolvedLink) -> bool:
    """Return whether a link is a real cable."""
    return any(_hardware(link))


def _hardware(link: ResolvedLink) -> list[str]:
    given = zip(link.definition.endpoints, link.ports, strict=True)
    return [end.hardware or (port.node.nic if is_nic(link, port) else "") for end, port in given]


def check_hardware(nodes: Mapping[str, ResolvedNode], links: Sequence[ResolvedLink], problems: Problems) -> None:
    _check_nics(nodes, links, problems)
    first: dict[str, Port] = {}
    for link in links:
        for end, port in zip(link.definition.endpoints, link.ports, strict=True):
            if not (name := end.hardware):
                continue
            if is_nic(link, port):
                wrong = f"{port} is the NIC {port.node.nic}, which has its own interface: remove 'hardware'"
                problems.add((*port.path, "hardware"), wrong)
            elif (other := first.setdefault(name, port)) is not port:
                problems.add((*port.path, "hardware"), f"{name} is already {other}")
        _check_cable(link, problems)


def _check_nics(nodes: Mapping[str, ResolvedNode], links: Sequence[ResolvedLink], problems: Problems) -> None:
    for node in nodes.values():
        if node.nic:
            ends = [(link, port) for link in links for port in link.ports if port.node is node and is_nic(link, port)]
            if not ends:
                problems.add(node.paths["rdma"], f"{node.name!r} has the NIC {node.nic} but no link with RDMA for it")
            for link, port in ends[1:]:
                wrong = f"{node.name!r} has one NIC, {node.nic}, which is {ends[0][1]}: give {port} 'rdma: false'"
                problems.add(link.path, wrong)


def _check_cable(link: ResolvedLink, problems: Problems) -> None:
    hardware = _hardware(link)
    if not any(hardware):
        return
    if not all(hardware):
        end = hardware.index("")
        real, made = link.ports[1 - end], link.ports[end]
        where = f"{{node: {made.node.name}, interface: {made.name}, hardware: eth7}}"
        wrong = f"{real} is {hardware[1 - end]} of this machine, but its cable does not end at {made}"
        problems.add(link.path, f"{wrong}: name the interface of this machine where it ends, such as {where}")
    beside = f"no switch of the lab is between {link.ports[0]} and {link.ports[1]}"
    for port, own in zip(link.ports, link.definition.endpoints, strict=True):
        if not (is_nic(link, port.peer) and KINDS[port.node.kind].is_host):
            continue  # the switch queues what it sends, and what it receives from a host
        for path, definition in ((link.path, link.definition), (port.path, own)):
            for key in QUALITY_KEYS:
                if getattr(definition, key) is not None:
                    problems.add((*path, key), f"{key!r}: {beside}")
