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


@pytest.mark.parametrize(
    ("mtus", "cause"),
    [
        ({"leaf1:up": 1000, "leaf2:up": 1000}, "mtu-mismatch"),
        ({"leaf1:up": 1068, "leaf2:up": 1068}, "unknown"),  # 1024 bytes fit
        ({"n0:eth1": 1000, "leaf1:e0": 1000}, "unknown"),  # no queue pair of another rank has 1024 then
        ({"leaf1:up": 4000, "leaf2:up": 4000}, "unknown"),
        ({f"n{number}:eth1": 4500 for number in range(4)} | {"leaf1:up": 4000}, "mtu-mismatch"),
    ],
)
def test_a_link_between_switches_that_was_too_narrow_from_the_start(
    mtus: dict[str, int], cause: str, run: Builder
) -> None:
    run.event(0.5, "mtus", "", "MTUs", sizes=mtus)
    one = run.starts().ends(9, **DIED).diagnosis()
    assert found(one) == (cause, *(([], "leaf1:up - leaf2:up") if cause == "mtu-mismatch" else ([1], "")))


def test_a_narrow_link_hurts_no_job_that_ends_well(run: Builder) -> None:
    run.event(0.5, "mtus", "", "MTUs", sizes={"leaf1:up": 1000})
    assert run.starts().ends(9, ok=True).diagnosis().healthy


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


@pytest.mark.parametrize(("second", "cause"), [("leaf2", "silent-drop"), ("leaf1", "lossy-link")])
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


def devices(run: Builder, **taken: int) -> Builder:
    """Each NIC has received 1000 packets; its RDMA device has taken as many, or what is given."""
    counted = {
        host: {"eth1": {"rx_packets": 1000}, f"{host}-eth1": {"rcvd_pkts": taken.get(host, 1000)}} for host in HOSTS
    }
    counted["n1"]["n1-eth1"]["completer_retry_err"] = 6
    return run.starts().counters(1.01).counters(9, **counted)


def test_packets_that_a_nic_receives_and_its_rdma_device_does_not_take(run: Builder) -> None:
    one = devices(run, n3=980).ends(9, ok=True).diagnosis()
    assert found(one) == ("corruption", [3], "leaf2:e3 - n3:eth1")
    assert "its RDMA device takes 20 fewer than its NIC receives" in one.finding.text


def test_pause_frames_are_none_of_them(run: Builder) -> None:
    devices(run, n3=980).counted[-1]["counters"]["n3"]["eth1"]["rx_prio3_pause"] = 20
    assert run.ends(9, ok=True).diagnosis().finding.cause == "silent-drop"


def test_a_nic_that_counts_damaged_packets_itself(run: Builder) -> None:
    devices(run)
    for host in HOSTS:
        run.counted[-1]["counters"][host][f"{host}-eth1"]["rx_icrc_encapsulated"] = 40 if host == "n3" else 0
    assert found(run.ends(9, ok=True).diagnosis()) == ("corruption", [3], "leaf2:e3 - n3:eth1")


@pytest.mark.parametrize("name", ["rx_crc_errors", "rx_symbol_err_phy", "rx_discards_phy"])
def test_what_the_receiver_of_a_link_counts_is_that_link_s_loss(run: Builder, name: str) -> None:
    lost = {"n2": {"eth1": {name: 40}}, "n1": {"n1-eth1": {"completer_retry_err": 3}}}
    one = run.starts().counters(1.01).counters(9, **lost).ends(9, ok=True).diagnosis()
    assert found(one) == ("lossy-link", [2], "leaf2:e2 - n2:eth1")


def through(run: Builder, t: float, flows: dict[str, tuple[int, int]], **devices: dict[str, int]) -> None:
    """The packets in and out by the ports of leaf1, of 1000 bytes each, and counters of the devices of ranks."""
    ends = {"e0": ("n0", "eth1"), "e1": ("n1", "eth1"), "up": ("leaf2", "up")}
    nodes: dict[str, dict[str, dict[str, int]]] = {node: {f"{node}-eth1": counted} for node, counted in devices.items()}
    for port, (came, went) in flows.items():
        peer, interface = ends[port]
        for node, name, into, out in ("leaf1", port, came, went), (peer, interface, went, came):
            packets = {"rx_packets": into, "rx_bytes": 1000 * into, "tx_packets": out, "tx_bytes": 1000 * out}
            nodes.setdefault(node, {})[name] = packets
    run.counters(t, **nodes)


