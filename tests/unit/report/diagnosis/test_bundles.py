"""Bundles that labs wrote (tests/diagnosis/bundles.py), without their knowledge of clocks and causes."""

import json
import shutil
from pathlib import Path

import pytest
import yaml

from testbed.errors import InputError
from testbed.records.bundle import Bundle, logs, reproduction
from testbed.report.diagnosis import diagnose_bundle

BUNDLES = Path(__file__).parents[2] / "records/bundles"
LEARNED = 1767225623_780000000
"""When leaf2 got the entry, by its own clock."""


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return shutil.copytree(BUNDLES / "ip-reuse", tmp_path / "bundle")


def test_a_reused_address_is_found_with_its_port_and_its_time() -> None:
    [job] = diagnose_bundle(Bundle.read(BUNDLES / "ip-reuse"))
    found = job.finding
    assert (found.cause, found.ranks, found.address) == ("stale-neighbour", [3], "10.1.2.44")
    assert found.link == "leaf2:Ethernet1/2 - n4:eth1"
    epoch = job.case.seen.epoch
    assert epoch is not None
    assert epoch + found.since == LEARNED
    assert "the clock of leaf2 is not known: its times are its own" in job.case.seen.remarks


def test_a_link_without_a_carrier_is_down() -> None:
    [job] = diagnose_bundle(Bundle.read(BUNDLES / "link-down"))
    assert (job.finding.cause, job.finding.link) == ("link-down", "leaf1:Ethernet1/4 - n3:eth1")
    assert job.finding.ranks == [2]


def test_clocks_of_hosts_are_known_from_who_asked() -> None:
    bundle = Bundle.read(BUNDLES / "link-down")
    ahead = {name: round(t / 1e9, 1) for name, t in bundle.ahead.items()}
    assert ahead == {"n1": 0.0, "n2": 1.7, "n3": -2.4, "n4": 0.9}
    assert bundle.unknown_clocks == ["leaf1", "leaf2"]


def test_without_the_switch_s_table_the_cause_is_not_known(copy: Path) -> None:
    (copy / "switches/leaf2.txt").unlink()
    [job] = diagnose_bundle(Bundle.read(copy))
    assert job.finding.cause == "unknown"
    assert "UD endpoint" in job.finding.text


def test_counters_that_were_read_once_count_against_nobody(copy: Path) -> None:
    for path in (copy / "hosts").iterdir():
        text = path.read_text()
        first = text.index("### ip -j -s -s link")
        again = text.index("### ip -j -s -s link", first + 1)
        path.write_text(text[:first].replace('"rx_errors":0', '"rx_errors":900') + text[first:again])
    [job] = diagnose_bundle(Bundle.read(copy))
    assert job.finding.cause == "stale-neighbour"
    assert not job.case.growth


def counted_again(path: Path, name: str, count: int) -> None:
    """Change a counter of soft-RoCE in the second reading of a host."""
    head, at, tail = path.read_text().rpartition("### rdma -j statistic")
    assert '"rcvd_seq_err":0' in tail
    path.write_text(head + at + tail.replace('"rcvd_seq_err":0', f'"{name}":{count}'))


def test_all_hosts_count_though_they_are_read_one_after_the_other(tmp_path: Path) -> None:
    copy = shutil.copytree(BUNDLES / "link-down", tmp_path / "bundle")
    for path in (copy / "hosts").iterdir():
        counted_again(path, "rcvd_seq_err", 7)
    [job] = diagnose_bundle(Bundle.read(copy))
    assert {key[0]: n for key, n in job.case.growth.items() if key[2] == "rcvd_seq_err"} == dict.fromkeys(
        ("n1", "n2", "n3", "n4"), 7
    )


@pytest.mark.parametrize(("hosts", "lost"), [(["n1", "n2", "n3", "n4"], True), (["n1"], False)])
def test_cnps_that_devices_count_are_lost_where_none_come_to_any_rank(copy: Path, hosts: list[str], lost: bool) -> None:
    (copy / "switches/leaf2.txt").unlink()
    for path in (copy / "jobs/train").glob("*.log"):
        path.unlink()
    (copy / "jobs/train/status").write_text("0")
    for host in hosts:
        counted_again(copy / f"hosts/{host}.txt", 'np_cnp_sent":50,"rp_cnp_handled', 1)
    [job] = diagnose_bundle(Bundle.read(copy))
    assert any("CNPs are lost on the way" in text for _, text in job.remarks) == lost


