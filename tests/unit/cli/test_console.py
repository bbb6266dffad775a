"""What people read: the report at the end of a run, and the lines of a log while it goes on."""

import io
import re
import unicodedata
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from testbed.cli import console, scenario_list, summary
from testbed.cli.console import RunConsole
from testbed.cli.main import invoke
from testbed.cli.progress import PlainConsole, phase_lines, terminal
from testbed.machine import scenarios
from testbed.machine.record import RunResult, VariantResult
from testbed.machine.runs import VariantRun
from testbed.protocol import Event

HOSTILE = "\x1b[2J\x1b]0;owned\x07\x9b31mred\r\b\u202e"
"""Clears the screen, sets the title, rings, colours by C1, overwrites the line, turns the writing direction."""
GARP = VariantRun(
    "tiny", "garp", {"name": "garp", "expected": "healthy", "text": "pod B announces itself", "settings": {}}
)


class QuietLive:
    """A live display that draws nothing."""

    def stop(self) -> None: ...


class Log(io.StringIO):
    """A console's file that is no terminal."""

    def text(self) -> str:
        return self.getvalue()


def log_console(log: Log, width: int = 80, **options: Any) -> Console:
    return PlainConsole(file=log, width=width, **options)


def reported(result: RunResult, width: int) -> str:
    log = Log()
    summary.report(log_console(log, width), [result], 3.5)
    return log.text()


def commands(text: str) -> list[str]:
    """What a terminal would obey rather than show."""
    return [c for c in text if c != "\n" and unicodedata.category(c) in ("Cc", "Cf")]


def event(kind: str, text: str, t: int = 0, node: str = "", **data: Any) -> Event:
    return {"t": t, "kind": kind, "node": node, "text": text, "data": data}


def told(*events: Event) -> list[str]:
    """The lines a log has of these events."""
    log = Log()
    with RunConsole(log_console(log), [GARP]) as shown:
        shown.started(GARP)
        for one in events:
            shown.event(GARP, one)
    return log.text().splitlines()[1:]


@pytest.mark.parametrize("width", [80, 120])
def test_a_report_fits_its_screen_and_has_no_control_characters(
    result_of: Callable[..., RunResult], good: VariantResult, bad: VariantResult, width: int
) -> None:
    log = Log()
    summary.report(log_console(log, width), [result_of(good, bad)], 3.5)
    assert max(map(len, log.text().splitlines())) <= width
    assert commands(log.text()) == []


@pytest.mark.parametrize("width", [80, 120])
def test_no_line_of_a_log_ends_in_spaces_and_what_is_wrapped_stays_indented(
    result_of: Callable[..., RunResult], good: VariantResult, bad: VariantResult, width: int
) -> None:
    long = replace(bad, failures=["word " * 40])
    lines = reported(result_of(good, long), width).splitlines()
    assert [line for line in lines if line != line.rstrip()] == []
    assert len([line for line in lines if line.startswith("  word")]) == 200 // (width - 2) + 1


@pytest.mark.parametrize("width", [80, 120])
def test_a_report_has_verdict_failures_evidence_and_place(
    result_of: Callable[..., RunResult], good: VariantResult, bad: VariantResult, width: int
) -> None:
    text = reported(result_of(good, bad), width)
    words = " ".join(text.split())
    assert "✓ good healthy healthy" in words
    assert "✗ bad healthy fault" in words
    assert "completion RETRY_EXC_ERR, switch arp pod A's MAC" in words
    assert "25 min 03 s" in words
    assert "bad is not as expected:\n  users saw fault where healthy was expected\n  the first line\n  and the" in text
    assert "good is not as expected" not in text
    assert "tiny: unexpected · 2 variants · 3.50 s · seed 7 · trace " in words
    assert text.splitlines()[-1] == "runs/tiny/1/report.html"


