"""README.txt of a run directory: a line for each kind of file that is there, for no other."""

from pathlib import Path

from testbed.records import run_readme


def lay(directory: Path, *names: str) -> None:
    for name in names:
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")


def explained(directory: Path) -> list[str]:
    """The first words of its lines."""
    run_readme.explain(directory, "What it left")
    return [line.split("  ")[0] for line in (directory / "README.txt").read_text().splitlines() if line]


def test_a_run_has_a_line_for_each_kind_of_file(tmp_path: Path) -> None:
    lay(tmp_path, "result.json", "scenario/scenario.py", "a/events.jsonl", "a/leaf-e1.pcap", "a/leaf-e2.pcap")
    lay(tmp_path, "b/events.jsonl", "b/traceback.txt", "b/leaf-e1.tcpdump.log", "b/server.log", "b/job/rank-0.log")
    assert explained(tmp_path) == [
        "What it left. docs/runs.md of testbed describes these files.",
        "result.json",
        "scenario/",
        "In the directory of each variant:",
        "events.jsonl",
        "*.pcap",
        "*.tcpdump.log",
        "traceback.txt",
        "job/",
        "*.log",
        "`testbed rerun` of this directory repeats the run; `testbed diff` compares it with another.",
    ]


def test_what_is_of_no_known_kind_is_named_as_others(tmp_path: Path) -> None:
    lay(tmp_path, "result.json", "a/events.jsonl", "a/values.csv", "a/mine/too.csv")
    assert [line for line in explained(tmp_path) if line in ("others", "values.csv", "mine/")] == ["others"]


def test_a_run_that_was_interrupted_is_explained_without_what_needs_its_result(tmp_path: Path) -> None:
    lay(tmp_path, "a/events.jsonl")
    assert explained(tmp_path)[1:] == ["In the directory of each variant:", "events.jsonl"]


def test_a_session_of_pytest_has_its_labs_below_tmp(tmp_path: Path) -> None:
    lay(tmp_path, "pytest.txt", "tests.jsonl", "reports/junitxml/r.xml", "tmp/test_lab0/counters.json")
    lay(tmp_path, "files/values.csv")
    (tmp_path / "tmp" / "test_labcurrent").symlink_to("../files")
    assert explained(tmp_path)[1:] == [
        "pytest.txt",
        "tests.jsonl",
        "reports/",
        "files/",
        "In tmp/, in the directory of each test:",
        "counters.json",
    ]


def test_writing_it_again_changes_nothing(tmp_path: Path) -> None:
    lay(tmp_path, "result.json", "a/events.jsonl")
    assert explained(tmp_path) == explained(tmp_path)


def test_empty_files_and_then_empty_directories_are_removed(tmp_path: Path) -> None:
    lay(tmp_path, "a/full.log")
    (tmp_path / "a" / "empty.log").touch()
    (tmp_path / "b" / "c").mkdir(parents=True)
    (tmp_path / "b" / "c" / "empty.log").touch()
    (tmp_path / "link").symlink_to("nowhere")
    run_readme.remove_empty(tmp_path)
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")) == ["a", "a/full.log", "link"]
