"""Links: down, flapping, slow, lossy."""

from contextlib import ExitStack
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from testbed.errors import InputError
from testbed.faults.fault import End, Fault, Verified
from testbed.faults.rule import Hook, Rule
from testbed.kernel.lossless.layout import PRIORITIES
from testbed.lab import HostInterface, Interface, Lab, Node

Percent = Annotated[float, Field(gt=0, le=100)]
Seconds = Annotated[float, Field(gt=0, le=86400)]


class LinkDown(Fault):
    """The link is down, as with a cable pulled.

    The fault sets a switch's end down, and both ends lose their carrier. With a port channel its members go down, as on
    switches. On a host use `nic-down`, which also ends the host's queue pairs at once.
    """

    name: ClassVar[str] = "link-down"
    end: End

    def inject(self, lab: Lab, undo: ExitStack) -> None:
        interface = lab.interface(self.end)
        if isinstance(interface, HostInterface):
            raise InputError(f"fault {self}: {self.end} is on a host", hint="Name the other end, or use nic-down.")
        for one in self._ends(lab):
            undo.callback(one.hold_down())

    def verify(self, lab: Lab) -> Verified | None:
        return None if any(one.is_up for one in self._ends(lab)) else {"down": self.end}

    def _ends(self, lab: Lab) -> list[Interface]:
        """Return the interface, and its members as the kernel has them: Linux leaves those of a bond up."""
        interface = lab.interface(self.end)
        links = interface.node.now().links
        ends = interface.node.interfaces.values() if isinstance(interface.node, Node) else ()
        return [interface, *(end for end in ends if end.index in links and links[end.index].master == interface.index)]


class NicDown(LinkDown):
    """A host's NIC is set down.

    Its queue pairs end with WR_FLUSH_ERR. As Linux does it, its IPv4 address stays, its IPv6 address and its routes go;
    they return at recovery.
    """

    name: ClassVar[str] = "nic-down"

    def inject(self, lab: Lab, undo: ExitStack) -> None:
        interface = lab.interface(self.end)
        if not isinstance(interface, HostInterface):
            raise InputError(f"fault {self}: {self.end} is not on a host")
        undo.callback(interface.hold_down())

    def _ends(self, lab: Lab) -> list[Interface]:
        return [lab.interface(self.end)]


class LinkFlap(Fault):
    """The link goes down and up, again and again, starting with down. For a single flap use `link-down` with a
    duration.
    """

    name: ClassVar[str] = "link-flap"
    holds: ClassVar[bool] = False
    end: End
    down: Seconds
    """Seconds of each down time."""
    up: Seconds
    """Seconds between."""

    def inject(self, lab: Lab, undo: ExitStack) -> None:
        down = LinkDown(end=self.end)
        state = ExitStack()
        undo.callback(state.close)

        def go_down() -> None:
            state.close()
            down.inject(lab, state)
            state.callback(lab.scheduler.after(self.down, come_up))

        def come_up() -> None:
            state.close()
            state.callback(lab.scheduler.after(self.up, go_down))

        go_down()

    def verify(self, lab: Lab) -> Verified | None:
        return LinkDown(end=self.end).verify(lab)


class _Impairment(Fault):
    """A change of a direction's quality. What it changes are the fields of the subclass, under the names there."""

    counter: ClassVar[Literal["sent", "dropped", "lost"]] = "sent"
    """Of the direction: packets that may feel it, or those that do."""
    end: End

    def _values(self, lab: Lab) -> dict[str, Any]:
        return self.model_dump(exclude={"end"})

    def inject(self, lab: Lab, undo: ExitStack) -> None:
        undo.callback(lab.interface(self.end).sends.change(**self._values(lab)))

    def verify(self, lab: Lab) -> Verified | None:
        found, wanted = lab.interface(self.end).sends.verified(), self._values(lab)
        values = {name: getattr(found, name) for name in wanted}
        return values if all(_near(values[name], value) for name, value in wanted.items()) else None

    def hits(self, lab: Lab) -> int | None:
        interface = lab.interface(self.end)
        if interface.port and self.counter == "sent":
            return sum(interface.port.queue(priority).sent_packets for priority in PRIORITIES)
        return interface.sends.counters()[self.counter]


def _near(value: float | None, wanted: float) -> bool:
    """The kernel keeps probabilities in 32 bits and rates in bytes."""
    return value is not None and abs(value - wanted) <= max(1e-3 * abs(wanted), 1e-7)


