"""Bundles that labs wrote (tests/diagnosis/bundles.py), without their knowledge of clocks and causes."""

import json
import shutil
from pathlib import Path

import pytest

from testbed.errors import InputError
from testbed.records.bundle import Bundle, reproduction
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
