"""
tc commands for one direction of a link: a rate, a queue, a delay, loss.

netem (1:) delays and loses; in it tbf (2:) keeps the rate; in it is the queue (3:), which RED marks.
"""

import math
from typing import Any

from testbed.errors import InputError
from testbed.kernel.lossless.layout import constants
from testbed.topology import DEFAULT_QUEUE, Quality

ETHERNET = 18
"""Bytes of an Ethernet header with a VLAN tag, which the MTU does not count."""
OVERHEAD, LEAST = constants()["LINK_OVERHEAD"], constants()["LEAST_ON_LINK"]
"""Bytes that a packet takes on a link beside its own, and at least in all."""
UNDER_WAY = 1_000_000
"""Most packets in delay, so that a delay never loses one."""
BURST_S = 100e-6
"""Seconds by which a link may be ahead of its rate, besides two packets."""


def commands(device: str, mtu: int, quality: Quality, installed: set[str]) -> tuple[list[str], set[str]]:
    """Return lines for tc that turn `installed` into `quality`, and what is installed then."""
    if quality == Quality():
        return [f"qdisc del dev {device} root"], set()
    lines = [f"qdisc replace dev {device} root handle 1: netem limit {UNDER_WAY}{_netem(quality)}"]
    frame = mtu + ETHERNET
    if quality.rate:
        burst = max(2 * frame, math.ceil(quality.rate / 8 * BURST_S))
        waiting = (quality.queue or DEFAULT_QUEUE) * frame
        if waiting + burst >= 1 << 32:  # tbf counts in 32 bits
            raise InputError(f"a queue of {quality.queue} packets of {mtu} bytes is too large: 4 GiB at most")
        tbf = f"tbf rate {quality.rate}bit burst {burst} limit {waiting + burst} mpu {LEAST} overhead {OVERHEAD}"
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
    """Return netem's options. These two are named always, as netem_change keeps what is not named of them."""
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
    """Return the quality from the output of ``tc -j qdisc show``."""
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
