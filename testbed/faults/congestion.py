"""
Congestion: traffic that is in the way of other traffic, made of real RoCE packets.

The packets of a flow are known by its addresses and its UDP source port, which follows from its flow label. What makes
them is fed by the lab's timers, so it goes on while the scenario waits for something.
"""

import zlib
from abc import abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing
from typing import Annotated, ClassVar, NamedTuple, Self

from pydantic import Field, PrivateAttr, model_validator

from testbed.errors import InputError
from testbed.faults.fault import End, Fault, Verified
from testbed.faults.link import Seconds
from testbed.kernel import nftables
from testbed.lab import HostInterface, Interface, Lab, Switch
from testbed.nic.connections import source_port
from testbed.topology import Family, IPAddress
from testbed.workload.flows import Flow

LABELS = range(1, 65)
"""Flow labels tried until a flow takes a path."""
LOOK_S = 0.02
"""Minimum time to count packets, in seconds."""
DRAINED_S = 10.0
"""Seconds in which queues drain the packets of an ended flow."""
Bytes = Annotated[int, Field(ge=256, le=1 << 20)]
Rate = Annotated[int, Field(ge=8_000, le=1_000_000_000)]


class Stream(NamedTuple):
    """Sender, receiver, and the flow label that makes the UDP source port."""

    source: HostInterface
    target: HostInterface
    flow_label: int


class Traffic(Fault):
    """Subclasses define the flows, their period, and where they are counted."""

    holds: ClassVar[bool] = False
    size: Bytes = 16384
    """Bytes of each message, an RDMA WRITE."""
    interface: str = "eth1"
    """The NIC of the hosts that send and receive the flows."""
    family: Family = 4
    """Address family: 4 for IPv4, 6 for IPv6."""

    @abstractmethod
    def streams(self, lab: Lab) -> list[Stream]: ...

    @abstractmethod
    def period(self) -> float:
        """Return the seconds from one message of a flow to its next."""

    def place(self, lab: Lab) -> tuple[Interface, str]:
        """Return the interface and hook (ingress, egress) that count the packets; by default the receiver's NIC."""
        return self.streams(lab)[0].target, "ingress"

    def _nic(self, lab: Lab, host: str) -> HostInterface:
        return lab.host(host)[self.interface]

    def inject(self, lab: Lab, undo: ExitStack) -> None:
        undo.callback(lab.scheduler.wait, lambda: self.verify(lab) is None, DRAINED_S)
        made = (Flow(*stream, family=self.family, size=self.size) for stream in self.streams(lab))
        flows = [undo.enter_context(closing(flow)) for flow in made]

        def post() -> None:
            for flow in flows:
                flow.post()

        undo.callback(lab.scheduler.every(self.period(), post))
        post()

    def verify(self, lab: Lab) -> Verified | None:
        """Count the packets of two message periods."""
        streams, span = self.streams(lab), max(LOOK_S, 2 * self.period())
        passed = counted(lab, *self.place(lab), [self._match(stream) for stream in streams], span)
        sizes = [flow["bytes"] for flow in passed if flow["packets"]]
        return {"flows": len(sizes), "mbit_per_s": round(sum(sizes) * 8 / span / 1e6, 2)} if sizes else None

    def _addresses(self, source: HostInterface, target: HostInterface) -> tuple[IPAddress, IPAddress]:
        return source.address(self.family).ip, target.address(self.family).ip

    def _match(self, stream: Stream) -> str:
        """Return the match of a stream's packets in the language of nft(8)."""
        source, target = self._addresses(stream.source, stream.target)
        ip, port = "ip" if self.family == 4 else "ip6", source_port(stream.flow_label, 0, 0)
        return f"{ip} saddr {source} {ip} daddr {target} udp sport {port} udp dport 4791"


class BackgroundFlow(Traffic):
    """A host writes to another host at a fixed rate: traffic of another application.

    It sends messages at equal intervals, each as a burst. The queue pair retries for ever. If the network does not
    carry the rate, at most eight messages are outstanding.
    """

    name: ClassVar[str] = "background-flow"
    source: str
    """The host that writes."""
    target: str
    """The host that receives."""
    rate: Rate
    """Bits per second, without headers. An emulated machine's CPU carries some 50 Mbit/s in total."""
    flow_label: Annotated[int, Field(ge=1, lt=1 << 20)] | None = None
    """Sets the UDP source port, and so the path through ECMP. Default: a number made from both names."""

    def streams(self, lab: Lab) -> list[Stream]:
        names = zlib.crc32(f"{self.source} {self.target}".encode()) & 0xFFFFF
        label = self.flow_label or names or 1
        return [Stream(self._nic(lab, self.source), self._nic(lab, self.target), label)]

    def period(self) -> float:
        return self.size * 8 / self.rate


