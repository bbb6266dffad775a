"""Pods and their networks: addresses, MACs and routes that plugins and programs gave them, and the nodes below."""

from random import Random

from testbed.scenario.incident.trouble import OFF_S, ON_S, PKILL, Deleted, Left, Started, Trouble, Typed
from testbed.scenario.incident.workers import FREE, WORKERS, Worker

OTHERS = ("notebook", "eval", "export", "tuner")
"""What pods of others are called, before the number."""
ACL = "add table inet acl; add chain inet acl forward {{ type filter hook forward priority 0; }}; "
ACL += "add rule inet acl forward iifname vlan{vlan} ip saddr {ip} udp dport 4791 drop"
NO_ACL = "delete table inet acl"
SCENE = "pods"


def acl(at: Worker) -> str:
    """Return the commands of an ACL on the gateway of a pod."""
    return ACL.format(vlan=at.vlan, ip=at.ip)


def stranger(r: Random, at: Worker) -> str:
    """Return the name of a pod of others beside a worker: no other worker has one of this name."""
    return f"{r.choice(OTHERS)}-{at.rank}"


def overlapping_range(r: Random) -> Trouble:
    at = r.choice(WORKERS)
    pod, host = stranger(r, at), at.mate.host
    return Trouble(
        ["duplicate-ip"],
        [*at.names, pod, host, at.leaf],
        f"{pod} on {host} got {at.ip}, which {at.pod} has: the ranges of two networks overlap, and host-local knows "
        "only the addresses of its own node; the plugin announced it",
        [Started(host, pod, [at.attached("batch", at.ip)])],
        [f"pod del {pod}", f"announce {at.pod}:net1"],
        [f"pod del {pod}", f"exec {at.mate.pod} -- ip neigh flush dev net1"],
        ("Two may answer for one address.", "Look at all addresses in the VLAN of the pods."),
        at.part | at.mate.part,
        SCENE,
    )


def entry_of_a_dead_pod(r: Random) -> Trouble:
    at = r.choice(WORKERS)
    pod, host = stranger(r, at), at.mate.host
    return Trouble(
        ["stale-neighbour", "duplicate-ip"],
        [*at.names, at.leaf],
        f"{pod}, which ran on {host} for a moment, had {at.ip} of {at.pod}; it is gone, and {at.leaf} keeps its MAC "
        "for the address",
        [Started(host, pod, [at.attached("batch", at.ip)]), Deleted(pod)],
        [f"announce {at.pod}:net1"],
        [f"exec {at.mate.pod} -- ip neigh flush dev net1", "advance 60s"],
        ("Its link is up, and its packets go out. Do answers come back?", "Compare the switches' tables with MACs."),
        at.part | at.mate.part,
        SCENE,
    )


def copied_mac(r: Random) -> Trouble:
    at = r.choice(WORKERS)
    pod, host, ip = stranger(r, at), at.mate.host, f"{at.network}.{FREE[0]}"
    return Trouble(
        ["duplicate-mac", "mac-move"],
        [*at.names, pod, host, at.leaf],
        f"the manifest of {pod} on {host} is a copy, with the MAC of {at.pod}; {at.leaf} sends to the one it heard "
        "last",
        [
            Started(host, pod, [at.attached("batch", ip, {"type": "tuning", "mac": at.mac})]),
            Left(pod, "metrics-push", f"ping -q -i 0.02 {at.gateway}"),
        ],
        [f"pod del {pod}"],
        [f"announce {at.pod}:net1", f"exec {at.pod} -- ip neigh flush dev net1"],
        ("A MAC is in two places.", "Look at the port that the leaf has for it, again and again."),
        at.part | at.mate.part,
        SCENE,
    )


def default_route_on_eth0(r: Random) -> Trouble:
    at = r.choice(WORKERS)
    return Trouble(
        ["no-route", "wrong-gateway"],
        at.names,
        f"an agent of the node has moved the default route of {at.pod} to eth0, the management network",
        [Typed(at.pod, "ip route replace default via 198.18.0.254 dev eth0")],
        [f"exec {at.pod} -- ip route replace default via {at.gateway} dev net1"],
        [f"announce {at.pod}:net1", f"exec {at.pod} -- ip neigh flush dev net1"],
        ("One pod reaches its own rack, and no other.", "Compare routes of pods."),
        at.part,
        SCENE,
    )


