"""Links of which an end was down."""

import pytest
from diagnosis_runs import DIED, MACS, Builder, S, found, interface


def test_a_switch_port_that_is_down(run: Builder) -> None:
    run.starts().collective(7, *((2.0, None),) * 4).link(2.1, "leaf2", "e3", "down")
    run.log(1, "send completion with error: transport retry counter exceeded\n[rqpn 0x17 dgid=::ffff:10.0.0.4 x=1]")
    run.counters(1.01).counters(9, n1={"n1-eth1": {"completer_retry_err": 6}})
    one = run.ends(9, **DIED).diagnosis()
    assert found(one) == ("link-down", [3], "leaf2:e3 - n3:eth1")
    assert one.finding.since == 2.1 * S
    assert one.finding.text == "rank 3 on n3 stalled first: its link leaf2:e3 - n3:eth1 is down"
    assert [text for _, text in one.finding.evidence] == [
        "leaf2: e3 down",
        "10.0.0.4, rank 3 on n3, does not answer rank 1 on n1",
        "n1-eth1: completer_retry_err 6",
    ]


def test_the_link_of_a_rank_comes_before_one_that_no_rank_uses(run: Builder) -> None:
    run.starts().link(0.5, "leaf1", "e4", "down").link(2.1, "leaf2", "e3", "down")
    assert found(run.ends(9, **DIED).diagnosis()) == ("link-down", [3], "leaf2:e3 - n3:eth1")


def test_a_switch_all_of_whose_links_are_down(run: Builder) -> None:
    run.starts().link(2, "leaf2", "e2", "down").link(2.1, "leaf2", "e3", "down").link(2.2, "leaf1", "up", "down")
    one = run.ends(9, **DIED).diagnosis()
    assert found(one) == ("switch-down", [2, 3], "")
    assert one.finding.text == "rank 2 on n2 and rank 3 on n3 stalled first: all links of leaf2 are down"
    assert one.finding.since == 2 * S


def test_a_switch_with_a_link_that_came_back_is_not_down(run: Builder) -> None:
    run.starts().link(2, "leaf2", "e2", "down").link(2, "leaf2", "e3", "down").link(2, "leaf2", "up", "down")
    assert found(run.link(3, "leaf2", "up", "up").ends(9, **DIED).diagnosis())[0] == "link-down"


@pytest.mark.parametrize(("second", "cause"), [(2.1, "host-down"), (4, "nic-down")])
def test_a_host_all_of_whose_links_go_down_at_once(second: float, cause: str, run: Builder) -> None:
    run.topology["interfaces"] += [
        interface("n3", "host", "mgmt0", "mgmt:p3", "02:00:00:03:00:03"),
        interface("mgmt", "bridge", "p3", "n3:mgmt0", "02:00:00:03:01:03"),
    ]
    run.starts().link(2, "n3", "eth1", "down").link(second, "n3", "mgmt0", "down")
    one = run.ends(9, **DIED).diagnosis()
    assert found(one) == (cause, [3], "leaf2:e3 - n3:eth1")
    if cause == "host-down":
        assert one.finding.text == "rank 3 on n3 stalled first: all links of n3 went down at once"


def test_a_host_that_has_booted_again_was_down(run: Builder) -> None:
    run.topology["interfaces"].append(interface("n3", "host", "mgmt0", "mgmt:p3", "02:00:00:03:00:03"))
    run.topology["interfaces"].append(interface("mgmt", "bridge", "p3", "n3:mgmt0", "02:00:00:03:01:03"))
    run.starts().link(2, "n3", "eth1", "down").link(2, "n3", "mgmt0", "down")
    run.link(8, "n3", "eth1", "up").link(8, "n3", "mgmt0", "up")
    one = run.ends(9, **DIED).diagnosis()
    assert one.finding.text.endswith("all links of n3 went down at once, and came up after 6.0 s")
    assert [also.cause for also in one.findings[1:]] == []


