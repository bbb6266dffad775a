"""`testbed diagnose` over all variants of the training scenarios: the right link, rank and cause, from what a real
cluster shows."""

import json
from pathlib import Path

import pytest

LAST = ([3], "leaf2:e2 - n3:eth1")
"""The rank and the link that break in training-smoke."""
DEAD = ("link-down", [1], "leaf2:e1 - n1:eth1")
"""The node that dies in standby-takes-address."""
LOST = ("link-down", [2], "leaf:e3 - n2:eth1")
"""The node that dies in elastic-restart."""
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
    "worker-before-arp": {
        "as-is": [("unresolved", [2], "leaf:e2 - n2:eth1"), HEALTHY],
        "patient": HEALTHY,
        "readiness-gate": HEALTHY,
    },
    "mtu-mismatch-rank": {
        "as-is": ("mtu-mismatch", [3], "leaf:e3 - n3:eth1"),
        "port-mtu": HEALTHY,
    },
    "wrong-gid-rank": {
        "empty-place": ("wrong-gid", [2], "leaf:e2 - n2:eth1"),
        "link-local": ("wrong-gid", [2], "leaf:e2 - n2:eth1"),
        "by-address": HEALTHY,
    },
}
"""Cause, ranks and link, by scenario and variant: all variants that a scenario has. A list is that of its jobs."""


@pytest.mark.slow
@pytest.mark.parametrize("scenario", EXPECTED)
def test_every_variant_has_the_right_diagnosis(testbed, tmp_path, scenario):
    testbed("run", scenario, "--out", str(tmp_path / "runs"))
    run = tmp_path / "runs" / scenario / "latest"
    done = testbed("diagnose", str(run), "--json")
    jobs = {variant["variant"]: variant["jobs"] for variant in done.json["variants"]}
    found = {name: [summary(job) for job in of] for name, of in jobs.items()}
    wanted = EXPECTED[scenario]
    assert found == {name: of if isinstance(of, list) else [of] for name, of in wanted.items()}
    assert done.status == int(any(cause != "healthy" for of in found.values() for cause, _, _ in of))
    if scenario == "training-smoke":
        check_times({name: of[0] for name, of in jobs.items()}, run)


def summary(job):
    return job["cause"], [one["rank"] for one in job["ranks"]], job["link"]


def check_times(jobs, run: Path) -> None:
    """The times are those of the events, and a collective that took long is a remark with the link that made it so."""
    down = jobs["link-down"]
    events = [json.loads(line) for line in (run / "link-down/events.jsonl").read_text().splitlines()]
    (port,) = [event for event in events if event["kind"] == "link"]
    assert down["since"] == port["t"]
    assert down["stopped"]["operation"] == "Allreduce"
    assert abs(down["stopped"]["since"] - port["t"]) < 2e9
    assert jobs["stale-arp-at-start"]["address"] == "10.0.20.3"
    link, pause = [remark["text"] for remark in jobs["link-flap-short"]["remarks"]][:2]
    assert "leaf2:e2 - n3:eth1, that of rank 3 on n3, was down for 3.0 s" in link
    assert "Allreduce" in pause
