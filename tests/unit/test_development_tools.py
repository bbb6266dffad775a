"""What `make quick`, `make lint` and `make release` are made of (tests/ci)."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from ci import catalogue, check_types, mutants, release, touched

CHANGELOG = """\
# Changelog

## [Unreleased]

## [1.1.0] - 2027-01-31

### Added

- a thing

## [1.0.0] - 2027-01-01

- [a link](https://example.com)

[1.1.0]: https://example.com/compare
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "1.1.0"\n')
    (tmp_path / "CHANGELOG.md").write_text(CHANGELOG)
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
    for words in (["init", "-q"], ["add", "."], [*identity, "commit", "-qm", "all"]):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    return tmp_path


def test_a_release_has_the_notes_of_its_version_only(checkout: Path) -> None:
    assert release.version_of(checkout) == "1.1.0"
    assert release.notes(checkout, "1.1.0") == "### Added\n\n- a thing"
    assert release.notes(checkout, "1.0.0") == "- [a link](https://example.com)"
    assert list(release.obstacles(checkout, "1.1.0")) == []


def test_a_changed_tree_a_missing_section_and_a_tag_stand_against_a_release(checkout: Path) -> None:
    (checkout / "new").touch()
    subprocess.run(["git", "tag", "v1.2.0"], cwd=checkout, check=True)
    tree, section, tag = release.obstacles(checkout, "1.2.0")
    assert tree.endswith("\n?? new")
    assert "no section `## [1.2.0] - YYYY-MM-DD`" in section
    assert "the tag v1.2.0 is there already" in tag


def test_checksums_are_as_sha256sum_reads_them(tmp_path: Path) -> None:
    (tmp_path / "b").write_bytes(b"")
    (tmp_path / "a").write_bytes(b"abc")
    lines = release.checksums(tmp_path)
    assert [line.split()[1] for line in lines.splitlines()] == ["a", "b"]
    subprocess.run(["sha256sum", "--check", "--strict", "--quiet"], input=lines, cwd=tmp_path, text=True, check=True)


def test_the_version_that_is_released_has_its_section() -> None:
    assert release.notes(release.TOP, release.version_of(release.TOP))


def test_tests_are_found_by_imports_and_the_nearest_come_first() -> None:
    graph = {
        "a.py": ["b.py", "tests/unit/test_errors.py"],
        "b.py": ["a.py", "tests/unit/test_lazy_names.py", "tests/unit/helper.py"],
        "c.py": ["tests/unit/test_set_up.py"],
    }
    assert touched.nearest(["a.py"], graph) == ["tests/unit/test_errors.py", "tests/unit/test_lazy_names.py"]
    assert touched.nearest(["tests/unit/test_gone.py"], graph) == []


def test_a_conftest_is_for_the_tests_below_it() -> None:
    found = touched.nearest(["tests/unit/report/diagnosis/conftest.py"], {})
    assert "tests/unit/report/diagnosis/test_diagnosis.py" in found
    assert {Path(test).parent.name for test in found} == {"diagnosis"}


def test_the_tests_of_a_module_and_of_a_file_beside_it_are_found() -> None:
    graph = touched.dependents()
    assert (
        touched.nearest(["testbed/switch/fdb.py"], graph).index("tests/unit/switch/test_move_guard.py") < touched.MOST
    )
    assert "testbed/switch/profile.py" in touched.mentioning("testbed/switch/profiles.yml")


def test_scenarios_and_what_they_import_are_modules_of_different_names(tmp_path: Path) -> None:
    for name in ("one-thing/scenario.py", "one-thing/parts.py", "two/scenario.py", "two/parts.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "two/again.py").symlink_to(tmp_path / "one-thing/parts.py")
    assert {name: str(file.relative_to(tmp_path)) for name, file in check_types.modules(tmp_path).items()} == {
        "one_thing_scenario": "one-thing/scenario.py",
        "parts": "one-thing/parts.py",
        "two_parts": "two/parts.py",
        "two_scenario": "two/scenario.py",
    }


def test_functions_have_the_names_of_their_mutants(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mutants, "TOP", tmp_path)
    (tmp_path / "p").mkdir()
    text = "def f(): ...\nclass C:\n    def m(self): ...\n    @property\n    def p(self): ...\n"
    (tmp_path / "p/__init__.py").write_text(text)
    (tmp_path / "p/m.py").write_text(text)
    assert mutants.functions("p") == ["p.x_f", "p.xǁCǁm", "p.m.x_f", "p.m.xǁCǁm"]


@pytest.mark.parametrize(
    ("minutes", "runs", "left"),
    [(60, [["c", "a"], ["b"]], ""), (15, [["c", "a"]], "b"), (-1, [["c", "a"]], "b")],
    ids=["time for all", "none for the last", "none at all"],
)
def test_the_catalogue_is_run_as_far_as_the_time_allows_and_the_rest_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], minutes: int, runs: list[list[str]], left: str
) -> None:
    now, done = 0.0, []

    def run(words: tuple[str, ...]) -> tuple[int, list[str]]:
        nonlocal now
        now += 600
        done.append([*words[4:]])
        return int("b" in words), ["✗ b as-is: fault, expected: healthy\n"] if "b" in words else []

    monkeypatch.setattr(catalogue, "shipped", lambda: [SimpleNamespace(name=name) for name in "abc"])
    monkeypatch.setattr(catalogue, "TOGETHER", 2)
    monkeypatch.setattr(catalogue, "run", run)
    monkeypatch.setattr(catalogue.subprocess, "run", lambda words, **_: subprocess.CompletedProcess(words, 0, "5\n"))
    monkeypatch.setattr(catalogue.time, "time", lambda: now)
    assert catalogue.main(minutes * 60) == int(["b"] in runs)
    assert done == runs
    wrong = "\nnot as expected:\n✗ b as-is: fault, expected: healthy\n" if ["b"] in runs else ""
    assert capsys.readouterr().out == wrong + (f"not run, because there was no time left: {left}\n" if left else "")


PRINTED = """\
b as-is: starts, expected: healthy
a as-is: starts, expected: healthy
b as-is: 0:00:01 users see: fault
✗ b as-is: fault, expected: healthy   1 s virtual, 1 s wall
✓ a as-is: healthy, as expected   1 s virtual, 1 s wall
b
✗ as-is   healthy   fault
"""


@pytest.mark.parametrize(
    ("printed", "status", "wrong"),
    [
        (PRINTED, 0, []),
        (PRINTED, 1, [line for line in PRINTED.splitlines() if "b as-is" in line]),
        ("a as-is: starts\nTraceback\n", 1, ["a as-is: starts", "Traceback"]),
    ],
    ids=["as expected", "a wrong variant", "an end without a verdict"],
)
def test_what_was_wrong_of_the_catalogue_is_kept(printed: str, status: int, wrong: list[str]) -> None:
    program = f"import sys; sys.stdout.write({printed!r}); sys.exit({status})"
    code, lines = catalogue.run([sys.executable, "-c", program])
    assert (code, "".join(lines).splitlines()) == (status, wrong)
