"""The lab of tests that follow each other: built for the first, set back before each, and looked at behind each."""

import contextlib
import re
import shutil
import sqlite3
import struct
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from testbed.kernel import netlink, netns, rdma
from testbed.kernel.link_readings import IFLA_IFNAME, RTM_GETLINK, header
from testbed.kernel.rtnetlink import BGP, FAMILIES, RTM_GETADDR, RTM_GETROUTE, RTMSG, Rtnetlink
from testbed.lab import Host, Lab, Pod
from testbed.lab.leaks import CNI_AGENT, inventory, processes
from testbed.scenario.event_log import EventLog
from testbed.scenario.lab_fixture import lab_of

ADDRESSES = "cluster/addresses.sqlite"
HELD = "SELECT address FROM address WHERE container <> ''"
"""Those that are kept for a pod of a StatefulSet are without a container."""
SETTLED_S = 5.0
"""Virtual seconds in which a link or an IPv6 address that a test took away is back."""
STAYS = re.compile(r"cni0|\w*v[f]?\d+")
"""Interfaces that outlive a pod: CNI's bridge, and VFs."""
IFB = re.compile(rb"ifb\d+\0")
"""What impairs the frames that come in by a port stays when a fault is gone: a filter of the port leads to it."""
IFA_ADDRESS, IFA_LOCAL, IFADDRMSG_SIZE = 1, 2, 8
PROTOCOL, IFF_UP = 5, 1
ROUTE_AGE = struct.pack("=HH", 36, 12)
"""The head of RTA_CACHEINFO, which IPv6 routes have at their end: when they were used."""
LINK = {"address": 1, "name": 3, "MTU": 4, "qdisc": 6, "master": 10, "alias": 20}
"""Attributes of an interface (IFLA_…) that a test has to set back."""
IFINFOMSG = struct.Struct("=BxHiII")  # family, type, index, flags, change


def key_of(item: pytest.Item) -> tuple[Any, ...] | None:
    """What the labs of tests that may share one have in common; None for a test without the fixture `lab`."""
    mark = item.get_closest_marker("topology")
    if mark is None or "lab" not in getattr(item, "fixturenames", ()):
        return None
    alone = item.nodeid if item.get_closest_marker("fresh") else ""
    return (item.path, str(mark.args[0]), repr(sorted(mark.kwargs.items())), alone)


class SharedLab:
    """At most one lab at a time."""

    def __init__(self) -> None:
        self._key: tuple[Any, ...] | None = None
        self._undo = ExitStack()
        self._before: set[str] = set()
        self._state: set[Any] = set()
        self._neighbours: set[Any] = set()
        self._directories: set[Path] = set()
        self._alone = False
        """True if the lab is that of one test: the check behind the lab names it."""
        self.log = EventLog(lambda _: None)
        self.lab: Lab | None = None

    def prepare(self, item: pytest.Item) -> EventLog:
        """Return the log for a test: that of the lab that is there, without what tests before it did, or a new one."""
        if self.lab:
            if not item.get_closest_marker("keeps_tables"):
                self._set_back(self.lab)
            self.lab.scheduler.catch_up()
            self.log.events.clear()
        else:
            self.log = EventLog(lambda _: None)
        return self.log

    def enter(self, item: pytest.Item, following: pytest.Item | None, places: pytest.TempPathFactory) -> Lab:
        """Return the lab of a test, which is built if there is none."""
        if self.lab is None:
            self._alone = following is None or key_of(following) != key_of(item)
            self._before = inventory()
            self._key = key_of(item)
            self._undo.callback(self._gone)
            directory = places.mktemp(item.path.stem)
            self.lab = self._undo.enter_context(lab_of(item, directory, self.log))
            if self._alone:
                return self.lab
            self._state, self._neighbours = state(self.lab), set(neighbours(self.lab))
            self._directories = directories(self.lab) | {self.lab.file("cni"), self.lab.file("cluster")}
        return self.lab

    def leave(self, item: pytest.Item, following: pytest.Item | None, *, failed: bool) -> None:
        """Check what a test left behind; take the lab down if the next test needs another one."""
        left: set[str] = set()
        lab = self.lab
        if lab and not failed and not self._alone:
            for pod in [node for node in lab.nodes.values() if isinstance(node, Pod)]:
                pod.delete()
            if (now := state(lab)) != self._state:
                delete_what_stays(lab, self._state, now)
                lab.scheduler.wait(lambda: state(lab) == self._state, SETTLED_S, pause=0.5)
                now = state(lab)
            left = {f"not undone: {line}" for line in now - self._state}
            left |= {f"is missing: {line}" for line in self._state - now}
            left |= set(self.log.losses())
            lab.injections.clear()
        if failed or left or following is None or key_of(following) != self._key or self._key is None:
            self.close()
        if left:
            pytest.fail("the test left its lab changed:\n" + "\n".join(sorted(left)), pytrace=False)

    def close(self) -> None:
        self.lab = self._key = None
        self._undo.close()

    def _gone(self) -> None:
        assert inventory() - self._before == set()

    def _set_back(self, lab: Lab) -> None:
        """Have hosts and switches forget what they learned; remove what plugins and jobs left in the run directory."""
        for pattern in "*-cni.log", "cni/*/lib/networks/*/last_reserved_ip.*":
            for file in lab.directory.glob(pattern):
                file.unlink()
        for directory in directories(lab) - self._directories:
            shutil.rmtree(directory)
        for node, entry in set(neighbours(lab)) - self._neighbours:
            if entry.state != "NOARP":
                lab[node].kernel.delete_neighbour(entry.index, entry.ip)
        for switch in lab.switches():
            switch.clear_arp()
            switch.clear_nd()
            switch.clear_fdb()


