"""`testbed train`: what is wrong with a script, a topology, a fault or a setting is said before a machine is asked for;
the end of a job is a table of its ranks, or of the settings it survives."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from testbed.cli import options
from testbed.cli.main import invoke
from testbed.machine import record, runs
from testbed.machine.record import Identity, VariantResult
from testbed.machine.runs import VariantRun
from testbed.protocol import RANKS, JobRow, RankRow

pytestmark = pytest.mark.long

MANAGED = """\
name: mine
topology:
  defaults: {kind: host}
  nodes: {leaf: {kind: switch, vlans: {10: 10.0.10.1/24}}, mgmt: {kind: bridge}, a: , b: , launcher: }
  links:
    - {endpoints: ["leaf:e1", "a:eth1"], vlan: 10}
    - {endpoints: ["leaf:e2", "b:eth1"], vlan: 10}
    - {endpoints: ["mgmt:e1", "a:mgmt0"], rdma: false}
    - {endpoints: ["mgmt:e2", "b:mgmt0"], rdma: false}
    - {endpoints: ["mgmt:e3", "launcher:mgmt0"], rdma: false}
"""


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.clab.yml").write_text(MANAGED)
    Path("job").mkdir()
    Path("job/train.py").write_text("import torch\n")
    Path("job/settings.json").write_text("{}")


def rank(number: int, **values: Any) -> RankRow:
    found: RankRow = {
        "rank": number,
        "host": f"host{number + 1}",
        "steps": 12,
        "first_s": 1.5,
        "median_s": 0.05,
        "slowest_s": 0.06,
        "slowest_step": 4,
        "slowest_at_s": 2.0,
        "saw": "completed",
    }
    return {**found, **values}  # type: ignore[typeddict-item]


def job(*ranks: RankRow, failure: str = "", fault_s: float | None = None, missed: Sequence[str] = ()) -> JobRow:
    return {"failure": failure, "job_s": 7.5, "fault_s": fault_s, "missed": [*missed], "ranks": [*ranks]}


Ends = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def jobs_end(monkeypatch: pytest.MonkeyPatch, good: VariantResult) -> Ends:
    """Lets the runs end one after the other with the given rows, without a machine; the settings of each."""

    def end(*rows: JobRow) -> list[dict[str, Any]]:
        left, asked = [*rows], []

        async def run_variant(
            _: object, __: object, variant_run: VariantRun, ___: object, directory: Path, ____: object
        ) -> VariantResult:
            row = left.pop(0)
            (directory / "events.jsonl").write_text("")
            (directory / RANKS).write_text(json.dumps(row))
            asked.append(variant_run.variant["settings"])
            failures = ["users saw fault where healthy was expected"] if row["failure"] else []
            return replace(
                good,
                name=variant_run.label,
                variant=variant_run.variant["name"],
                observed="fault" if row["failure"] else "healthy",
                failures=[*failures, *row["missed"]],
                settings=variant_run.variant["settings"],
            )

        monkeypatch.setattr(options, "choose", lambda *_: SimpleNamespace(clock="virtual"))
        monkeypatch.setattr(Identity, "of", lambda *_: Identity("vm", "1", "c", "i", "10", "tcg", None, None))
        monkeypatch.setattr(runs, "run_variant", run_variant)
        return asked

    return end


# Wrong input


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["none.py"], "none.py: no such file"),
        (["job"], "job: is not a regular file"),
        (["mine.clab.yml"], "mine.clab.yml: is not a Python file"),
        (["job/train.py", "--ranks", "0"], "0 is not in the range x>=2"),
        (["job/train.py", "--ranks", "1"], "1 is not in the range x>=2"),
        (["job/train.py", "--ranks-per-host", "0"], "0 is not in the range x>=1"),
        (["job/train.py", "--epochs", "3"], "No such option '--epochs'. Options of the script follow `--`."),
        (["job/train.py", "--on", "none.yml"], "none.yml: no such file"),
        (["job/train.py", "--on", "mine.clab.yml", "--ranks", "5"], "5 ranks do not fit: the topology has 2 hosts"),
        (["job/train.py", "--fault", "link-dwn leaf1:e1"], "Did you mean link-down?"),
        (["job/train.py", "--fault", "link-down leaf1:e9"], "the topology has no end of a link 'leaf1:e9'"),
        (["job/train.py", "--fault", "switch-reboot leaf9"], "the topology has no node 'leaf9'"),
        (["job/train.py", "--fault", "link-loss leaf1:e1"], "'loss' is missing"),
        (["job/train.py", "--fault", "link-loss leaf1:e1 loss=200"], "loss is 200"),
        (["job/train.py", "--fault", "link-down leaf1:e1 after step 0"], "'0' is not a step number"),
        (["job/train.py", "--fault", "link-down leaf1:e1 after lunch"], "'lunch' is not a time"),
        (["job/train.py", "--fault", "link-down leaf1:e1 for"], "'for' is not allowed there"),
        (["job/train.py", "--fault", ""], "names no fault"),
        (["job/train.py", "--matrix", "ucx_tmeout"], "Did you mean ucx_timeout?"),
        (["job/train.py", "--matrix", "ucx_timeout=5"], "ucx_timeout=5 is not a time for UCX"),
        (["job/train.py", "--matrix", "ucx_retries=8"], "ucx_retries=8 is not a number of retries"),
        (["job/train.py", "--matrix", "ucx_retries=2,2"], "ucx_retries=2 is given twice"),
        (["job/train.py", "--matrix", "ucx_retries", "--env", "UCX_RC_VERBS_RETRY_COUNT=1"], "--matrix varies it"),
        (["job/train.py", "--env", "UCX"], "'UCX' is not of the form KEY=VALUE"),
        (["job/train.py", "--env", "one:UCX=1"], "'one' is no number of a rank"),
        (["job/train.py", "--env", "4:UCX_TLS=tcp"], "the job has no rank 4"),
        (["job/train.py", "--nics", "eth1,,eth2"], "an interface is missing"),
        (["job/train.py", "--nics", "eth1,eth1"], "or there twice"),
        (["job/train.py", "--nics", "eth1,eth2"], "no host has an RDMA device with an address for a rank on eth1 and"),
        (["job/train.py", "--limit", "0s"], "--limit is 0"),
        (["job/train.py", "--min-hosts", "2"], "--min-hosts is torchrun's"),
        (["job/train.py", "--torchrun", "--min-hosts", "5"], "--min-hosts is 5, and the job has 4"),
        (["job/train.py", "--torchrun", "--matrix", "ucx_retries"], "settings of UCX"),
        (["job/train.py", "--torchrun", "--env", "1:A=B"], "torchrun gives its ranks their numbers"),
        (["job/train.py", "--torchrun", "--ranks", "3", "--ranks-per-host", "2"], "3 ranks on 2 hosts"),
        (["job/train.py", "--stop-at", "fault", "--clock", "real"], "--stop-at is for the virtual clock"),
        (["job/train.py", "--stop-at", "fault", "--matrix", "ucx_retries"], "--stop-at is for one run"),
        (["job/train.py", "--metrics", "0", "--clock", "real"], "--metrics is for the virtual clock"),
        (["job/train.py", "--metrics", "0", "--matrix", "ucx_retries"], "--metrics is for one run"),
    ],
)
def test_wrong_input_is_2_and_no_machine_is_asked_for(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke(["train", *arguments]) == 2
    assert said in " ".join(capsys.readouterr().err.split())
    assert not Path("runs").exists()


def test_a_binary_is_no_script(capsys: pytest.CaptureFixture[str]) -> None:
    Path("job/train.py").write_bytes(b"\x7fELF\0\0")
    assert invoke(["train", "job/train.py"]) == 2
    assert "job/train.py: is not Python" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("launcher", "l", "no host 'launcher', on which mpirun runs"),
        ('["mgmt:e2", "b:mgmt0"]', '["mgmt:e2", "b:other0"]', "b has no address in"),
        ('["leaf:e2", "b:eth1"]', '["leaf:e2", "b:eth2"]', "a job needs at least two ranks"),
    ],
)
def test_a_topology_that_lacks_something_is_2(
    old: str, new: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("mine.clab.yml").write_text(MANAGED.replace(old, new))
    assert invoke(["train", "job/train.py", "--on", "mine.clab.yml"]) == 2
    assert f"error: mine.clab.yml: {said}" in capsys.readouterr().err


# What is run


def test_a_fabric_is_made_for_the_ranks(jobs_end: Ends) -> None:
    asked = jobs_end(job(rank(0)))
    assert invoke(["train", "job/train.py", "--ranks", "3", "--ranks-per-host", "2", "five", "--", "--steps", "9"]) == 0
    assert asked[0]["hosts"] == ["host1", "host1", "host2"]
    assert asked[0]["arguments"] == ["five", "--steps", "9"]


def test_every_host_of_a_topology_has_a_rank(jobs_end: Ends) -> None:
    asked = jobs_end(job(rank(0)))
    assert invoke(["train", "job/train.py", "--on", "mine.clab.yml"]) == 0
    assert (asked[0]["hosts"], asked[0]["nics"], asked[0]["management"]) == (["a", "b"], ["eth1", "eth1"], "mgmt0")


def test_ranks_of_a_host_take_its_nics_in_turn(jobs_end: Ends) -> None:
    rails = MANAGED.replace(
        "leaf: {kind: switch, vlans: {10: 10.0.10.1/24}}",
        "leaf: {kind: switch, vlans: {10: 10.0.10.1/24, 20: 10.0.20.1/24}}",
    ) + "".join(f'    - {{endpoints: ["leaf:{host}2", "{host}:eth2"], vlan: 20}}\n' for host in "ab")
    Path("rails.clab.yml").write_text(rails)
    devices = [f"{host}-eth{number}" for host in "ab" for number in (1, 2)]
    asked = jobs_end(job(*(rank(number, host=name[0], device=name) for number, name in enumerate(devices))))
    assert invoke(["train", "job/train.py", "--on", "rails.clab.yml", "--nics", "eth1,eth2"]) == 0
    assert (asked[0]["hosts"], asked[0]["nics"]) == (["a", "a", "b", "b"], ["eth1", "eth2", "eth1", "eth2"])


@pytest.mark.parametrize(
    ("text", "planned"),
    [
        (
            "link-down leaf:e1 after step 7 for 5s",
            {"parameters": {"end": "leaf:e1"}, "after_step": 7, "lasting_s": 5.0},
        ),
        (
            "link-loss for 1m end=leaf:e1 loss=5 after 200ms",
            {"parameters": {"end": "leaf:e1", "loss": "5"}, "after_s": 0.2, "lasting_s": 60.0},
        ),
        ("switch-reboot leaf", {"parameters": {"switch": "leaf"}}),
    ],
)
def test_a_fault_is_a_line(text: str, planned: dict[str, Any], jobs_end: Ends) -> None:
    asked = jobs_end(job(rank(0)))
    assert invoke(["train", "job/train.py", "--on", "mine.clab.yml", "--fault", text]) == 0
    assert asked[0]["faults"] == [{"name": text.split(maxsplit=1)[0], **planned}]


def test_the_script_s_files_and_the_topology_are_in_the_run(jobs_end: Ends) -> None:
    jobs_end(job(rank(0)))
    assert invoke(["train", "job/train.py"]) == 0
    copy = Path("runs/train/latest/scenario")
    assert {str(path.relative_to(copy)) for path in copy.rglob("*") if path.is_file()} == {
        "scenario.py",
        ".given/fabric.clab.yml",
        ".program/train.py",
        ".program/settings.json",
    }
    source = record.source_of(record.load(Path("runs/train/latest")), Path("runs/train/latest"))
    assert source.program == copy.parent / "scenario/.program/train.py"


def test_a_run_is_repeated_from_its_directory(jobs_end: Ends) -> None:
    asked = jobs_end(job(rank(0)), job(rank(0)))
    assert invoke(["train", "job/train.py", "--ranks", "2", "--", "--steps=9"]) == 0
    Path("job/train.py").unlink()
    assert invoke(["rerun", "runs/train/latest"]) == 0
    assert asked[0] == asked[1]


# What is shown


def test_the_ranks_are_shown(jobs_end: Ends, capsys: pytest.CaptureFixture[str]) -> None:
    slow = {"slowest_s": 3.3, "slowest_at_s": 4.0}
    done = job(rank(0, **slow, slowest_step=8), rank(1, **slow, slowest_step=9), fault_s=4.0)
    done["flows"] = {"leaf1:e3": 2, "spine1:e2": 2}
    jobs_end(done)
    assert invoke(["train", "job/train.py", "--ranks", "2"]) == 0
    out = capsys.readouterr().out
    assert "0     host1  12     1.50 s      50 ms   3.30 s   8      4.00 s  completed" in out
    assert "Every rank was slow in steps 8 to 9: 3.30 s to 3.30 s." in out
    assert "Flows between ranks by ports between switches: leaf1:e3 2, spine1:e2 2." in out
    assert "train: completed on 2 ranks · 7.50 s" in out


def test_a_job_that_dies_is_1_and_says_who_and_how_long_after(
    jobs_end: Ends, capsys: pytest.CaptureFixture[str]
) -> None:
    failure = "rank 1 on host2: RETRY_EXC_ERR: transport retry counter exceeded"
    ranks = rank(0, saw="ended with the job"), rank(1, saw="RETRY_EXC_ERR: transport retry counter exceeded")
    jobs_end(job(*ranks, failure=failure, fault_s=3.0))
    assert invoke(["train", "job/train.py", "--ranks", "2"]) == 1
    out = capsys.readouterr().out
    assert f"{failure}, 4.50 s after the fault." in out
    assert "did not complete on 2 ranks" in out


@pytest.mark.parametrize(
    ("end", "said"),
    [
        ("ValueError: environment variable RANK expected, but not set", "Ranks are started by mpirun"),
        ("RuntimeError: Distributed package doesn't have NCCL built in", "no GPU and no NCCL"),
        ("ModuleNotFoundError: No module named 'transformers'", "The image has PyTorch"),
    ],
)
def test_what_a_script_of_a_cluster_lacks_is_said(
    end: str, said: str, jobs_end: Ends, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs_end(job(rank(0, steps=0, slowest_s=None, median_s=None), failure=f"rank 0 on host1: {end}"))
    assert invoke(["train", "job/train.py"]) == 1
    assert said in capsys.readouterr().out


def test_hosts_without_the_data_network_have_no_rank(jobs_end: Ends) -> None:
    asked = jobs_end(job(rank(0)))
    more = MANAGED.replace("a: ,", "a: , stores: ,") + '    - {endpoints: ["leaf:e3", "stores:eth7"], vlan: 10}\n'
    Path("mine.clab.yml").write_text(more)
    assert invoke(["train", "job/train.py", "--on", "mine.clab.yml", "--ranks-per-host", "2", "--ranks", "3"]) == 0
    assert asked[0]["hosts"] == ["a", "a", "b"]


def test_a_fault_that_never_came_is_1(jobs_end: Ends, capsys: pytest.CaptureFixture[str]) -> None:
    jobs_end(job(rank(0, steps=0), missed=["fault link-down end=leaf1:e1 never came: because"]))
    assert invoke(["train", "job/train.py", "--fault", "link-down leaf1:e1 after step 7"]) == 1
    assert "never came: because" in capsys.readouterr().out


@pytest.mark.parametrize(
    "given", [["ucx_timeout=20ms,1s,ucx_retries=2"], ["ucx_timeout=20ms,1s", "ucx_retries=2"]], ids=["one", "two"]
)
def test_a_matrix_says_which_settings_survive(
    given: list[str], jobs_end: Ends, capsys: pytest.CaptureFixture[str]
) -> None:
    dead = job(rank(0), failure="rank 0 on host1: RETRY_EXC_ERR: transport retry counter exceeded")
    asked = jobs_end(dead, job(rank(0)))
    options = [word for text in given for word in ("--matrix", text)]
    assert invoke(["train", "job/train.py", "--jobs", "1", "--env", "UCX_A=b", *options]) == 0
    environments = [settings["environment"] for settings in asked]
    assert environments == [
        {"UCX_A": "b", "UCX_RC_VERBS_TIMEOUT": "20ms", "UCX_RC_VERBS_RETRY_COUNT": "2"},
        {"UCX_A": "b", "UCX_RC_VERBS_TIMEOUT": "1s", "UCX_RC_VERBS_RETRY_COUNT": "2"},
    ]
    out = capsys.readouterr().out
    assert "train: 1 of 2 runs survived" in out
    assert Path("runs/train/latest/ucx_timeout=1s,ucx_retries=2").is_dir()


def test_settings_without_values_have_some(jobs_end: Ends) -> None:
    asked = jobs_end(*[job(rank(0))] * 6)
    assert invoke(["train", "job/train.py", "--matrix", "ucx_timeout,ucx_retries"]) == 0
    assert len(asked) == 6


def test_a_matrix_in_which_a_fault_never_came_is_1(jobs_end: Ends) -> None:
    jobs_end(job(rank(0)), job(rank(0), missed=["fault link-down end=leaf1:e1 never came: because"]))
    assert invoke(["train", "job/train.py", "--matrix", "ucx_retries=2,6"]) == 1


def test_json_has_the_job_of_each_run(jobs_end: Ends, capsys: pytest.CaptureFixture[str]) -> None:
    row = job(rank(0))
    jobs_end(row)
    assert invoke(["train", "job/train.py", "--json"]) == 0
    [variant] = json.loads(capsys.readouterr().out)["variants"]
    assert variant["job"] == row