def test_evidence_has_a_column_where_there_is_room_and_lines_of_its_own_where_not(
    result_of: Callable[..., RunResult], good: VariantResult
) -> None:
    narrow, wide = (reported(result_of(good), width) for width in (80, 120))
    header = next(line for line in wide.splitlines() if "observed" in line)
    assert header.split() == ["variant", "expected", "observed", "evidence", "virtual", "time", "wall", "time"]
    assert "good: completion SUCCESS" in narrow
    assert "evidence" not in narrow


def test_a_warning_is_shown_and_changes_no_verdict(result_of: Callable[..., RunResult], good: VariantResult) -> None:
    text = reported(result_of(replace(good, warnings=["a: nc ended with status 1"])), 80)
    assert "good: to be looked at\n  a: nc ended with status 1\n" in text
    assert "tiny: as expected · 1 variant · " in text


def test_a_report_of_one_variant_as_expected_has_no_failures(
    result_of: Callable[..., RunResult], good: VariantResult
) -> None:
    text = reported(result_of(good), 80)
    assert "not as expected" not in text
    assert "tiny: as expected · 1 variant · " in text


def test_a_variant_that_observed_nothing_is_shown_so(result_of: Callable[..., RunResult], bad: VariantResult) -> None:
    assert "healthy   nothing" in reported(result_of(replace(bad, observed=None)), 120)


def test_long_paths_are_not_broken(result_of: Callable[..., RunResult], good: VariantResult) -> None:
    place = Path("/a" * 100)
    assert reported(replace(result_of(good), out=place), 80).splitlines()[-1] == f"{place}/report.html"


def test_names_of_a_user_s_directories_cannot_command_the_terminal(
    result_of: Callable[..., RunResult], good: VariantResult
) -> None:
    text = reported(replace(result_of(good), scenario=f"tiny{HOSTILE}", out=Path(f"runs/{HOSTILE}")), 120)
    assert commands(text) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, "✗ bad: fault, expected: healthy   85 ms virtual, 1.00 s wall"),
        ({"observed": None}, "✗ bad: no observation, expected: healthy"),
        ({"observed": "healthy"}, "✗ bad: healthy, and an expectation did not hold"),
        ({"observed": "healthy", "failures": []}, "✓ bad: healthy, as expected"),
    ],
)
def test_the_line_at_a_variant_s_end_says_why(bad: VariantResult, change: dict[str, Any], said: str) -> None:
    assert console.result_line(replace(bad, **change), "bad").plain.startswith(said)


def test_a_log_has_steps_observations_and_what_did_not_hold() -> None:
    lines = told(
        event("step", "pod A is deleted", t=1_240_000_000),
        event("arp.learned", "10.0.20.100 is at 02:00", t=2_000_000_000, node="leaf"),
        event("expect", "it holds", t=3_000_000_000, met=True, actual=1),
        event("expect", "it does not hold", t=3_000_000_000, met=False, actual=0),
        event("observed", "the client waits", t=61_000_000_000, observed="fault"),
        event("verdict", "unexpected", t=61_000_000_000),
    )
    assert lines == [
        "garp: 0:00:01.240 pod A is deleted",
        "garp: 0:00:03.000 ✗ it does not hold",
        "garp: 0:01:01.000 users see: fault. the client waits",
    ]


def test_a_log_says_how_a_variant_begins_and_ends(good: VariantResult) -> None:
    log = Log()
    with RunConsole(log_console(log), [GARP]) as shown:
        shown.log("start the machine for the first time")
        shown.started(GARP)
        shown.finished(GARP, replace(good, name="garp"))
    assert log.text().splitlines() == [
        "… start the machine for the first time",
        "garp: starts, expected: healthy",
        "✓ garp: healthy, as expected   25 min 03 s virtual, 2.50 s wall",
    ]


def test_the_variants_of_several_scenarios_have_their_scenario_s_name(good: VariantResult) -> None:
    log = Log()
    again, other = replace(GARP), replace(GARP, scenario="other")
    with RunConsole(log_console(log), [GARP, again, other]) as shown:
        for variant_run in (GARP, again, other):
            shown.started(variant_run)
        for variant_run in (GARP, again, other):
            shown.event(variant_run, event("step", "begin"))
            shown.finished(variant_run, replace(good, name="garp"))
    lines = log.text().splitlines()
    assert lines[2] == "other garp: starts, expected: healthy"
    assert lines[-2] == "other garp: 0:00:00.000 begin"
    assert lines[-1].startswith("✓ other garp: healthy, as expected")


