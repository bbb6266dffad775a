"""A lossless fabric: classes, pauses, marks and buffers, and traffic that goes before the job's."""

from random import Random

from testbed.scenario.incident.site import RANKS, Place, uplink
from testbed.scenario.incident.trouble import OFF_S, ON_S, Broken, Left, Set, Trouble

SCENE = "lossless"
LEAVES = ("leaf1", "leaf2")
CLASS, DSCP = 3, 26
"""The lossless class: its priority and its DSCP."""
HEADROOM, SHORT = 40000, 10000
ECN_MIN, ECN_MAX, ECN_PROBABILITY = 150000, 300000, 10
"""Values of the switches' profiles, in bytes and percent. Short headroom is enough for a cable within a rack."""
SEND = "ib_send_bw -F -e -x 1 -q 8 -t 4 -s 65536 -m 4096 -u 20 --tclass=192"
"""A program of perftest that sends with DSCP 48, which is served before all other classes."""


def slow_uplink(r: Random) -> Trouble:
    near, far, other = drawn_uplink(r)
    end, rate = r.choice([near, far]), r.choice([500, 1000])
    return Trouble(
        ["slow-link", "link-rate"],
        [near, far, f"{near} - {far}"],
        f"{end} came up with a few of its lanes, at {rate} kbit/s",
        [Broken("link-rate", {"end": end, "rate": rate * 1000})],
        [f"link set {near} down"],
        [f"link set {other} down", f"announce {RANKS[0]}:eth1"],
        ("Nothing is lost. Who pauses whom?", "Compare the rates of uplinks."),
        frozenset({"uplinks"}),
        SCENE,
    )


def uplink_in_another_class(r: Random) -> Trouble:
    near, far, other = drawn_uplink(r)
    return Trouble(
        ["dscp-mismatch", "lossless-drop", "lossy-link"],
        [near, far, f"{near} - {far}", near.partition(":")[0]],
        f"{near} takes DSCP {DSCP} for priority 0 since its line card was replaced: what comes in there is lossy",
        [Broken("dscp-mismatch", {"end": near, "dscp": DSCP, "priority": 0})],
        [f"link set {near} down"],
        [f"link set {other} down", f"announce {RANKS[0]}:eth1"],
        ("Packets are dropped. In which queue?", "Compare what queues of the leaves' ports to GPU nodes count."),
        frozenset({"uplinks"}),
        SCENE,
    )


def short_headroom(r: Random) -> Trouble:
    leaf = r.choice(LEAVES)
    return Trouble(
        ["lossless-drop", "headroom-too-small"],
        [leaf, *(f"{leaf}:u{number}" for number in (1, 2))],
        f"a template for short cables set pfc_headroom of {leaf} to {SHORT}: its uplinks to the other hall need more",
        [Set(leaf, {"pfc_headroom": SHORT})],
        [f"profile set {leaf} pfc_headroom={HEADROOM}"],
        [f"link set {leaf}:u1 down", f"exec {leaf} -- ip neigh flush all"],
        ("The class that loses nothing loses packets, though the switch pauses in time.", "Compare buffers of leaves."),
        frozenset({f"profile of {leaf}"}),
        SCENE,
    )


