"""What FRR and the kernels of switches have of EVPN: far ends of tunnels, sequence numbers, duplicates."""

import contextlib
import json
import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from ipaddress import ip_network
from pathlib import Path
from typing import Any

from testbed.errors import TestbedError
from testbed.kernel import syscalls
from testbed.kernel.rtnetlink import fdb_entry
from testbed.lab.nodes.switch_node import Switch
from testbed.protocol import events
from testbed.switch.frames import NO_MAC
from testbed.switch.segments import Segment, parse
from testbed.topology import IPNetwork, Svi

Ask = Callable[[Switch, str, str], str]
"""Asks a daemon of a switch, see `Routing.ask`."""
Tables = dict[str, list[dict[str, Any]]]
IN_MODIFY = 0x2
DUPLICATE = re.compile(rb"VNI (\d+): MAC (\S+)(?: IP (\S+))? detected as duplicate")
"""zebra's warning (zebra/zebra_evpn_mac.c, zebra/zebra_evpn_neigh.c)."""


def missing(switches: Sequence[Switch], ask: Ask, due: Mapping[str, Collection[IPNetwork]]) -> str:
    """Describe the first far end of a tunnel that a switch lacks, though it has a route there, or the first network
    between VRFs that is not up; empty if all is there."""
    vteps = [switch for switch in switches if switch.planned.vtep]
    for switch in vteps:
        names = {index: link.name for index, link in switch.now().links.items()}
        entries = [entry for body in switch.kernel.fdb() if (entry := fdb_entry(body)) and entry.mac == NO_MAC]
        has = {(names.get(entry.index), entry.behind) for entry in entries}
        for svi in _stretched(switch):
            for peer in [other.planned for other in vteps if svi.vni in [one.vni for one in _stretched(other)]]:
                reached = peer.vtep is not None and ip_network(peer.vtep) in due[switch.name]
                if reached and (svi.network, peer.vtep) not in has:
                    return f"{switch} sends no broadcasts of VNI {svi.vni} to {peer.name}"
        if lack := _missing_segment(switch, ask, vteps, due[switch.name]):
            return lack
        vni = switch.planned.l3vni
        if vni and json.loads(ask(switch, "zebra", f"show evpn vni {vni} json")).get("state") != "Up":
            return f"VNI {vni} of {switch} is not up"
    return ""


def _missing_segment(switch: Switch, ask: Ask, vteps: Sequence[Switch], reached: Collection[IPNetwork]) -> str:
    """Describe the first Ethernet segment of a switch that lacks another switch, of those that have it and are up."""
    own = _segments(switch)
    if not own:
        return ""
    for port, key in own.items():
        peers = [other for other in vteps if key in _up_segments(other)]
        views = {peer: _view(peer, ask, key) for peer in peers}
        if switch not in peers:
            continue
        for other in peers:
            vtep = str(other.planned.vtep)
            if other is not switch and ip_network(vtep) in reached and vtep not in views[switch].others:
                return f"{switch}:{port} does not know that {other} has its Ethernet segment"
        if not any(view.forwarder for view in views.values()):
            return f"no switch delivers floods to the Ethernet segment of {switch}:{port}"
    return ""


def _view(switch: Switch, ask: Ask, key: tuple[str, int]) -> Segment:
    """Return a segment as a switch's zebra has it."""
    port = next(port for port, one in _segments(switch).items() if one == key)
    shown = parse(json.loads(ask(switch, "zebra", "show evpn es detail json")))
    unknown = Segment(port, "", forwarder=False, others=(), group=0)
    return next((segment for segment in shown if segment.port == port), unknown)


def _up_segments(switch: Switch) -> list[tuple[str, int]]:
    return [key for port, key in _segments(switch).items() if switch.kernel.carry([switch[port].index])]


def _segments(switch: Switch) -> dict[str, tuple[str, int]]:
    """Return the system and the number of the Ethernet segments, by their ports."""
    bonds = {port.name: port.bond for port in switch.planned.bonds if port.bond}
    return {name: (bond.system, bond.es_id) for name, bond in bonds.items() if bond.es_id}


def annotated(switch: Switch, ask: Ask, tables: Tables) -> Tables:
    """Return a switch's tables with what zebra alone has of their entries: `sequence`, of the last move, and
    `duplicate`. Without zebra they are unknown: the rows do not have them."""
    known: dict[tuple[int, str], Mapping[str, Any]] = {}
    with contextlib.suppress(TestbedError):
        macs = json.loads(ask(switch, "zebra", "show evpn mac vni all json"))
        addresses = json.loads(ask(switch, "zebra", "show evpn arp-cache vni all json"))
        for svi in _stretched(switch):
            found = {**macs.get(str(svi.vni), {}).get("macs", {}), **addresses.get(str(svi.vni), {})}
            known |= {(svi.vlan, name): entry for name, entry in found.items() if isinstance(entry, dict)}
    return {
        table: [{**row, **_of_zebra(known.get((row["vlan"], row.get("ip") or row["mac"])))} for row in rows]
        for table, rows in tables.items()
    }


def _of_zebra(entry: Mapping[str, Any] | None) -> dict[str, Any]:
    if entry is None:
        return {}
    numbers = entry.get("localSequence", 0), entry.get("remoteSequence", 0)
    return {"sequence": max(numbers), "duplicate": bool(entry.get("isDuplicate"))}


def _stretched(switch: Switch) -> list[Svi]:
    return [svi for svi in switch.planned.svis if svi.vni]


class Duplicates:
    """A source of the scheduler: duplicates that zebra has found, from the logs of the switches' zebras."""

    def __init__(self, emit: events.Emit) -> None:
        self._emit = emit
        self._logs: dict[Path, Switch] = {}
        self._read: dict[Path, int] = {}
        with syscalls.explained("inotify"):
            self._inotify = syscalls.call("inotify_init1", os.O_CLOEXEC | os.O_NONBLOCK)

    def add(self, switch: Switch, log: Path) -> None:
        self._logs[log], self._read[log] = switch, 0
        with syscalls.explained("inotify"):
            syscalls.call("inotify_add_watch", self._inotify, os.fsencode(log), IN_MODIFY)

    def forget(self, switch: Switch) -> None:
        for log in [log for log, of in self._logs.items() if of is switch]:
            del self._logs[log], self._read[log]

    def fileno(self) -> int:
        return self._inotify

    def catch_up(self) -> None:
        """Do nothing: what zebra has found is in its log."""

    def drain(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._inotify, 1 << 16)
            for log, switch in self._logs.items():
                self._report(log, switch)

    def _report(self, log: Path, switch: Switch) -> None:
        with log.open("rb") as file:
            file.seek(self._read[log])
            lines, end, _ = file.read().rpartition(b"\n")
        self._read[log] += len(lines + end)
        vlans = {svi.vni: svi.vlan for svi in _stretched(switch)}
        for vni, mac, ip in DUPLICATE.findall(lines):
            address = ip.decode() or None
            what = f"{address} at {mac.decode()}" if address else mac.decode()
            found = events.EVPN_DUPLICATE(vlan=vlans.get(int(vni), 0), mac=mac.decode(), ip=address)
            self._emit(found, switch.name, f"EVPN: {what} moves too often: it is a duplicate")

    def close(self) -> None:
        self.drain()
        os.close(self._inotify)
