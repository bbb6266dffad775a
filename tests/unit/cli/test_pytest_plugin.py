"""pytest in a repository of the user's own: tests with a fixture of testbed's run in a machine, which is here a process
of this kernel, without a lab; all others run as ever."""

import json
import textwrap
from pathlib import Path
from xml.etree import ElementTree

import pytest

pytest_plugins = "pytester"
pytestmark = pytest.mark.long

CONFTEST = """
import pytest
from testbed.cli import options
from testbed.machine.local import LocalMachine

options.choose = lambda *_: LocalMachine()


def pytest_addoption(parser):
    parser.getgroup("mine").addoption("--slow", action="store_true")
    parser.addini("colour", "of my own")
"""
TESTS = """
import logging
import os
import sys
import pytest

OUTSIDE = not any("executor" in word for word in sys.orig_argv)


@pytest.fixture(scope="module")
def shared():
    yield OUTSIDE
    print("torn down")


def test_before(shared):
    assert OUTSIDE


@pytest.mark.parametrize("number", [1, 2])
def test_values(log, shared, number, record_property):
    record_property("mine", object)
    print(f"value {number}")
    assert not OUTSIDE
    assert {"a": number} == {"a": 1}


def test_caplog(log, caplog, request):
    logging.getLogger("mine").warning("a word")
    assert caplog.messages == ["a word"]
    assert request.config.getoption("--slow")
    assert request.config.getini("colour") == "blue"
    assert request.node.get_closest_marker("mine") is None


@pytest.mark.skip(reason="later")
def test_skipped(log): ...


@pytest.mark.xfail(reason="known")
def test_known(log):
    assert 0


def test_between():
    assert OUTSIDE


def test_last(log):
    assert not OUTSIDE
"""
INI = """
[pytest]
colour = blue
addopts = -n 0 --strict-markers -p no:cov -p no:hypothesispytest -p no:timeout
filterwarnings =
    error
"""
PASSED = {"passed": 5, "failed": 1, "skipped": 1, "xfailed": 1}


