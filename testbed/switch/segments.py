"""
The Ethernet segments of a switch: what an ASIC does for EVPN multihoming, and the kernel does not.

Of the switches of a segment one, the designated forwarder, delivers floods of other switches to it (RFC 7432, section
8.5), and none delivers those of another switch of the same segment, which has done so itself (local bias, RFC 8365,
section 8.3.1). zebra elects and knows the others; it has no way to tell the kernel. Packets of those switches get a
mark when they arrive, which lasts until they leave the bridge.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.kernel import netns, nftables
from testbed.switch import vty

ELECTION_S = 3.1
"""zebra elects a forwarder 3 s after a segment has come up (RFC 7432, section 8.5), and does not say so."""
_CLEAR = "destroy table ip segments\ndestroy table bridge segments\n"
_TO_GROUP = "ether daddr & 01:00:00:00:00:00 != 0"


@dataclass(frozen=True, slots=True)
class Segment:
    """A port channel's segment, with the VTEPs of the other switches that have it."""

    port: str
    esi: str
    forwarder: bool
    others: tuple[str, ...]
    group: int
    """The number of zebra's next-hop group of these switches in the kernel; 0 for none."""


class Segments:
    """Those of the switch with this network namespace, whose FRR has its sockets in `directory`."""

    def __init__(self, namespace: str, directory: Path) -> None:
        self._namespace = namespace
        self._zebra = directory / "zebra.vty"
        self._known: tuple[Segment, ...] = ()

    def refresh(self) -> list[Segment]:
        """Have the kernel do as zebra has it now; return what has changed. TestbedError if zebra does not answer."""
        before, self._known = self._known, tuple(parse(json.loads(vty.ask(self._zebra, "show evpn es detail json"))))
        changed = [segment for segment in self._known if segment not in before]
        if self._known != before:
            with netns.entered(self._namespace):
                nftables.run(_CLEAR + filters(self._known))
        return changed


def parse(shown: Any) -> Iterator[Segment]:
    """Read zebra's segments: those of this switch."""
    for one in shown if isinstance(shown, list) else ():
        if port := one.get("accessPort"):
            others = tuple(sorted(vtep["vtep"] for vtep in one.get("vteps", ())))
            group = one["nexthopGroup"] if "nexthopGroupActive" in one["flags"] else 0
            yield Segment(port, one["esi"], "nonDF" not in one["flags"], others, group)


def filters(segments: Iterable[Segment]) -> str:
    """Return the nftables commands by which a bridge treats floods of other switches."""
    found = [*segments]
    others = sorted({vtep for segment in found for vtep in segment.others})
    marks = {vtep: number for number, vtep in enumerate(others, start=1)}
    arriving = [f"ip saddr {vtep} udp dport 4789 meta mark set {mark}" for vtep, mark in marks.items()]
    leaving = []
    for segment in found:
        of_segment = ", ".join(str(marks[vtep]) for vtep in segment.others)
        to_port = f'oifname "{segment.port}" {_TO_GROUP}'
        leaving += [f"{to_port} meta mark {{ {of_segment} }} drop"] if of_segment else []
        leaving += [] if segment.forwarder else [f'{to_port} iifname "vni*" drop']
    return (
        f"table ip segments {{\n{_chain('prerouting', -300, arriving)}\n}}\n"
        f"table bridge segments {{\n{_chain('forward', 0, leaving)}\n}}\n"
    )


def _chain(hook: str, priority: int, rules: Iterable[str]) -> str:
    return "\n".join([f"chain {hook} {{", f"type filter hook {hook} priority {priority};", *rules, "}"])
