"""`testbed train`: scripts that know nothing of testbed run unchanged, and what each rank did and saw comes out."""

import json
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parent / "programs"
DDP, BAD = PROGRAMS / "ddp", PROGRAMS / "bad"
DOWN = "link-down leaf1:e1 after step 5 for 3s"


def job_of(done):
    [variant] = done.json["variants"]
    return variant["job"]


@pytest.mark.slow
def test_a_cnn_survives_a_port_that_is_down_or_not_by_its_settings(testbed, tmp_path):
    matrix = "ucx_timeout=20ms,1s,ucx_retries=6"
    done = testbed("train", DDP / "cnn.py", "--ranks", "2", "--fault", DOWN, "--matrix", matrix, "--json")
    assert done.status == 0, done.err
    dies, survives = [variant["job"] for variant in done.json["variants"]]
    assert "RETRY_EXC_ERR" in dies["failure"]
    assert survives["failure"] == ""
    for rank in survives["ranks"]:
        assert (rank["steps"], rank["saw"]) == (12, "completed")
        assert rank["slowest_step"] in (6, 7, 8)  # steps are shorter than the pause between two looks at them
        assert 3 < rank["slowest_s"] < 3 + 3 * 1.1
    directory = Path(done.json["out"])
    [checkpoint] = (tmp_path / directory).glob("ucx_timeout=1s*/job/cnn.pt")
    assert checkpoint.stat().st_size
    assert not list((tmp_path / directory).glob("*/job/settings.json"))  # it was there for the script only


def test_a_transformer_runs_unchanged(testbed):
    done = testbed("train", DDP / "transformer.py", "--ranks", "2", "--json")
    assert done.status == 0, done.err
    assert [rank["steps"] for rank in job_of(done)["ranks"]] == [2, 2]


def test_fsdp_trains_over_roce(testbed):
    script = Path(__file__).parents[1] / "lab/workload/programs/sharded.py"
    done = testbed("train", str(script), "--ranks", "2", "--json", "--", "fsdp2")
    assert done.status == 0, done.err
    assert [rank["steps"] for rank in job_of(done)["ranks"]] == [4, 4]


@pytest.mark.slow
def test_a_job_is_repeated_from_its_directory(testbed):
    done = testbed("train", DDP / "transformer.py", "--ranks", "2", "--json")
    assert testbed("rerun", done.json["out"]).status == 0


@pytest.mark.parametrize(
    ("script", "arguments", "said"),
    [
        pytest.param("raises.py", [], "rank 1 on host2: ValueError: no such data set", marks=pytest.mark.slow),
        pytest.param("prints.py", [], "the ranks of prints.py exchange data over RoCE", marks=pytest.mark.slow),
        pytest.param(
            *("gathers.py", ["--fault", DOWN], "was never injected: the job ended before its first step"),
            marks=pytest.mark.slow,
        ),
        pytest.param("hangs.py", ["--limit", "1m"], "still running after", marks=pytest.mark.slow),
        pytest.param(
            *("../ddp/cnn.py", ["--", "--samples", "0"], "ZeroDivisionError: float division by zero"),
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_script_that_goes_wrong_is_1_and_says_why(testbed, script, arguments, said):
    done = testbed("train", BAD / script, "--ranks", "2", "--json", *arguments)
    assert done.status == 1
    assert said in json.dumps(done.json)


@pytest.mark.slow
def test_a_job_that_was_killed_goes_on_from_its_checkpoint(testbed, tmp_path):
    programs = Path(__file__).parents[1] / "lab/workload/programs"
    for name in "resumes.py", "gpt.py":
        (tmp_path / name).write_bytes((programs / name).read_bytes())
    script = str(tmp_path / "resumes.py")
    done = testbed("train", script, "--ranks", "6", "--restarts", "1", "--json", "--", "checkpoints", "6", "5")
    assert done.status == 0, done.err
    job = job_of(done)
    assert job["earlier"] == ["rank 5 on host6: ended by signal 9"]
    assert job["failure"] == ""
    out = (tmp_path / done.json["out"]) / "job"
    assert "step 5 of 6" in (out / "job-2/rank-0.log").read_text()
    assert "step 4 of 6" not in (out / "job-2/rank-0.log").read_text()
    assert (out / "carried/checkpoints/6/.metadata").exists()


def test_a_host_dies_and_the_job_waits_until_it_has_booted(testbed):
    crash = "host-crash host2 after step 2 for 20s"
    done = testbed("train", DDP / "cnn.py", "--ranks", "2", "--fault", crash, "--restarts", "1", "--json")
    assert done.status == 0, done.err
    job = job_of(done)
    assert job["earlier"] == ["rank 1 on host2: mpirun lost contact with it"]
    assert [rank["saw"] for rank in job["ranks"]] == ["completed"] * 2
    assert job["job_s"] > 20


@pytest.mark.slow
def test_a_host_that_does_not_boot_is_waited_for_up_to_the_limit(testbed):
    options = ("--fault", "host-crash host2 after step 2", "--restarts", "1", "--limit", "60s", "--json")
    done = testbed("train", DDP / "cnn.py", "--ranks", "2", *options)
    assert done.status == 1
    job = job_of(done)
    assert (job["earlier"], job["failure"]) == ([], "rank 1 on host2: mpirun lost contact with it")
    assert job["job_s"] < 30, "the wait is no part of the job"
