"""An interface of a node, such as a switch's port, and what it sends over its link."""

from __future__ import annotations

import contextlib
import errno
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from typing import Any, TypeVar

from testbed.errors import InputError, TestbedError
from testbed.kernel.impairments.cables import Cables, Impairment
from testbed.kernel.impairments.cables import Port as Place
from testbed.kernel.syscalls import at_once
from testbed.lab import link_quality
from testbed.lab.capture import Capture
from testbed.lab.namespace import Namespace
from testbed.lab.overlay import Overlay
from testbed.lab.port import Port
from testbed.protocol.events import CAPTURE, Data
from testbed.topology import Interface as InterfacePlan
from testbed.topology import Quality

T = TypeVar("T")


class Interface:
    """An interface of a node. `plan` is None for one that somebody else made; `peer` is the other end of its link."""

    queues_at_peer = False
    """True if rate, queue and loss of what it sends are at the peer's end of the link, as on lossless links."""

    def __init__(self, node: Namespace, name: str, index: int, mac: str, plan: InterfacePlan | None = None) -> None:
        self.node = node
        self.name = name
        self.index = index
        """The kernel's number for it in its namespace."""
        self._mac = mac
        self.plan = plan
        self.peer: Interface | None = None
        self.port: Port | None = None
        """Its queues by class, if it is the end of a lossless link."""
        self._sends: Direction | None = None
        self._clsact = False
        self._captures = 0
        self._up = Overlay(lambda _: {"up": self.is_up}, lambda values: self._set_state(**values))

    def __str__(self) -> str:
        return f"{self.node}:{self.name}"

    @property
    def mac(self) -> str:
        """Return its MAC as the kernel has it; after its end, the one that it had."""
        now = self.node.now()
        link = now.links.get(self.index) or now.gone.get(self.index)
        return link.mac if link else self._mac

    @property
    def name_now(self) -> str:
        """Return its name as the kernel has it: a command may have given it another one."""
        link = self.node.now().links.get(self.index)
        return link.name if link else self.name

    def queue_counters(self) -> dict[str, int]:
        """Return the counters of the queue of its packets, if it has one: see `Direction.counters`, of a lossless link
        `Port.counters`; and `queue_rate_bps`, the bits per second at which it sends."""
        found = self.port.counters() if self.port else {}
        if self._sends and self._sends.quality.rate:
            found["queue_rate_bps"] = self._sends.quality.rate
        if self._sends and self._sends.shaped:
            found |= {f"queue_{name}": value for name, value in self._sends.counters().items()}
        return found

    @property
    def lossless(self) -> Port:
        """Return its queues by class, its pause frames and its buffer share. InputError if its link is not lossless."""
        if self.port is None:
            self._refuse_bond()
            raise InputError(f"{self} is not the end of a lossless link", hint="See `lossless` in the topology file.")
        return self.port

    @property
    def sends(self) -> Direction:
        """Return the packets that it sends over its link: their rate, queue, delay and loss."""
        if self._sends is None:
            if self.plan is None:
                raise InputError(f"{self} is not the end of a link")
            self._refuse_bond()
            self._sends = Direction(self, self.plan)
        return self._sends

    def _refuse_bond(self) -> None:
        if self.plan and self.plan.bond:
            members = ", ".join(self.plan.bond.members)
            raise InputError(f"{self} is a bond, not the end of a link", hint=f"Its links: {members}.")

    def disconnect(self) -> None:
        """Remove what was made for the packets that it sends: its link is to go."""
        if self._sends:
            self._sends.remove()

    def up(self) -> None:
        """Set it up. The other end has its new carrier when this returns; `down` likewise."""
        self._set_state(up=True)

    def down(self) -> None:
        self._set_state(up=False)

    def hold_down(self) -> Callable[[], None]:
        """Set it down until the returned function is called. If several hold it down it is up after the last."""
        return self._up.change({"up": False})

    def hold_again(self) -> None:
        """Set it down again if somebody holds it down: its node has set it up."""
        self._up.renew()

    def _set_state(self, *, up: bool) -> None:
        # The kernel carries out a change of carrier at once when asked for each end (rtnl_getlink). Left alone it does
        # so up to a second later, and until then what the other end sends fails, which ends its queue pairs. So nothing
        # else may have the CPU in between.
        with at_once():
            self.node.kernel.set_link(self.index, up=up)
            for end in filter(None, (self, self.peer)):
                end.node.kernel.read(end.index)
        self.node.context.view.drain()

    def _ask(self, question: Callable[[int], T], otherwise: T) -> T:
        """Return what the kernel answers about it, or `otherwise` if it is gone."""
        try:
            return otherwise if self.node.gone else question(self.index)
        except OSError as error:
            if error.errno != errno.ENODEV:
                raise
            return otherwise

    @property
    def gone(self) -> bool:
        """Return whether the kernel has it no more."""
        return self.node.gone or self.index not in self.node.now().links

    @property
    def is_up(self) -> bool:
        """Return whether it is set up, with or without a carrier; False if it is gone."""
        return self._ask(self.node.kernel.is_up, otherwise=False)

    @property
    def mtu(self) -> int:
        """Return its MTU in bytes as the kernel has it; 0 if it is gone."""
        return self._ask(self.node.kernel.mtu, otherwise=0)

    def set_mtu(self, mtu: int) -> None:
        """Set its MTU in bytes. InputError for one that the kernel refuses."""
        if not isinstance(mtu, int) or not 0 < mtu < 1 << 32:
            raise InputError(f"{mtu!r} is no MTU of {self}")
        try:
            self.node.kernel.set_link(self.index, mtu=mtu)
        except OSError as error:
            raise InputError(f"{self} cannot have the MTU {mtu}: {error.strerror}") from None
        self.node.context.view.drain()

    def counters(self) -> dict[str, int]:
        """Return its kernel counters, by their names in rtnl_link_stats64; none if it is gone. Frames that a bad cable
        of a sealed lab has damaged are errors here, as on a NIC."""
        nothing: dict[str, int] = {}
        found = self._ask(self.node.kernel.statistics, otherwise=nothing)
        seal = self.node.context.seal
        if found and seal and (errors := seal.cables.damaged(place_of(self))):
            found |= {name: found[name] + errors for name in ("rx_errors", "rx_crc_errors")}
        return found

    def capture(self, filter_: str = "") -> Capture:
        """Record its frames into ``<node>-<interface>.pcap`` of the run directory, from when this returns. A second
        capture goes into ``…-2.pcap``. `filter_` is pcap-filter(7)."""
        self._captures += 1
        number = f"-{self._captures}" if self._captures > 1 else ""
        file = self.node.context.file(f"{self.node.name}-{self.name}{number}.pcap")
        of_file = {"interface": self.name, "file": file.name, "filter": filter_}

        def complete(until_ns: int) -> None:
            self.emit(CAPTURE(**of_file, running=False), f"{self.name}: {file.name} ends", at_ns=until_ns)

        capture = Capture(self.node.name, self.node.namespace, self.name_now, filter_, file, complete)
        self.emit(CAPTURE(**of_file, running=True), f"{self.name} is captured into {file.name}")
        self.node.defer(capture.stop)
        return capture

    def add_clsact(self) -> None:
        """Add the qdisc that holds filters for ingress and egress. May be repeated."""
        if not self._clsact:
            self._clsact = True
            self.node.use("tc", "qdisc", "add", "dev", self.name_now, "clsact")

    def emit(self, data: Data, text: str, *, at_ns: int | None = None) -> None:
        """Emit an event of the node."""
        self.node.context.emit(data, self.node.name, text, at_ns=at_ns)