class LinkLoss(_Impairment):
    """Packets are lost at random, in one direction.

    With 100 all are lost: the link is dead in one direction, with its carrier up. The seed of a run decides which
    packets are lost.
    """

    name: ClassVar[str] = "link-loss"
    counter = "lost"
    loss: Percent
    """Percent."""
    loss_burst: Annotated[float, Field(ge=1, le=1000)] = 1.0
    """Average number of packets lost in a row (Gilbert's model)."""

    @model_validator(mode="after")
    def _burst_is_possible(self) -> Self:
        if self.loss_burst > 1 and self.loss > self.loss_burst * (100 - self.loss):
            most = 100 * self.loss_burst / (1 + self.loss_burst)
            raise ValueError(f"with bursts of {self.loss_burst:g}, loss can be at most {most:.4g} percent")
        return self


class LinkDelay(_Impairment):
    """Packets take longer, in one direction."""

    name: ClassVar[str] = "link-delay"
    delay: Seconds
    """Seconds."""
    jitter: Annotated[float, Field(ge=0, le=86400)] = 0.0
    """Seconds of variation. Packets overtake each other, which rxe treats as loss: a storm of go-back-N."""


class LinkRate(_Impairment):
    """The link is slower than it should be, in one direction; its queue grows and overflows.

    A lossless link has no queue of its own: the buffer of the switch fills.
    """

    name: ClassVar[str] = "link-rate"
    rate: Annotated[int, Field(ge=8_000, le=800_000_000_000)]
    """Bits per second."""
    queue: Annotated[int, Field(ge=1, le=1_000_000)] = 1000
    """Maximum number of waiting packets."""

    def _values(self, lab: Lab) -> dict[str, Any]:
        left_out = {"end", "queue"} if lab.interface(self.end).port else {"end"}
        return self.model_dump(exclude=left_out)


class QueueTooSmall(_Impairment):
    """The queue of a link is too short for bursts; packets that do not fit are dropped.

    The link keeps its rate. One rxe queue pair has up to 65 packets outstanding, behind a router 129.
    """

    name: ClassVar[str] = "queue-too-small"
    counter = "dropped"
    queue: Annotated[int, Field(ge=1, le=1_000_000)]
    """Maximum number of waiting packets."""

    def inject(self, lab: Lab, undo: ExitStack) -> None:
        if lab.interface(self.end).sends.quality.rate is None:
            raise InputError(f"fault {self}: {self.end} has no rate, so it has no queue", hint="Use link-rate.")
        super().inject(lab, undo)


class LinkDuplicate(_Impairment):
    """Packets arrive twice, in one direction."""

    name: ClassVar[str] = "link-duplicate"
    duplicate: Percent
    """Percent."""


class LinkReorder(_Impairment):
    """Some packets overtake the others, in one direction.

    The others are delayed, so `delay` is required and replaces the link's delay. rxe treats a gap as loss.
    """

    name: ClassVar[str] = "link-reorder"
    reorder: Percent
    """Percent of the packets that are sent at once."""
    delay: Seconds
    """Delay of the other packets, in seconds."""


class LinkCorrupt(_Impairment):
    """One bit of a packet is flipped, in one direction. A RoCE packet then fails its ICRC check, and rxe drops it
    without a message or a counter.
    """

    name: ClassVar[str] = "link-corrupt"
    corrupt: Percent
    """Percent."""


class LinkMtu(Rule):
    """A switch port accepts only smaller packets than the NICs send. It drops larger ones silently, in both directions.
    Small messages pass.
    """

    name: ClassVar[str] = "link-mtu"
    mtu: Annotated[int, Field(ge=68, le=65535)]
    """Size of the largest packet that passes, in bytes."""

    def place(self, lab: Lab) -> tuple[Interface, tuple[Hook, ...]]:
        interface = lab.interface(self.end)
        if isinstance(interface, HostInterface):
            raise InputError(f"fault {self}: {self.end} is on a host", hint="Name the switch's end of the link.")
        self.require_port(interface)
        return interface, ("prerouting", "postrouting")

    def chosen(self) -> str:
        """Match the length: with a smaller MTU of the port veth would refuse the frame, and the host would notice."""
        return f"meta length > {self.mtu}"

    def act(self) -> str:
        return "drop"