def test_a_job_whose_hosts_are_not_named_is_left_out(copy: Path) -> None:
    (copy / "jobs/train/hosts").unlink()
    bundle = Bundle.read(copy)
    assert bundle.jobs == []
    assert "job train is left out: jobs/train/hosts names no host of a rank" in bundle.remarks


def test_a_directory_without_a_cluster_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has nothing of a cluster"):
        Bundle.read(tmp_path)
    with pytest.raises(InputError, match="is no directory"):
        Bundle.read(tmp_path / "none")


def test_a_flight_record_tells_who_waits(copy: Path) -> None:
    directory = copy / "jobs/train/flight"
    directory.mkdir()
    entry = {
        "record_id": 1, "process_group": ["0", "default_pg"], "collective_seq_id": 1, "state": "started",
        "profiling_name": "nccl:all_reduce", "time_created_ns": LEARNED + 10**10, "input_sizes": [[100]],
        "input_dtypes": ["Float"],
    }  # fmt: skip
    config = {"0": {"ranks": "[0, 1, 2, 3]"}}
    for rank in range(3):
        (directory / f"nccl_trace_rank_{rank}").write_text(json.dumps({"pg_config": config, "entries": [entry]}))
    (directory / "nccl_trace_rank_9").write_text("{}")
    [job] = diagnose_bundle(Bundle.read(copy))
    assert job.case.stuck
    assert (job.case.stuck.waiting, list(job.case.stuck.absent)) == ([0, 1, 2], [3])
    assert "nccl_trace_rank_9: the job has no rank 9" in job.case.seen.remarks


def test_the_lab_of_a_cluster_has_what_was_wrong_there() -> None:
    text = reproduction.topology(Bundle.read(BUNDLES / "ip-reuse"))
    assert "profile: cisco-nxos" in text
    assert 'node: n4, interface: eth1, mac: "02:00:06:00:00:01", ipv4: 10.1.2.44/24' in text
    former = text[text.index("former1:") : text.index("    # the management")]
    assert "ping -c 1 -W 1 -I 10.1.2.44 10.1.2.1" in former
    assert '{node: former1, interface: eth1, mac: "02:00:07:00:00:01"}' in text
    down = reproduction.topology(Bundle.read(BUNDLES / "link-down"))
    assert '- {fault: link-down, end: "leaf1:e4"}' in down


def change(copy: Path, name: str, old: str, new: str) -> None:
    path = copy / name
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


UNUSED = (
    '{"ifname":"docker0","flags":["NO-CARRIER","BROADCAST","UP"],"mtu":1500,"address":"02:42:00:00:00:01",'
    '"addr_info":[]},'
)


def test_an_interface_that_no_rank_uses_is_no_cause(copy: Path) -> None:
    (copy / "switches/leaf2.txt").unlink()
    change(copy, "hosts/n1.txt", "### ip -j -d address\n[", f"### ip -j -d address\n[{UNUSED}")
    (copy / "hosts/n1.log").write_text("2025-12-01T00:01:59+0000 n1 kernel: veth12ab: Lost carrier\n")
    [job] = diagnose_bundle(Bundle.read(copy))
    assert job.finding.cause == "unknown"


@pytest.mark.parametrize("state", ["Down", "Up"])
def test_what_was_collected_is_later_than_a_log(state: str) -> None:
    broken = BUNDLES / ("ip-reuse" if state == "Down" else "link-down")
    bundle = Bundle.read(broken)
    end = ("n1" if state == "Down" else "n3", "eth1")
    bundle.changes[end] = [logs.LinkChange(LEARNED, "eth1", state == "Up", "")]
    [job] = diagnose_bundle(bundle)
    assert job.finding.cause == ("stale-neighbour" if state == "Down" else "link-down")
    assert ("link-down" in reproduction.topology(bundle)) == (state == "Up")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("leaf2# show ip arp\n", "leaf2# show ip arp vrf storage\n"),
        ("10.1.2.44       00:02:27", "10.1.2.44       00:00:01  0200.0600.0001  Vlan20\n10.1.2.44       00:02:27"),
    ],
    ids=["another VRF", "the right one too"],
)
def test_an_entry_that_may_be_of_another_vrf_is_no_cause(copy: Path, old: str, new: str) -> None:
    text = (copy / "switches/leaf2.txt").read_text()
    age = text[text.index("10.1.2.44") :][:24]
    change(copy, "switches/leaf2.txt", old.replace("10.1.2.44       00:02:27", age), new)
    if "vrf" not in new:
        change(copy, "switches/leaf2.txt", "0200.0700.0001  Vlan20", "0200.0700.0001  Ethernet1/9")
    [job] = diagnose_bundle(Bundle.read(copy))
    assert job.finding.cause == "unknown"


