"""A session of pytest inside a machine: limits in virtual time, the reports of each test, the files that go back.

The limits are no pytest-timeout: that ends the teardown of a lab as well, and the session only between two tests.
"""

import builtins
import contextlib
import io
import json
import math
import os
import shutil
import signal
import sys
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, Literal

import pytest

from testbed.errors import TestbedError
from testbed.protocol import Tested
from testbed.protocol.messages import Emit
from testbed.scenario.noninteractive import refuse_input

REPORTS, WRITTEN = "reports", "files"
"""Directories below a run's: reports that the user asked pytest for, and files that tests wrote by relative paths."""
REPORT_OPTIONS = {"xmlpath": "junitxml", "log_file": "log-file"}
"""The attributes in which pytest keeps the names of files that it is to write, and the options for them."""
SHORTEST_S = 1e-6
"""The shortest timer: one of 0 is none."""
OUTSIDE = "no:testbed"
"""The option that keeps out the plugin that sends tests to machines (cli/plugin.py): this very kernel may have it."""


class Terminal(io.TextIOBase):
    """Standard output of a session, shown to the user as it is written."""

    encoding = "utf-8"

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self.known_as: dict[str, str] = {}
        """Paths of this machine, and the user's names for them."""

    def write(self, text: str) -> int:
        shown = text
        for path, name in self.known_as.items():
            shown = shown.replace(path, name)
        self._emit({"write": shown})
        return len(text)


