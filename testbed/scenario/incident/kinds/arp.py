"""Addresses and their owners: who answers, and whom switches believe."""

from random import Random

from testbed.scenario.incident.site import RANKS, Place
from testbed.scenario.incident.trouble import OFF_S, ON_S, PKILL, Broken, Left, Trouble, Typed


def stale_entry(r: Random) -> Trouble:
    at = Place(r.choice(RANKS))
    store = at.store
    return Trouble(
        ["stale-neighbour", "arp-poison"],
        [*at.names, at.leaf],
        f"{store.host} announced {at.ip}, which is {at.host}'s, and {at.leaf} keeps its MAC for the address",
        [Broken("arp-poison", {"host": store.host, "ip": at.ip, "switch": at.leaf})],
        [f"announce {at.host}:eth1"],
        [f"exec {store.host} -- ip neigh flush all", "advance 60s", f"exec {at.mate.host} -- ip neigh flush dev eth1"],
        ("Its link is up, and its packets go out. Do answers come back?", "Compare the switches' tables with MACs."),
        at.part,
    )


def duplicate_address(r: Random) -> Trouble:
    at = Place(r.choice(RANKS))
    store = at.store
    return Trouble(
        ["duplicate-ip"],
        [*at.names, *store.names, at.leaf],
        f"{store.host} got the address {at.ip} of {at.host}, and announced it",
        [
            Typed(store.host, f"ip address add {at.ip}/24 dev eth1"),
            Typed(store.host, f"arping -A -c 3 -I eth1 {at.ip}"),
        ],
        [f"exec {store.host} -- ip address del {at.ip}/24 dev eth1", f"announce {at.host}:eth1"],
        [f"exec {store.host} -- ip neigh flush all", f"exec {at.mate.host} -- ip neigh flush dev eth1"],
        ("Two may answer for one address.", "Look at all addresses in the rank's VLAN."),
        at.part | store.part,
    )


def wrong_static_entry(r: Random) -> Trouble:
    """A neighbour entry by hand on a rank's host, with the MAC of a NIC that was replaced."""
    at = Place(r.choice(RANKS))
    mac = f"02:00:00:00:99:{r.randrange(16, 99)}"
    return Trouble(
        ["stale-neighbour", "wrong-static-arp"],
        [*at.names, *at.mate.names],
        f"{at.host} has a permanent entry for {at.mate.ip} with {mac}, of a NIC that is gone; the job restarted",
        [
            Typed(at.host, f"ip neigh replace {at.mate.ip} lladdr {mac} nud permanent dev eth1"),
            Typed(at.host, f"sh -c '{PKILL} -KILL'"),  # connections that are there keep their MACs
        ],
        [f"exec {at.host} -- ip neigh del {at.mate.ip} dev eth1"],
        [f"announce {at.mate.host}:eth1", f"exec {at.host} -- ip neigh flush dev eth1"],
        ("It is one pair of hosts of one rack.", "Compare neighbour entries of hosts with MACs."),
        at.part | at.mate.part,
    )


def claimed_again(r: Random) -> Trouble:
    """A program of high availability on a storage node takes a rank's address, gives it back, and so on."""
    at = Place(r.choice(RANKS))
    store = at.store
    name = "vip-manager"
    claim = f"ip address add {at.ip}/24 dev eth1; arping -A -c 3 -I eth1 {at.ip}"
    leave = f"ip address del {at.ip}/24 dev eth1"
    returns = f"while sleep 4; do arping -A -c 1 -I eth1 {at.ip}; done"
    return Trouble(
        ["duplicate-ip"],
        [*at.names, *store.names, at.leaf],
        f"{name} on {store.host} has {at.ip}, of {at.host}, as its virtual address: it takes it for {ON_S} s, "
        f"gives it up for {OFF_S} s, and so on",
        [
            Left(at.host, "arp-keepalive", returns),
            Left(store.host, name, f"while :; do {claim}; sleep {ON_S}; {leave}; sleep {OFF_S}; done"),
        ],
        [
            f"exec {store.host} -- pkill -f {name}",
            f"exec {store.host} -- sh -c '{leave}; true'",
            f"announce {at.host}:eth1",
        ],
        [f"announce {at.host}:eth1", f"exec {store.host} -- ip neigh flush all"],
        ("Two may answer for one address, and not all the time.", "Look at what runs on the hosts of its rack."),
        at.part | store.part,
    )


STEADY = [stale_entry, duplicate_address, wrong_static_entry]
RETURNING = [claimed_again]