@pytest.mark.parametrize(
    ("status", "log", "healthy", "said"),
    [
        ("0", "NCCL WARN Missing iommu=pt\nValueError: tried again\nepoch 10 done", True, ""),
        ("0", "torch.distributed.DistStoreError: wait timeout after 300000ms", False, "DistStoreError"),
        ("1", "NCCL WARN Missing iommu=pt\nSegmentation fault", False, "Segmentation fault"),
        (
            "1",
            "NET/IB: Got completion from peer fe80::1%eth1<4> with status=IBV_WC_RETRY_EXC_ERR(12) x",
            False,
            "RETRY",
        ),
        ("\u00b2", "epoch 10 done", False, "no known end"),
    ],
)
def test_the_end_of_a_job(copy: Path, status: str, log: str, healthy: bool, said: str) -> None:
    (copy / "switches/leaf2.txt").unlink()
    for path in (copy / "jobs/train").glob("*.log"):
        path.unlink()
    (copy / "jobs/train/status").write_text(status)
    (copy / "jobs/train/rank-0.log").write_text(log)
    [job] = diagnose_bundle(Bundle.read(copy))
    assert job.healthy == healthy
    assert said in f"{job.finding.text} {job.case.ending}"


def test_a_status_of_0_is_no_good_end_of_ranks_that_wait(copy: Path) -> None:
    test_a_flight_record_tells_who_waits(copy)
    for path in (copy / "jobs/train").glob("*.log"):
        path.unlink()
    (copy / "jobs/train/status").write_text("0")
    [job] = diagnose_bundle(Bundle.read(copy))
    assert not job.healthy
    assert any("train has the status 0, and ranks wait" in text for text in job.case.seen.remarks)


def test_lldp_may_name_an_interface_by_its_mac(copy: Path) -> None:
    change(copy, "switches/leaf2.txt", "120                    eth1", "120                    0200.0600.0001")
    bundle = Bundle.read(copy)
    assert bundle.peers["leaf2", "Ethernet1/2"] == ("n4", "eth1")


@pytest.mark.parametrize("name", ["no", "mgmt", "former1", "n1\n    - x: [reboot]", "a-very-long-name-of-a-host"])
def test_names_of_a_cluster_are_names_of_a_lab(copy: Path, name: str) -> None:
    bundle = Bundle.read(copy)
    node = bundle.nodes.pop("n1")
    node.name = name
    bundle.nodes[name] = node
    bundle.nodes["leaf1"].cables = {
        port: (name if other == "n1" else other, end) for port, (other, end) in bundle.nodes["leaf1"].cables.items()
    }
    plan = yaml.safe_load(reproduction.topology(bundle))["topology"]
    given = {"leaf1", "leaf2", "n2", "n3", "n4", "mgmt", "launcher"}
    [added, former] = sorted(set(plan["nodes"]) - given, reverse=True)
    assert (added, former.startswith("former")) == ("host1", True)


def of_ranks(copy: Path, *logs: str, status: str = "1") -> Path:
    """A cluster whose ranks wrote this, and in whose tables nothing is wrong."""
    (copy / "switches/leaf2.txt").unlink()
    for path in (copy / "jobs/train").glob("*.log"):
        path.unlink()
    (copy / "jobs/train/status").write_text(status)
    for rank, text in enumerate(logs):
        (copy / f"jobs/train/rank-{rank}.log").write_text(text)
    return copy


def timed_out(rank: int, sequence: int, operation: str = "ALLREDUCE") -> str:
    begin = f"[rank{rank}]:[E0101 00:02:30.5 ProcessGroupNCCL.cpp:632]"
    work = f"WorkNCCL(SeqNum={sequence}, OpType={operation}, NumelIn=1, NumelOut=1, Timeout(ms)=60000)"
    return (
        f"{begin} [Rank {rank}] Watchdog caught collective operation timeout: {work} ran for 60001 milliseconds before "
        f"timing out.\n{begin} [PG ID 0 PG GUID 0(default_pg) Rank {rank}]  failure detected by watchdog at work "
        f"sequence id: {sequence} PG status: last enqueued work: {sequence}, last completed work: {sequence - 1}\n"
    )