@pytest.fixture
def user(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    pytester.makeconftest(CONFTEST)
    pytester.makeini(INI)
    (pytester.path / "tests").mkdir()
    (pytester.path / "tests" / "test_mine.py").write_text(TESTS)
    return pytester


def run(user: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    return user.runpytest_subprocess("--slow", *arguments)


def write(user: pytest.Pytester, text: str) -> None:
    (user.path / "tests" / "test_mine.py").write_text(textwrap.dedent(text))


def test_a_session_is_one_of_plain_and_of_lab_tests(user: pytest.Pytester) -> None:
    result = run(user, "--junitxml=report.xml", "-rP")
    result.assert_outcomes(**PASSED)
    result.stdout.fnmatch_lines(["*Captured log call*", "WARNING *mine:test_mine.py:* a word"])
    result.stdout.fnmatch_lines(
        [
            "E       AssertionError: assert {'a': 2} == {'a': 1}",
            "tests/test_mine.py:*: AssertionError",
            "*Captured stdout call*",
            "value 2",
            "testbed: text, tests, files and reports of 2 machines: runs/pytest/* to runs/pytest/*",
        ]
    )
    cases = {case.get("name"): case for case in ElementTree.parse(user.path / "report.xml").iter("testcase")}  # noqa: S314
    properties = {one.get("name"): one.get("value") for one in cases["test_values[1]"].iter("property")}
    assert properties.keys() == {"mine", "virtual_s"}
    assert list(cases) == [
        "test_before",
        "test_values[1]",
        "test_values[2]",
        "test_caplog",
        "test_skipped",
        "test_known",
        "test_between",
        "test_last",
    ]
    assert cases["test_values[2]"].find("failure") is not None
    assert "torn down" not in result.stdout.str()


def test_selection_by_k_node_id_and_last_failed(user: pytest.Pytester) -> None:
    run(user, "tests/test_mine.py::test_values[2]", "tests/test_mine.py::test_before").assert_outcomes(
        passed=1, failed=1
    )
    run(user, "-k", "values", "--lf").assert_outcomes(failed=1)
    left = (user.path / "runs/pytest/latest/tests.jsonl").read_text().splitlines()
    assert [json.loads(line)["test"] for line in left] == ["tests/test_mine.py::test_values[2]"]


def test_workers(user: pytest.Pytester) -> None:
    write(user, "def test_a(log): ...\ndef test_b(log): assert 0\n")
    result = run(user, "-n", "2")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["testbed: text, tests, files and reports of 2 machines: *"])


def test_first_failure_ends_the_session(user: pytest.Pytester) -> None:
    result = run(user, "-x")
    result.assert_outcomes(passed=2, failed=1)
    left = (user.path / "runs/pytest/latest/tests.jsonl").read_text().splitlines()
    assert len(left) == 2


def test_collection_starts_no_machine(user: pytest.Pytester) -> None:
    result = run(user, "--collect-only", "-q", "--pdb")
    result.stdout.fnmatch_lines(["tests/test_mine.py::test_values[[]2]", "8 tests collected *"])
    run(user, "--fixtures").stdout.fnmatch_lines(["lab -- *", "*A running lab with the topology*"])
    assert not (user.path / "runs").exists()


@pytest.mark.parametrize("option", ["--pdb", "--trace"])
def test_a_debugger_is_refused_for_lab_tests(user: pytest.Pytester, option: str) -> None:
    result = run(user, option)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: {option} waits for a keyboard*test_values[[]1] and 4 more*testbed up*"])


def test_a_debugger_is_there_for_other_tests(user: pytest.Pytester) -> None:
    run(user, "--pdb", "-k", "before").assert_outcomes(passed=1)


def test_a_machine_that_ends_early_is_an_error_of_its_test(user: pytest.Pytester) -> None:
    write(
        user,
        """
        import os

        def test_a(log): ...
        def test_ends_it(log): os._exit(3)
        def test_goes_on(log): ...
    """,
    )
    result = run(user)
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(["*test_ends_it: *3*", "*1 tests had ended: *"])


def test_a_host_without_machines_is_one_error(user: pytest.Pytester) -> None:
    user.makeconftest("""
        from testbed.cli import options
        from testbed.errors import UnsupportedError

        def choose(*_):
            raise UnsupportedError("there is no QEMU here", hint="Install qemu-system-x86.")

        options.choose = choose
    """)
    user.makeini("")
    write(user, "def test_a(log): ...\ndef test_b(log): ...\ndef test_c(): ...\n")
    result = user.runpytest_subprocess()
    result.assert_outcomes(errors=2, passed=1)
    result.stdout.fnmatch_lines(
        ["there is no QEMU here", "  Install qemu-system-x86.", "not run: there is no QEMU here"]
    )


def test_a_file_that_fails_inside(user: pytest.Pytester) -> None:
    write(
        user,
        """
        import sys

        if any("executor" in word for word in sys.orig_argv):
            import nothing_of_this_name

        def test_a(log): ...
        def test_b(log): ...
    """,
    )
    result = run(user)
    result.assert_outcomes(errors=2)
    result.stdout.fnmatch_lines(["*could not collect this file:", "*No module named 'nothing_of_this_name'"])
    assert len(list((user.path / "runs/pytest").glob("2*"))) == 1


def test_a_limit_of_virtual_time(user: pytest.Pytester) -> None:
    write(user, "import time\n\ndef test_a(log): time.sleep(60)\n")
    result = run(user, "-o", "testbed_test_limit=0.2")
    result.stdout.fnmatch_lines(["*test_a: its limit of 0.2 virtual seconds is over; it stood at *test_mine.py:3*"])
    result = run(user, "-o", "testbed_test_limit=soon")
    result.stdout.fnmatch_lines(["*tox.ini: testbed_test_limit is not a number of seconds: soon"])


def test_a_fixture_that_nobody_foresaw(user: pytest.Pytester) -> None:
    write(user, "def test_a(request):\n    request.getfixturevalue('lab')\n")
    run(user).stdout.fnmatch_lines(["*test_a: `lab` exists only inside a machine. Name it among the arguments*"])


def test_fixtures_of_the_users_own(user: pytest.Pytester) -> None:
    """One that replaces ours needs no machine, one that extends it does."""
    write(
        user,
        """
        import sys
        import pytest

        INSIDE = any("executor" in word for word in sys.orig_argv)

        class TestOwn:
            @pytest.fixture
            def lab(self): return "mine"

            def test_it(self, lab): assert lab == "mine" and not INSIDE

        class TestMore:
            @pytest.fixture
            def log(self, log): return (log, 1)

            def test_it(self, log): assert log[1] == 1 and INSIDE
    """,
    )
    run(user).assert_outcomes(passed=2)


def test_files_beside_the_tests(user: pytest.Pytester) -> None:
    """What is below the paths for imports and in testbed_files goes along, and keeps its place below rootdir."""
    (user.path / "conftest.py").rename(user.path / "tests" / "conftest.py")
    for name, text in (("src/own.py", "A = 1"), ("data/a.txt", "b"), ("other/c.txt", "c")):
        (user.path / name).parent.mkdir()
        (user.path / name).write_text(text)
    user.makeini("[pytest]\npythonpath = src\ntestbed_files = data/a.txt\n")
    write(
        user,
        """
        import own
        from pathlib import Path

        def test_a(log):
            assert own.A == 1
            assert Path("data/a.txt").read_text() == "b"
            assert not Path("other").exists()
    """,
    )
    run(user).assert_outcomes(passed=1)


def test_a_session_without_lab_tests_imports_nothing(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import sys

        def test_it():
            ours = "testbed", "pydantic", "rich", "qemu", "click"
            found = {name for name in sys.modules if name.partition(".")[0] in ours}
            assert found == {"testbed", "testbed.cli", "testbed.cli.plugin"}
    """)
    result = pytester.runpytest_subprocess("-p", "no:hypothesispytest", "-p", "no:cov")
    result.assert_outcomes(passed=1)
    assert "testbed:" not in result.stdout.str()
    assert not (Path(pytester.path) / "runs").exists()
