"""Cases of what goes wrong with a container network, for the unit tests and for a machine.

Each begins with something valid and is changed in up to three places, so that it gets past the first check.
"""

import copy
import json
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
ADDRESSES = ["10.0.10.7", "10.0.10.7/24", "10.0.10.300/24", "0.0.0.0/0", "fe80::1/64", "::/0"]
TEXTS = ["", " ", "\0", "\ud800", "../x", "a b", "x" * 300, "eth9", "1", "-1", "true", "{}", "9.9.9"]
MACS = ["06:00:00:00:00:01", "01:00:5e:00:00:01"]
OTHERS = [-1, 0, 1, 4095, 4096, 2**31, 2**64, 10**30, 0.5, True, False, None, [], {}, [[]], [{}], [None], {"": None}]
NASTY = st.sampled_from([*ADDRESSES, *TEXTS, *MACS, *OTHERS]).map(copy.deepcopy)


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Each container in a document with each of its keys."""
    keys = range(len(value)) if isinstance(value, list) else list(value) if isinstance(value, dict) else ()
    for key in keys:
        yield value, key
        yield from places(value[key])


@st.composite
def changed(draw: st.DrawFn, valid: list[Any]) -> Any:
    """One of the documents, with up to three changes."""
    value = copy.deepcopy(draw(st.sampled_from(valid)))
    for _ in range(draw(st.integers(0, 3))):
        if not (there := list(places(value))):
            break
        inside, key = draw(st.sampled_from(there))
        match draw(st.sampled_from(["nasty", "any", "gone", "twice", "more"])):
            case "nasty":
                inside[key] = draw(NASTY)
            case "any":
                inside[key] = draw(VALUES)
            case "gone":
                del inside[key]
            case "twice" if isinstance(inside, list):
                inside.append(copy.deepcopy(inside[key]))
            case "twice":
                inside[f"{key}x"] = inside[key]
            case _ if isinstance(inside, dict):
                inside[draw(st.text(max_size=5))] = draw(NASTY)
            case _:
                inside.insert(0, draw(NASTY))
    return value


HOST_LOCAL = {
    "type": "host-local",
    "ranges": [[{"subnet": "10.0.10.0/24", "rangeStart": "10.0.10.100", "gateway": "10.0.10.1"}]],
    "routes": [{"dst": "0.0.0.0/0"}],
}
POOL = {"name": "p", "subnet": "10.0.10.0/24", "ips": ["10.0.10.100-10.0.10.109"], "gateway": "10.0.10.1"}
POOL6 = {"subnet": "fd00:10::/64", "ips": ["fd00:10::100-fd00:10::109"], "excludeIPs": ["fd00:10::105"]}
IPPOOL = {
    "type": "ippool",
    "pools": [POOL, POOL6],
    "policy": "cool-down",
    "coolDown": 60,
    "routes": [{"dst": "10.0.0.0/8", "gw": "10.0.10.1"}],
}
STATIC = {
    "type": "static",
    "addresses": [{"address": "10.0.10.7/24", "gateway": "10.0.10.1"}, {"address": "fd00:10::7/64"}],
}
"""With the addresses of RESULTS."""
COORDINATOR = {
    "type": "coordinator",
    "mode": "underlay",
    "steps": ["mac", "conflict", "gateway", "announce", "rp_filter", "veth", "routes"],
    "detectIPConflict": "rfc5227",
    "detectGateway": True,
    "detectOptions": {"retries": 1, "interval": "10ms", "timeout": "20ms"},
    "announce": {"count": 2, "interval": "10ms"},
    "podMACPrefix": "0a:1b",
    "podRPFilter": 0,
    "hijackCIDR": ["169.254.0.0/16"],
}
IFACER = {
    "type": "ifacer",
    "interfaces": ["eth1", "eth2"],
    "vlanID": 30,
    "bond": {"name": "bond7", "mode": 1, "options": "miimon=100"},
}
MACVLAN = {"type": "macvlan", "master": "eth1", "mode": "bridge", "capabilities": {"mac": True, "ips": True}}
CHAINS = [
    [{**MACVLAN, "ipam": HOST_LOCAL}, {"type": "rxe"}],
    [{**MACVLAN, "ipam": IPPOOL}, {"type": "rxe"}],
    [{**MACVLAN, "mtu": 1400, "ipam": STATIC}, {"type": "tuning", "mac": "06:00:00:00:00:09", "mtu": 1300}],
    [{**MACVLAN, "ipam": IPPOOL}, COORDINATOR, {"type": "rxe"}],
    [{"type": "ipvlan", "master": "eth1", "mode": "l2", "ipam": HOST_LOCAL}, {"type": "rxe"}],
    [
        {"type": "ptp", "ipMasq": False, "ipam": HOST_LOCAL},
        {"type": "bandwidth", "ingressRate": 10**6, "ingressBurst": 10**6},
    ],
    [{"type": "host-device", "device": "eth2", "ipam": IPPOOL}, {"type": "sbr"}],
    [{"type": "dummy", "ipam": STATIC}],
    [{"type": "loopback"}],
]
"""Of plugins that keep nothing on the node."""


def networks(chains: list[Any]) -> list[Any]:
    return [
        {"cniVersion": version, "name": "rdma", "plugins": plugins}
        for version in ("0.3.1", "0.4.0", "1.0.0", "1.1.0")
        for plugins in chains
    ]


CONFLISTS = changed(networks([*CHAINS, [IFACER, *CHAINS[0]]]))
NETNS = "/run/netns/fuzz-web"
RESULTS = [
    {
        "cniVersion": version,
        "interfaces": [
            {"name": "eth1", "mac": "06:00:00:00:00:01"},
            {"name": "eth0", "mac": "06:00:00:00:00:02", "sandbox": NETNS},
        ],
        "ips": [
            {**family, "interface": 1, "address": "10.0.10.7/24", "gateway": "10.0.10.1"},
            {"address": "fd00:10::7/64", "interface": 1},
        ],
        "routes": [{"dst": "0.0.0.0/0", "gw": "10.0.10.1"}, {"dst": "fd00::/8"}],
        "dns": {"nameservers": ["10.0.10.1"], "search": ["local"]},
    }
    for version, family in (("0.3.1", {"version": "4"}), ("0.4.0", {"version": "4"}), ("1.0.0", {}), ("1.1.0", {}))
]
ERRORS = [{"cniVersion": "1.0.0", "code": 7, "msg": "invalid", "details": "a lot"}, {"code": 11, "msg": ""}]


def texts(documents: st.SearchStrategy[Any]) -> st.SearchStrategy[str]:
    """What a plugin prints: such a document, more often than a part of one, two, or anything."""
    printed = documents.map(json.dumps)
    cut = st.tuples(printed, st.integers(0, 400)).map(lambda pair: pair[0][: pair[1]])
    return st.one_of(printed, printed, printed, cut, printed.map(lambda text: text * 2), st.text(max_size=60))


ANSWERS = texts(changed(RESULTS))
REFUSALS = texts(changed(ERRORS))
