"""An interface of a node: a switch's port, a bridge's port, the base of a host's NIC."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from testbed.errors import InputError
from testbed.lab.capture import Capture
from testbed.lab.links import Direction
from testbed.lab.namespace import Namespace
from testbed.lab.overlay import Overlay
from testbed.topology import Interface as InterfacePlan

IFF_UP = 1


class Interface:
    """An interface of a node. `plan` is its part of the topology, None for one that somebody else made; `peer` is the
    other end of its link."""

    queues_at_peer = False
    """Whether rate, queue and loss of what it sends are at the peer's end of the link."""

    def __init__(self, node: Namespace, name: str, index: int, mac: str, plan: InterfacePlan | None = None) -> None:
        self.node = node
        self.name = name
        self.index = index
        """The kernel's number of it in its namespace."""
        self.mac = mac
        self.plan = plan
        self.peer: Interface | None = None
        self._sends: Direction | None = None
        self._clsact = False
        self._captures = 0
        self._up = Overlay(lambda _: {"up": self.is_up}, self._set_up)

    def __str__(self) -> str:
        return f"{self.node}:{self.name}"

    @property
    def sends(self) -> Direction:
        """The packets that it sends over its link: their rate, queue, delay and loss."""
        if self._sends is None:
            if self.plan is None:
                raise InputError(f"{self} is not the end of a link")
            at = self.peer if self.queues_at_peer and self.peer else self
            self._sends = Direction(str(self), at.node, at.name, self.plan, at.add_clsact, incoming=at is not self)
        return self._sends

    def up(self) -> None:
        """Sets it up. The other end has its new carrier when this returns; so for `down`."""
        self._set_state("up")

    def down(self) -> None:
        self._set_state("down")

    def hold_down(self) -> Callable[[], None]:
        """Sets it down until the returned function is called. If several hold it down it is up after the last."""
        return self._up.change({"up": False})

    def _set_up(self, values: Mapping[str, bool]) -> None:
        self._set_state("up" if values["up"] else "down")

    def _set_state(self, state: str) -> None:
        self.node.ip.link("set", index=self.index, state=state)
        # The kernel carries out a change of carrier at once when asked for each end (rtnl_getlink). Left alone it does
        # so up to a second later, and until then what the other end sends fails, which ends its queue pairs.
        for end in filter(None, (self, self.peer)):
            end.node.ip.get_links(end.index)
        self.emit("link", f"{self.name} {state}", state=state)

    @property
    def is_up(self) -> bool:
        """Whether it is set up, with or without a carrier."""
        return bool(self.node.ip.get_links(self.index)[0]["flags"] & IFF_UP)

    @property
    def mtu(self) -> int:
        """Bytes, read from the kernel."""
        mtu: int = self.node.ip.get_links(self.index)[0].get_attr("IFLA_MTU")
        return mtu

    def set_mtu(self, mtu: int) -> None:
        self.node.ip.link("set", index=self.index, mtu=mtu)
        self.emit("link", f"{self.name} has MTU {mtu}", mtu=mtu)

    def counters(self) -> dict[str, int]:
        """The kernel's counters of it, by their names in rtnl_link_stats64."""
        return dict(self.node.ip.get_links(self.index)[0].get_attr("IFLA_STATS64"))

    def capture(self, filter_: str = "") -> Capture:
        """Records its frames into ``<node>-<interface>.pcap`` of the run directory, from when this returns. A second
        capture goes into ``…-2.pcap``. `filter_` is pcap-filter(7)."""
        self._captures += 1
        number = f"-{self._captures}" if self._captures > 1 else ""
        file = self.node.context.file(f"{self.node.name}-{self.name}{number}.pcap")
        capture = Capture(self.node.name, self.node.namespace, self.name, filter_, file)
        self.node.defer(capture.stop)
        return capture

    def add_clsact(self) -> None:
        """Gives it the qdisc that holds filters for what comes in and goes out. May be repeated."""
        if not self._clsact:
            self._clsact = True
            self.node.run("tc", "qdisc", "add", "dev", self.name, "clsact")

    def emit(self, kind: str, text: str, **data: object) -> None:
        """Emits an event of the node that names the interface."""
        self.node.context.emit(kind, self.node.name, text, interface=self.name, **data)