def routing_table_of_another_pod(r: Random) -> Trouble:
    at = r.choice(WORKERS)
    wrong = f"{at.network}.254"
    return Trouble(
        ["no-route", "wrong-gateway"],
        at.names,
        f"a rule of {at.pod} sends what is from {at.ip} to table 101, where the default route leads to {wrong}, which "
        "nobody has",
        [
            Typed(at.pod, f"ip route add {at.network}.0/24 dev net1 table 101"),
            Typed(at.pod, f"ip route add default via {wrong} dev net1 onlink table 101"),
            Typed(at.pod, f"ip rule add from {at.ip} lookup 101 priority 1000"),
        ],
        [f"exec {at.pod} -- ip rule del priority 1000"],
        [f"exec {at.pod} -- ip route replace default via {at.gateway} dev net1", f"announce {at.pod}:net1"],
        ("The main table is well.", "`ip route get` with the source address asks all tables."),
        at.part,
        SCENE,
    )


def static_gateway(r: Random) -> Trouble:
    """A neighbour entry by hand, with the MAC of a leaf that was replaced."""
    at = r.choice(WORKERS)
    mac = f"02:00:00:00:99:{r.randrange(16, 99)}"
    return Trouble(
        ["stale-neighbour", "wrong-static-arp"],
        at.names,
        f"a start script of {at.pod} sets a permanent entry for its gateway with {mac}, of a leaf that is gone; the "
        "job restarted",
        [
            Typed(at.pod, f"ip neigh replace {at.gateway} lladdr {mac} nud permanent dev net1"),
            Typed(at.pod, f"sh -c '{PKILL} -KILL'"),  # connections that are there keep their MACs
        ],
        [f"exec {at.pod} -- ip neigh del {at.gateway} dev net1"],
        [f"announce {at.pod}:net1", f"exec {at.pod} -- ip neigh flush dev net1"],
        ("One pod reaches its own rack, and no other. Its routes are well.", "Compare neighbour entries with MACs."),
        at.part,
        SCENE,
    )


def lost_address(r: Random) -> Trouble:
    at = r.choice(WORKERS)
    return Trouble(
        ["missing-address", "no-route"],
        at.names,
        f"a clean-up of leaked addresses took {at.ip} from {at.pod}, and its routes went with it",
        [Typed(at.pod, f"ip address del {at.ip}/24 dev net1")],
        [
            f"exec {at.pod} -- ip address add {at.ip}/24 dev net1",
            f"exec {at.pod} -- ip route add default via {at.gateway} dev net1",
        ],
        [f"exec {at.pod} -- ip address add {at.ip}/24 dev net1", f"announce {at.pod}:net1 --ip {at.ip}"],
        ("Nothing on the fabric has changed.", "Compare addresses and routes of pods."),
        at.part,
        SCENE,
    )


def narrow_port(r: Random) -> Trouble:
    """Pods keep their MTU: a job that starts again has full packets. An MTU of a pod's own it would adapt to."""
    at = r.choice(WORKERS)
    _, port = at.node.port.split(":")
    return Trouble(
        ["mtu-mismatch", "mtu"],
        [*at.names, at.leaf],
        f"{at.node.port} has the MTU of its template again, 1500; {at.host} and its pod have 9000",
        [Typed(at.leaf, f"ip link set {port} mtu 1500")],
        [f"exec {at.leaf} -- ip link set {port} mtu 9000"],
        [f"exec {at.host} -- ip link set {at.parent} mtu 9000", f"announce {at.pod}:net1"],
        ("Small messages arrive.", "Compare MTUs, of nodes and of ports."),
        at.part,
        SCENE,
    )


def vlan_interface_down(r: Random) -> Trouble:
    at = r.choice(WORKERS)
    return Trouble(
        ["nic-down", "link-down"],
        [*at.names, f"{at.host}:{at.parent}"],
        f"somebody set {at.parent} of {at.host} down, which the pods there are on",
        [Typed(at.host, f"ip link set {at.parent} down")],
        [f"exec {at.host} -- ip link set {at.parent} up"],
        [f"announce {at.pod}:net1", f"exec {at.pod} -- ip link set net1 up"],
        ("The node is well, and its pods reach nothing.", "Look at the interface that net1 is on."),
        at.part,
        SCENE,
    )


def vlan_not_on_the_port(r: Random) -> Trouble:
    at = r.choice(WORKERS)
    _, port = at.node.port.split(":")
    return Trouble(
        ["wrong-vlan", "silent-drop"],
        [*at.names, at.leaf],
        f"VLAN {at.vlan} was taken off {at.node.port}, the port of {at.host}",
        [Typed(at.leaf, f"bridge vlan del dev {port} vid {at.vlan}")],
        [f"exec {at.leaf} -- bridge vlan add dev {port} vid {at.vlan}"],
        [f"announce {at.pod}:net1", f"exec {at.host} -- ip link set {at.parent} up"],
        ("The node is well, and its pods reach nothing.", "Compare ports of the leaf."),
        at.part,
        SCENE,
    )


