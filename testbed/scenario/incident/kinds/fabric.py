"""Links, routes and MTUs of the fabric."""

from random import Random

from testbed.scenario.incident.site import RANKS, Place, uplink
from testbed.scenario.incident.trouble import OFF_S, ON_S, Broken, Left, Trouble, Typed


def blackhole(r: Random) -> Trouble:
    at = Place(r.choice(RANKS))
    other = at.other_leaf
    return Trouble(
        ["no-route", "blackhole"],
        [other, *at.names],
        f"{other} has a route that drops what is for {at.ip}, of {at.host}",
        [Typed(other, f"ip route add blackhole {at.ip}/32")],
        [f"exec {other} -- ip route del blackhole {at.ip}/32"],
        [f"announce {at.host}:eth1", f"exec {at.leaf} -- ip neigh flush dev {at.vlan}"],
        ("It is one address, and only from the other rack.", "Follow its packets from leaf to leaf."),
        frozenset({at.host, f"routes of {other}"}),
    )


def spine_drops(r: Random) -> Trouble:
    leaf, number = r.choice(["leaf1", "leaf2"]), r.choice([1, 2])
    network = f"10.0.{leaf[-1]}0.0/24"
    spine = f"spine{number}"
    return Trouble(
        ["no-route", "blackhole"],
        [spine, leaf],
        f"{spine} has a route that drops what is for {network}, the rack of {leaf}",
        [Typed(spine, f"ip route add blackhole {network}")],
        [f"exec {spine} -- ip route del blackhole {network}"],
        [f"exec {leaf} -- ip neigh flush dev vlan{leaf[-1]}0", f"announce {RANKS[0]}:eth1"],
        ("Some flows between the racks work, and others do not.", "It is one of two spines."),
        frozenset({"uplinks"}),
    )


def gateway_down(r: Random) -> Trouble:
    leaf = r.choice(["leaf1", "leaf2"])
    vlan = f"vlan{leaf[-1]}0"
    return Trouble(
        ["no-route", "gateway-down"],
        [leaf, f"{leaf}:{vlan}"],
        f"somebody set {vlan} of {leaf} down, the gateway of its rack",
        [Typed(leaf, f"ip link set {vlan} down")],
        [f"exec {leaf} -- ip link set {vlan} up"],
        [f"link set {leaf}:u1 down", f"exec {leaf} -- ip neigh flush all"],
        ("A whole rack reaches nothing outside of it.", "Its links are up."),
        frozenset({leaf, "uplinks"}),
    )


def lossy_uplink(r: Random) -> Trouble:
    leaf, number = r.choice(["leaf1", "leaf2"]), r.choice([1, 2])
    near, far = uplink(leaf, number)
    end, loss = r.choice([near, far]), r.choice([30, 50])
    other, _ = uplink(leaf, 3 - number)
    return Trouble(
        ["lossy-link", "silent-drop", "link-loss", "lost-probes"],
        [near, far, f"{near} - {far}"],
        f"{end} loses {loss} % of the packets that it sends",
        [Broken("link-loss", {"end": end, "loss": loss})],
        [f"link set {near} down"],
        [f"link set {other} down", f"announce {RANKS[0]}:eth1"],
        ("All links are up, and counters of errors are 0.", "`testbed probe` takes all paths."),
        frozenset({"uplinks"}),
    )


def corrupting_uplink(r: Random) -> Trouble:
    leaf, number = r.choice(["leaf1", "leaf2"]), r.choice([1, 2])
    near, far = uplink(leaf, number)
    end = r.choice([near, far])
    other, _ = uplink(leaf, 3 - number)
    return Trouble(
        ["corruption", "link-corrupt", "lossy-link", "lost-probes"],
        [near, far, f"{near} - {far}"],
        f"{end} damages packets that it sends",
        [Broken("link-corrupt", {"end": end, "corrupt": 40})],
        [f"link set {near} down"],
        [f"link set {other} down", f"announce {RANKS[0]}:eth1"],
        ("All links are up. Not all counters of errors are 0.", "Take one uplink after the other out."),
        frozenset({"uplinks"}),
    )


def port_down(r: Random) -> Trouble:
    at = Place(r.choice(RANKS))
    node, port = at.port.split(":")
    return Trouble(
        ["link-down"],
        at.names,
        f"somebody set {at.port} down",
        [Typed(node, f"ip link set {port} down")],
        [f"exec {node} -- ip link set {port} up"],
        [f"announce {at.host}:eth1", f"exec {node} -- ip neigh flush dev {at.vlan}"],
        ("It is one host.", "`inspect` shows links."),
        at.part,
    )


def loose_uplink(r: Random) -> Trouble:
    leaf, number = r.choice(["leaf1", "leaf2"]), r.choice([1, 2])
    near, far = uplink(leaf, number)
    end = r.choice([near, far])
    other, _ = uplink(leaf, 3 - number)
    return Trouble(
        ["lossy-link", "silent-drop", "link-loss", "lost-probes"],
        [near, far, f"{near} - {far}"],
        f"{end} loses 60 % of what it sends for {ON_S} s, works for {OFF_S} s, and so on",
        [Broken("link-loss", {"end": end, "loss": 60}, returns=True)],
        [f"link set {near} down"],
        [f"link set {other} down", "advance 60s"],
        ("No link goes down, and it is not there all the time.", "Probe for longer than it is well."),
        frozenset({"uplinks"}),
    )


def steered_route(r: Random) -> Trouble:
    """A script of traffic engineering drains a spine into nothing, and takes it back."""
    leaf, number = r.choice(["leaf1", "leaf2"]), r.choice([1, 2])
    spine, network, name = f"spine{number}", f"10.0.{leaf[-1]}0.0/24", "te-agent"
    drain, back = f"ip route add blackhole {network}", f"ip route del blackhole {network}"
    return Trouble(
        ["no-route", "blackhole"],
        [spine, leaf],
        f"{name} on {spine} drops what is for {network} for {ON_S} s, takes that back for {OFF_S} s, and so on",
        [Left(spine, name, f"while :; do {drain}; sleep {ON_S}; {back}; sleep {OFF_S}; done")],
        [f"exec {spine} -- pkill -f {name}", f"exec {spine} -- sh -c '{back}; true'"],
        [f"exec {spine} -- sh -c '{back}; true'", f"announce {RANKS[0]}:eth1"],
        ("Some flows between the racks stop, and go on after a while.", "Look at what runs on switches."),
        frozenset({"uplinks"}),
    )


STEADY = [blackhole, spine_drops, gateway_down, lossy_uplink, corrupting_uplink, port_down]
RETURNING = [loose_uplink, steered_route]