class Incast(Traffic):
    """Many hosts write to one at the same moment, again and again.

    A reduction of a collective, a shuffle or a read from striped storage does this: all messages arrive at once at the
    switch port that leads to the receiver. rxe has no congestion control, and its queue pairs retry for ever.
    """

    name: ClassVar[str] = "incast"
    target: str
    """The host that receives from all."""
    senders: Annotated[tuple[str, ...], Field(min_length=2)]
    """The hosts that send."""
    size: Bytes = 65536
    """Bytes that each host writes each time."""
    wait: Seconds = 0.1
    """Seconds between writes; a host with eight outstanding messages skips its turn."""

    def streams(self, lab: Lab) -> list[Stream]:
        return [Stream(self._nic(lab, sender), self._nic(lab, self.target), 1) for sender in self.senders]

    def period(self) -> float:
        return self.wait


class EcmpCollision(Traffic):
    """Flows that ECMP could spread over several uplinks of a switch all take the same one.

    The fault chooses their flow labels; it does not change the switch's hash. A few large flows collide in this way by
    chance, while the other uplinks are idle.
    """

    name: ClassVar[str] = "ecmp-collision"
    end: End
    """The switch's end of the shared uplink, such as `leaf1:e3`."""
    pairs: Annotated[tuple[tuple[str, str], ...], Field(min_length=1)]
    """Sender and receiver of each flow."""
    rate: Rate
    """Bits per second of each flow, without headers."""

    @model_validator(mode="after")
    def _once_each(self) -> Self:
        if len(set(self.pairs)) < len(self.pairs):
            raise ValueError("a pair of hosts is given twice")
        return self

    _labels: dict[tuple[str, str], int] = PrivateAttr(default_factory=dict)
    """Flow labels by pair, chosen once: while the flows run, routes may change."""

    def inject(self, lab: Lab, undo: ExitStack) -> None:
        self._labels.clear()
        super().inject(lab, undo)

    def streams(self, lab: Lab) -> list[Stream]:
        uplink, found = self._uplink(lab), []
        for pair in self.pairs:
            source, target = (self._nic(lab, host) for host in pair)
            if pair not in self._labels:
                label = next(labels(uplink, *self._addresses(source, target)), None)
                if label is None:
                    raise InputError(
                        f"fault {self}: no flow from {pair[0]} to {pair[1]} leaves {uplink.node} by {uplink.name}",
                        hint="Check that it is one of several next hops.",
                    )
                self._labels[pair] = label
            found.append(Stream(source, target, self._labels[pair]))
        return found

    def period(self) -> float:
        return self.size * 8 / self.rate

    def place(self, lab: Lab) -> tuple[Interface, str]:
        return self._uplink(lab), "egress"

    def _uplink(self, lab: Lab) -> Interface:
        uplink = lab.interface(self.end)
        lab.switch(uplink.node.name)
        return uplink


def labels(uplink: Interface, source: IPAddress, target: IPAddress) -> Iterator[int]:
    """Flow labels with which RoCE packets from one address to another leave the uplink's switch by it."""
    assert isinstance(uplink.node, Switch), "an uplink is a switch's port"
    taken = uplink.node.uplinks(source, target, [source_port(label, 0, 0) for label in LABELS])
    return (label for label, port in zip(LABELS, taken, strict=True) if port == uplink.name)


def counted(lab: Lab, interface: Interface, hook: str, matches: Iterable[str], span: float) -> list[dict[str, int]]:
    """`packets` and `bytes` of each match that pass in `span` seconds."""
    node, table = interface.node, f"counted-{interface.name}-{hook}"
    flows = {f"flow{number}": (hook, match) for number, match in enumerate(matches)}
    with node.entered():
        nftables.run(nftables.counting(table, interface.name, flows))
    try:
        lab.scheduler.sleep(span)
        with node.entered():
            found = nftables.counters(table)
    finally:
        with node.entered():
            nftables.run(f"delete table netdev {table}")
    return [found[flow] for flow in flows]