@pytest.mark.parametrize(
    ("missed", "again", "cause", "ranks", "link"),
    [
        ({"n0": 8}, {"n1": 8, "n2": 7}, "lossy-link", [0], "leaf1:e0 - n0:eth1"),  # several send to one
        ({"n2": 8, "n3": 6}, {"n0": 8}, "lossy-link", [0], "leaf1:e0 - n0:eth1"),  # one sends to several
        ({"n1": 8, "n0": 7}, {"n0": 8, "n2": 7}, "lossy-link", [0], "leaf1:e0 - n0:eth1"),  # a ring, both ways
        ({"n1": 8}, {"n0": 8}, "silent-drop", [0, 1], ""),  # by the port of the one or of the other
        ({"n3": 8}, {"n0": 8}, "silent-drop", [0], ""),  # or on the way between
    ],
)
def test_a_switch_that_does_not_send_on_what_it_receives(
    run: Builder, missed: dict[str, int], again: dict[str, int], cause: str, ranks: list[int], link: str
) -> None:
    counted: dict[str, dict[str, int]] = {}
    for name, found_ in ("out_of_seq_request", missed), ("rcvd_seq_err", again):
        for node, count in found_.items():
            counted.setdefault(node, {})[name] = count
    run.starts().counters(1.01)
    through(run, 9, {"e0": (500, 460), "e1": (500, 500), "up": (500, 500)}, **counted)
    one = run.ends(9, ok=True).diagnosis()
    assert found(one) == (cause, ranks, link)
    assert "leaf1 receives 40 packets more than it sends" in one.finding.text


def test_a_single_packet_that_is_sent_again_is_a_remark(run: Builder) -> None:
    first, second = {"completer_retry_err": 1, "rcvd_seq_err": 1}, {"out_of_seq_request": 1}
    again = {"n0": {"n0-eth1": first}, "n1": {"n1-eth1": second}}
    one = run.starts().counters(1.01).counters(9, **again).ends(9, ok=True).diagnosis()
    assert one.healthy
    assert len(one.remarks) == 2


def test_a_switch_that_sends_on_small_packets_only(run: Builder) -> None:
    run.starts().counters(1.01).collective(1, *((2.0, None),) * 4)
    through(run, 4, {"e0": (500, 500), "e1": (500, 500), "up": (500, 500)})
    run.counted[-1]["t"] += 1
    leaf = {
        "e1": {"rx_packets": 800, "rx_bytes": 500_000 + 300 * 1082},
        "up": {"rx_packets": 520, "rx_bytes": 501_700, "tx_packets": 560, "tx_bytes": 509_000},
    }
    one = run.counters(9, leaf1=leaf, n1={"n1-eth1": {"completer_retry_err": 6}}).ends(9, **DIED).diagnosis()
    assert found(one) == ("mtu-mismatch", [], "leaf1:up - leaf2:up")
    assert one.finding.evidence[0][1] == "leaf1: 260 packets of 1220 bytes come in and do not go out"


def test_a_loss_beside_a_link_that_is_down_is_a_second_finding(run: Builder) -> None:
    run.starts().counters(1.01).collective(1, *((2.0, None),) * 4).link(2.1, "leaf2", "e3", "down")
    again = {"n0": {"rcvd_seq_err": 3}, "n1": {"out_of_seq_request": 3}, "n2": {"completer_retry_err": 6}}
    through(run, 9, {"e0": (500, 500), "e1": (500, 480), "up": (500, 500)}, **again)
    one = run.ends(9, **DIED).diagnosis()
    assert found(one) == ("link-down", [3], "leaf2:e3 - n3:eth1")
    assert [(other.cause, other.ranks) for other in one.findings[1:]] == [("silent-drop", [1])]
    assert [other["cause"] for other in one.json()["also"]] == ["silent-drop"]
    assert not one.unexplained


def test_what_happened_before_a_cause_is_not_explained_by_it(run: Builder) -> None:
    run.starts().paces().collective(11, *((2.0, 5.0),) * 4).collective(12, *((20.0, None),) * 4)
    run.counters(1.01).counters(6, n0={"n0-eth1": {"completer_retry_err": 2}}).counters(19.5)
    run.link(20.1, "leaf2", "e3", "down").counters(29, n2={"n2-eth1": {"completer_retry_err": 6}})
    one = run.ends(29, **DIED).diagnosis()
    assert one.finding.cause == "link-down"
    assert [text for _, text in one.unexplained] == [
        "collective 11 (Allreduce of 33000 bytes) of ranks 0-3 took 3.0 s",
        "n0-eth1: completer_retry_err 2",
    ]
