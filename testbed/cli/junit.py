"""JUnit XML files, which CI servers show: a test suite for each scenario with a test case for each variant, or one
suite for a session of pytest with a case for each test.

The format is that of https://github.com/testmoapp/junitxml, which has properties of test cases as pytest writes them.
"""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from xml.etree import ElementTree

from testbed.cli import output
from testbed.errors import InputError, TestbedError
from testbed.machine import files
from testbed.machine.pytests import Ended
from testbed.machine.record import Identity, RunResult, VariantResult
from testbed.protocol import Clock

NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 cannot hold, not even escaped."""
OUTCOMES: Mapping[str, Literal["failure", "error", "skipped"]] = {
    "failed": "failure",
    "error": "error",
    "skipped": "skipped",
    "xfailed": "skipped",
}
"""Elements for the outcomes of tests; no element means passed."""


@dataclass(frozen=True)
class Case:
    """A test case. `outcome` is the element for its end, with `text`, whose first line is the message."""

    classname: str
    name: str
    wall_s: float
    properties: Mapping[str, Any]
    outcome: Literal["failure", "error", "skipped"] | None = None
    message: str = ""
    text: str = ""


@dataclass(frozen=True)
class Suite:
    name: str
    properties: Mapping[str, Any]
    cases: Sequence[Case]


def require_place(file: Path) -> None:
    """Make the directory of a report, and require that it can be written, before the runs rather than after."""
    with files.writing(file):
        file.parent.mkdir(parents=True, exist_ok=True)
    if not os.access(file if file.exists() else file.parent, os.W_OK):
        raise InputError("cannot be written: permission denied", where=str(file))


def write(results: Sequence[RunResult], file: Path) -> None:
    suites = []
    for result in results:
        made_from = identity(result.seed, result.clock, result.made_from, result.out)
        cases = [_of_variant(result.scenario, variant) for variant in result.variants]
        suites.append(Suite(result.scenario, {**made_from, "trace": result.trace}, cases))
    _write(suites, file)


def write_session(
    tests: Sequence[Ended], broken: TestbedError | None, made_from: Mapping[str, Any], file: Path
) -> None:
    """Write the tests of a session that ended; `made_from` is what `identity` returns, `broken` the error that ended it
    early, an error of its own."""
    cases = [_of_test(test) for test in tests]
    if broken:
        place, name = _parts(broken.where)
        cases.append(Case(place, name, 0.0, {}, "error", broken.message.partition("\n")[0], str(broken)))
    _write([Suite("pytest", made_from, cases)], file)


def identity(seed: int, clock: Clock, identity: Identity, out: Path) -> dict[str, Any]:
    made_from = {name: getattr(identity, name) for name in ("machine", "image", "qemu", "testbed", "code")}
    return {"seed": seed, "clock": clock, **made_from, "out": out}


def _of_variant(scenario: str, variant: VariantResult) -> Case:
    """Make the case of a variant; one without an observation is an error."""
    evidence = {f"evidence.{name}": value for name, value in variant.evidence.items()}
    properties = {
        **{name: getattr(variant, name) for name in ("trace", "virtual_s", "expected", "observed")},
        **evidence,
    }
    if variant.as_expected:
        return Case(scenario, variant.name, variant.wall_s, properties)
    message = (variant.failures[0] if variant.failures else "it is not as expected").partition("\n")[0]
    outcome: Literal["error", "failure"] = "error" if variant.observed is None else "failure"
    return Case(scenario, variant.name, variant.wall_s, properties, outcome, message, "\n".join(variant.failures))


def _of_test(test: Ended) -> Case:
    """Make the case of a test. The message is pytest's first line on the error itself, which begins with an E."""
    text = test["text"]
    lines = [line.removeprefix("E").strip() for line in text.splitlines() if line.startswith("E ")]
    message = (lines or text.splitlines() or [test["outcome"]])[0]
    properties = {"virtual_s": test["virtual_s"], "directory": test["directory"] or None}
    outcome = OUTCOMES.get(test["outcome"])
    return Case(*_parts(test["test"]), test["wall_s"], properties, outcome, message, text)


def _parts(test: str) -> tuple[str, str]:
    """Return a test's class and name, as pytest writes them: ``tests/test_a.py::TestB::test_c`` is
    ``tests.test_a.TestB`` and ``test_c``."""
    plain, bracket, parameters = test.partition("[")
    path, *inner = plain.split("::")
    place = path.removesuffix(".py").replace("/", ".")
    if not inner:
        return "", test
    return ".".join([place, *inner[:-1]]), inner[-1] + bracket + parameters


def _write(suites: Sequence[Suite], file: Path) -> None:
    root = ElementTree.Element("testsuites", _counts(case for suite in suites for case in suite.cases))
    for suite in suites:
        found = _add(root, "testsuite", name=suite.name, **_counts(suite.cases))
        _add_properties(found, suite.properties)
        for case in suite.cases:
            one = _add(found, "testcase", classname=case.classname, name=case.name, time=f"{case.wall_s:.3f}")
            _add_properties(one, case.properties)
            if case.outcome:
                _add(one, case.outcome, message=case.message).text = _legal(case.text)
    ElementTree.indent(root)
    text = ElementTree.tostring(root, encoding="us-ascii", xml_declaration=True).decode()
    output.give(text + "\n", file, over=True)


def _counts(cases: Iterable[Case]) -> dict[str, str]:
    found = list(cases)
    outcomes = [case.outcome for case in found]
    return {
        "tests": str(len(found)),
        "failures": str(outcomes.count("failure")),
        "errors": str(outcomes.count("error")),
        "skipped": str(outcomes.count("skipped")),
        "time": f"{sum(case.wall_s for case in found):.3f}",
    }


def _add(parent: ElementTree.Element, tag: str, /, **attributes: str) -> ElementTree.Element:
    return ElementTree.SubElement(parent, tag, {key: _legal(value) for key, value in attributes.items()})


def _add_properties(parent: ElementTree.Element, values: Mapping[str, Any]) -> None:
    properties = _add(parent, "properties")
    for name, value in values.items():
        if value is not None:
            _add(properties, "property", name=name, value=str(value))


def _legal(text: str) -> str:
    return NO_XML.sub("\N{REPLACEMENT CHARACTER}", text)