def neighbours(lab: Lab) -> Iterator[Any]:
    for node in lab.nodes.values():
        if isinstance(node, Host):
            for family in FAMILIES:
                yield from ((node.name, entry) for entry in node.kernel.neighbours(family))


def directories(lab: Lab) -> set[Path]:
    return {path for path in lab.directory.iterdir() if path.is_dir()}


def delete_what_stays(lab: Lab, before: set[Any], now: set[Any]) -> None:
    """Delete the interfaces that stay on a node by design when its pods have gone."""
    known = {entry[:3] for entry in before}
    for node, kind, index, *values in {entry for entry in now - before if entry[:3] not in known}:
        if kind == "interface" and STAYS.fullmatch(netlink.text(dict(values[1:])["name"])):
            lab[node].kernel.delete_link(index)


def state(lab: Lab) -> set[Any]:
    """Return something for each thing of a lab that a test may change and has to set back."""
    found: set[Any] = {f"namespace {name}" for name in netns.names()}
    found |= {f"process {name}" for name in processes() if CNI_AGENT not in name}
    found |= {f"fault {one.fault}" for one in lab.injections if one.active}
    found |= {f"file {path.name}" for path in lab.directory.glob("cni/*/lib/results/*")}
    found |= {f"file {path.name}" for path in lab.directory.glob("cni/*/lib/networks/*/[0-9]*")}
    found |= held_addresses(lab.directory)
    for name, node in lab.nodes.items():
        if isinstance(node, Host):
            with node.entered(), rdma.Rdma() as here:
                found |= {(name, "RDMA device", device) for device in here.devices()}
        found |= {(name, *line) for line in network(node.kernel)}
    return found


def network(kernel: Rtnetlink) -> Iterator[tuple[Any, ...]]:
    """Yield interfaces, addresses and routes of a namespace, without what changes by itself."""
    for _, body in kernel.request(RTM_GETLINK, header(0), netlink.DUMP):
        values = netlink.attributes(body, IFINFOMSG.size)
        _, _, index, flags, _ = IFINFOMSG.unpack_from(body)
        if not IFB.fullmatch(values[IFLA_IFNAME]):
            yield "interface", index, flags & IFF_UP, *((name, values.get(number)) for name, number in LINK.items())
    for _, body in kernel.request(RTM_GETADDR, bytes(IFADDRMSG_SIZE), netlink.DUMP):
        values = netlink.attributes(body, IFADDRMSG_SIZE)
        yield "address", body[1:IFADDRMSG_SIZE], values.get(IFA_LOCAL), values[IFA_ADDRESS]  # its flags: tentative
    for family in FAMILIES.values():
        for _, body in kernel.request(RTM_GETROUTE, RTMSG.pack(family, *bytes(7), 0), netlink.DUMP):
            if body[PROTOCOL] != BGP:
                yield "route", body.partition(ROUTE_AGE)[0]


def held_addresses(directory: Path) -> set[str]:
    """Return the addresses that ippool has given to pods."""
    held: set[str] = set()
    if (store := directory / ADDRESSES).exists():
        damaged = contextlib.suppress(sqlite3.DatabaseError)  # by the test
        with damaged, contextlib.closing(sqlite3.connect(store)) as database:
            held = {f"address {address} of a pod" for (address,) in database.execute(HELD)}
    return held