@pytest.mark.parametrize("together", [False, True])
def test_a_watchdog_says_in_which_collective_ranks_wait(copy: Path, together: bool) -> None:
    texts = [timed_out(rank, 12) for rank in range(3)]
    of_ranks(copy, *([] if together else texts))
    if together:
        (copy / "jobs/train/output.log").write_text("".join(texts))
    [job] = diagnose_bundle(Bundle.read(copy))
    assert job.finding.cause == "unknown"
    assert job.case.stuck
    assert (job.case.stuck.sequence, job.case.stuck.waiting, job.case.stuck.absent) == (12, [0, 1, 2], [])
    assert str(job.case.stuck) == "collective 12 (Allreduce) of process group 0(default_pg)"
    # The clock of n2 is 1.7 s ahead: it said so first.
    assert job.case.job.rank == 1


def test_ranks_that_wait_in_different_collectives_of_a_number(copy: Path) -> None:
    of_ranks(copy, *(timed_out(rank, 12) for rank in range(3)), timed_out(3, 12, "BROADCAST"))
    [job] = diagnose_bundle(Bundle.read(copy))
    assert (job.finding.cause, job.finding.ranks) == ("collective-mismatch", [3])


RAS = """\
Job summary

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         4         1         4         4   RUNNING  {kind}

#0-0 (cf264af53edbe986) {kind}
"""
MISSING = RAS.format(kind="INCOMPLETE") + "  Rank 3 -- GPU 0 managed by process 77 on node 10.0.0.4\n"
BEHIND = RAS.format(kind="MISMATCH") + (
    "  Communicator ranks have different AllReduce operation counts\n"
    "  3 ranks have launched up to operation 12\n"
    "  Rank 3 has launched up to operation 11 -- GPU 0 managed by process 77 on node 10.0.0.4\n"
)


@pytest.mark.parametrize(
    ("text", "logs", "cause"),
    [
        (MISSING, [], "rank-hangs"),
        (BEHIND, [timed_out(rank, 12) for rank in range(3)], "rank-hangs"),
        (BEHIND + BEHIND, [], "rank-hangs"),
        (BEHIND, [], "unknown"),
    ],
    ids=["missing", "behind, and the job stands", "behind twice", "behind once"],
)
def test_a_rank_that_lags_by_ras(copy: Path, text: str, logs: list[str], cause: str) -> None:
    of_ranks(copy, *logs)
    (copy / "jobs/train/ras.txt").write_text(text)
    [job] = diagnose_bundle(Bundle.read(copy))
    assert job.finding.cause == cause
    assert job.finding.ranks == ([3] if cause == "rank-hangs" else [])
    assert any("rank 3 on n4" in fact for _, fact in job.finding.evidence)


def test_ras_of_a_sound_job_and_damaged_output(copy: Path) -> None:
    of_ranks(copy, status="0")
    (copy / "jobs/train/ras.json").write_text('{"communicators": []}')
    [job] = diagnose_bundle(Bundle.read(copy))
    assert job.healthy
    (copy / "jobs/train/ras.json").write_text("{")
    [job] = diagnose_bundle(Bundle.read(copy))
    assert any(text.startswith("jobs/train/ras.json ") for text in job.case.seen.remarks)


def test_a_port_that_nccl_says_is_down_and_that_came_back(copy: Path) -> None:
    warn = "n3:9:9 [0] net_ib.cc:1 NCCL WARN NET/IB : n3-eth1:1 Got async event : port error\n"
    of_ranks(copy, "", "", f"2026-01-01T00:02:00Z step\n{warn}", status="0")
    bundle = Bundle.read(copy)
    assert [change.up for change in bundle.changes["n3", "eth1"]] == [False]


@pytest.mark.parametrize(
    "words",
    [
        "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:77, remote process exited",
        "torch.distributed.DistStoreError: wait timeout after 300000ms",
        "RuntimeError: NCCL Error 6: unhandled system error",
        "NCCL WARN Call to ibv_modify_qp failed with error Connection timed out",
    ],
)
def test_an_error_of_the_network_is_no_rank_that_died(copy: Path, words: str) -> None:
    [job] = diagnose_bundle(Bundle.read(of_ranks(copy, words)))
    assert (job.finding.cause, job.case.job.rank) == ("unknown", 0)