class Direction:
    """
    The packets from one end of a link to the other: `Interface.sends`. `quality` has the values of the file, and of the
    changes, the latest of which wins.

    A drop on a sending host's own egress ends its queue pairs at once (rxe: WR_FLUSH_ERR), which no network can do. So
    everything sits on the far side of a host's cable: what a switch sends passes a qdisc on its port, and what a host
    sends passes an ifb device behind the ingress of the switch's port. Captures on a port see packets before that.

    A lossless link has its rate and its delay in the queues of the sender's port. Delays that vary and losses are at
    the other end.
    """

    def __init__(self, sender: Interface, plan: InterfacePlan) -> None:
        if sender.queues_at_peer and sender.peer and sender.peer.plan and sender.peer.plan.nic:
            raise InputError(f"no switch of the lab is between {sender} and {sender.peer}: both ends are hardware")
        self.quality = plan.sends
        self.secret = False
        """Whether nobody is told what differs from the file, and what it loses."""
        self._cables: Cables | None = None
        """What loses and damages packets in place of a qdisc, if that is hidden."""
        self._planned = plan.sends
        self._sender = sender
        self._mtu = plan.mtu
        self._port = sender.peer if (sender.queues_at_peer or sender.port) and sender.peer else sender
        """The port with the qdiscs."""
        self._device = sender.name if self._port is sender else ""
        self._installed: set[str] = set()
        self._dropped = 0
        """Packets that queues dropped which are gone, while the qdisc at the root is not."""
        self._values = Overlay(lambda names: {name: getattr(self.quality, name) for name in names}, self._set)

    def __str__(self) -> str:
        return str(self._sender)

    def hide(self) -> None:
        """Tell nobody of changes from now on. In a sealed lab loss and damage are the cable's then, of which no program
        of a node finds anything but what is missing."""
        self.secret = True
        if seal := self._sender.node.context.seal:
            self._cables = seal.cables

    @property
    def told(self) -> Quality:
        """Return the quality, as far as it is told."""
        return self._planned if self.secret else self.quality

    @property
    def shaped(self) -> bool:
        """Return whether it has a queue of its own, or a quality of another kind."""
        return bool(self._installed)

    @property
    def in_place(self) -> bool:
        """Return whether the kernel has its qdisc, if it needs one: a command may have deleted it."""
        if not self.shaped:
            return True
        kernel = self._port.node.kernel
        try:
            return any(qdisc.root for qdisc in kernel.qdiscs(kernel.index(self._device)))
        except OSError:  # the device is gone
            return False

    def change(self, **values: Any) -> Callable[[], None]:
        """Change fields of the `Quality` beside other changes. The returned function undoes this change."""
        known = asdict(self.quality)
        if unknown := sorted(values.keys() - known.keys()):
            raise InputError(f"a link has no {unknown[0]!r}", hint=f"It has: {', '.join(known)}.")
        for name, value in values.items():
            if not isinstance(value, int | float | None) or isinstance(value, bool):
                raise InputError(
                    f"{name!r} of a link is a number here, not {value!r}", hint="Rates are in bits a second."
                )
        return self._values.change(values)

    def take(self, before: Quality, now: Quality) -> None:
        """Take other values of the file. Where a change is in force, its value stays until it is undone."""
        new = asdict(now)
        self._values.rebase({name: new[name] for name, value in asdict(before).items() if value != new[name]})

    def remove(self) -> None:
        """Remove what it has made: its link is to go."""
        self.clear()
        if self._device and self._device != self._sender.name:
            kernel = self._port.node.kernel
            kernel.delete_link(kernel.index(self._device))

    def _set(self, values: Mapping[str, Any]) -> None:
        before, self.quality = self.quality, replace(self.quality, **values)
        try:
            self.apply()
        except BaseException:
            self.quality = before
            self._installed = {"netem"}  # or nothing, or more: how far it came is not known
            with contextlib.suppress(TestbedError):
                self.clear()
            self.apply()
            raise

    def apply(self) -> None:
        quality = self._of_tc()
        if self._cables:
            impairment = Impairment(quality.loss, quality.loss_burst, quality.corrupt)
            far = place_of(self._sender.peer or self._sender)
            self._cables.set(place_of(self._port), impairment, far, incoming=self._port is not self._sender)
            quality = replace(quality, **Impairment()._asdict())
        if quality == Quality() and not self._installed:
            return
        if self._sender.port and self._port.port and self._port.port.sorts:
            hint = "Its link has a rate and a constant delay; a link between switches has all."
            raise InputError(f"{self._port} puts packets in order (`reorder`) before a loss would have them", hint=hint)
        if not self._device:
            self._device = self._divert()
        if not self._installed:
            self._port.node.defer(self.clear)
        lines, installed = link_quality.commands(self._device, self._mtu, quality, self._installed)
        if self._installed - installed:
            self._dropped = self.counters()["dropped"] if installed else 0
        self._tc(*lines)
        self._installed = installed

    def _of_tc(self) -> Quality:
        """Return the part of the quality that is tc's; the rest goes to the port of a lossless link."""
        if self._sender.port is None:
            return self.quality
        if self.quality.queue or self.quality.ecn:
            hint = "Its queues are in the buffer of its switch: see `testbed profile describe NAME`."
            raise InputError(f"{self._sender} is lossless and has no queue of its own", hint=hint)
        varies = self.quality.jitter or self.quality.reorder
        self._sender.port.set_link(self.quality.rate, 0 if varies else self.quality.delay)
        return replace(self.quality, rate=None, delay=self.quality.delay if varies else 0.0)

    def clear(self) -> None:
        """Remove the qdiscs and with them the packets they hold, whose senders still exist."""
        if self._installed:
            self._installed, self._dropped = set(), 0
            self._tc(f"qdisc del dev {self._device} root")

    def verified(self) -> Quality:
        """Return the quality that the kernel applies, read back from it."""
        found = link_quality.quality_of(self._show())
        if self._cables:
            impairment = self._cables.get(place_of(self._port), incoming=self._port is not self._sender)
            found = replace(found, **impairment._asdict())
        if self._sender.port is None:
            return found
        rate, delay = self._sender.port.link()
        return replace(found, rate=rate, delay=found.delay + delay)

    def counters(self) -> dict[str, int]:
        """Return packets so far: `sent`, `dropped` (by the full queue), `lost` (on the way), `marked` (CE); and
        `waiting` now."""
        kernel = self._port.node.kernel
        found = kernel.qdiscs(kernel.index(self._device)) if self.shaped else []
        root = [qdisc for qdisc in found if qdisc.root]
        # A qdisc counts a drop of the one below it as its own, too, and netem at the root drops nothing but losses.
        dropped = max((qdisc.dropped for qdisc in found if not qdisc.root), default=0)
        return {
            "sent": sum(qdisc.sent for qdisc in root),
            "dropped": self._dropped + dropped,
            "lost": 0 if self.secret else sum(qdisc.dropped for qdisc in root) - self._dropped - dropped,
            "marked": sum(qdisc.marked for qdisc in found),
            "waiting": sum(qdisc.waiting for qdisc in root),
        }

    def _show(self) -> list[dict[str, Any]]:
        if not self.shaped:
            return []
        shown = self._port.node.use("tc", "-j", "qdisc", "show", "dev", self._device).stdout
        return [entry for entry in json.loads(shown) if entry["kind"] != "clsact"]

    def _divert(self) -> str:
        """Make an ifb device for the ingress of the port, and return its name."""
        port = self._port
        device = f"ifb{port.index}"
        port.node.kernel.add_ifb(device)
        port.add_clsact()
        self._tc(f"filter add dev {port.name} ingress matchall action mirred egress redirect dev {device}")
        return device

    def _tc(self, *lines: str) -> None:
        self._port.node.use("tc", "-batch", "-", text="".join(f"{line}\n" for line in lines))


def place_of(interface: Interface) -> Place:
    return Place(interface.node.namespace, interface.index)
