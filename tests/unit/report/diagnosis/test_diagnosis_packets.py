"""Links that are up, and on which packets are lost or are too large."""

import pytest
from diagnosis_runs import DIED, HOSTS, Builder, found, interface


def after_small_ones(run: Builder, sizes: dict[str, int]) -> Builder:
    """Ten collectives of 33000 bytes are done, one of a megabyte is not; hosts have received packets of these sizes."""
    run.starts().paces().collective(11, *((2.0, None),) * 4)
    for call in run.calls[-4:]:
        call["bytes"] = 1_000_000
    run.counters(1.01)
    got = {
        host: {"eth1": {"rx_packets": 100, "rx_bytes": 100 * sizes.get(host, 800)}, f"{host}-eth1": {}}
        for host in HOSTS
    }
    return run.counters(9, **got).ends(9, **DIED)


def test_a_rank_that_gets_small_packets_only(run: Builder) -> None:
    one = after_small_ones(run, {"n3": 120}).diagnosis()
    assert found(one) == ("mtu-mismatch", [3], "leaf2:e3 - n3:eth1")
    assert [text for _, text in one.finding.evidence] == [
        "collectives of 33000 bytes are done, none of 1000000",
        "n3:eth1 receives 120 bytes a packet, the others 800",
    ]


def test_packets_of_one_size_are_no_mismatch(run: Builder) -> None:
    assert after_small_ones(run, {}).diagnosis().finding.cause == "unknown"


def test_ends_of_a_link_with_two_mtus(run: Builder) -> None:
    run.event(0.5, "link", "leaf1", "e1 has MTU 9000", interface="e1", mtu=9000)
    run.event(0.5, "link", "n1", "eth1 has MTU 9000", interface="eth1", mtu=9000)
    run.event(0.6, "link", "leaf2", "e3 has MTU 1500", interface="e3", mtu=1500)
    one = run.starts().ends(9, **DIED).diagnosis()
    assert found(one) == ("mtu-mismatch", [3], "leaf2:e3 - n3:eth1")
    assert "leaf2:e3 has 1500" in one.finding.text


@pytest.mark.parametrize("ok", [True, False])
def test_a_link_that_loses_packets(run: Builder, ok: bool) -> None:
    sent = {"leaf2": {"e2": {"tx_packets": 1000, "queue_dropped": 40}}, "n2": {"eth1": {"rx_packets": 1000}}}
    run.starts().counters(1.01).counters(9, n1={"n1-eth1": {"completer_retry_err": 3}}, **sent)
    one = run.ends(9, ok=ok, **({} if ok else DIED)).diagnosis()
    assert found(one) == ("lossy-link", [2], "leaf2:e2 - n2:eth1")
    assert one.finding.evidence[0][1] == "leaf2:e2: queue_dropped 40"


def test_packets_that_do_not_arrive_are_a_loss_without_any_counter_of_it(run: Builder) -> None:
    sent = {"leaf2": {"e2": {"tx_packets": 1000}}, "n2": {"eth1": {"rx_packets": 950}}}
    run.starts().counters(1.01).counters(9, n1={"n1-eth1": {"completer_retry_err": 3}}, **sent)
    one = run.ends(9, ok=True).diagnosis()
    assert found(one) == ("lossy-link", [2], "leaf2:e2 - n2:eth1")
    assert one.finding.evidence[0][1] == "leaf2:e2 sent 1000, n2:eth1 received 950"


@pytest.mark.parametrize(("second", "cause"), [("leaf2", "healthy"), ("leaf1", "lossy-link")])
def test_a_bond_to_two_switches_sends_more_than_one_of_them_receives(run: Builder, second: str, cause: str) -> None:
    channels = ("leaf1", "po1", "e8", "eth8"), (second, "po1", "e9", "eth9")
    for leaf, channel, port, nic in channels:
        run.topology["interfaces"] += [
            interface(leaf, "switch", port, f"n0:{nic}", "02:00:00:03:00:01", master=channel),
            interface("n0", "host", nic, f"{leaf}:{port}", "02:00:00:03:00:02", master="bond0"),
        ]
    for leaf in {leaf for leaf, *_ in channels}:
        ports = [port for of, _, port, _ in channels if of == leaf]
        run.topology["interfaces"].append(interface(leaf, "switch", "po1", "n0:bond0", "", members=ports))
    run.topology["interfaces"].append(interface("n0", "host", "bond0", "leaf1:po1", "", members=["eth8", "eth9"]))
    sent = {"n0": {"bond0": {"tx_packets": 1000}}, "leaf1": {"po1": {"rx_packets": 500}}}
    run.starts().counters(1.01).counters(9, n1={"n1-eth1": {"completer_retry_err": 3}}, **sent)
    assert run.ends(9, ok=True).diagnosis().finding.cause == cause


def test_losses_before_the_job_do_not_count(run: Builder) -> None:
    lost = {"leaf2": {"e2": {"queue_dropped": 40}}, "n1": {"n1-eth1": {"completer_retry_err": 3}}}
    assert run.counters(0.5, **lost).starts().counters(1.01).counters(9).ends(9, ok=True).diagnosis().healthy
