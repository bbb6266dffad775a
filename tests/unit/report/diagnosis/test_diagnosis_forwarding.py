"""What switches have of the addresses and NICs of ranks, and routes."""

import pytest
from diagnosis_runs import DIED, IPS, MACS, OLD, SILENT, Builder, S, found, interface


def learned(run: Builder, t: float, ip: str, mac: str, switch: str = "leaf1") -> Builder:
    return run.event(
        t, "arp.learned", switch, f"ARP {ip} is at {mac}", vlan=10, ip=ip, mac=mac, port="up", reason="garp"
    )


def test_a_switch_that_has_the_mac_of_the_node_that_had_the_address(run: Builder) -> None:
    learned(run, 0.4, "10.0.0.9", OLD)
    run.event(0.5, "address", "old", "", interface="eth1", ip="10.0.0.9", has=False)
    run.event(0.6, "address", "n3", "", interface="eth1", ip="10.0.0.4", has=False)
    run.event(0.7, "address", "n3", "", interface="eth1", ip="10.0.0.9", has=True)
    learned(run, 1.2, "10.0.0.1", MACS["n0"])
    one = run.starts().ends(31, **SILENT).diagnosis()
    assert found(one) == ("stale-neighbour", [3], "leaf2:e3 - n3:eth1")
    assert (one.finding.address, one.finding.since) == ("10.0.0.9", 0.7 * S)
    assert f"leaf1 has {OLD}, the MAC of old, for its address 10.0.0.9" in one.finding.text


def test_a_switch_that_learned_the_new_mac_is_not_why(run: Builder) -> None:
    learned(run, 0.4, IPS["n3"], OLD)
    learned(run, 0.8, IPS["n3"], MACS["n3"])
    assert run.starts().ends(31, **SILENT).diagnosis().finding.cause == "unknown"


def test_a_switch_that_has_a_mac_on_another_port(run: Builder) -> None:
    run.event(2, "fdb.moved", "leaf2", "", vlan=10, mac=MACS["n3"], port="e2", old_port="e3")
    one = run.starts().ends(9, **DIED).diagnosis()
    assert (one.finding.cause, one.finding.ranks) == ("wrong-port", [3])
    assert "on e2; it is at e3" in one.finding.text
    assert one.finding.since == 2 * S


def test_a_nic_that_moved_with_its_mac_is_where_its_device_was_used(run: Builder) -> None:
    """Its device was made after the plan: that its queue pairs are there says which interface it has."""
    for row in run.topology["interfaces"]:
        if row["node"] == "n3":
            row["rdma"] = None
    run.event(0.5, "link", "n3", "", interface="eth1", mac=OLD)
    run.event(0.4, "fdb.learned", "leaf2", "", vlan=10, mac=OLD, port="e7")
    run.event(0.6, "qp", "n3", "", interface="eth1", device="n3-eth1", state="INIT", qpn=17, peer="")
    run.event(10, "fdb.moved", "leaf2", "", vlan=10, mac=OLD, port="e3", old_port="e7")
    one = run.starts().ends(9, **DIED).diagnosis()
    assert (one.finding.cause, one.finding.ranks, one.finding.since) == ("wrong-port", [3], 0.5 * S)


def test_an_address_that_nobody_answers_for(run: Builder) -> None:
    run.event(1.5, "arp.failed", "leaf1", "no answer", vlan=10, ip=IPS["n2"], reason="no-answer")
    one = run.starts().ends(31, **SILENT).diagnosis()
    assert found(one) == ("unresolved", [2], "leaf2:e2 - n2:eth1")
    assert one.finding.address == IPS["n2"]


def test_a_rank_without_a_route(run: Builder) -> None:
    how = {"rank": 0, "host": "n0", "status": "", "failure": "Destination is unreachable"}
    one = run.starts().ends(2, **how).diagnosis()
    assert found(one) == ("no-route", [0], "")


def test_an_address_for_which_a_switch_asks_again_after_its_entry_aged(run: Builder) -> None:
    learned(run, 0.5, IPS["n2"], MACS["n2"])
    for t, what in (0.4, "miss"), (20, "aged"), (25, "miss"), (25.5, "miss"):
        run.event(t, f"arp.{what}", "leaf1", what, vlan=10, ip=IPS["n2"], mac=MACS["n2"], reason="request")
    one = run.starts().ends(26, **SILENT).diagnosis()
    assert (one.finding.cause, one.finding.since) == ("unresolved", 25 * S)


def test_an_entry_that_is_written_again_after_the_job_is_not_when_it_was_written(run: Builder) -> None:
    learned(run, 0.4, IPS["n3"], OLD)
    learned(run, 40, IPS["n3"], OLD)
    one = run.starts().ends(31, **SILENT).diagnosis()
    assert (one.finding.cause, one.finding.since) == ("stale-neighbour", 0.4 * S)