class Session:
    """A plugin of pytest. `files` is the directory of the user's tests, `out` receives what goes back; a limit is in
    seconds of this machine's clock, for the whole session or for each test that has no mark `limit`. With `tests`, node
    ids, those are run in that order, and pytest's reports of them are emitted. `options` are values for options that
    the user's conftest.py files define."""

    def __init__(
        self,
        files: Path,
        out: Path,
        emit: Emit,
        *,
        limit_s: float | None = None,
        test_limit_s: float | None = None,
        tests: Sequence[str] = (),
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self._files = files
        self._out = out
        self._emit = emit
        self.terminal = Terminal(emit)
        self._limit_s = limit_s
        self._test_limit_s = test_limit_s
        self._tests = tests
        self._options = options or {}
        self._deadline = math.inf if limit_s is None else time.monotonic() + limit_s
        self._test_limit = self._test_deadline = math.inf
        self._ended = 0
        self._phase: Literal["collection", "test", "teardown", "between", "end"] = "collection"
        self._session: pytest.Session | None = None
        self._running: pytest.Item | None = None
        self._exceeded = ""
        self._result: Tested | None = None
        self._known = dict(self._listing())

    def run(self, arguments: list[str]) -> int:
        """Run pytest; return its exit status."""
        ask = builtins.input
        refuse_input(self._files)
        builtins.input = ask  # it reads standard input, which a test may replace
        self._keyboard = sys.stdin
        signal.signal(signal.SIGALRM, self._over)
        self._arm()
        plugins = "no:cacheprovider", OUTSIDE, "testbed.scenario.lab_fixture"
        options = [*(f"-p{name}" for name in plugins), "--color=yes"]
        status = pytest.main([*options, f"--basetemp={self._out / 'tmp'}", *arguments], plugins=[self])
        self._keep_written()
        return int(status)

    # What pytest is to write, and where

    @pytest.hookimpl(tryfirst=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        for option, name in ("usepdb", "--pdb"), ("trace", "--trace"):
            if config.getoption(option):
                raise pytest.UsageError(f"{name} waits for a keyboard, but a machine has none: leave it out")
        for option, value in self._options.items():
            setattr(config.option, option, value)
        given = {"xmlpath": config.getoption("xmlpath")}
        given["log_file"] = config.getoption("log_file") or config.getini("log_file")
        for option, path in given.items():
            if path and path != os.devnull:
                self._redirect(config, option, path)

    def _redirect(self, config: pytest.Config, option: str, given: str) -> None:
        """Redirect a report to the run's directory: the user's path is not on this machine."""
        place = self._out / REPORTS / REPORT_OPTIONS[option] / Path(given).name
        place.parent.mkdir(parents=True)
        setattr(config.option, option, str(place))
        self.terminal.known_as[str(place)] = given
        self._emit({"report": {"file": str(place.relative_to(self._out)), "given": given}})

    def _listing(self) -> Iterator[tuple[str, tuple[int, int]]]:
        """Yield the files below the tests' directory, which is the working one, and what changes with contents."""
        directories = [str(self._files)]
        while directories:
            with contextlib.suppress(FileNotFoundError), os.scandir(directories.pop()) as entries:  # by a test
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False) and entry.name != "__pycache__":
                        directories.append(entry.path)
                    elif entry.is_file(follow_symlinks=False):
                        status = entry.stat(follow_symlinks=False)
                        yield entry.path, (status.st_mtime_ns, status.st_size)

    def _keep_written(self) -> None:
        """Copy the files that the tests wrote beside themselves since the last call."""
        for path, state in self._listing():
            if self._known.get(path) != state:
                self._known[path] = state
                kept = self._out / WRITTEN / Path(path).relative_to(self._files)
                kept.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, kept)

    @pytest.hookimpl(tryfirst=True)
    def pytest_make_collect_report(self) -> None:
        sys.stdin = self._keyboard  # pytest's own refuses too, but without the line, and suggests -s

    pytest_runtest_setup = pytest_runtest_call = pytest_make_collect_report

    # What is reported of each test

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._emit({"result": {**_unheard(report.nodeid), "outcome": "error", "text": report.longreprtext}})

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        if item.session.shouldfail:  # the session's limit came between two tests
            raise item.session.Failed(item.session.shouldfail)
        self._emit({"running": item.nodeid})
        self._result = _unheard(item.nodeid)
        begin = time.monotonic()
        self._running, self._exceeded, self._phase = item, "", "test"
        self._test_limit = self._limit_of(item)
        self._test_deadline = begin + self._test_limit
        self._arm()
        try:
            return (yield)
        finally:
            self._phase, self._running = "between", None
            self._ended += 1
            self._result["virtual_s"] = round(time.monotonic() - begin, 9)
            self._keep_written()
            self._emit({"result": self._result})

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        error = call.excinfo
        if self._exceeded and call.when == "call" and report.outcome == "passed":  # the test caught it
            report.outcome, report.longrepr = "failed", self._exceeded
        elif error and self._is_ours(error.value) and not item.config.getoption("fulltrace"):
            report.longrepr = self._shortened(item, error)
        directory = getattr(item, "funcargs", {}).get("tmp_path")
        if self._result and isinstance(directory, Path) and directory.is_relative_to(self._out):
            self._result["directory"] = str(directory.relative_to(self._out))
        return report

    def _is_ours(self, error: BaseException) -> bool:
        """Return whether its message is enough: then the lines of testbed's own code do not help a user."""
        return isinstance(error, TestbedError) or (isinstance(error, pytest.fail.Exception) and bool(self._exceeded))

    def _shortened(self, item: pytest.Item, error: pytest.ExceptionInfo[BaseException]) -> Any:
        """Return an error with the lines of the user's files that it came through."""

        def users(error: pytest.ExceptionInfo[BaseException]) -> Any:
            return error.traceback.filter(lambda entry: Path(entry.path).is_relative_to(self._files))

        if not users(error):
            return f"{item.nodeid}: {error.value}"
        style: Any = item.config.getoption("tbstyle")
        return error.getrepr(style="long" if style == "auto" else style, chain=False, tbfilter=users)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        assert self._result is not None, "a test is running"
        if self._tests and self._session:
            config = self._session.config
            plain = config.hook.pytest_report_to_serializable(config=config, report=report)
            self._emit({"reported": json.loads(json.dumps(plain, default=repr))})  # a property may be any object
        if report.failed:
            self._result["outcome"] = "failed" if report.when == "call" else "error"
            self._result["text"] += "\n".join([report.longreprtext, *(text for _, text in report.sections)])
        elif hasattr(report, "wasxfail"):
            self._result["outcome"] = "xfailed" if report.skipped else "xpassed"
        elif report.skipped:
            self._result["outcome"] = "skipped"
            self._result["text"] = report.longrepr[2] if isinstance(report.longrepr, tuple) else ""

    # Limits

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        self._session = session

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        if self._tests:
            found = {item.nodeid: item for item in items}
            items[:] = [found[test] for test in self._tests if test in found]

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        for item in session.items:
            self._limit_of(item)
        self._phase = "between"

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_teardown(self) -> None:
        """Start the teardown, which no limit cuts short."""
        self._phase, self._test_deadline = "teardown", math.inf
        self._arm()

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        self._phase = "end"

    def _limit_of(self, item: pytest.Item) -> float:
        mark = item.get_closest_marker("limit")
        if mark is None:
            return math.inf if self._test_limit_s is None else self._test_limit_s
        match mark.args:
            case (int() | float() as seconds,) if seconds > 0 and not mark.kwargs:
                return float(seconds)
        raise pytest.UsageError(f"{item.nodeid}: @pytest.mark.limit takes a number of seconds above 0")

    def _arm(self) -> None:
        left = min(self._deadline, self._test_deadline) - time.monotonic()
        signal.setitimer(signal.ITIMER_REAL, 0 if left == math.inf else max(left, SHORTEST_S))

    def _over(self, _: int, frame: FrameType | None) -> None:
        """Raise at a deadline. What may be ended ends here: this is called in the midst of it."""
        __tracebackhide__ = True
        of_session = self._deadline <= self._test_deadline
        if of_session:
            self._deadline = math.inf
            text = f"the session's limit of {self._limit_s:g} virtual seconds is over"
        else:
            text = f"its limit of {self._test_limit:g} virtual seconds is over"
        self._test_deadline = math.inf
        item, session = self._running, self._session
        if of_session and self._phase == "collection":
            pytest.exit(f"{text} while tests were collected", returncode=1)
        if of_session and session:
            at = f" in {item.nodeid}" if item else ""
            left = len(session.items) - self._ended - (item is not None)
            session.shouldfail = f"{text}{at}; not run: {left}"
        if item and self._phase == "test":
            self._exceeded = f"{item.nodeid}: {text}; it stood at {self._where(frame)}"
            pytest.fail(self._exceeded)

    def _where(self, frame: FrameType | None) -> str:
        while frame and not Path(frame.f_code.co_filename).is_relative_to(self._files):
            frame = frame.f_back
        if frame is None:
            return "its fixtures"
        path = Path(frame.f_code.co_filename).relative_to(self._files)
        return f"{path}:{frame.f_lineno} in {frame.f_code.co_name}"


def _unheard(test: str) -> Tested:
    """Return the result of a test with no report against it."""
    return {"test": test, "outcome": "passed", "virtual_s": 0.0, "directory": "", "text": ""}
