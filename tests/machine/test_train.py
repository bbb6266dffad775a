"""`testbed train`: scripts that know nothing of testbed run unchanged, and what each rank did and saw comes out."""

import json
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parent / "programs"
DDP, BAD = PROGRAMS / "ddp", PROGRAMS / "bad"
DOWN = "link-down leaf1:e1 after step 5 for 3s"
LOST = "rank 0 on host1: RETRY_EXC_ERR: transport retry counter exceeded"


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
        pytest.param("hangs.py", ["--limit", "1m"], "still running after 60 s", marks=pytest.mark.slow),
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


def test_a_host_dies_and_the_job_waits_until_it_has_booted(testbed, tmp_path):
    crash = "host-crash host2 after step 2 for 20s"
    done = testbed("train", DDP / "cnn.py", "--ranks", "2", "--fault", crash, "--restarts", "1", "--json")
    assert done.status == 0, done.err
    job = job_of(done)
    assert job["earlier"] in ([LOST], ["rank 1 on host2: mpirun lost contact with it"]), (
        "it waited for data, or sent some"
    )
    assert [rank["saw"] for rank in job["ranks"]] == ["completed"] * 2
    out = tmp_path / done.json["out"]
    log = [json.loads(line) for line in (out / "job/events.jsonl").read_text().splitlines()]
    [off, *_] = [event["t"] for event in log if event["kind"] == "reboot"]
    [ended, _] = [event["t"] for event in log if event["kind"] == "job" and "ok" in event["data"]]
    assert ended - off > 7e9, "a host without power closes no connection"
    [first, second] = testbed("diagnose", done.json["out"], "--json").json["variants"][0]["jobs"]
    assert (first["cause"], first["link"]) == ("host-down", "leaf2:e1 - host2:eth1")
    assert second["cause"] == "healthy"


@pytest.mark.slow
def test_a_host_that_does_not_boot_is_waited_for_up_to_the_limit(testbed):
    options = ("--fault", "host-crash host2 after step 2", "--restarts", "1", "--limit", "30m", "--json")
    done = testbed("train", DDP / "cnn.py", "--ranks", "2", *options)
    assert done.status == 1
    job = job_of(done)
    assert (job["earlier"], job["failure"]) == ([], LOST)
    assert 924 < job["job_s"] < 1000, "mpirun waits for the host until TCP gives up (tcp_retries2)"


@pytest.mark.slow
def test_torchrun_begins_another_round_without_a_host(testbed):
    script = Path(__file__).parents[1] / "lab/workload/programs/elastic.py"
    store = ("--env", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1")
    crash = ("--fault", "host-crash host3 after step 7 for 20s")
    done = testbed("train", str(script), "--torchrun", "--min-hosts", "2", "--restarts", "3", *store, *crash, "--json")
    assert done.status == 0, done.err
    job = job_of(done)
    assert job["earlier"][0] == "rank 2 on host3: its torchrun was killed"
    assert {rank["saw"] for rank in job["ranks"]} == {"completed"}


@pytest.mark.slow
def test_ranks_of_a_host_have_its_rails(testbed, tmp_path):
    made = testbed(
        "topology", "new", "rail-optimized", "--hosts", "1", "--rails", "2", "--management", "-o", "rails.yml"
    )
    assert made.status == 0, made.err
    done = testbed("train", DDP / "transformer.py", "--on", "rails.yml", "--nics", "eth1,eth2", "--json")
    assert done.status == 0, done.err
    devices = [rank["device"] for rank in job_of(done)["ranks"]]
    assert devices == ["host1-eth1", "host1-eth2", "host2-eth1", "host2-eth2"]
