"""Routes that are gone, drop packets, or lead to nobody."""

from typing import Any

import pytest
from diagnosis_runs import DIED, IPS, Builder, found


def two_subnets(run: Builder) -> Builder:
    """The hosts of the second leaf have another subnet, and a route by their leaf."""
    for row in run.topology["interfaces"]:
        if row["node"] in IPS:
            second = row["node"] in ("n2", "n3")
            row["address"] = f"10.0.{int(second)}.{IPS[row['node']].rpartition('.')[2]}/24"
            row["gateway"] = f"10.0.{int(second)}.254"
        if row["node"] in ("leaf1", "leaf2") and row["interface"] != "up":
            row["vlan"] = 10 if row["node"] == "leaf1" else 20
    return run.starts()


def route(run: Builder, t: float, node: str, to: str, *, has: bool, via: str = "", **more: Any) -> Builder:
    text = f"{'' if has else 'no '}route to {to} by {via}"
    return run.event(t, "route", node, text, to=to, via=[via] if via else [], has=has, **more)


def test_a_host_that_lost_its_route(run: Builder) -> None:
    one = route(two_subnets(run), 3, "n3", "default", has=False, via="10.0.1.254").ends(9, **DIED).diagnosis()
    assert found(one) == ("no-route", [3], "leaf2:e3 - n3:eth1")
    assert one.finding.since == 3 * 10**9


def test_one_that_came_back_is_none(run: Builder) -> None:
    route(two_subnets(run), 3, "n3", "default", has=False, via="10.0.1.254")
    one = route(run, 4, "n3", "default", has=True, via="10.0.1.254").ends(9, **DIED).diagnosis()
    assert one.finding.cause == "unknown"


def test_a_gateway_that_nothing_has(run: Builder) -> None:
    one = route(two_subnets(run), 3, "n3", "default", has=True, via="10.0.1.99").ends(9, **DIED).diagnosis()
    assert found(one)[:2] == ("no-route", [3])
    assert "nothing is known to have 10.0.1.99" in one.finding.text


@pytest.mark.parametrize(("to", "cause"), [("10.0.1.0/24", "no-route"), ("10.9.0.0/16", "unknown")])
def test_a_switch_that_drops_what_is_for_ranks(run: Builder, to: str, cause: str) -> None:
    one = route(two_subnets(run), 3, "leaf1", to, has=True, type="blackhole").ends(9, **DIED).diagnosis()
    assert one.finding.cause == cause
    if cause == "no-route":
        assert one.finding.ranks == [2, 3]
        assert "leaf1: route to 10.0.1.0/24" in one.finding.text


def test_a_route_of_a_routing_protocol_that_is_gone(run: Builder) -> None:
    two_subnets(run).event(3, "route.lost", "leaf1", "there is no route to 10.0.1.0/24", to="10.0.1.0/24", ports=[])
    assert found(run.ends(9, **DIED).diagnosis())[:2] == ("no-route", [2, 3])


def test_a_gateway_that_is_down_is_before_the_routes_that_follow(run: Builder) -> None:
    two_subnets(run).link(3, "leaf2", "vlan20", "down")
    run.event(3.1, "route.lost", "leaf1", "there is no route to 10.0.1.0/24", to="10.0.1.0/24", ports=[])
    one = run.ends(9, **DIED).diagnosis()
    assert found(one)[:2] == ("no-route", [2, 3])
    assert "leaf2: vlan20, their gateway, is down" in one.finding.text


def test_what_was_so_before_the_job_is_no_cause(run: Builder) -> None:
    route(run, 0.5, "n3", "default", has=False, via="10.0.1.254")
    assert two_subnets(run).ends(9, **DIED).diagnosis().finding.cause == "unknown"


def test_damaged_networks_are_let_through(run: Builder) -> None:
    one = route(two_subnets(run), 3, "leaf1", "no network", has=False).ends(9, **DIED).diagnosis()
    assert one.finding.cause == "unknown"
