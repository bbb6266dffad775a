"""Frames of a RoCE network as texts and fields for people."""

from dataclasses import dataclass, field
from functools import lru_cache
from ipaddress import ip_address

from testbed.records import frame_decoder
from testbed.records.frame_decoder import Frame, Resolution, Roce

CUT_OFF = "a truncated frame"
NEIGHBOUR = {
    133: "router solicitation",
    134: "router advertisement",
    frame_decoder.SOLICITATION: "neighbour solicitation",
    frame_decoder.ADVERTISEMENT: "neighbour advertisement",
}
ECN = ("not ECN-capable", "ECT(1)", "ECT(0)", "CE, congestion was experienced")


@dataclass(slots=True)
class Packet:
    """A packet. `kind` is arp, nd, roce, cnp, pause, tcp, icmp, udp or other; `layers` has each header's fields."""

    src: str
    dst: str
    kind: str = "other"
    source: str = ""
    target: str = ""
    """IP addresses of the packet. In ARP and neighbour discovery: of the sender, and the requested one."""
    ecn: int = 0
    text: str = CUT_OFF
    layers: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    detail: str = ""
    """The text of RoCE behind the operation, the queue pair and the PSN."""
    qpn: int = 0
    psn: int = 0
    nak: str = ""
    claim: str = ""
    """The MAC that ARP or neighbour discovery claims for the sender's address."""
    reply: bool = False
    is_request: bool = False


def describe(frame: Frame) -> Packet:
    packet = Packet(frame.src.hex(":"), frame.dst.hex(":"), ecn=frame.ecn)
    tags = [("VLAN", f"{vlan}, priority {priority}") for vlan, priority in frame.tags]
    ethertype = [] if frame.ethertype is None else [("type", f"0x{frame.ethertype:04x}")]
    packet.layers["Ethernet"] = [("destination", packet.dst), ("source", packet.src), *tags, *ethertype]
    if frame.ip:
        packet.source, packet.target = map(_address, frame.ip)
        name, ttl = ("IPv4", "TTL") if frame.ethertype == frame_decoder.IPV4 else ("IPv6", "hop limit")
        packet.layers[name] = [
            ("source", packet.source),
            ("destination", packet.target),
            ("DSCP", str(frame.dscp)),
            ("ECN", ECN[frame.ecn]),
            (ttl, str(frame.ttl)),
        ]
    if frame.ports and frame.protocol == frame_decoder.UDP:
        source, destination = map(str, frame.ports)
        packet.layers["UDP"] = [("source port", source), ("destination port", destination)]
    if frame.roce:
        _roce(packet, frame.roce)
    elif frame.resolution:
        _resolution(packet, frame.resolution)
    elif frame.ethertype == frame_decoder.MAC_CONTROL:
        _pause(packet, frame)
    else:
        packet.kind, text = _other(frame, f"from {packet.source} to {packet.target}")
        packet.text = CUT_OFF if frame.cut else text
    return packet


@lru_cache(4096)
def _address(packed: bytes) -> str:
    return str(ip_address(packed))


def _pause(packet: Packet, frame: Frame) -> None:
    packet.kind = "pause"
    if frame.pfc is not None:
        times = {f"priority {priority}": quanta for priority, quanta in frame.pfc.items()}
        packet.text = "PFC: " + ", ".join(f"{name} {'pause' if time else 'resume'}" for name, time in times.items())
        packet.layers["PFC"] = [(name, f"{time} quanta of 512 bit times") for name, time in times.items()]
    elif not frame.cut:
        packet.text = "PAUSE"


def _other(frame: Frame, between: str) -> tuple[str, str]:
    """Return the kind of a frame, and its text if it is complete."""
    if frame.icmp in NEIGHBOUR and frame.protocol == frame_decoder.ICMPV6:
        return "nd", NEIGHBOUR[frame.icmp]
    if frame.icmp is not None:
        return "icmp", f"ICMP type {frame.icmp} {between}"
    if frame.ports and not frame.cut:
        name = "TCP" if frame.protocol == frame_decoder.TCP else "UDP"
        return name.lower(), f"{name} {between}, port {frame.ports[1]}"
    if frame.ip is None:
        return "other", f"a frame of type 0x{frame.ethertype or 0:04x}"
    return "other", f"a fragment {between}" if frame.protocol is None else f"IP protocol {frame.protocol} {between}"


def _resolution(packet: Packet, found: Resolution) -> None:
    mac, source, target = found.mac.hex(":"), _address(found.sender), _address(found.target)
    packet.kind, packet.source, packet.target, packet.reply = found.protocol, source, target, not found.asks
    packet.claim = mac if any(found.sender) else ""
    if found.protocol == "arp":
        name = "gratuitous ARP" if found.gratuitous else "ARP request" if found.asks else "ARP reply"
        packet.layers["ARP"] = [
            ("operation", "1, request" if found.asks else "2, reply"),
            ("sender MAC", mac),
            ("sender IP", source),
            ("target MAC", found.target_mac.hex(":")),
            ("target IP", target),
        ]
    else:
        kind, end = (frame_decoder.SOLICITATION, "source") if found.asks else (frame_decoder.ADVERTISEMENT, "target")
        name = NEIGHBOUR[kind]
        fields = [("type", f"{kind}, {name}"), ("target", target)]
        if mac:
            fields.append((f"{end} link address", mac))
        if not found.asks:
            fields.append(("flags", ", ".join(found.flags) or "none"))
            name = f"{'solicited' if 'solicited' in found.flags else 'unsolicited'} {name}"
        packet.layers["Neighbour discovery"] = fields
    asks = found.asks and not found.gratuitous
    says = f"who has {target}? tell {source}" if asks else f"{source} is at {mac or packet.src}"
    packet.text = f"{name}: {says}"


def _roce(packet: Packet, roce: Roce) -> None:
    packet.kind, packet.text, packet.nak = "cnp" if roce.opcode == frame_decoder.CNP else "roce", roce.name, roce.nak
    packet.qpn, packet.psn, packet.is_request = roce.qp, roce.psn, packet.kind == "roce" and not roce.response
    yes = ("no", "yes")
    packet.layers["BTH"] = [
        ("opcode", f"0x{roce.opcode:02x}, {roce.name}"),
        ("destination QP", f"{roce.qp} (0x{roce.qp:06x})"),
        ("PSN", str(roce.psn)),
        ("acknowledge request", yes[roce.acknowledge]),
        ("solicited event", yes[roce.solicited]),
        ("migration request", yes[roce.migration]),
        ("FECN, BECN", f"{roce.fecn}, {roce.becn}"),
        ("partition key", f"0x{roce.partition_key:04x}"),
    ]
    if roce.reth:
        address, key, length = roce.reth
        packet.detail = f"{length} bytes to {'read' if 'READ' in roce.name else 'write'}"
        packet.layers["RETH"] = [
            ("virtual address", f"0x{address:016x}"),
            ("remote key", f"0x{key:08x}"),
            ("DMA length", f"{length} bytes"),
        ]
    if roce.syndrome is not None:
        packet.detail = roce.acknowledgement
        packet.layers["AETH"] = [("syndrome", f"0x{roce.syndrome:02x}, {packet.detail}"), ("MSN", str(roce.msn))]
    if roce.payload and packet.kind == "roce":
        packet.layers["Payload"] = [("length", f"{roce.payload} bytes")]