def acl_on_the_gateway(r: Random) -> Trouble:
    at = r.choice(WORKERS)
    return Trouble(
        ["firewall", "silent-drop", "lossy-link"],
        [*at.names, at.leaf],
        f"a controller of network policies put an ACL on vlan{at.vlan} of {at.leaf}: it drops UDP port 4791 (RoCE) "
        f"from {at.ip}, of {at.pod}",
        [Typed(at.leaf, f"nft '{acl(at)}'")],
        [f"exec {at.leaf} -- nft {NO_ACL}"],
        [f"announce {at.pod}:net1", f"exec {at.leaf} -- ip neigh flush dev vlan{at.vlan}"],
        ("ping and TCP work, RDMA does not.", "It works in its rack. Look at what its gateway does with packets."),
        at.part | {f"ACLs of {at.leaf}"},
        SCENE,
    )


def claimed_again(r: Random) -> Trouble:
    """A pod of others takes a rank's address as its virtual one, gives it back, and so on."""
    at = r.choice(WORKERS)
    pod, host, name = stranger(r, at), at.mate.host, "vip-sidecar"
    claim = f"ip address add {at.ip}/24 dev eth0; arping -A -c 3 -I eth0 {at.ip}"
    leave = f"ip address del {at.ip}/24 dev eth0"
    returns = f"while sleep 4; do arping -A -c 1 -I net1 {at.ip}; done"
    return Trouble(
        ["duplicate-ip"],
        [*at.names, pod, host, at.leaf],
        f"{name} in {pod} on {host} has {at.ip}, of {at.pod}, as its virtual address: it takes it for {ON_S} s, gives "
        f"it up for {OFF_S} s, and so on",
        [
            Started(host, pod, [at.attached("batch", f"{at.network}.{FREE[0]}")]),
            Left(at.pod, "arp-keepalive", returns),
            Left(pod, name, f"while :; do {claim}; sleep {ON_S}; {leave}; sleep {OFF_S}; done"),
        ],
        [f"pod del {pod}", f"announce {at.pod}:net1"],
        [f"announce {at.pod}:net1", f"exec {at.mate.pod} -- ip neigh flush dev net1"],
        ("Two may answer for one address, and not all the time.", "Look at what runs in pods of others."),
        at.part | at.mate.part,
        SCENE,
    )


def vlan_synchronised(r: Random) -> Trouble:
    """Two programs do not agree on the VLANs of a port."""
    at, name = r.choice(WORKERS), "port-sync"
    _, port = at.node.port.split(":")
    off, on = (f"bridge vlan {change} dev {port} vid {at.vlan}" for change in ("del", "add"))
    return Trouble(
        ["wrong-vlan", "silent-drop"],
        [*at.names, at.leaf],
        f"{name} on {at.leaf} takes VLAN {at.vlan} off {at.node.port} for {ON_S} s, puts it back for {OFF_S} s, "
        "and so on",
        [Left(at.leaf, name, f"while :; do {off}; sleep {ON_S}; {on}; sleep {OFF_S}; done")],
        [f"exec {at.leaf} -- pkill -f {name}", f"exec {at.leaf} -- {on}"],
        [f"exec {at.leaf} -- {on}", f"announce {at.pod}:net1"],
        ("One pod is away for a while, and comes back. No link goes down.", "Look at what runs on switches."),
        at.part,
        SCENE,
    )


def policy_synchronised(r: Random) -> Trouble:
    at, name = r.choice(WORKERS), "policy-sync"
    loop = f"while :; do nft '{acl(at)}'; sleep {ON_S}; nft {NO_ACL}; sleep {OFF_S}; done"
    return Trouble(
        ["firewall", "silent-drop", "lossy-link"],
        [*at.names, at.leaf],
        f"{name} on {at.leaf} drops UDP port 4791 (RoCE) from {at.ip}, of {at.pod}, for {ON_S} s, takes that back for "
        f"{OFF_S} s, and so on",
        [Left(at.leaf, name, loop)],
        [f"exec {at.leaf} -- pkill -f {name}", f"exec {at.leaf} -- sh -c 'nft {NO_ACL}; true'"],
        [f"exec {at.leaf} -- sh -c 'nft {NO_ACL}; true'", f"announce {at.pod}:net1"],
        ("ping works all the time, RDMA does not.", "Look at what runs on switches."),
        at.part | {f"ACLs of {at.leaf}"},
        SCENE,
    )


STEADY = [
    overlapping_range,
    entry_of_a_dead_pod,
    copied_mac,
    default_route_on_eth0,
    routing_table_of_another_pod,
    static_gateway,
    lost_address,
    narrow_port,
    vlan_interface_down,
    vlan_not_on_the_port,
    acl_on_the_gateway,
]
RETURNING = [claimed_again, vlan_synchronised, policy_synchronised]
