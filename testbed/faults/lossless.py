"""Lossless links: NICs that pause for ever or not at all, classes that do not agree, buffers that are cut wrongly."""

from __future__ import annotations

from abc import abstractmethod
from contextlib import ExitStack
from typing import Annotated, Any, ClassVar

from pydantic import Field, model_validator

from testbed.errors import InputError
from testbed.faults.fault import End, Fault, Verified
from testbed.faults.packet import ROCE_PORT
from testbed.faults.rule import Rule
from testbed.faults.switch import Setting
from testbed.lab import HostInterface, Lab
from testbed.lab.port import pause_frame

Priority = Annotated[int, Field(ge=0, le=7)]
Bytes = Annotated[int, Field(ge=0, le=1 << 30)]
CNP_OPCODE = "@th,64,8 0x81"
"""In the base transport header, eight bytes from the start of UDP (InfiniBand, annex A17)."""


class _PortFault(Fault):
    """A setting of a port that is not what it should be."""

    end: End

    @abstractmethod
    def settings(self, lab: Lab) -> dict[str, Any]:
        """Return the port's settings with the fault."""

    def inject(self, lab: Lab, undo: ExitStack) -> None:
        undo.callback(lab.interface(self.end).lossless.change(**self.settings(lab)))

    def verify(self, lab: Lab) -> Verified | None:
        wanted = self.settings(lab)
        return {"port": self.end, **wanted} if lab.interface(self.end).lossless.applies(**wanted) else None


class _PauseFault(_PortFault):
    """One whose effect is pause frames, which its peer or its own end receives."""

    at_peer: ClassVar[bool] = True

    def hits(self, lab: Lab) -> int:
        interface = lab.interface(self.end)
        receiver = interface.peer if self.at_peer else interface
        return receiver.lossless.pauses() if receiver else 0


class PauseStorm(_PauseFault):
    """A NIC sends pause frames without end: its port halts, and hop by hop every sender to it.

    A NIC with a hanging receive pipeline does this (Guo et al., SIGCOMM 2016, section 4.3). A PFC watchdog of the
    switch is the mitigation. After the recovery the last pause lasts for its 65535 quanta of 512 bit times.
    """

    name: ClassVar[str] = "pause-storm"
    priority: Priority
    """The paused priority."""

    def settings(self, lab: Lab) -> dict[str, Any]:
        return {"holds": (self.priority,)}

    def inject(self, lab: Lab, undo: ExitStack) -> None:
        nic = lab.interface(self.end)
        if not isinstance(nic, HostInterface):
            raise InputError(f"fault {self}: {self.end} is not on a host")
        if lab.plan.lossless and self.priority not in (known := lab.plan.lossless.priorities):
            hint = f"Lossless priorities: {', '.join(map(str, known))}."
            raise InputError(f"fault {self}: priority {self.priority} has no priority flow control here", hint=hint)
        super().inject(lab, undo)
        nic.send(pause_frame(nic.mac, self.priority))


class PauseIgnored(_PauseFault):
    """A port ignores pause frames, so the headroom of the other end overflows."""

    name: ClassVar[str] = "pause-ignored"
    at_peer = False

    def settings(self, lab: Lab) -> dict[str, Any]:
        return {"honours_pause": ()}


class PauseNotSent(_PortFault):
    """PFC is off on one side of a link: the port sends no pause frames, and drops."""

    name: ClassVar[str] = "pause-not-sent"

    def settings(self, lab: Lab) -> dict[str, Any]:
        return {"sends_pause": ()}


class DscpMismatch(_PortFault):
    """A port maps a DSCP to another priority than its neighbours do.

    The map applies to packets that a switch's port receives, and to packets that a NIC sends.
    """

    name: ClassVar[str] = "dscp-mismatch"
    dscp: Annotated[int, Field(ge=0, le=63)]
    """The DSCP."""
    priority: Priority
    """The priority of these packets at this port."""

    def settings(self, lab: Lab) -> dict[str, Any]:
        assert lab.plan.lossless or lab.interface(self.end).lossless
        classes = dict(lab.plan.lossless.dscp) if lab.plan.lossless else {}
        return {"dscp": {**classes, self.dscp: self.priority}}


class HeadroomTooSmall(_PortFault):
    """The headroom of a switch's port is smaller than the data that still arrives after its pause frame."""

    name: ClassVar[str] = "headroom-too-small"
    headroom: Bytes
    """Bytes for each lossless class."""

    def settings(self, lab: Lab) -> dict[str, Any]:
        return {"headroom": self.headroom}


class EcnOff(_PortFault):
    """A port does not mark packets, so its senders get no signal of its queue."""

    name: ClassVar[str] = "ecn-off"

    def settings(self, lab: Lab) -> dict[str, Any]:
        return {"marking": {}}


class SlowReceiver(_PauseFault):
    """A NIC receives more slowly than its link delivers, and pauses the switch.

    Cache misses, a busy PCIe bus or slow memory cause this (SIGCOMM 2016, section 4.4).
    """

    name: ClassVar[str] = "slow-receiver"
    rate: Annotated[int, Field(ge=8_000, le=800_000_000_000)]
    """Bits per second that the NIC receives."""
    buffer: Bytes = 20_000
    """Bytes that wait in the NIC before it pauses; it resumes when half of them wait."""

    def settings(self, lab: Lab) -> dict[str, Any]:
        return {"receives": (self.rate, self.buffer, self.buffer // 2)}

    def inject(self, lab: Lab, undo: ExitStack) -> None:
        if not isinstance(lab.interface(self.end), HostInterface):
            raise InputError(f"fault {self}: {self.end} is not on a host")
        super().inject(lab, undo)


class CnpDrop(Rule):
    """CNPs are lost, so no sender learns that its packets were marked."""

    name: ClassVar[str] = "cnp-drop"

    def chosen(self) -> str:
        return f"udp dport {ROCE_PORT} {CNP_OPCODE}"

    def act(self) -> str:
        return "drop"


class BufferCarving(Setting):
    """The buffer of a switch is divided wrongly between lossless and lossy traffic, and between their queues."""

    name: ClassVar[str] = "buffer-carving"
    buffer: Bytes | None = None
    """Size of the whole buffer, in bytes."""
    pfc_alpha: Annotated[float, Field(ge=1 / 128, le=128)] | None = None
    """Share of the free buffer that one priority group may use."""
    lossy_alpha: Annotated[float, Field(ge=1 / 128, le=128)] | None = None
    """Share of the free buffer that one lossy queue may use."""

    @model_validator(mode="after")
    def _says_something(self) -> BufferCarving:
        if not self._values():
            raise ValueError("it needs buffer, pfc_alpha or lossy_alpha")
        return self
