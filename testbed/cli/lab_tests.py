"""Tests of a session of pytest on the user's machine that run inside machines (cli/plugin.py).

Reports of pytest inside are repeated outside, as pytest-xdist does with the reports of its workers.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import inspect
import json
import sys
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import click
import pytest

from testbed.cli import options, output
from testbed.cli.summary import report_line
from testbed.errors import InputError, MachineError, TestbedError
from testbed.machine import layers, pytests, runs
from testbed.machine.jobs import Machine
from testbed.machine.pytests import SessionFiles, SessionRecorder
from testbed.protocol import EPOCH
from testbed.protocol.requests import Pytest

CONFIGURATION = "pytest.ini"
"""File that makes a directory inside pytest's rootdir, in place of the user's file, whose settings become options."""
INI = (
    "collect_imported_tests", "consider_namespace_packages", "empty_parameter_set_mark", "enable_assertion_pass_hook",
    "filterwarnings", "log_date_format", "log_format", "log_level", "markers", "python_classes", "python_files",
    "python_functions", "truncation_limit_chars", "truncation_limit_lines", "usefixtures", "verbosity_assertions",
    "xfail_strict",
)  # fmt: skip
"""Settings of pytest that count inside, where no plugin is. Others are for parts that stay outside."""
KNOWN = {"pytest", "testbed", *sys.stdlib_module_names}
"""Packages whose classes of warnings a filter inside may name."""

Phase = Literal["setup", "call", "teardown"]
NEXT: Mapping[Phase | None, Phase] = {None: "setup", "setup": "call", "call": "teardown", "teardown": "teardown"}


@dataclass(eq=False)
class Batch:
    """Tests that share a machine, by their node ids, and their reports so far."""

    out: Path
    reports: Mapping[str, deque[pytest.TestReport]]
    news: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[int] | None = None
    recorder: SessionRecorder | None = None

    async def begin(self, session: Coroutine[Any, Any, int]) -> None:
        self.task = asyncio.create_task(session)
        self.task.add_done_callback(lambda _: self.news.set())

    async def wait(self) -> None:
        """Wait until a report has come, or the machine is done."""
        await self.news.wait()
        self.news.clear()

    async def end(self) -> int:
        assert self.task
        return await self.task

    async def cancel(self) -> None:
        assert self.task
        self.task.cancel()
        await asyncio.wait([self.task])


class LabTests:
    """Runner of tests in machines. `together` returns the tests that share the machine of the first; `left` gets the
    run directories, each with a line on its report."""

    def __init__(
        self, session: pytest.Session, together: Callable[[pytest.Item], list[pytest.Item]], left: list[tuple[str, str]]
    ) -> None:
        self._session = session
        self._config = session.config
        self._together = together
        self._left = left
        self._runner = asyncio.Runner()
        self._machine: Machine | None = None
        self._broken: TestbedError | None = None
        """Reason why this machine can run none of the tests."""
        self._batch: Batch | None = None
        self._since = time.time()

    def run(self, item: pytest.Item, nextitem: pytest.Item | None) -> None:
        """Run a test's protocol: its reports are those from inside, or explain why there are none."""
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        self._since = time.time()
        phase: Phase | None = None
        try:
            for report in self._reports(item):
                phase = report.when
                item.ihook.pytest_runtest_logreport(report=report)
        except (TestbedError, OSError, click.ClickException, pytest.fail.Exception) as error:
            text = error.format_message() if isinstance(error, click.ClickException) else str(error)
            self._fail(item, NEXT[phase], text)
        self._leave(item, nextitem)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)

    def close(self) -> None:
        """End the session. A machine that stops at a failed test gets time for its files."""
        if self._batch and not self._session.shouldfail:
            self._runner.run(self._batch.cancel())
        with contextlib.suppress(TestbedError, OSError):  # its tests have their reports
            self._finish()
        self._runner.close()

    def _reports(self, item: pytest.Item) -> Iterator[pytest.TestReport]:
        if self._broken:
            raise TestbedError(f"not run: {self._broken.message}")
        batch = self._batch or self._begin(item)
        arrived = batch.reports[item.nodeid]
        virtual_s = 0.0
        while True:
            while arrived:
                report = arrived.popleft()
                virtual_s += report.duration
                report.start, report.stop, self._since = self._since, time.time(), time.time()
                report.duration = report.stop - report.start
                if report.when == "teardown":
                    report.user_properties.append(("virtual_s", round(virtual_s, 9)))
                yield report
                if report.when == "teardown":
                    if item.nodeid == list(batch.reports)[-1]:
                        self._finish()
                    return
            assert batch.task
            if batch.task.done():
                self._explain(item, batch)
            try:
                self._runner.run(batch.wait())
            except BaseException:  # another plugin's limit, or Ctrl-C
                self._runner.run(batch.cancel())
                with contextlib.suppress(TestbedError, OSError):
                    self._finish()
                raise

    def _explain(self, item: pytest.Item, batch: Batch) -> None:
        """Raise the reason why a test has no report though its machine is done."""
        assert batch.task
        if batch.task.cancelled() or batch.task.exception():
            self._finish()
        if item.nodeid == list(batch.reports)[-1]:
            self._finish()
        assert batch.recorder
        place = item.nodeid.partition("::")[0]
        for test in batch.recorder.tests:
            if test["outcome"] == "error" and test["test"] == place:
                raise InputError(f"pytest inside the machine could not collect this file:\n{test['text']}", where=place)
        raise MachineError(
            f"pytest inside the machine ended with status {batch.task.result()} and did not run this test",
            where=item.nodeid,
            hint=f"Its output is in {batch.out / pytests.TEXT}.",
        )

    def _fail(self, item: pytest.Item, phase: Phase, text: str) -> None:
        ends: list[tuple[Phase, Literal["passed", "failed"], str | None]] = [(phase, "failed", text)]
        if phase != "teardown":
            ends.append(("teardown", "passed", None))
        for when, outcome, why in ends:
            start, self._since = self._since, time.time()
            keywords: dict[str, Any] = dict.fromkeys(item.keywords, 1)
            report = pytest.TestReport(item.nodeid, item.location, keywords, outcome, why, when)
            report.start, report.stop, report.duration = start, self._since, self._since - start
            item.ihook.pytest_runtest_logreport(report=report)

    def _leave(self, item: pytest.Item, nextitem: pytest.Item | None) -> None:
        """Tear down the fixtures outside that tests before this one have set up and the next does not need."""
        state: Any = self._session._setupstate
        capture = self._config.pluginmanager.getplugin("capturemanager")
        with capture.item_capture("teardown", item) if capture else contextlib.nullcontext():
            call = pytest.CallInfo.from_call(lambda: state.teardown_exact(nextitem), when="teardown")
        if call.excinfo:
            report = item.ihook.pytest_runtest_makereport(item=item, call=call)
            item.ihook.pytest_runtest_logreport(report=report)

    def _begin(self, item: pytest.Item) -> Batch:
        config = self._config
        items = self._together(item)
        files = list(dict.fromkeys(item.path for item in items))
        try:
            asked, files_of_tests = self._request(items, files)
            machine = self._machine = self._machine or self._choose()
        except (TestbedError, click.ClickException) as error:
            self._broken = error if isinstance(error, TestbedError) else InputError(error.format_message())
            raise
        out = runs.run_directory(config.rootpath / config.getoption("testbed_out"), "pytest")
        batch = self._batch = Batch(out, {item.nodeid: deque() for item in items})
        batch.recorder = SessionRecorder(out, lambda _: None, lambda data: self._receive(batch, data))
        running = pytests.execute(
            asked,
            files_of_tests,
            batch.recorder,
            seed=config.getoption("testbed_seed"),
            training=config.getini("testbed_training"),
            machine=machine,
        )
        self._runner.run(batch.begin(running))
        return batch

    def _receive(self, batch: Batch, data: dict[str, Any]) -> None:
        """Receive a report from inside, where the user's code ran: it may be anything."""
        try:
            report = self._config.hook.pytest_report_from_serializable(config=self._config, data=data)
            batch.reports[report.nodeid].append(report)
            assert isinstance(report, pytest.TestReport)
            assert report.when in NEXT
            assert isinstance(report.duration, int | float)
            assert isinstance(report.user_properties, list)
        except Exception as error:
            raise MachineError(f"a report of a test is damaged: {str(data)[:80]}") from error
        report.user_properties = [(str(name), value) for name, value in report.user_properties]
        batch.news.set()

    def _finish(self) -> None:
        """End the machine that runs, and name its run directory. Raise the error that ended it."""
        batch, self._batch = self._batch, None
        if batch is None:
            return
        out, report = self._shown(batch.out), ""
        try:
            with contextlib.suppress(asyncio.CancelledError):
                self._runner.run(batch.end())
                if any(batch.out.glob(f"tmp/*/{EPOCH}")):
                    report = report_line(batch.out).replace(str(batch.out), str(out))
                    pytests.explain(batch.out)
        except TestbedError as error:
            if error.exit_status != 1:
                self._broken = error
            raise
        finally:
            self._left.append((str(out), report))

    def _shown(self, path: Path) -> Path:
        here = self._config.invocation_params.dir
        return path.relative_to(here) if path.is_relative_to(here) else path

    def _choose(self) -> Machine:
        get, packages = self._config.getoption, layers.names(self._config.getini("testbed_packages"))
        machine = options.choose(get("testbed_machine"), get("testbed_clock"), self._log)
        return self._runner.run(options.equip(machine, packages, self._config.getini("testbed_images")))

    def _log(self, text: str) -> None:
        if reporter := self._config.pluginmanager.getplugin("terminalreporter"):
            reporter.ensure_newline()
        output.log(text)

    def _request(self, items: Sequence[pytest.Item], files: Sequence[Path]) -> tuple[Pytest, SessionFiles]:
        config = self._config
        root = config.rootpath
        paths = [path for path in config.getini("pythonpath") if path.resolve().is_relative_to(root.resolve())]
        also = [str(path.relative_to(root)) for path in paths if path != root]
        files_of_tests = SessionFiles.of(root, files, [*also, *config.getini("testbed_files")])
        defined = Defined.of(config)
        contents = {**files_of_tests.contents, CONFIGURATION: b"[pytest]\n"}
        places = [str(path.relative_to(root)) for path in paths]
        names = list(dict.fromkeys(item.nodeid.partition("::")[0] for item in items))
        ini = {"pythonpath": places, **{name: self._ini(name) for name in (*INI, *defined.ini)}}
        ini["filterwarnings"] = [line for line in ini["filterwarnings"] if _known(line)]
        limit = config.getini("testbed_test_limit")
        try:
            test_limit_s = float(limit) if limit else None
        except ValueError:
            raise InputError(
                f"testbed_test_limit is not a number of seconds: {limit}", where=str(config.inipath)
            ) from None
        asked = Pytest(
            arguments=[
                *names,
                f"-c{CONFIGURATION}",
                "--rootdir=.",
                "--continue-on-collection-errors",
                *self._arguments(),
                *(f"-o{name}={_written(value)}" for name, value in ini.items() if value),
            ],
            tests=[item.nodeid for item in items],
            test_limit_s=test_limit_s,
            options=defined.options,
        )
        return asked, SessionFiles(files_of_tests.top, contents, files_of_tests.executable)

    def _ini(self, name: str) -> Any:
        try:
            return self._config.getini(name)
        except (KeyError, ValueError):  # this version of pytest has no such setting
            return None

    def _arguments(self) -> Iterator[str]:
        option = self._config.option
        reporter = self._config.pluginmanager.getplugin("terminalreporter")
        coloured = reporter is not None and reporter.hasmarkup
        yield f"--color={'yes' if coloured else 'no'}"
        yield f"--tb={option.tbstyle}"
        yield f"--import-mode={option.importmode}"
        yield f"--assert={option.assertmode}"
        yield from ["-v"] * option.verbose
        yield from (f"-W{line}" for line in option.pythonwarnings or () if _known(line))
        flags = {"--showlocals": option.showlocals, "--full-trace": option.fulltrace, "--runxfail": option.runxfail}
        yield from (word for word, asked in flags.items() if asked)
        if option.log_level:
            yield f"--log-level={option.log_level}"
        if option.maxfail:
            yield f"--maxfail={max(1, option.maxfail - self._session.testsfailed)}"


