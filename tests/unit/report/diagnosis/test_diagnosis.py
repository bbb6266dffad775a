"""The diagnosis of jobs: nothing of it comes from what names the fault, and damaged files are named."""

import json
from pathlib import Path

import pytest
from diagnosis_runs import DIED, HOSTS, IPS, OLD, Builder, S, found, topology

from testbed.errors import InputError
from testbed.protocol.flight import members
from testbed.report.diagnosis import diagnose
from testbed.report.diagnosis.observations import Observations


def test_a_job_that_ends_well_is_healthy(run: Builder) -> None:
    one = run.starts().paces().ends(3, ok=True).diagnosis()
    assert one.healthy
    assert one.finding.text == "all 4 ranks end well; 10 collectives"
    assert not one.remarks


def test_a_link_that_came_back_is_a_remark_with_the_pause_that_it_made(run: Builder) -> None:
    run.starts().paces().collective(11, *((2.0, 5.0),) * 4)
    one = run.link(2.1, "leaf2", "e3", "down").link(4.0, "leaf2", "e3", "up").ends(6, ok=True).diagnosis()
    assert one.healthy
    assert [text for _, text in one.remarks] == [
        "collective 11 (Allreduce of 33000 bytes) of ranks 0-3 took 3.0 s",
        "the link leaf2:e3 - n3:eth1, that of rank 3 on n3, was down for 1.9 s",
    ]


def test_a_job_that_never_ended_is_diagnosed_too(run: Builder) -> None:
    run.starts().collective(7, *((2.0, None),) * 4).link(2.1, "leaf2", "e3", "down")
    one = run.event(50, "arp.aged", "leaf1", "", vlan=10, ip=IPS["n0"], mac=OLD).diagnosis()
    assert found(one) == ("link-down", [3], "leaf2:e3 - n3:eth1")
    assert one.json()["end"] == "was still running when it was stopped"


def test_without_a_known_cause_the_nearest_facts_are_given(run: Builder) -> None:
    run.starts().counters(1.01).counters(9, leaf1={"e0": {"rx_errors": 4}})
    one = run.ends(9, **DIED).diagnosis()
    assert found(one) == ("unknown", [1], "")
    assert "RETRY_EXC_ERR" in one.finding.text
    assert "leaf1: e0: rx_errors 4" in [text for _, text in one.finding.evidence]


def test_what_names_the_fault_is_not_observed(run: Builder, tmp_path: Path) -> None:
    """All that a run directory says of its scenario, its expectations and its faults, and what it is called."""
    run.starts().collective(7, *((2.0, None),) * 4).link(2.1, "leaf2", "e3", "down").counters(1.01).ends(9, **DIED)
    before = run.diagnosis().json()
    names = ("step", "expect", "observed", "evidence", "note", "verdict", "sleep", "lab", "fault.injected")
    for number, kind in enumerate(names):
        run.event(2 + number / 100, kind, "n0", "SECRET", interface="eth1", state="down", fault="SECRET")
    for line in run.counted:
        line["after"] = "SECRET"
    run.directory = tmp_path / "SECRET" / "SECRET"
    run.write()
    (run.directory.parent / "result.json").write_text('"SECRET"')
    (run.directory / "topology.json").write_text(json.dumps(topology() | {"name": "SECRET"}))
    row = {"t": S, "after": "SECRET", "switch": "leaf1", "arp": [], "nd": [], "fdb": []}
    (run.directory / "tables.jsonl").write_text(json.dumps(row) + "\n")
    seen = Observations.read(run.directory)
    shown = seen.events, seen.interfaces, seen.counted, seen.flights, seen.logs, seen.tables_at(9 * S)
    assert "SECRET" not in repr(shown)
    assert {event["kind"] for event in seen.events} == {"job", "link"}
    (after,) = diagnose(run.directory)
    assert after.json() == before


@pytest.mark.parametrize(
    ("file", "text", "where"),
    [
        ("events.jsonl", "x\n", "events.jsonl:1: is not an event"),
        ("topology.json", "{", "topology.json: is damaged: Expecting property name"),
        ("topology.json", "[]", "topology.json: is damaged: it is not an object"),
        ("counters.jsonl", "{}\n", "counters.jsonl:1: is not a line of counters"),
        ("job/flight.jsonl", '{"rank": 0}\n', "flight.jsonl:1: is not a line of a flight record"),
    ],
)
def test_a_damaged_file_is_named(run: Builder, file: str, text: str, where: str) -> None:
    directory = run.starts().paces().ends(3, ok=True).write()
    (directory / file).write_text(text)
    with pytest.raises(InputError) as caught:
        diagnose(directory)
    assert where in str(caught.value)


@pytest.mark.parametrize("name", ["topology.json", "events.jsonl"])
def test_a_missing_file_is_named(run: Builder, name: str) -> None:
    directory = run.starts().ends(3, ok=True).write()
    (directory / name).unlink()
    with pytest.raises(InputError, match=f"{name}: cannot be read"):
        diagnose(directory)


def test_flight_records_and_counters_may_be_missing(run: Builder) -> None:
    directory = run.starts().link(2, "leaf2", "e3", "down").ends(9, **DIED).write()
    (directory / "counters.jsonl").unlink()
    assert found(diagnose(directory)[0]) == ("link-down", [3], "leaf2:e3 - n3:eth1")


def test_a_job_s_name_leads_nowhere_else(run: Builder) -> None:
    run.event(1, "job", "", "", name="../job", hosts=HOSTS, devices=[])
    (run.directory.parent / "job").mkdir(parents=True)
    (run.directory.parent / "job/flight.jsonl").write_text("damaged\n")
    assert run.diagnosis().case.job.name == "../job"


@pytest.mark.parametrize(
    ("name", "ranks"), [("0-3", [0, 1, 2, 3]), ("0,2-3#2", [0, 2, 3]), ("0-1 of 100", [0, 1]), ("", []), ("x-3", [])]
)
def test_the_name_of_a_communicator_has_its_ranks(name: str, ranks: list[int]) -> None:
    assert members(name) == ranks
