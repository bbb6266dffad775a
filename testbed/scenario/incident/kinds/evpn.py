"""A fabric of BGP EVPN over VXLAN: what leaves announce, import, map and carry."""

from random import Random

from testbed.scenario.incident.site import RANKS, Place
from testbed.scenario.incident.trouble import OFF_S, ON_S, Entered, Left, Trouble, Typed

SCENE = "evpn"
VTEPS = {"leaf1": "10.255.0.3", "leaf2": "10.255.0.4"}
"""The end of tunnels of each leaf."""
ASNS = {"leaf1": 4200000003, "leaf2": 4200000004}
RAILS = {10: ("gpu1", "gpu3"), 20: ("gpu2", "gpu4")}
"""The ranks' hosts in each VLAN that both racks have, those of leaf1 first."""
IPS = {"gpu1": "10.0.10.2", "gpu2": "10.0.20.2", "gpu3": "10.0.10.4", "gpu4": "10.0.20.4"}
ROOM = 4100
"""An MTU that leaves no room for VXLAN around packets of 4096 bytes."""
VRF = "tenant"


def withdrawn(r: Random) -> Trouble:
    leaf = r.choice(list(VTEPS))
    bgp = [f"router bgp {ASNS[leaf]}", "address-family l2vpn evpn"]
    return Trouble(
        ["evpn", "no-route"],
        [leaf],
        f"somebody entered `no advertise-all-vni` on {leaf}: it announces no MACs and no VNIs, and takes none",
        [Entered(leaf, [*bgp, "no advertise-all-vni"])],
        [vtysh(leaf, *bgp, "advertise-all-vni")],
        [f"link set {leaf}:u1 down", f"exec {leaf} -- ip neigh flush all"],
        ("A rack reaches nothing outside of it. Its uplinks and its BGP sessions are up.", "What do leaves announce?"),
        frozenset({leaf, "uplinks"}),
        SCENE,
    )


def network_down(r: Random) -> Trouble:
    leaf, vlan = r.choice(list(VTEPS)), r.choice(list(RAILS))
    return Trouble(
        ["evpn", "link-down", "no-route"],
        [leaf, f"{leaf}:{vni(vlan)}"],
        f"somebody set {vni(vlan)} of {leaf} down, the VXLAN network of VLAN {vlan}",
        [Typed(leaf, f"ip link set {vni(vlan)} down")],
        [f"exec {leaf} -- ip link set {vni(vlan)} up"],
        [f"link set {leaf}:u1 down", f"announce {RAILS[vlan][0]}:eth1"],
        ("It is one rail, and only between racks.", "Look at the interfaces of leaves that are no ports."),
        frozenset({leaf, f"VLAN {vlan}"}),
        SCENE,
    )


def tunnel_end_gone(r: Random) -> Trouble:
    leaf = r.choice(list(VTEPS))
    ip = VTEPS[leaf]
    return Trouble(
        ["evpn", "no-route"],
        [leaf, f"{leaf}:lo"],
        f"somebody removed {ip} from lo of {leaf}, the address of its tunnels",
        [Typed(leaf, f"ip address del {ip}/32 dev lo")],
        [f"exec {leaf} -- ip address add {ip}/32 dev lo"],
        [f"link set {leaf}:u1 down", f"exec {leaf} -- ip neigh flush all"],
        ("A rack reaches nothing outside of it. Its uplinks are up.", "Ask spines for the routes to both leaves."),
        frozenset({leaf, "uplinks"}),
        SCENE,
    )


def wrong_target(r: Random) -> Trouble:
    leaf, vlan = r.choice(list(VTEPS)), r.choice(list(RAILS))
    number = vni(vlan).removeprefix("vni")
    target = "route-target import 65000:1"
    place = [f"router bgp {ASNS[leaf]}", "address-family l2vpn evpn", f"vni {number}"]
    return Trouble(
        ["evpn", "no-route"],
        [leaf, f"{leaf}:{vni(vlan)}"],
        f"somebody entered `{target}` for VNI {number} on {leaf}: it takes no MACs that others announce there",
        [Entered(leaf, [*place, target])],
        [vtysh(leaf, *place, f"no {target}")],
        [f"link set {leaf}:u1 down", f"exec {leaf} -- ip neigh flush all"],
        ("It is one rail, and only between racks.", "One leaf has all routes, and not all of them in its tables."),
        frozenset({leaf, f"VLAN {vlan}"}),
        SCENE,
    )


def not_mapped(r: Random) -> Trouble:
    leaf, vlan = r.choice(list(VTEPS)), r.choice(list(RAILS))
    return Trouble(
        ["evpn", "wrong-vlan", "no-route"],
        [leaf, f"{leaf}:{vni(vlan)}"],
        f"somebody took VLAN {vlan} off {vni(vlan)} of {leaf}: its frames do not come to the tunnel",
        [Typed(leaf, f"bridge vlan del dev {vni(vlan)} vid {vlan}")],
        [f"exec {leaf} -- bridge vlan add dev {vni(vlan)} vid {vlan} pvid untagged"],
        [f"link set {leaf}:u1 down", f"exec {leaf} -- ip link set {vni(vlan)} up"],
        ("It is one rail, and only between racks.", "Compare the VLANs of bridges on both leaves."),
        frozenset({leaf, f"VLAN {vlan}"}),
        SCENE,
    )