def test_a_host_with_one_known_link_may_have_lost_only_that(run: Builder) -> None:
    assert found(run.starts().link(2, "n3", "eth1", "down").ends(9, **DIED).diagnosis())[0] == "nic-down"


def test_a_link_between_switches_that_is_down(run: Builder) -> None:
    one = run.starts().link(2, "leaf2", "up", "down").ends(9, **DIED).diagnosis()
    assert found(one) == ("link-down", [], "leaf1:up - leaf2:up")


def test_the_link_of_a_node_without_a_rank_is_not_why(run: Builder) -> None:
    run.starts().link(2, "leaf1", "e4", "down")
    assert run.ends(9, **DIED).diagnosis().finding.cause == "unknown"


def test_what_the_launcher_says_last_is_no_death_of_a_rank(run: Builder) -> None:
    how = {"rank": 0, "host": "n0", "status": "", "failure": "PRTE has lost communication with a remote daemon."}
    one = run.starts().link(2, "leaf2", "e3", "down").ends(9, **how).diagnosis()
    assert found(one) == ("link-down", [3], "leaf2:e3 - n3:eth1")


def test_the_states_of_queue_pairs_are_evidence(run: Builder) -> None:
    pairs = {"n0": {"RC RTS": 2, "UD RTS": 1}, "n3": {"RC ERR": 1, "RC RTS": 1}}
    run.starts().event(5, "job.stalled", "", "", name="job", since_ns=int(2 * S), waiting=[], queue_pairs=pairs)
    one = run.link(2, "leaf2", "e3", "down").ends(9, **DIED).diagnosis()
    assert one.finding.evidence[1] == (5 * S, "no rank goes on; RC queue pairs: 1 in ERR, 3 in RTS")


def test_a_port_that_the_switch_disabled(run: Builder) -> None:
    run.starts().event(2, "port.disabled", "leaf2", "e3 is disabled", vlan=10, mac=MACS["n3"], port="e3", moves=5)
    assert found(run.ends(9, **DIED).diagnosis()) == ("link-down", [3], "leaf2:e3 - n3:eth1")


def test_a_link_that_was_up_again_when_the_job_died_is_not_why(run: Builder) -> None:
    run.starts().link(2, "leaf2", "e3", "down").link(3, "leaf2", "e3", "up")
    assert run.ends(9, **DIED).diagnosis().finding.cause == "unknown"


def test_a_link_that_came_back_after_the_last_retry(run: Builder) -> None:
    run.starts().collective(7, *((2.1, None),) * 4).link(2, "leaf2", "e3", "down").link(6, "leaf2", "e3", "up")
    one = run.ends(7, **DIED).diagnosis()
    assert found(one) == ("link-flap", [3], "leaf2:e3 - n3:eth1")
    assert "was down for 4.0 s" in one.finding.text


def test_a_link_that_came_back_before_the_job_stopped_is_not_why(run: Builder) -> None:
    run.starts().collective(7, *((4.0, None),) * 4).link(2, "leaf2", "e3", "down").link(3, "leaf2", "e3", "up")
    assert run.ends(9, **DIED).diagnosis().finding.cause == "unknown"


def test_a_rank_in_a_pod_has_the_link_of_its_node(run: Builder) -> None:
    pod = {"interfaces": [{"name": "net1", "rdma-device": "0123-net1"}], "ips": [{"address": "10.0.0.100/24"}]}
    has = {"result": pod, "mac": "02:00:00:00:00:77", "addresses": ["10.0.0.100/24"]}
    run.event(0.5, "cni", "worker", "ADD", command="ADD", network="net", interface="net1", host="n3", **has)
    hosts, devices = ["n0", "worker"], ["n0-eth1", "0123-net1"]
    run.event(1, "job", "", "job starts", name="job", ranks=2, hosts=hosts, devices=devices)
    one = run.link(2, "leaf2", "e3", "down").ends(9, rank=0, host="n0", status="RETRY_EXC_ERR").diagnosis()
    assert found(one) == ("link-down", [1], "leaf2:e3 - n3:eth1")


