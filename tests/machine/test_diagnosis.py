"""`testbed diagnose` over all variants of the training scenarios: the right link, rank and cause, from what a real
cluster shows."""

import json
from pathlib import Path

import pytest
from diagnosis_cases import DRAWN, EITHER, EXPECTED, HEALTHY, SETTINGS, WITHOUT_A_JOB


@pytest.mark.slow
@pytest.mark.parametrize("scenario", EXPECTED)
def test_every_variant_has_the_right_diagnosis(testbed, tmp_path, run_of_the_catalogue, scenario):
    run = run_of_the_catalogue(scenario)
    if settings := [word for setting in SETTINGS.get(scenario, ()) for word in ("--set", setting)]:
        testbed("run", scenario, *settings, "--out", str(tmp_path / "runs"))
        run = tmp_path / "runs" / scenario / "latest"
    done = testbed("diagnose", str(run), "--json")
    jobs = {variant["variant"]: variant["jobs"] for variant in done.json["variants"]}
    found = {name: [summary(job) for job in of] for name, of in jobs.items()}
    wanted = EXPECTED[scenario]
    assert done.status == int(any(cause != "healthy" for of in found.values() for cause, _, _ in of))
    for variant in [name for name in found if (scenario, name) in DRAWN]:
        ends = [event["data"]["status"] for event in events(run / variant) if event["kind"] == "completion"]
        assert len(set(ends)) == 2
        for status, job in zip(ends, found.pop(variant), strict=True):
            assert job in ([HEALTHY] if status == "SUCCESS" else DRAWN[scenario, variant])
    for variant in [name for name in found if (scenario, name) in EITHER]:
        [job] = found.pop(variant)
        assert job in EITHER[scenario, variant]
    assert found == {name: of if isinstance(of, list) else [of] for name, of in wanted.items()}
    if scenario == "training-smoke":
        check_times({name: of[0] for name, of in jobs.items()}, run)


@pytest.mark.slow
@pytest.mark.parametrize("scenario", WITHOUT_A_JOB)
def test_a_run_without_a_job_is_refused_in_clear_words(testbed, run_of_the_catalogue, scenario):
    done = testbed("diagnose", str(run_of_the_catalogue(scenario)))
    assert done.status == 2
    assert "no job of several ranks ran here" in done.error


def events(variant: Path):
    return [json.loads(line) for line in (variant / "events.jsonl").read_text().splitlines()]


def summary(job):
    return job["cause"], [one["rank"] for one in job["ranks"]], job["link"]


def check_times(jobs, run: Path) -> None:
    """The times are those of the events, and a collective that took long is a remark with the link that made it so."""
    down = jobs["link-down"]
    (port,) = [event for event in events(run / "link-down") if event["kind"] == "link" and "state" in event["data"]]
    assert down["since"] == port["t"]
    assert down["stopped"]["operation"] == "Allreduce"
    assert abs(down["stopped"]["since"] - port["t"]) < 2e9
    assert jobs["stale-arp-at-start"]["address"] == "10.0.20.3"
    link, pause = [remark["text"] for remark in jobs["link-flap-short"]["remarks"]][:2]
    assert "leaf2:e2 - n3:eth1, that of rank 3 on n3, was down for 3.0 s" in link
    assert "Allreduce" in pause
