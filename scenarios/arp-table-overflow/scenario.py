"""See the docstring of ArpTableOverflow, or `testbed describe arp-table-overflow`."""

from __future__ import annotations

import errno
import socket
from collections.abc import Mapping
from contextlib import ExitStack
from ipaddress import IPv4Address

from pydantic import Field

from testbed import Parameters, Run, Scenario, Variant
from testbed.faults import ArpCapacity
from testbed.lab import Host
from testbed.switch.profile import Profile, ProfileName, profile

NODES = ("node1", "node2", "node3", "node4")
PODS = 3
"""On each node, beside its own address."""
ADDRESSES = len(NODES) * (PODS + 1)
NEEDED = ADDRESSES + 1
"""Entries: the client's comes on top."""
DISCARD = 9
"""The port of RFC 863."""
SYN_S = 3.5
"""A SYN is sent again after 1 s and 3 s (RFC 6298)."""


class Settings(Parameters):
    profile: ProfileName = Field("cisco-nxos", description="ARP and FDB profile of the leaf switch")
    capacity: int = Field(12, ge=1, description="entries that the leaf's ARP table holds")
    sweep: tuple[int, ...] = Field((), description="capacities to try first; the smallest that holds all is taken")


class ArpTableOverflow(Scenario):
    """
    There are more addresses behind a switch than its ARP table holds.

    Sixteen addresses in one VLAN, four nodes with three pods each: with every node added the table fills, and one day
    the next entry is refused. Who has an entry works, who comes later cannot be reached, and who that is changes with
    every restart. The client needs an entry as well, for the answers, so a table for 16 is one too small. Tables are
    smaller than data sheets say where a feature shares them: host routes, IPv6, a profile of the ASIC that favours
    MAC addresses.

    Each address is tried with TCP, each node's own with an RDMA connection as well. Pods are further addresses of their
    node's interface here, as behind ipvlan: a switch sees no difference.

    On real gear: a log line says so once ("neighbor table overflow" on Linux); SONiC's `crm show resources all` has
    ipv4_neighbor used and available; the missing ones are not in `show ip arp`, or are in it and not in the hardware.
    New pods fail, old ones work.

    The cures: a table that holds all, here found by trying; fewer addresses in it (a route for each node's pods instead
    of an entry for each pod). A switch that evicts the oldest entry instead of refusing the new one keeps all
    reachable, at the price of a resolution each time: that is its CPU's work.
    """

    title = "The switch's ARP table is too small"
    tags = ("arp", "kubernetes", "switch")
    parameters = Settings
    variants = (
        Variant("as-is", "fault", "12 entries for 17 addresses, what does not fit is refused"),
        Variant("one-too-small", "fault", "16 entries: as many as there are behind it", {"capacity": 16}),
        Variant("evict", "healthy", "12 entries, SONiC evicts the oldest one", {"profile": "sonic"}),
        Variant("knee", "healthy", "the smallest table that holds all is found", {"sweep": (8, 12, 15, 16, 17, 18)}),
    )

    def profiles(self, parameters: Settings) -> Mapping[str, Profile]:
        return {"leaf": profile(parameters.profile)}

    def run(self, run: Run, p: Settings) -> None:
        leaf, client = run.lab.switch("leaf"), run.lab.host("client")
        nodes = [run.lab.host(name) for name in NODES]
        addresses = [ip for node in nodes for ip in start_pods(node)]
        capacity = p.capacity

        if p.sweep:
            with run.step("tables of several sizes are tried"):
                found = {size: reached(run, size, addresses) for size in p.sweep}
                run.note(reached_by_capacity=", ".join(f"{size}: {count}" for size, count in found.items()))
                capacity = min((size for size, count in found.items() if count == ADDRESSES), default=p.capacity)
                run.note(knee=capacity)
                run.expect("the smallest table with which all are reached", capacity, NEEDED)
                run.expect("what a table holds but for the client", found, {s: min(s - 1, ADDRESSES) for s in p.sweep})

        with run.step("all addresses are used"):
            count = reached(run, capacity, addresses)
        with run.step("the client connects to each node"), run.fault(ArpCapacity(switch="leaf", arp_cap=capacity)):
            statuses = {node.name: run.write(client, node) for node in nodes}
            used = len(leaf.tables()["arp"])

        run.lab.drain()
        worked = [name for name, status in statuses.items() if status == "SUCCESS"]
        refused, evicted = (len(run.log.find(f"arp.{what}")) for what in ("refused", "evicted"))
        run.note(reached=f"{count} of {ADDRESSES}", connections=f"{len(worked)} of {len(nodes)}")
        run.note(entries=f"{used} of {capacity}", refused=refused, evicted=evicted)
        run.expect("entries that the table holds", used, lambda entries: entries <= capacity)
        if len(worked) == len(nodes) and count == ADDRESSES:
            run.observe("healthy", "all addresses are reached")
            run.expect("whether entries were evicted", evicted > 0, capacity < NEEDED)
        else:
            run.observe("fault", f"{ADDRESSES - count} addresses of {ADDRESSES} are not reached")
            run.expect("addresses that are reached: those that fit beside the client", count, capacity - 1)
            fitting = [node.name for number, node in enumerate(nodes, 1) if number * (PODS + 1) < capacity]
            run.expect("nodes that are reached: those that came first", worked, fitting)
            died = {status for name, status in statuses.items() if name not in worked}
            run.expect("the others' work requests die of unanswered retries", died, {"RETRY_EXC_ERR"})
            run.expect("entries were refused", refused, lambda times: times > 0)


def start_pods(node: Host) -> list[IPv4Address]:
    """Gives the node its pods' addresses; returns them, and its own last."""
    own = node.addresses["eth1"]
    pods = [own.network[10 * int(node.name.removeprefix("node")) + number] for number in range(PODS)]
    for ip in pods:
        node.ip.addr("add", index=node.index("eth1"), address=str(ip), prefixlen=own.network.prefixlen)
    return [*pods, own.ip]


def reached(run: Run, capacity: int, addresses: list[IPv4Address]) -> int:
    """How many addresses answer the client when the switch starts with an empty table of that size: with a refusal, as
    nobody listens there."""
    client = run.lab.host("client")
    run.lab.agent.clear_arp("leaf")
    with run.fault(ArpCapacity(switch="leaf", arp_cap=capacity)), ExitStack() as stack:
        gateway = str(client.gateway("eth1"))
        run.expect("the client has its entry first", client.ping(gateway, within=1), True)
        with client.entered():
            tcp = [stack.enter_context(socket.socket()) for _ in addresses]
        for connection, ip in zip(tcp, addresses, strict=True):
            connection.setblocking(False)
            connection.connect_ex((str(ip), DISCARD))
        run.sleep(SYN_S, f"{len(addresses)} connections are tried over a table of {capacity}")
        answers = [connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) for connection in tcp]
        return answers.count(errno.ECONNREFUSED)
