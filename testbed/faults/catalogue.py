"""All faults by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from testbed.errors import InputError
from testbed.faults import arp, congestion, host, link, packet, switch
from testbed.faults.fault import Fault, Injection, make
from testbed.lab import Lab

KINDS: Mapping[str, type[Fault]] = {
    kind.name: kind
    for kind in (
        link.LinkDown,
        link.LinkFlap,
        link.LinkLoss,
        link.LinkDelay,
        link.LinkRate,
        link.QueueTooSmall,
        link.LinkDuplicate,
        link.LinkReorder,
        link.LinkCorrupt,
        link.LinkMtu,
        link.NicDown,
        packet.ExactPacket,
        congestion.BackgroundFlow,
        congestion.Incast,
        congestion.EcmpCollision,
        arp.ArpDrop,
        arp.ArpPoison,
        arp.ArpStorm,
        arp.DuplicateIp,
        arp.DuplicateMac,
        arp.ProxyArp,
        switch.ArpEntryCorrupt,
        switch.ArpAgeing,
        switch.ArpCapacity,
        switch.ArpCpuLimit,
        switch.ArpCpuDelay,
        switch.SwitchCpuOutage,
        switch.SwitchReboot,
        switch.FdbFlush,
        switch.FdbWrongPort,
        switch.MacAgeing,
        switch.MacCapacity,
        host.WrongGateway,
        host.MissingRoute,
        host.WrongMask,
        host.ArpFlux,
        host.StrictRpFilter,
        host.NeighbourTableFull,
    )
}


def problem(name: str, parameters: Mapping[str, Any]) -> str:
    """Describe the error in a fault of a topology file; empty if there is none."""
    try:
        make(KINDS, name, parameters)
    except InputError as error:
        return f"{error.message}. {error.hint}"
    return ""


def break_from_the_start(lab: Lab) -> None:
    """Injects the faults of the lab's file."""
    for name, parameters in lab.plan.faults:
        Injection(lab, make(KINDS, name, parameters)).inject()


def descriptions() -> list[dict[str, Any]]:
    """List `name`, `title`, `text`, and the JSON Schema of the `parameters` of each fault."""
    return [
        {"name": name, "title": kind.title(), "text": kind.text(), "parameters": kind.model_json_schema()}
        for name, kind in KINDS.items()
    ]