def test_an_entry_that_is_written_after_the_job_is_not_why(run: Builder) -> None:
    learned(run, 40, IPS["n3"], OLD)
    run.event(41, "fdb.learned", "leaf2", "", vlan=10, mac=MACS["n3"], port="e2")
    run.event(42, "arp.failed", "leaf1", "no answer", vlan=10, ip=IPS["n2"])
    assert run.starts().ends(31, **SILENT).diagnosis().finding.cause == "unknown"


def test_a_mac_that_moves_again_after_the_job_has_moved_when_it_did(run: Builder) -> None:
    run.event(2, "fdb.moved", "leaf2", "", vlan=10, mac=MACS["n3"], port="e2", old_port="e3")
    run.event(20, "fdb.moved", "leaf2", "", vlan=10, mac=MACS["n3"], port="e2", old_port="e3")
    assert run.starts().ends(9, **DIED).diagnosis().finding.since == 2 * S


def test_a_request_after_the_job_is_not_when_a_switch_began_to_ask(run: Builder) -> None:
    run.event(25, "arp.miss", "leaf1", "miss", vlan=10, ip=IPS["n2"])
    learned(run, 40, IPS["n2"], MACS["n2"])
    run.event(50, "arp.miss", "leaf1", "miss", vlan=10, ip=IPS["n2"])
    one = run.starts().ends(26, **SILENT).diagnosis()
    assert (one.finding.cause, one.finding.since) == ("unresolved", 25 * S)


@pytest.mark.parametrize(("state", "cause"), [("up", "duplicate-ip"), ("down", "stale-neighbour")])
def test_an_address_on_two_hosts_is_one_of_which_both_are_there(run: Builder, state: str, cause: str) -> None:
    run.event(1.5, "address", "old", "", interface="eth1", ip=IPS["n3"], has=True)
    learned(run, 1.6, IPS["n3"], OLD, "leaf2").link(1.7, "leaf1", "e4", state)
    one = run.starts().ends(31, **SILENT).diagnosis()
    assert found(one) == (cause, [3], "leaf2:e3 - n3:eth1")
    if cause == "duplicate-ip":
        assert (one.finding.address, one.finding.since) == (IPS["n3"], 1.5 * S)
        assert f"n3 ({MACS['n3']}) and old ({OLD})" in one.finding.text


def test_networks_that_no_cable_joins(run: Builder) -> None:
    for row in run.topology["interfaces"]:
        if row["interface"] == "up":
            row["peer"] = ""
    one = run.starts().ends(31, **SILENT).diagnosis()
    assert found(one) == ("no-route", [0, 2], "")
    assert "no path leads from rank 0 on n0 to rank 2 on n2" in one.finding.text


def test_a_bond_of_two_switches_joins_them(run: Builder) -> None:
    for row in run.topology["interfaces"]:
        if row["interface"] == "up":
            row["peer"] = ""
    for leaf, member in ("leaf1", "eth8"), ("leaf2", "eth9"):
        run.topology["interfaces"] += [
            interface(leaf, "switch", "b", f"n0:{member}", "02:00:00:03:00:01"),
            interface("n0", "host", member, f"{leaf}:b", "02:00:00:03:00:02", master="eth1"),
        ]
    for row in run.topology["interfaces"]:
        if row["node"] == "n0" and row["interface"] == "eth1":
            row["members"], row["peer"] = ["eth8", "eth9"], ""
    assert run.starts().ends(31, **SILENT).diagnosis().finding.cause == "unknown"


def test_a_switch_that_floods_what_its_table_knows(run: Builder) -> None:
    for row in run.topology["interfaces"]:
        if row["node"] == "leaf2" and row["interface"].startswith("e"):
            row["vlan"] = 10
    learned(run, 0.5, IPS["n3"], MACS["n3"], "leaf2").starts().counters(1.01).collective(1, *((2.0, None),) * 4)
    flooded = {
        "leaf2": {port: {"tx_packets": 60} for port in ("e2", "e3")},
        "n1": {"n1-eth1": {"completer_retry_err": 6}},
    }
    run.log(1, "transport retry counter exceeded on n1-eth1:1/RoCE [dgid=::ffff:10.0.0.4 sgid_index=1]")
    one = run.counters(9, **flooded).ends(9, **DIED).diagnosis()
    assert found(one) == ("asic-differs", [3], "leaf2:e3 - n3:eth1")
    assert "floods what it sends there to leaf2:e2, leaf2:e3" in one.finding.text


def test_routes_that_changed_are_remarks(run: Builder) -> None:
    run.event(2.1, "route.lost", "leaf1", "there is no route to 10.0.0.0/24", to="10.0.0.0/24", ports=[])
    one = run.starts().paces().collective(11, *((2.0, 5.0),) * 4).ends(6, ok=True).diagnosis()
    assert one.healthy
    assert (2.1 * S, "leaf1: there is no route to 10.0.0.0/24") in one.remarks
