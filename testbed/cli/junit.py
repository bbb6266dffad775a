"""Runs as a JUnit XML file, which CI servers show: a test suite for each scenario, a test case for each variant.

The format is that of https://github.com/testmoapp/junitxml, which has properties of test cases as pytest writes them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from testbed.cli import output
from testbed.errors import InputError
from testbed.machine.record import RunResult, VariantResult

NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 cannot hold, not even escaped."""


def require_place(file: Path) -> None:
    """Make the directory of a report, before the runs rather than after."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot be made: {error.strerror}", where=str(file.parent)) from None


def write(results: Sequence[RunResult], file: Path) -> None:
    root = ElementTree.Element("testsuites", _counts([one for result in results for one in result.variants]))
    for result in results:
        _add_suite(root, result)
    ElementTree.indent(root)
    text = ElementTree.tostring(root, encoding="us-ascii", xml_declaration=True).decode()
    output.give(text + "\n", file, over=True)


def _add_suite(root: ElementTree.Element, result: RunResult) -> None:
    suite = _add(root, "testsuite", name=result.scenario, **_counts(result.variants))
    identity = result.made_from
    _add_properties(suite, {
        "seed": result.seed, "clock": result.clock, "machine": identity.machine,
        "image": identity.image, "qemu": identity.qemu, "testbed": identity.testbed, "code": identity.code,
        "trace": result.trace, "out": result.out,
    })  # fmt: skip
    for variant in result.variants:
        case = _add(suite, "testcase", classname=result.scenario, name=variant.name, time=f"{variant.wall_s:.3f}")
        _add_properties(case, {
            "trace": variant.trace, "virtual_s": variant.virtual_s, "expected": variant.expected,
            "observed": variant.observed, **{f"evidence.{name}": value for name, value in variant.evidence.items()},
        })  # fmt: skip
        if not variant.as_expected:
            first = variant.failures[0] if variant.failures else "it is not as expected"
            kind = "error" if variant.observed is None else "failure"
            _add(case, kind, message=first.partition("\n")[0]).text = _legal("\n".join(variant.failures))


def _counts(variants: Sequence[VariantResult]) -> dict[str, str]:
    """A variant that came to no observation is an error."""
    wrong = [variant for variant in variants if not variant.as_expected]
    errors = sum(variant.observed is None for variant in wrong)
    seconds = sum(variant.wall_s for variant in variants)
    return {
        "tests": str(len(variants)), "failures": str(len(wrong) - errors), "errors": str(errors),
        "time": f"{seconds:.3f}",
    }  # fmt: skip


def _add(parent: ElementTree.Element, tag: str, /, **attributes: str) -> ElementTree.Element:
    return ElementTree.SubElement(parent, tag, {key: _legal(value) for key, value in attributes.items()})


def _add_properties(parent: ElementTree.Element, values: Mapping[str, Any]) -> None:
    properties = _add(parent, "properties")
    for name, value in values.items():
        if value is not None:
            _add(properties, "property", name=name, value=str(value))


def _legal(text: str) -> str:
    return NO_XML.sub("\N{REPLACEMENT CHARACTER}", text)
