"""The rules by which a frame belongs to an event. A rule names addresses that both have and a window of time; what it
leaves open stays without a comment."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any, Literal

from testbed.protocol import Event
from testbed.records.frames import Frame

NEAR_NS = 20_000_000
"""Nanoseconds between a frame and what a switch makes of it, or the other way round, at most."""
Key = tuple[Any, ...]
"""What a frame does, and the addresses with which it does it."""
Macs = Callable[[str], Iterator[bytes]]
"""The MACs of a node."""


@dataclass(frozen=True)
class Rule:
    """Events of `kinds` belong to frames with a key of `keys`, within `before` ns before and `after` ns after them.

    `where`: at the port that the event names and the other end of its link, at any interface of its node and the other
    ends, or anywhere. Of several frames that fit at one interface `pick` takes none, the first or the last. With
    `fresh` there is none if another event about the same address came so shortly before that the window has its frames.
    """

    kinds: tuple[str, ...]
    keys: Callable[[Event, Macs], Iterator[Key]]
    before: Callable[[Event], int] = lambda _: 0
    after: int = 0
    where: Literal["port", "node", "anywhere"] = "node"
    pick: Literal["only", "first", "last"] = "only"
    fresh: bool = False


def keys_of(frame: Frame) -> Iterator[Key]:
    """What a frame does, in the words of the rules."""
    yield "is sent by", frame.src
    yield "is sent to", frame.dst
    if frame.ip:
        yield "is for", frame.ip[1]
    if found := frame.resolution:
        yield "claims", found.sender, found.mac or frame.src
        if found.asks:
            yield "asks for", found.target, frame.src
        else:
            yield "answers", found.sender, frame.src, frame.dst
    if frame.ip and (roce := frame.roce):
        to = frame.ip[1], roce.qp
        if roce.request:
            yield "requests", *to
        elif reason := roce.nak:
            yield ("is not ready" if reason == "receiver not ready" else "refuses"), *to


def _near(_: Event) -> int:
    return NEAR_NS


def _elapsed(event: Event) -> int:
    seconds = event["data"].get("elapsed_s")
    return int(seconds * 1e9) if isinstance(seconds, float) and 0 <= seconds < 1e9 else 0


def _claim(event: Event, _: Macs) -> Iterator[Key]:
    yield "claims", address(event["data"].get("ip")), mac(event["data"].get("mac"))


def _from_mac(event: Event, _: Macs) -> Iterator[Key]:
    yield "is sent by", mac(event["data"].get("mac"))


def _for_address(event: Event, _: Macs) -> Iterator[Key]:
    yield "is for", address(event["data"].get("ip"))


def _question(event: Event, macs: Macs) -> Iterator[Key]:
    yield from (("asks for", address(event["data"].get("ip")), own) for own in macs(event["node"]))


def _proxied_answer(event: Event, macs: Macs) -> Iterator[Key]:
    found = address(event["data"].get("ip")), mac(event["data"].get("mac"))
    yield from (("answers", found[0], own, found[1]) for own in macs(event["node"]))


LAST_FRAMES: Mapping[str, tuple[str, str]] = {
    "RETRY_EXC_ERR": ("requests", "far"),
    "RNR_RETRY_EXC_ERR": ("is not ready", "near"),
    "REM_INV_REQ_ERR": ("refuses", "near"),
    "REM_ACCESS_ERR": ("refuses", "near"),
    "REM_OP_ERR": ("refuses", "near"),
}
"""By the status of a completion what the last frame before it does, and the end of the connection it goes to. Others,
such as WR_FLUSH_ERR, come of no frame; of a SUCCESS the acknowledgement may be one for later requests, too."""


def _end_of_request(event: Event, _: Macs) -> Iterator[Key]:
    act, end = LAST_FRAMES.get(str(event["data"].get("status")), ("", ""))
    match event["data"].get(end):
        case [ip, int(qp)]:
            yield act, address(ip), qp


def _both(*names: str) -> tuple[str, ...]:
    return tuple(f"{protocol}.{name}" for protocol in ("arp", "nd") for name in names)


RULES = (
    Rule(_both("learned", "updated", "confirmed"), _claim, before=_near, where="port"),
    Rule(_both("ignored"), _claim, before=_near),
    Rule(_both("miss"), _for_address, before=_near, pick="first", fresh=True),
    Rule(_both("refresh"), _question, after=NEAR_NS),
    Rule(_both("proxied"), _proxied_answer, after=NEAR_NS),
    Rule(("fdb.learned", "fdb.moved"), _from_mac, before=_near, where="port", pick="first", fresh=True),
    Rule(("garp", "na"), _claim, before=_near, where="anywhere"),
    Rule(("completion",), _end_of_request, before=_elapsed, where="anywhere", pick="last"),
)
BY_KIND = {kind: rule for rule in RULES for kind in rule.kinds}
BEGINNINGS = ("step", "fault.injected", "fault.recovered", "link")
"""Events that no frame makes: the first frame after one, of all captures, names it."""


def address(text: object) -> bytes | None:
    try:
        return ip_address(text).packed if isinstance(text, str) else None
    except ValueError:
        return None


def mac(text: object) -> bytes | None:
    try:
        found = bytes.fromhex(text.replace(":", "")) if isinstance(text, str) else b""
    except ValueError:
        return None
    return found if len(found) == 6 else None