def test_a_host_s_own_nic_that_is_down(run: Builder) -> None:
    run.starts().link(2, "n2", "eth1", "down")
    how = {"rank": 2, "host": "n2", "status": "WR_FLUSH_ERR", "failure": "Work Request Flushed Error"}
    assert found(run.ends(2.2, **how).diagnosis()) == ("nic-down", [2], "leaf2:e2 - n2:eth1")


def test_a_link_that_bfd_finds_silent_while_its_carrier_is_up(run: Builder) -> None:
    said = {"port": "up", "peer": "fe80::1", "old_state": "up", "reason": "control detection time expired"}
    run.starts().paces().event(2.5, "bfd.changed", "leaf1", "BFD is down", state="down", **said)
    assert run.collective(11, *((2.0, 2.1),) * 4).ends(6, ok=True).diagnosis().healthy, "the job did not wait for it"
    run.events.pop()
    run.collective(12, *((2.2, 5.0),) * 4)
    one = run.ends(6, ok=True).diagnosis()
    assert found(one) == ("lossy-link", [], "leaf1:up - leaf2:up")
    assert "carries nothing, and its carrier is up" in one.finding.text


def test_a_link_that_went_down_is_not_silent(run: Builder) -> None:
    said = {"port": "up", "peer": "fe80::1", "old_state": "up", "reason": "control detection time expired"}
    run.starts().paces().collective(11, *((2.0, 5.0),) * 4).link(2.1, "leaf1", "up", "down").link(
        4.0, "leaf1", "up", "up"
    )
    run.event(2.5, "bfd.changed", "leaf1", "BFD is down", state="down", **said)
    assert run.ends(6, ok=True).diagnosis().healthy


def test_the_flows_over_the_link_of_a_finding_are_named(run: Builder) -> None:
    ways = [
        [0, 3, 65472, ["n0:eth1", "leaf1:up", "leaf2:e3"]],
        [3, 0, 65472, ["n3:eth1", "leaf2:up", "leaf1:e0"]],
        [0, 1, 65472, ["n0:eth1", "leaf1:e1"]],
        [1, 3, "no port", []],
    ]
    run.starts().link(3, "leaf2", "e3", "down").ends(9, **DIED)
    one = run.event(9.1, "job.paths", name="job", flows=ways, unknown=[]).diagnosis()
    assert found(one) == ("link-down", [3], "leaf2:e3 - n3:eth1")
    assert one.json()["flows"] == [[0, 3], [3, 0]]
    assert one.case.over("leaf1:up - leaf2:up") == [(0, 3), (3, 0)]


@pytest.mark.parametrize(
    ("mode", "down", "cause"),
    [
        ("802.3ad", ["e8"], "unknown"),
        ("802.3ad", ["e8", "e9"], "link-down"),
        ("802.3ad", ["po1"], "link-down"),
        ("active-backup", ["e8"], "link-down"),
    ],
)
def test_a_link_of_a_bond_is_the_cause_where_the_bond_ends_with_it(
    run: Builder, mode: str, down: list[str], cause: str
) -> None:
    rows = run.topology["interfaces"]
    own = next(row for row in rows if (row["node"], row["interface"]) == ("n0", "eth1"))
    rows.remove(own)
    for port, nic in ("e8", "eth8"), ("e9", "eth9"):
        rows.append(interface("leaf1", "switch", port, f"n0:{nic}", "02:00:00:03:00:01", master="po1"))
        rows.append(interface("n0", "host", nic, f"leaf1:{port}", "02:00:00:03:00:02", master="bond0"))
    if mode == "802.3ad":
        rows.append(interface("leaf1", "switch", "po1", "n0:bond0", "", members=["e8", "e9"]))
    bond = {"interface": "bond0", "peer": "leaf1:po1", "members": ["eth8", "eth9"], "mode": mode}
    rows.append({**own, **bond})
    run.starts()
    for port in down:
        run.link(2, "leaf1", port, "down")
    one = run.ends(9, **DIED).diagnosis()
    assert one.finding.cause == cause
    assert one.finding.ranks == ([0] if cause == "link-down" else [1])
