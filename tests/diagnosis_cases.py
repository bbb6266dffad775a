"""What `testbed diagnose` finds in the training scenarios."""

LAST = ([3], "leaf2:e2 - n3:eth1")
"""The rank and the link that break in training-smoke."""
DEAD = ("host-down", [1], "leaf2:e1 - n1:eth1")
"""The node that dies in standby-takes-address."""
LOST = ("host-down", [2], "leaf:e3 - n2:eth1")
"""The node that dies in elastic-restart."""
OLD = [("stale-neighbour", [rank], f"leaf:e{rank + 1} - node{rank + 1}:eth1") for rank in (0, 1)]
"""The ranks of pod-churn-100-jobs whose address was another pod's."""
ASKED = [("unresolved", [1], "leaf:e2 - server:eth1"), ("unresolved", [0], "leaf:e1 - client:eth1")]
"""The ends of arp-aging-shorter-than-traffic-gap: the first attempt dies of the one, the next one of the other."""
HEALTHY = ("healthy", [], "")
EXPECTED = {
    "training-smoke": {
        "healthy": HEALTHY,
        "control-gloo": HEALTHY,
        "link-flap-short": HEALTHY,
        "link-down": ("link-down", *LAST),
        "stale-arp-at-start": ("stale-neighbour", *LAST),
        "readiness-gate": HEALTHY,
    },
    "link-flap-during-allreduce": {
        "longer": ("link-flap", [2], "leaf:e2 - n2:eth1"),
        "shorter": HEALTHY,
        "more-retries": HEALTHY,
        "longer-timeout": HEALTHY,
    },
    "slow-rank": {
        "slow-link": ("slow-link", [2], "leaf:e2 - n2:eth1"),
        "lossy-link": ("lossy-link", [2], "leaf:e2 - n2:eth1"),
        "repaired": HEALTHY,
    },
    "standby-takes-address": {
        "as-is": [DEAD, ("stale-neighbour", [1], "leaf2:e2 - standby:eth1")],
        "announced": [DEAD, HEALTHY, HEALTHY],
        "cleared": [DEAD, HEALTHY, HEALTHY],
    },
    "host-network-port-clash": {
        "as-is": [("rank-died", [0], ""), HEALTHY],  # the job that ends first is the first
        "random-ports": [HEALTHY, HEALTHY],
        "pod-network": [HEALTHY, HEALTHY],
    },
    "metadata-down-data-up": {
        "as-is": ("link-down", [1], "mgmt:p1 - n1:mgmt0"),
        "metadata-flap": HEALTHY,
        "data-down": ("link-down", [1], "leaf:e1 - n1:eth1"),
        "data-flap": HEALTHY,
    },
    "torn-checkpoint": {
        "as-is": [HEALTHY, ("link-down", *LAST), HEALTHY],
        "latest-first": [HEALTHY, ("link-down", *LAST), ("rank-died", [3], "")],
        "latest-last": [HEALTHY, ("link-down", *LAST), HEALTHY],
        "patient": [HEALTHY, HEALTHY],
    },
    "elastic-restart": {name: [LOST, HEALTHY] for name in ("as-is", "every-4", "every-step")},
    "training-on-reused-ip": {
        "as-is": ("stale-neighbour", [1], "leaf:e2 - node2:eth1"),
        "announced": HEALTHY,
        "cool-down": HEALTHY,
        "readiness-gate": HEALTHY,
    },
    "leaf-dies": {
        "one-rail": ("switch-down", [0, 1], ""),
        "second-rail": [("switch-down", [0, 1], ""), HEALTHY],
        "bond-itself": ("switch-down", [0, 1], ""),
        "bridge-over-bond": HEALTHY,
    },
    "training-loses-a-tor": {
        "single-homed": ("switch-down", [0], ""),
        "dual-homed": HEALTHY,
        "active-backup": ("switch-down", [0], ""),
    },
    "worker-before-arp": {
        "as-is": [("unresolved", [2], "leaf:e2 - n2:eth1"), HEALTHY],  # and once more, when the node is known
        "patient": HEALTHY,
        "readiness-gate": HEALTHY,
    },
    "mtu-mismatch-rank": {"as-is": ("mtu-mismatch", [3], "leaf:e3 - n3:eth1"), "port-mtu": HEALTHY},
    "wrong-gid-rank": {
        "empty-place": ("wrong-gid", [2], "leaf:e2 - n2:eth1"),
        "link-local": ("wrong-gid", [2], "leaf:e2 - n2:eth1"),
        "by-address": HEALTHY,
    },
    "ecmp-collision-allreduce": {
        "as-is": ("congested-link", [], "leaf1:e3 - spine1:e1"),
        "other-labels": HEALTHY,
        "more-qps": HEALTHY,
    },
    "rail-vs-scattered": {
        "as-is": ("congested-link", [], "pod1-leaf1:e8 - spine1:e1"),
        "rails-crossed": ("congested-link", [], "pod1-leaf1:e8 - spine1:e1"),
        "one-to-one": HEALTHY,
        "packed": HEALTHY,
        "rail-aligned": HEALTHY,
    },
    "oversubscription-7to1": {
        "as-is": ("congested-link", [], "leaf1:e8 - spine1:e1"),
        "one-to-one": HEALTHY,
        "one-to-one-hashed": ("uneven-links", [], "leaf1:e8 - spine1:e1"),
        "alternating": ("congested-link", [], "leaf1:e8 - spine1:e1"),
        "in-order": HEALTHY,
    },
    "incast-parameter-server": {
        "as-is": ("congested-link", [0], "leaf:e5 - server:eth1"),
        "lossless": HEALTHY,
        "dcqcn": HEALTHY,
        "ring": HEALTHY,
    },
    "one-lost-packet-allreduce": {
        "as-is": ("lossy-link", [1], "leaf1:e2 - host2:eth1"),
        "short-timeout": HEALTHY,
        "middle": HEALTHY,
    },
    "pod-churn-100-jobs": {"round-robin": 24 * [HEALTHY], "cool-down": 24 * [HEALTHY]},
    "arp-aging-shorter-than-traffic-gap": {
        "as-is": [HEALTHY, *3 * [HEALTHY, *ASKED], HEALTHY],
        "refresh": 5 * [HEALTHY],
        "longer-age": 5 * [HEALTHY],
        "patient-qp": 5 * [HEALTHY],
    },
}
"""Cause, ranks and link, by scenario and variant: all variants that a scenario has, but DRAWN. A list is that of its
jobs."""

SETTINGS = {"pod-churn-100-jobs": ("jobs=12",)}
"""With what a scenario runs, where its own values make a long list."""
DRAWN = {("pod-churn-100-jobs", name): OLD for name in ("as-is", "random")}
"""Variants in which the kernel's random numbers say which jobs fail, and so any change of the code: what those have."""
EITHER = {
    ("training-loses-a-tor", name): [("lossy-link", [], f"spine:d{n} - tor{n}:up") for n in (1, 2)]
    for name in ("hangs", "short-timeout")
}
"""Variants that break what their queue pair uses, which its number decides: what may be found."""
WITHOUT_A_JOB = {
    "failover-stale-service": "a client and a server of perftest, which meet over TCP",
    "overlay-cost": "pairs of perftest",
}
"""The training scenarios in which no ranks do collectives, with what does the work there."""