def wrong_vlan(r: Random) -> Trouble:
    at, vlan = drawn_rank(r)
    node, port = at.port.split(":")
    other = next(one for one in RAILS if one != vlan)
    return Trouble(
        ["wrong-vlan", "unresolved", "no-route"],
        at.names,
        f"somebody gave {at.port} VLAN {other}, and not {vlan}: {at.host} is on the wrong rail",
        [
            Typed(node, f"bridge vlan del dev {port} vid {vlan}"),
            Typed(node, f"bridge vlan add dev {port} vid {other} pvid untagged"),
        ],
        [
            f"exec {node} -- bridge vlan del dev {port} vid {other}",
            f"exec {node} -- bridge vlan add dev {port} vid {vlan} pvid untagged",
        ],
        [f"announce {at.host}:eth1", f"exec {node} -- bridge vlan del dev {port} vid {other}"],
        ("It is one host.", "Its link is up, and its gateway does not answer."),
        at.part,
        SCENE,
    )


def no_room(r: Random) -> Trouble:
    leaf = r.choice(list(VTEPS))
    return Trouble(
        ["mtu-mismatch", "link-mtu"],
        [leaf, f"{leaf}:u1", f"{leaf}:u2"],
        f"the uplinks of {leaf} have an MTU of {ROOM} since its last boot: packets of 4096 bytes have no room in VXLAN",
        [Typed(leaf, f"ip link set u{number} mtu {ROOM}") for number in (1, 2)],
        [f"exec {leaf} -- ip link set u{number} mtu 9100" for number in (1, 2)],
        [f"link set {leaf}:u1 down", f"announce {RANKS[0]}:eth1"],
        ("Ping works, RDMA does not.", "How large are RoCE packets in a tunnel?"),
        frozenset({"uplinks"}),
        SCENE,
    )


def blackhole(r: Random) -> Trouble:
    """For one host, of what comes from the other rail."""
    at, _ = drawn_rank(r)
    other, ip = at.other_leaf, IPS[at.host]
    return Trouble(
        ["no-route", "blackhole"],
        [other, *at.names],
        f"{other} has a route in the VRF {VRF} that drops what is for {ip}, of {at.host}",
        [Typed(other, f"ip route add blackhole {ip}/32 vrf {VRF}")],
        [f"exec {other} -- ip route del blackhole {ip}/32 vrf {VRF}"],
        [f"announce {at.host}:eth1", f"exec {other} -- ip neigh flush all"],
        ("It is one address, from the other rack and the other rail.", "The leaves route in a VRF."),
        frozenset({at.host, f"routes of {other}"}),
        SCENE,
    )


def network_flaps(r: Random) -> Trouble:
    leaf, vlan, name = r.choice(list(VTEPS)), r.choice(list(RAILS)), "vxlan-sync"
    return Trouble(
        ["evpn", "link-down", "no-route"],
        [leaf, f"{leaf}:{vni(vlan)}"],
        f"{name} on {leaf} sets {vni(vlan)} down for {ON_S} s, up for {OFF_S} s, and so on",
        [Left(leaf, name, repeated(f"ip link set {vni(vlan)} down", f"ip link set {vni(vlan)} up"))],
        [f"exec {leaf} -- pkill -f {name}", f"exec {leaf} -- ip link set {vni(vlan)} up"],
        [f"exec {leaf} -- ip link set {vni(vlan)} up", f"announce {RAILS[vlan][0]}:eth1"],
        ("It is one rail, only between racks, and not all the time.", "Look at what runs on leaves."),
        frozenset({leaf, f"VLAN {vlan}"}),
        SCENE,
    )


def tunnel_end_flaps(r: Random) -> Trouble:
    leaf, name = r.choice(list(VTEPS)), "lo-manager"
    gone, back = (f"ip address {verb} {VTEPS[leaf]}/32 dev lo" for verb in ("del", "add"))
    return Trouble(
        ["evpn", "no-route"],
        [leaf, f"{leaf}:lo"],
        f"{name} on {leaf} takes {VTEPS[leaf]} off lo for {ON_S} s, puts it back for {OFF_S} s, and so on",
        [Left(leaf, name, repeated(gone, back))],
        [f"exec {leaf} -- pkill -f {name}", f"exec {leaf} -- sh -c '{back}; true'"],
        [f"exec {leaf} -- sh -c '{back}; true'", "advance 60s"],
        ("A rack reaches nothing outside of it for a while. Its uplinks are up.", "Look at what runs on leaves."),
        frozenset({leaf, "uplinks"}),
        SCENE,
    )


def repeated(wrong: str, right: str) -> str:
    """Return a script that does one thing, and undoes it after ON_S, for OFF_S."""
    return f"while :; do {wrong}; sleep {ON_S}; {right}; sleep {OFF_S}; done"


def vni(vlan: int) -> str:
    """Return the interface of a VLAN's VXLAN network."""
    return f"vni{10000 + vlan}"


def vtysh(leaf: str, *lines: str) -> str:
    """Return the command that enters lines of a leaf's configuration."""
    return f"exec {leaf} -- vtysh " + " ".join(f"-c '{line}'" for line in ("configure terminal", *lines))


def drawn_rank(r: Random) -> tuple[Place, int]:
    """Draw the host of a rank, and return it with its VLAN."""
    host = r.choice(RANKS)
    return Place(host), next(vlan for vlan, hosts in RAILS.items() if host in hosts)


STEADY = [*(withdrawn, network_down, tunnel_end_gone, wrong_target), *(not_mapped, wrong_vlan, no_room, blackhole)]
RETURNING = [network_flaps, tunnel_end_flaps]
