"""A switch's events in words, for people. Programs read the fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

SENTENCES = {
    "arp.miss": "a packet for {ip} meets no ARP entry",
    "arp.learned": "ARP {ip} is at {mac}",
    "arp.updated": "ARP {ip} moves from {old_mac} to {mac}",
    "arp.updated port-changed": "ARP {ip} at {mac} moves from port {old_port} to {port}",
    "arp.refresh": "ARP asks {mac} whether it still has {ip}",
    "arp.refresh daemon": "ARP asks for all {entries} entries",
    "arp.confirmed": "ARP {ip} at {mac} is confirmed",
    "arp.aged": "ARP {ip} at {mac} ages out",
    "arp.failed": "ARP for {ip} gets no answer",
    "arp.ignored": "ARP from {ip} at {mac} is ignored: {reason}",
    "arp.refused": "ARP {ip} does not fit the table",
    "arp.evicted": "ARP {ip} at {mac} is evicted",
    "arp.evicted not-found": "ARP {ip}, which was not found, is evicted",
    "arp.limited": "ARP to the CPU is over its rate: {packets} dropped",
    "arp.cleared": "ARP {ip} is cleared",
    "arp.proxied": "ARP for {ip} is answered to {mac} in its owner's place",
    "arp.restored": "ARP has {entries} entries from before the reboot, and asks for each",
    "fdb.learned": "FDB {mac} is on {port}",
    "fdb.moved": "FDB {mac} moves from {old_port} to {port}",
    "fdb.aged": "FDB {mac} on {port} ages out",
    "fdb.flushed": "FDB {mac} on {port} is flushed",
    "route.installed": "{to} is reached by {ports}",
    "route.lost": "there is no route to {to}",
    "lost": "its control plane was too late for {records} {what}",
    "lossless.blocked": "lossless packets for {ip} are dropped",
    "lossless.unblocked": "lossless packets for {ip} are forwarded",
    "port.disabled": "{port} is disabled: {mac} moves too often",
    "port.enabled": "{port} is enabled again",
}
SENTENCES |= {
    kind.replace("arp.", "nd."): text.replace("ARP", "ND")
    for kind, text in SENTENCES.items()
    if kind.startswith("arp.")
}


def sentence(event: Mapping[str, Any]) -> str:
    """Return an event of the agent as one line, without the switch's name."""
    special = f"{event['kind']} {event.get('reason')}"
    words = {key: ", ".join(value) if isinstance(value, list) else value for key, value in event.items()}
    return SENTENCES.get(special, SENTENCES[event["kind"]]).format_map(words)