def early_marks(r: Random) -> Trouble:
    leaf = r.choice(LEAVES)
    return Trouble(
        ["ecn-thresholds", "congestion-control", "slow-link"],
        [leaf],
        f"somebody set ecn_min and ecn_max of {leaf} in kB, and they are bytes: it marks each packet that waits",
        [Set(leaf, {"ecn_min": ECN_MIN // 1000, "ecn_max": ECN_MAX // 1000, "ecn_probability": 100})],
        [f"profile set {leaf} ecn_min={ECN_MIN} ecn_max={ECN_MAX} ecn_probability={ECN_PROBABILITY}"],
        [f"link set {leaf}:u1 down", f"exec {leaf} -- ip neigh flush all"],
        ("Nothing is lost, and nobody is paused. Who slows down?", "Count marked packets, and CNPs."),
        frozenset({f"profile of {leaf}"}),
        SCENE,
    )


def staging(r: Random) -> Trouble:
    at, name = Place(r.choice(RANKS)), "stage-dataset"
    end = f"{SEND} -n 100000"
    return Trouble(
        ["congested-link", "background-flow", "wrong-class"],
        [*at.names, *at.store.names, at.leaf],
        f"{name} copies from {at.store.host} to {at.host} with DSCP 48, that of the control plane, which goes first",
        [
            Left(at.host, name, f"{end} -d {at.host}-eth1"),
            Left(at.store.host, name, f"sleep 1; {end} -d {at.store.host}-eth1 {at.ip}"),
        ],
        [f"exec {at.store.host} -- pkill -f {name}", f"exec {at.store.host} -- pkill ib_send_bw"],
        [f"announce {at.host}:eth1", f"exec {at.store.host} -- ip neigh flush all"],
        ("One port to a rank is busy all the time.", "Which of its queues sends?"),
        at.part | at.store.part,
        SCENE,
    )


def endless_pauses(r: Random) -> Trouble:
    leaf = r.choice(LEAVES)
    host, port = backup(leaf)
    return Trouble(
        ["pause-storm"],
        [host, f"{host}:eth1", port, f"{port} - {host}:eth1"],
        f"the NIC of {host} hangs and sends pause frames without end: what is for it fills {leaf}, which pauses spines",
        [Broken("pause-storm", {"end": f"{host}:eth1", "priority": CLASS})],
        [f"link set {port} down"],
        [f"link set {leaf}:u1 down", f"announce {RANKS[0]}:eth1"],
        ("Nothing is lost, and no rank's link is slow. Who pauses whom?", "Follow pauses to the first one."),
        frozenset({host}),
        SCENE,
    )


def slow_backup(r: Random) -> Trouble:
    leaf = r.choice(LEAVES)
    host, port = backup(leaf)
    return Trouble(
        ["paused", "slow-receiver"],
        [host, f"{host}:eth1", port, f"{port} - {host}:eth1"],
        f"the NIC of {host} receives at 0.2 Mbit/s, as its PCIe slot fell back, and pauses {leaf} most of the time",
        [Broken("slow-receiver", {"end": f"{host}:eth1", "rate": 200_000})],
        [f"link set {port} down"],
        [f"link set {leaf}:u1 down", f"announce {RANKS[0]}:eth1"],
        ("Nothing is lost, and no rank's link is slow. Who pauses whom?", "Which port is paused most of the time?"),
        frozenset({host}),
        SCENE,
    )


def staging_again(r: Random) -> Trouble:
    """A copy every minute."""
    at, name = Place(r.choice(RANKS)), "dataset-sync"
    end = f"{SEND} -n 12"
    return Trouble(
        ["congested-link", "background-flow", "wrong-class"],
        [*at.names, *at.store.names, at.leaf],
        f"{name} copies 6 MB from {at.store.host} to {at.host} with DSCP 48, that of the control plane, which goes "
        f"first; waits for {OFF_S} s, and so on",
        [
            Left(at.host, name, f"while :; do {end} -d {at.host}-eth1; done"),
            Left(at.store.host, name, f"while sleep 1; do {end} -d {at.store.host}-eth1 {at.ip}; sleep {OFF_S}; done"),
        ],
        [f"exec {at.store.host} -- pkill -f {name}", f"exec {at.store.host} -- sh -c 'pkill ib_send_bw; true'"],
        [f"announce {at.host}:eth1", f"exec {at.store.host} -- ip neigh flush all"],
        ("One port to a rank is busy, and not all the time.", "Look at what runs on the hosts of its rack."),
        at.part | at.store.part,
        SCENE,
    )


def pauses_again(r: Random) -> Trouble:
    leaf = r.choice(LEAVES)
    host, port = backup(leaf)
    return Trouble(
        ["pause-storm"],
        [host, f"{host}:eth1", port, f"{port} - {host}:eth1"],
        f"the NIC of {host} hangs for {ON_S} s and sends pause frames, works for {OFF_S} s, and so on",
        [Broken("pause-storm", {"end": f"{host}:eth1", "priority": CLASS}, returns=True)],
        [f"link set {port} down"],
        [f"link set {leaf}:u1 down", "advance 60s"],
        ("Nothing is lost, and it is not there all the time. Who pauses whom?", "Follow pauses to the first one."),
        frozenset({host}),
        SCENE,
    )


def lanes_lost_again(r: Random) -> Trouble:
    near, far, other = drawn_uplink(r)
    end = r.choice([near, far])
    return Trouble(
        ["slow-link", "link-rate"],
        [near, far, f"{near} - {far}"],
        f"{end} loses lanes for {ON_S} s (1 Mbit/s), has them for {OFF_S} s, and so on",
        [Broken("link-rate", {"end": end, "rate": 1_000_000}, returns=True)],
        [f"link set {near} down"],
        [f"link set {other} down", "advance 60s"],
        ("Nothing is lost, and it is not there all the time.", "Watch the rates of uplinks."),
        frozenset({"uplinks"}),
        SCENE,
    )


def drawn_uplink(r: Random) -> tuple[str, str, str]:
    """Draw an uplink of a leaf, and return both of its ends and the leaf's end of the other one."""
    leaf, number = r.choice(LEAVES), r.choice([1, 2])
    return *uplink(leaf, number), uplink(leaf, 3 - number)[0]


def backup(leaf: str) -> tuple[str, str]:
    """Return the backup node of a rack, and its port."""
    return f"backup{leaf[-1]}", f"{leaf}:e5"


STEADY = [*(slow_uplink, uplink_in_another_class, short_headroom, early_marks), *(staging, endless_pauses, slow_backup)]
RETURNING = [staging_again, pauses_again, lanes_lost_again]
