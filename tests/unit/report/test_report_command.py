"""`testbed report` and `testbed compare`, and what is in the page that they write."""

import base64
import gzip
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from report_samples import EPOCH_NS, EVENTS, make_run

from testbed.cli.main import invoke
from testbed.errors import InputError
from testbed.faults import catalogue
from testbed.records.counter_names import find
from testbed.report import gear
from testbed.report.contents import contents
from testbed.report.run_model import Part, Run, read_run

EVIL = "</script><img src=x onerror=alert(1)>"


class Elements(HTMLParser):
    """The elements of a page, with their attributes and texts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, str] = {}
        self._open = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        self._open = dict(attrs).get("id") or tag

    def handle_data(self, data: str) -> None:
        self.texts[self._open] = self.texts.get(self._open, "") + data


def data_of(page: Path) -> Any:
    packed = Elements(page.read_text()).texts["data"]
    return json.loads(gzip.decompress(base64.b64decode(packed)))


def test_a_report_is_written_into_the_run_directory(run_directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["report", str(run_directory)]) == 0
    assert capsys.readouterr().out == f"{run_directory}/report.html\n"
    [part] = data_of(run_directory / "report.html")["parts"]
    assert (part["label"], part["expected"], part["observed"], part["as_expected"]) == ("as-is", "fault", "fault", True)
    assert part["evidence"] == [["completion", "RETRY_EXC_ERR"]]
    assert part["marks"][0]["places"] == [["leaf", ""]]
    assert part["counters"] == [["client", "eth1", "rx_packets", 7], ["client", "client-eth1", "retry_exceeded_err", 1]]
    assert part["meanings"]["retry_exceeded_err"][:3] == [True, "queue pairs", "RDMA device"]
    assert [title["title"] for title in part["gear"]] == [
        "The switch's ARP entry has a MAC that is not the owner's",
        "Requests are not answered until the retries are used up",
        "Counters that should be 0",
    ]
    assert part["gear"][0]["commands"][0]["run"] == "show ip arp 10.0.20.100"
    [command] = part["gear"][2]["commands"]
    assert (command["where"], command["run"]) == ("soft-RoCE", "rdma statistic show link client-eth1/1")
    assert command["look"] == "retry_exceeded_err: Queue pairs that used up their retries."


def test_the_drawing_is_that_of_testbed_graph(run_directory: Path) -> None:
    assert invoke(["report", str(run_directory)]) == 0
    [drawing] = data_of(run_directory / "report.html")["drawings"]
    assert 'data-ends="leaf:e1 client:eth1"' in drawing or 'data-ends="client:eth1 leaf:e1"' in drawing
    assert "cisco-nxos" in drawing


def test_links_lead_from_where_the_report_is(run_directory: Path, tmp_path: Path) -> None:
    output = tmp_path / "elsewhere" / "mine.html"
    output.parent.mkdir()
    assert invoke(["report", str(run_directory), "-o", str(output)]) == 0
    [part] = data_of(output)["parts"]
    for _, link, size in part["files"]:
        assert (output.parent / link).stat().st_size == size
    assert (output.parent / part["directory"] / "leaf-e2.pcap").is_file()
    assert not (run_directory / "report.html").exists()


def test_the_same_run_makes_the_same_report(run_directory: Path) -> None:
    pages = []
    for _ in range(2):
        assert invoke(["report", str(run_directory)]) == 0
        pages.append((run_directory / "report.html").read_bytes())
    assert pages[0] == pages[1]


def test_a_page_has_no_way_to_ask_for_anything(run_directory: Path) -> None:
    assert invoke(["report", str(run_directory)]) == 0
    text = (run_directory / "report.html").read_text()
    page = Elements(text)
    assert not [tag for tag, attributes in page.found if {"src", "href", "srcset", "action"} & set(attributes)]
    [policy] = [a["content"] for _, a in page.found if a.get("http-equiv") == "Content-Security-Policy"]
    assert policy
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe-inline" not in policy.partition("script-src")[2].partition(";")[0]
    assert not re.search(r"url\(|@import", page.texts["style"])


def hostile(tmp_path: Path) -> Path:
    """A run whose texts are markup wherever a text can be."""

    def change(result: dict[str, Any]) -> None:
        result.update(scenario=EVIL, title=EVIL, text=EVIL, seed=EVIL)
        result["variants"][0].update(text=EVIL, evidence={EVIL: EVIL}, failures=[EVIL], observed=EVIL)

    events = [{**event, "node": event["node"] and EVIL, "text": EVIL} for event in EVENTS]
    return make_run(tmp_path / "runs/tiny/hostile", events, change)


def test_texts_of_a_run_are_never_markup(tmp_path: Path) -> None:
    directory = hostile(tmp_path)
    assert invoke(["report", str(directory)]) == 0
    page = Elements((directory / "report.html").read_text())
    assert [tag for tag, _ in page.found].count("script") == 3
    assert "img" not in [tag for tag, _ in page.found]
    assert data_of(directory / "report.html")["runs"][0]["name"] == EVIL


def test_texts_of_a_run_are_never_markup_in_an_index(tmp_path: Path) -> None:
    directory = hostile(tmp_path)
    (directory.parent / "latest").symlink_to(directory.name)
    assert invoke(["report", str(tmp_path / "runs")]) == 0
    page = Elements((tmp_path / "runs/index.html").read_text())
    assert {"script", "img"}.isdisjoint(tag for tag, _ in page.found)
    assert EVIL in "".join(page.texts.values())


def test_a_run_of_an_older_testbed_has_a_report(tmp_path: Path) -> None:
    def change(result: dict[str, Any]) -> None:
        for key in ("title", "text"):
            del result[key]
        for key in ("text", "epoch", "settings"):
            del result["variants"][0][key]

    directory = make_run(tmp_path / "old", change=change)
    for name in ("topology.json", "counters.json", "counters.jsonl"):
        (directory / "as-is" / name).unlink()
    assert invoke(["report", str(directory)]) == 0
    [part] = data_of(directory / "report.html")["parts"]
    assert (part["drawing"], part["captures"], part["counters"], part["counted"]) == (None, [], [], None)
    assert part["lanes"]


def test_a_directory_of_runs_has_an_index(run_directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = run_directory.parents[1]
    (run_directory.parent / "latest").symlink_to(run_directory.name)
    make_run(runs / "other/1", change=lambda result: result["variants"][0].update(observed="healthy"))
    (runs / "other/latest").symlink_to("1")
    assert invoke(["report", str(runs)]) == 0
    assert capsys.readouterr().out == f"{runs}/index.html\n"
    text = (runs / "index.html").read_text()
    assert "1 of 2 as expected" in text
    assert f"tiny/{run_directory.name}/report.html#v=as-is" in text
    assert "✗ unexpected" in text


def change_name(result: dict[str, Any]) -> None:
    result["variants"][0]["name"] = "../../etc"


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda path: (path / "result.json").unlink(), "is not a run directory: it has no result.json"),
        (lambda path: (path / "result.json").write_text("{"), "is damaged: Expecting property name"),
        (lambda path: (path / "result.json").write_text("[]"), "is damaged: it is not an object"),
        (lambda path: (path / "result.json").write_text('{"variants": [{}]}'), "is damaged: KeyError: 'name'"),
        (lambda path: (path / "as-is/topology.json").write_text('{"name": 1}'), "is damaged: name: Input should"),
    ],
)
def test_a_damaged_run_directory_is_2_with_one_message(
    run_directory: Path, damage: Any, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    damage(run_directory)
    assert invoke(["report", str(run_directory)]) == 2
    assert said in capsys.readouterr().err
    assert not list(run_directory.glob("*.html"))


def test_a_name_that_leaves_the_run_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be the name of a variant"):
        read_run(make_run(tmp_path / "run", change=change_name))


def test_a_place_that_cannot_be_written_is_2(run_directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = run_directory / "nowhere/x.html"
    assert invoke(["report", str(run_directory), "-o", str(place)]) == 2
    assert f"{place}: cannot be written: No such file or directory" in capsys.readouterr().err


def test_variants_are_compared_and_a_run_named_twice_counts_once(run_directory: Path, tmp_path: Path) -> None:
    other, output = make_run(tmp_path / "other"), tmp_path / "both.html"
    assert invoke(["compare", str(run_directory), str(run_directory / "as-is"), str(other), "-o", str(output)]) == 0
    found = data_of(output)
    assert found["side_by_side"]
    assert [part["label"] for part in found["parts"]] == [f"tiny {run_directory.name} as-is", "tiny other as-is"]
    assert len(found["drawings"]) == 1


def test_a_variant_that_is_not_there_is_2_with_those_that_are(
    run_directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke(["compare", str(run_directory), str(run_directory / "nope")]) == 2
    assert "no variant 'nope'\n  It has: as-is." in capsys.readouterr().err


def test_one_run_alone_is_no_comparison(run_directory: Path) -> None:
    assert invoke(["compare", str(run_directory)]) == 2


def test_a_directory_without_outcomes_has_a_report(run_directory: Path) -> None:
    """As that of a live lab."""
    part = Part(name="lab", directory=run_directory / "as-is", virtual_s=0.43)
    found = contents([Run(name="lab", place="lab", title="", text="", facts=(), parts=(part,))], str, run_directory)
    assert found["parts"][0]["as_expected"] is None
    assert found["runs"][0]["as_expected"] is None


def test_what_is_seen_on_real_gear_is_about_faults_and_events_that_exist() -> None:
    faults = set(catalogue.KINDS)
    shape = re.compile(r"(arp|nd|fdb|port|route|connect)(\.[a-z]+)?|[A-Z_]+")
    for entry in gear.known():
        assert [kind for kind in entry["kinds"] if not (kind in faults or shape.fullmatch(kind))] == []
        assert entry["source"]
        assert [name for name in entry.get("counters", ()) if not find(name).commands] == []
        assert all(set(command) == {"where", "run", "look"} for command in entry["commands"])


def session(directory: Path, *outcomes: str) -> Path:
    """A run directory of `testbed pytest`: a test with a lab for each outcome, and one without."""
    rows = []
    for number, outcome in enumerate((*outcomes, "passed")):
        place = directory / "tmp" / f"test_{number}"
        if number < len(outcomes):
            make_run(place.parent, EVENTS)
            (place.parent / "as-is").rename(place)
            (place / "epoch.json").write_text(json.dumps({"realtime_ns": EPOCH_NS}))
        text = "E   assert 1 == 2" if outcome == "failed" else ""
        name = f"test_mine.py::test_{number}"
        row = {"test": name, "outcome": outcome, "virtual_s": 0.5, "directory": f"tmp/test_{number}", "text": text}
        rows.append({**row, "wall_s": 1.0})
    (directory / "tests.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return directory


def test_a_session_of_pytest_has_a_report_of_its_labs_the_failed_ones_first(tmp_path: Path) -> None:
    run = read_run(session(tmp_path, "passed", "failed"))
    assert [(part.name, part.expected, part.observed) for part in run.parts] == [
        ("test_mine.py::test_1", "passed", "failed"),
        ("test_mine.py::test_0", "passed", "passed"),
    ]
    assert run.parts[0].realtime_ns == EPOCH_NS
    assert (run.as_expected, run.parts[0].failures) == (False, ("E   assert 1 == 2",))
    assert run.title == "3 tests in a machine, 1 failed"


def test_a_report_of_many_tests_has_all_that_failed_and_some_that_passed(tmp_path: Path) -> None:
    run = read_run(session(tmp_path, *["passed"] * 20, "failed"))
    assert len(run.parts) == 12
    assert run.parts[0].observed == "failed"
    assert run.facts == (("with a lab", "21"), ("in this report", "12"))
    many = read_run(session(tmp_path / "many", *["failed"] * 15, "passed"))
    assert [part.observed for part in many.parts] == ["failed"] * 15


@pytest.mark.parametrize("damage", ['{"test": "cut o', '{"test": "x"}', "[]"])
def test_a_session_whose_tests_are_damaged_is_an_error(tmp_path: Path, damage: str) -> None:
    file = session(tmp_path, "passed") / "tests.jsonl"
    file.write_text(file.read_text() + damage)
    with pytest.raises(InputError, match="is damaged"):
        read_run(tmp_path)


def test_a_session_without_labs_has_no_report(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no test has a lab in its tmp_path"):
        read_run(session(tmp_path))
