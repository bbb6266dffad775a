"""
One direction of a link: a rate, a queue, a delay, loss.

A drop on a sending host's own egress ends its queue pairs at once (rxe: WR_FLUSH_ERR), which no network can do. So
everything sits on the far side of a host's cable: what a switch sends passes a qdisc on its port, and what a host sends
passes an ifb device that takes what comes in at the switch's port. Captures on a port see packets before that.
"""

from __future__ import annotations

import contextlib
import json
import math
import socket
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

from testbed.errors import InputError, TestbedError
from testbed.lab.namespace import Namespace
from testbed.topology import DEFAULT_QUEUE, Interface, Quality

ETHERNET = 18
"""Bytes of an Ethernet header with a VLAN tag, which the MTU does not count."""
UNDER_WAY = 1_000_000
"""Packets in delay at most, so that a delay never loses one."""
BURST_S = 100e-6
"""A link may be ahead of its rate by so much, and by two packets."""


class Direction:
    """The packets from one end of a link to the other: `Interface.sends`."""

    def __init__(
        self,
        sender: str,
        node: Namespace,
        port: str,
        plan: Interface,
        add_clsact: Callable[[], None],
        *,
        incoming: bool,
    ) -> None:
        """`node` and `port` are where the qdiscs go: at the sender, or at its peer for what comes in there."""
        self.node = node
        self._sender = sender
        self._port = port
        self._plan = plan
        self._add_clsact = add_clsact
        self._device = "" if incoming else port
        self._changes: list[dict[str, Any]] = []
        self._installed: set[str] = set()

    def __str__(self) -> str:
        return self._sender

    @property
    def quality(self) -> Quality:
        """The current values: those of the file, and the changes, the latest of which wins."""
        values: dict[str, Any] = {}
        for change in self._changes:
            values |= change
        return replace(self._plan.sends, **values)

    def change(self, **values: Any) -> Callable[[], None]:
        """Changes fields of the `Quality` beside other changes. The returned function takes this change back."""
        unknown = sorted(values.keys() - asdict(Quality()).keys())
        if unknown:
            raise InputError(f"a link has no {unknown[0]!r}", hint=f"It has: {', '.join(asdict(Quality()))}.")
        self._changes.append(values)
        try:
            self.apply()
        except BaseException:
            self._changes.remove(values)
            self._installed = {"netem"}  # or nothing, or more: how far it came is not known
            with contextlib.suppress(TestbedError):
                self.clear()
            self.apply()
            raise

        def take_back() -> None:
            self._changes = [change for change in self._changes if change is not values]
            self.apply()

        return take_back

    def apply(self) -> None:
        """Has the kernel do what `quality` says."""
        quality = self.quality
        if quality == Quality() and not self._installed:
            return
        if not self._device:
            self._device = self._divert()
        if not self._installed:
            self.node.defer(self.clear)
        lines, installed = commands(self._device, self._plan.mtu, quality, self._installed)
        self._tc(lines)
        self._installed = installed

    def clear(self) -> None:
        """Takes the qdiscs away and with them the packets they hold, whose senders are still there."""
        if self._installed:
            self._installed = set()
            self._tc([f"qdisc del dev {self._device} root"])

    def verified(self) -> Quality:
        """The quality that the kernel applies, read back from it."""
        if not self._installed:
            return Quality()
        return quality_of(self._show("-j"))

    def counters(self) -> dict[str, int]:
        """Packets so far: `sent`, `dropped` (by loss or a full queue), `marked` (CE); and `waiting` now."""
        found = self._show("-s", "-j") if self._installed else []
        root: dict[str, Any] = next((entry for entry in found if entry.get("root")), {})
        return {
            "sent": root.get("packets", 0),
            "dropped": sum(entry["drops"] for entry in found),
            "marked": sum(entry.get("marked", 0) for entry in found),
            "waiting": root.get("qlen", 0),
        }

    def _show(self, *options: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(
            self.node.run("tc", *options, "qdisc", "show", "dev", self._device).stdout
        )
        return [entry for entry in found if entry["kind"] != "clsact"]

    def _divert(self) -> str:
        """An ifb device that what comes in at the port passes."""
        with self.node.entered():
            device = f"ifb{socket.if_nametoindex(self._port)}"
            self.node.ip.link("add", ifname=device, kind="ifb")
            self.node.ip.link("set", index=socket.if_nametoindex(device), state="up")
        self._add_clsact()
        self._tc([f"filter add dev {self._port} ingress matchall action mirred egress redirect dev {device}"])
        return device

    def _tc(self, lines: list[str]) -> None:
        self.node.run("tc", "-batch", "-", text="".join(f"{line}\n" for line in lines))


def commands(device: str, mtu: int, quality: Quality, installed: set[str]) -> tuple[list[str], set[str]]:
    """Lines for tc that turn what is `installed` into what `quality` says, and what is installed then.

    netem (1:) delays and loses; in it tbf (2:) keeps the rate; in it is the queue (3:), which RED marks.
    """
    if quality == Quality():
        return [f"qdisc del dev {device} root"], set()
    lines = [f"qdisc replace dev {device} root handle 1: netem limit {UNDER_WAY}{_netem(quality)}"]
    frame = mtu + ETHERNET
    if quality.rate:
        burst = max(2 * frame, math.ceil(quality.rate / 8 * BURST_S))
        waiting = (quality.queue or DEFAULT_QUEUE) * frame
        if waiting + burst >= 1 << 32:  # tbf counts in 32 bits
            raise InputError(f"a queue of {quality.queue} packets of {mtu} bytes is too large: 4 GiB at most")
        tbf = f"tbf rate {quality.rate}bit burst {burst} limit {waiting + burst}"
        lines.append(f"qdisc replace dev {device} parent 1:1 handle 2: {tbf}")
        queue = "red" if quality.ecn else "pfifo"
        if {"pfifo", "red"} & installed - {queue}:
            lines.append(f"qdisc del dev {device} parent 2:1")
        lines.append(f"qdisc replace dev {device} parent 2:1 handle 3: {_queue(quality, frame)}")
        return lines, {"netem", "tbf", queue}
    if "tbf" in installed:
        lines.append(f"qdisc del dev {device} parent 1:1")
    return lines, {"netem"}


def _netem(quality: Quality) -> str:
    """A change leaves as they are what it does not name of these two (netem_change), so they are named always."""
    words = [f"reorder {quality.reorder:g}%", f"corrupt {quality.corrupt:g}%"]
    if quality.delay:
        words.append(f"delay {quality.delay * 1e6:g}us" + (f" {quality.jitter * 1e6:g}us" if quality.jitter else ""))
    if quality.loss and quality.loss_burst > 1:
        # Gilbert's model: from a state that loses all, one packet in `loss_burst` leads out.
        out = 100 / quality.loss_burst
        words.append(f"loss gemodel {out * quality.loss / (100 - quality.loss):.6f}% {out:.6f}%")
    elif quality.loss:
        words.append(f"loss random {quality.loss:g}%")
    if quality.duplicate:
        words.append(f"duplicate {quality.duplicate:g}%")
    return "".join(f" {word}" for word in words)


def _queue(quality: Quality, frame: int) -> str:
    packets = quality.queue or DEFAULT_QUEUE
    if not quality.ecn:
        return f"pfifo limit {packets}"
    # With this burst RED's average follows the queue at once, and a step one packet high is a threshold. nodrop: what
    # is not ECN-capable waits on.
    least = quality.ecn * frame
    average = f"min {least} max {least + frame} avpkt {frame} burst {quality.ecn} bandwidth {quality.rate}bit"
    return f"red limit {packets * frame} {average} probability 1 ecn nodrop"


def quality_of(qdiscs: list[dict[str, Any]]) -> Quality:
    """From what ``tc -j qdisc show`` says."""
    values: dict[str, Any] = {}
    for entry in qdiscs:
        options = entry.get("options", {})
        match entry["kind"]:
            case "netem":
                values |= {key: options["delay"][key] for key in ("delay", "jitter") if "delay" in options}
                if "loss-random" in options:
                    values["loss"] = 100 * options["loss-random"]["loss"]
                if "loss-gemodel" in options:
                    into, out = options["loss-gemodel"]["p"], options["loss-gemodel"]["r"]
                    values |= {"loss": 100 * into / (into + out), "loss_burst": 1 / out}
                for name in ("duplicate", "reorder", "corrupt"):
                    if name in options:
                        values[name] = 100 * options[name][name]
            case "tbf":
                values["rate"] = options["rate"] * 8
            case "pfifo":
                values["queue"] = options["limit"]
            case "red":
                frame = options["max"] - options["min"]
                values |= {"queue": options["limit"] // frame, "ecn": options["min"] // frame}
    return Quality(**values)