def test_a_rank_with_an_error_of_its_own_ends_before_those_that_miss_it(copy: Path) -> None:
    others = "torch.distributed.DistBackendError: NCCL error: remote process exited or there was a network error"
    [job] = diagnose_bundle(Bundle.read(of_ranks(copy, others, others, "torch.OutOfMemoryError: CUDA out of memory.")))
    assert (job.finding.cause, job.finding.ranks) == ("rank-died", [2])


@pytest.mark.parametrize(("status", "said"), [("status=12", True), ("with error 12,", True), ("status=4", False)])
def test_only_retries_that_are_used_up_say_who_does_not_answer(copy: Path, status: str, said: bool) -> None:
    warn = "NCCL WARN NET/IB : Got completion from peer 10.9.9.9<3> {} opcode 0 localGid ::ffff:10.1.1.2 remoteGids{}"
    [job] = diagnose_bundle(Bundle.read(of_ranks(copy, warn.format(status, "::ffff:10.1.1.3 hca n1-eth1"))))
    assert any("10.1.1.3, rank 1 on n2, does not answer rank 0" in text for _, text in job.finding.evidence) == said


def neighbour(copy: Path, host: str, mac: str, *states: str, ip: str = "10.1.1.3") -> None:
    """Let a host have one entry for the address of n2."""
    path = copy / f"hosts/{host}.txt"
    head, at, tail = path.read_text().partition("### ip -j -s neighbour\n")
    entry = [{"dst": ip, "dev": "eth1", **({"lladdr": mac} if mac else {}), "state": list(states)}]
    path.write_text(f"{head}{at}{json.dumps(entry)}\n\n{tail[tail.index('###') :]}")


@pytest.mark.parametrize(
    ("mac", "states", "cause"),
    [
        ("02:00:07:00:00:01", ["REACHABLE"], "stale-neighbour"),
        ("02:00:07:00:00:01", ["PERMANENT"], "stale-neighbour"),
        ("02:00:07:00:00:01", ["STALE"], "unknown"),
        ("02:00:04:00:00:01", ["REACHABLE"], "unknown"),
        ("02:00:04:00:00:02", ["REACHABLE"], "unknown"),
        ("02:00:01:01:00:00", ["REACHABLE"], "unknown"),
        ("", ["FAILED"], "unresolved"),
        ("", ["INCOMPLETE"], "unresolved"),
    ],
    ids=["another's", "set by hand", "stale", "its own", "its other NIC", "the gateway's", "failed", "asking"],
)
def test_what_a_host_has_for_an_address_of_its_network(copy: Path, mac: str, states: list[str], cause: str) -> None:
    neighbour(of_ranks(copy), "n1", mac, *states)
    [job] = diagnose_bundle(Bundle.read(copy))
    assert job.finding.cause == cause
    assert job.finding.ranks == ([] if cause == "unknown" else [1])


def test_an_entry_for_another_network_is_not_used(copy: Path) -> None:
    neighbour(of_ranks(copy), "n1", "02:00:07:00:00:01", "REACHABLE", ip="10.1.2.44")
    [job] = diagnose_bundle(Bundle.read(copy))
    assert job.finding.cause == "unknown"


@pytest.mark.parametrize(
    ("host", "switch", "cause"), [(1500, 9216, "unknown"), (9000, 1500, "mtu-mismatch"), (9000, 9000, "unknown")]
)
def test_ports_of_switches_may_take_larger_packets_than_hosts_send(
    copy: Path, host: int, switch: int, cause: str
) -> None:
    of_ranks(copy)
    change(copy, "hosts/n1.txt", '"mtu":1500', f'"mtu":{host}')
    port = {"ifname": "Ethernet1/1", "flags": ["UP", "LOWER_UP"], "mtu": switch, "address": "02:00:01:00:00:01"}
    path = copy / "switches/leaf1.txt"
    path.write_text(f"{path.read_text()}\n### ip -j -d address\n{json.dumps([port])}\n")
    [job] = diagnose_bundle(Bundle.read(copy))
    assert job.finding.cause == cause


def test_events_of_ports_in_a_log_without_times_are_shown(copy: Path) -> None:
    warn = "NCCL WARN NET/IB : mlx5_3:1 Got async event : port error\nNCCL WARN NET/IB : mlx5_3:1 GID table changed\n"
    of_ranks(copy, f"{warn}NCCL WARN NET/IB : Got completion with error 12, opcode 1, len 0, vendor err 129")
    [job] = diagnose_bundle(Bundle.read(copy))
    assert job.case.job.status == "RETRY_EXC_ERR"
    shown = [text for _, text in job.finding.evidence]
    assert "rank 0 on n1: NET/IB : mlx5_3:1 Got async event : port error" in shown
    assert "rank 0 on n1: NET/IB : mlx5_3:1 GID table changed" in shown