@pytest.mark.parametrize("width", [80, 120])
def test_several_scenarios_have_one_table(
    result_of: Callable[..., RunResult], good: VariantResult, bad: VariantResult, width: int
) -> None:
    log = Log()
    first, second = result_of(good), replace(result_of(good, bad), scenario="other", out=Path("runs/other/1"))
    summary.report(log_console(log, width), [first, second], 61.0)
    lines = log.text().splitlines()
    assert sum("observed" in line for line in lines) == 1
    assert [line.split()[0] for line in lines if line.startswith(("tiny", "other"))][:2] == ["tiny", "other"]
    assert "other bad is not as expected:" in lines
    assert lines[-3] == "2 scenarios: unexpected · 3 variants · 1 min 01 s · seed 7"
    assert lines[-2:] == ["runs/other/1/report.html", "runs/index.html"]
    assert "runs/tiny/1" not in log.text()
    assert max(map(len, lines)) <= width


def test_a_log_s_lines_are_not_broken_at_a_width_nobody_chose() -> None:
    (line,) = told(event("step", "word " * 100))
    assert len(line) > 400


def test_a_forced_colour_makes_no_terminal_of_a_file() -> None:
    assert not terminal(log_console(Log(), force_terminal=True))


@pytest.mark.parametrize("kind", ["step", "observed", "expect"])
def test_text_from_a_guest_cannot_command_the_terminal(kind: str) -> None:
    (line,) = told(event(kind, f"{HOSTILE}the text", met=False, actual=0, observed="fault"))
    assert commands(line) == []
    assert line.endswith("the text")


def test_live_lines_show_node_and_text_of_a_guest_harmlessly() -> None:
    line = console.event_line(event("arp.learned", f"text{HOSTILE}", t=4 * 3600 * 10**9, node=f"leaf{HOSTILE}"))
    assert commands(line.plain) == []
    assert line.plain.startswith(" 4:00:00.000  leaf")


@pytest.mark.parametrize("width", [80, 120])
def test_evidence_and_failures_of_a_guest_cannot_command_the_terminal(
    result_of: Callable[..., RunResult], bad: VariantResult, width: int
) -> None:
    poisoned = replace(bad, evidence={f"key{HOSTILE}": f"value{HOSTILE}"}, failures=[f"why{HOSTILE}\nline{HOSTILE}"])
    text = reported(result_of(poisoned), width)
    assert commands(text) == []
    assert all(word in text for word in ("key", "value", "why", "line"))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 10**400, [[]], None, {"a": 1}])
def test_evidence_of_a_guest_may_be_anything(
    result_of: Callable[..., RunResult], bad: VariantResult, value: object
) -> None:
    evidence = {"aged_after_s": value, "completion": value}
    assert "aged after" in reported(result_of(replace(bad, evidence=evidence)), 120)
    assert console.event_line(event("evidence", "", **evidence)).plain


@pytest.mark.parametrize("observed", [HOSTILE, ["fault"], None])
def test_what_a_guest_says_users_see_may_be_anything(observed: object) -> None:
    (line,) = told(event("observed", "the text", observed=observed))
    assert commands(line) == []
    assert line.endswith("the text")


def test_rich_markup_in_a_guest_s_text_is_text(result_of: Callable[..., RunResult], bad: VariantResult) -> None:
    poisoned = replace(bad, evidence={"status": "[red]x[/red] :smile:"}, failures=["[link=http://x]y[/link]"])
    text = reported(result_of(poisoned), 120)
    assert "[red]x[/red] :smile:" in text
    assert "[link=http://x]y[/link]" in text
    assert "[bold]z[/bold]" in told(event("step", "[bold]z[/bold]"))[0]


