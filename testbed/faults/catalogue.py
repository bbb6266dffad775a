"""All faults by name."""

from __future__ import annotations

from collections.abc import Mapping

from testbed.faults import link, packet
from testbed.faults.fault import Fault

KINDS: Mapping[str, type[Fault]] = {
    kind.name: kind
    for kind in (
        link.LinkDown,
        link.LinkFlap,
        link.LinkLoss,
        link.LinkDelay,
        link.LinkRate,
        link.LinkDuplicate,
        link.LinkReorder,
        link.LinkCorrupt,
        link.LinkMtu,
        link.NicDown,
        packet.ExactPacket,
    )
}