@dataclass
class Defined:
    """Definitions in the user's conftest.py files: options, with their values as far as these are plain data, and names
    of settings. It is a Parser and a group of its options, as far as pytest_addoption needs."""

    _option: Any
    options: dict[str, Any] = field(default_factory=dict)
    ini: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, config: pytest.Config) -> Defined:
        found = cls(config.option)
        given = {"parser": found, "pluginmanager": config.pluginmanager}
        for plugin in config.pluginmanager.get_plugins():
            define = getattr(plugin, "pytest_addoption", None)
            if define and Path(getattr(plugin, "__file__", None) or "").name == "conftest.py":
                define(**{name: given[name] for name in inspect.signature(define).parameters})
        return found

    def addoption(self, *names: str, **attributes: Any) -> None:
        name = argparse.ArgumentParser(add_help=False).add_argument(*names, **attributes).dest
        value = getattr(self._option, name)
        with contextlib.suppress(TypeError, ValueError):
            if json.loads(json.dumps(value)) == value:
                self.options[name] = value

    def addini(self, name: str, *_: Any, **__: Any) -> None:
        self.ini.append(name)

    def getgroup(self, *_: Any, **__: Any) -> Defined:
        return self


def _known(line: str) -> bool:
    """Return whether a filter of warnings names a class that exists inside."""
    category = [*line.split(":"), "", ""][2]
    return "." not in category or category.partition(".")[0] in KNOWN


def _written(value: Any) -> str:
    if isinstance(value, list | tuple):
        return "\n".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)
