"""Rules by which a frame belongs to an event. A rule names addresses that both have and a window of time; a frame
without a clear match gets no comment."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any, Generic, Literal, TypeVar

from testbed.protocol import events
from testbed.protocol.events import Announcement, Completion, Entry, Fdb, Neighbour
from testbed.records.frame_decoder import Frame

NEAR_NS = 20_000_000
"""Maximum of nanoseconds between a frame and the switch's reaction, or the other way round."""
Key = tuple[Any, ...]
"""Action of a frame, and the addresses of this action."""
Macs = Iterable[bytes]
"""MACs of an event's node."""
D = TypeVar("D", bound=events.Data)


@dataclass(frozen=True)
class Rule(Generic[D]):
    """A rule: events of `kinds` belong to frames with a key of `keys`, from `before` ns before to `after` ns after
    them.

    `where`: at the port of the event and the other end of its link, at any interface of its node and the other ends, or
    anywhere. Of several frames that fit at one interface `pick` takes none, the first or the last. With `fresh` there
    is none if another event about the same address came so shortly before that the window has its frames.
    """

    kinds: tuple[events.Kind[Any, D], ...]
    keys: Callable[[D, Macs], Iterator[Key]]
    before: Callable[[D], int] = lambda _: 0
    after: int = 0
    where: Literal["port", "node", "anywhere"] = "node"
    pick: Literal["only", "first", "last"] = "only"
    fresh: bool = False


def keys_of(frame: Frame) -> Iterator[Key]:
    """Yield the actions of a frame, in the words of the rules."""
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


def _near(_: object) -> int:
    return NEAR_NS


def _claim(data: Entry | Announcement, _: Macs) -> Iterator[Key]:
    yield "claims", address(data.ip), mac(data.mac)


def _from_mac(data: Fdb, _: Macs) -> Iterator[Key]:
    yield "is sent by", mac(data.mac)


def _for_address(data: Neighbour, _: Macs) -> Iterator[Key]:
    yield "is for", address(data.ip)


def _question(data: Neighbour, macs: Macs) -> Iterator[Key]:
    yield from (("asks for", address(data.ip), own) for own in macs)


def _proxied_answer(data: Entry, macs: Macs) -> Iterator[Key]:
    yield from (("answers", address(data.ip), own, mac(data.mac)) for own in macs)


LAST_FRAMES: Mapping[str, tuple[str, str]] = {
    "RETRY_EXC_ERR": ("requests", "far"),
    "RNR_RETRY_EXC_ERR": ("is not ready", "near"),
    "REM_INV_REQ_ERR": ("refuses", "near"),
    "REM_ACCESS_ERR": ("refuses", "near"),
    "REM_OP_ERR": ("refuses", "near"),
}
"""The action of the last frame before a completion, and the end of the connection to which it goes, by status. Others,
such as WR_FLUSH_ERR, come from no frame; for SUCCESS the acknowledgement may be one for later requests, too."""


def _end_of_request(data: Completion, _: Macs) -> Iterator[Key]:
    act, end = LAST_FRAMES.get(data.status, ("", ""))
    if found := data.far if end == "far" else data.near if end else None:
        yield act, address(found[0]), found[1]


RULES = (
    Rule((events.LEARNED, events.UPDATED, events.CONFIRMED), _claim, before=_near, where="port"),
    Rule((events.IGNORED,), _claim, before=_near),
    Rule((events.MISS,), _for_address, before=_near, pick="first", fresh=True),
    Rule((events.REFRESH,), _question, after=NEAR_NS),
    Rule((events.PROXIED,), _proxied_answer, after=NEAR_NS),
    Rule((events.FDB_LEARNED, events.FDB_MOVED), _from_mac, before=_near, where="port", pick="first", fresh=True),
    Rule((events.GARP, events.NA), _claim, before=_near, where="anywhere"),
    Rule((events.COMPLETION,), _end_of_request, lambda data: int(data.elapsed_s * 1e9), where="anywhere", pick="last"),
)
BY_KIND: dict[events.AnyKind, Rule[Any]] = {kind: rule for rule in RULES for kind in rule.kinds}
BEGINNINGS = [kind.name for kind in (events.STEP, events.FAULT_INJECTED, events.FAULT_RECOVERED, events.LINK)]
"""Events that no frame causes: the first frame after one, of all captures, gets the comment."""


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