def test_a_port_of_a_host_of_which_nothing_else_is_known(tmp_path: Path) -> None:
    job = tmp_path / "bundle/jobs/train"
    job.mkdir(parents=True)
    (job / "hosts").write_text("gpu1\ngpu2\n")
    warn = "[2026-01-01 00:02:00] gpu2:9:9 [0] net_ib.cc:1 NCCL WARN NET/IB : mlx5_0:1 Got async event : port error"
    (job / "rank-1.log").write_text(f"{warn}\nNCCL WARN NET/IB : Got completion with error 12, opcode 1\n")
    [found] = diagnose_bundle(Bundle.read(tmp_path / "bundle"))
    assert (found.finding.cause, found.finding.ranks, found.finding.link) == ("link-down", [1], "gpu2:mlx5_0")


@pytest.mark.parametrize(
    ("status", "cause"), [("stormed", "pause-storm"), ("operational", "unknown"), ("N/A", "unknown")]
)
def test_a_watchdog_of_a_switch_that_finds_a_storm_now(copy: Path, status: str, cause: str) -> None:
    of_ranks(copy)
    path = copy / "switches/leaf1.txt"
    table = (
        "          QUEUE       STATUS    STORM DETECTED/RESTORED    TX OK/DROP    RX OK/DROP\n"
        "---------------  -----------  -------------------------  ------------  ------------\n"
        f"  Ethernet1/4:3  {status:>11}                        2/1    0/41507426           0/0\n"
    )
    path.write_text(f"{path.read_text()}\nadmin@leaf1:~$ show pfcwd stats\n{table}")
    [job] = diagnose_bundle(Bundle.read(copy))
    assert job.finding.cause == cause
    assert job.finding.link == ("leaf1:Ethernet1/4 - n3:eth1" if cause == "pause-storm" else "")


def test_a_link_that_came_back_is_not_down_where_the_time_of_the_job_is_not_known(copy: Path) -> None:
    of_ranks(copy)
    for path in (copy / "hosts").iterdir():
        path.write_text(path.read_text().replace("### date", "### no date"))
    (copy / "hosts/n1.log").write_text(
        "[Thu Jan  1 00:02:05 2026] mlx5_core 0000:0c:00.0 eth1: Link down\n"
        "[Thu Jan  1 00:02:06 2026] mlx5_core 0000:0c:00.0 eth1: Link up\n"
    )
    (copy / "switches/leaf1.txt").unlink()
    [job] = diagnose_bundle(Bundle.read(copy))
    assert job.finding.cause == "unknown"
    assert "the link n1:eth1, that of rank 0 on n1, was down for 1.0 s" in [text for _, text in job.finding.evidence]


def test_a_port_that_only_lldp_names_is_that_of_its_rank(copy: Path) -> None:
    path = copy / "switches/leaf1.txt"
    text = path.read_text()
    path.write_text(text[: text.index("leaf1# show ip arp")] + text[text.index("leaf1# show lldp") :])
    [job] = diagnose_bundle(Bundle.read(copy))
    assert job.case.seen.peers["leaf1", "Ethernet1/1"] == ("n1", "eth1")


def test_the_end_of_a_job_by_a_line_of_no_known_rank(copy: Path) -> None:
    of_ranks(copy)
    line = "[E ProcessGroupNCCL.cpp:737] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=4) x\n"
    (copy / "jobs/train/output.log").write_text(line)
    [job] = diagnose_bundle(Bundle.read(copy))
    assert (job.case.job.rank, job.finding.cause) == (None, "unknown")
    assert "Watchdog caught" in job.finding.text


def test_numbers_of_ranks_by_ras_are_shown_where_the_ones_behind_are_not_listed(copy: Path) -> None:
    of_ranks(copy)
    ahead = BEHIND.replace("3 ranks have launched up to operation 12", "3 ranks have launched up to operation 10")
    (copy / "jobs/train/ras.txt").write_text(ahead)
    [job] = diagnose_bundle(Bundle.read(copy))
    assert job.finding.cause == "unknown"
    shown = [text for _, text in job.finding.evidence]
    assert "ranks, by NCCL's RAS: 3 have launched 10, 1 have launched 11 of AllReduce" in shown