def test_what_a_scenario_says_of_itself_is_shown_as_text_and_cannot_command_the_terminal(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = f"{HOSTILE}[red]"
    directory = tiny.rename(tiny.parent / f"mine{bad}")
    (directory / "scenario.py").write_text(f"""
from pydantic import Field
from testbed import Parameters, Scenario, Variant
class Size(Parameters):
    size: str = Field({f"default {bad}"!r}, description={f"description {bad}"!r})
class Hostile(Scenario):
    __doc__ = {f"story {bad}"!r}
    title = {f"title {bad}"!r}
    tags = ({f"tag {bad}"!r},)
    variants = (Variant("only", "fault", {f"variant {bad}"!r}),)
    parameters = Size
    def run(self, run, parameters): ...
""")
    source = scenarios.resolve(str(directory))
    monkeypatch.setattr(scenarios, "shipped", lambda: [source])
    monkeypatch.setenv("COLUMNS", "200")
    assert invoke(["list"]) == invoke(["describe", str(directory)]) == 0
    said = capsys.readouterr().out
    assert commands(said) == []
    assert all(f"{word} " in said for word in ("default", "description", "story", "title", "tag", "variant"))
    assert said.count("[red]") == 11


def test_a_table_in_a_docstring_keeps_its_lines() -> None:
    log = Log()
    scenario_list.paragraphs(log_console(log), "Words\nto fill.\n\n    a  b\n    1  2\n\nMore.")
    assert log.text() == "Words to fill.\n\n    a  b\n    1  2\n\nMore.\n\n"


def test_a_live_variant_keeps_its_last_events_and_the_latest_time() -> None:
    running = console.Running("garp")
    for number in range(20):
        running.add(event("arp.learned", f"event {number}", t=number * 10**9))
    running.add(event("completion", "reported late", t=17 * 10**9 + 1))
    assert [one["text"] for one in running.tail[-3:]] == ["reported late", "event 18", "event 19"]
    assert len(running.tail) == console.TAIL
    assert running.now == 19 * 10**9


class Screen(Log):
    """A terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("log", [Log(), Screen()], ids=["log", "terminal"])
def test_events_are_printed_when_no_earlier_one_can_come(log: Log, good: VariantResult) -> None:
    """What a switch did comes later than the step in which it did so."""
    screen = Console(file=log, force_terminal=True, width=80) if log.isatty() else log_console(log)
    told_ = [("step", "third", 30), ("step", "first", 10), ("step", "second", 20)]

    def printed() -> list[str]:
        return re.findall("first|second|third|fourth", log.text())

    with RunConsole(screen, [GARP]) as shown:
        shown._live = shown._live and QuietLive()  # what it draws anew is not what stays
        shown.started(GARP)
        for kind, text, t in told_:
            shown.event(GARP, event(kind, text, t=t))
        shown.settled(GARP, 5)
        assert printed() == []
        shown.settled(GARP, 20)
        assert printed() == ["first", "second"]
        shown.event(GARP, event("step", "fourth", t=40))
        shown.finished(GARP, good)
    assert printed() == ["first", "second", "third", "fourth"]


def test_a_build_in_a_log_has_a_line_a_phase() -> None:
    log = Log()
    update = phase_lines(log_console(log), started=0)
    for phase, fetched in (("download", 0), ("download", 5_000_000), ("seal\x1b[2J", 250_000_000)):
        update(phase, fetched)
    lines = log.text().splitlines()
    assert [line.split(" fetched")[0] for line in lines[1:]] == ["image: seal [2J (250 MB"]
    assert lines[0].startswith("image: download (")
    assert "fetched" not in lines[0]


def test_what_a_fault_has_to_be_given_comes_first(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["fault", "describe", "background-flow"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.partition("Parameters")[2].splitlines()]
    defaults = [row[1] for row in rows if len(row) > 2 and row[0] in ("source", "target", "rate", "size", "family")]
    assert defaults == ["required", "required", "required", "16384", "4"]
