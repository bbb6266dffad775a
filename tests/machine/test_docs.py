"""What the documentation tells a user to write works as written."""

import importlib
import json
import re
import shlex
import sys
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest
from elsewhere import run

from testbed.protocol import events
from testbed.records.event_reader import read

TOP = Path(__file__).parents[2]


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", (TOP / page).read_text(), re.MULTILINE | re.DOTALL)


def module(name: str) -> ModuleType:
    """One of those that `make examples` runs, which may import each other."""
    place = str(TOP / "tests" / "docs")
    if place not in sys.path:
        sys.path.append(place)
    return importlib.import_module(name)


@pytest.mark.parametrize(
    ("page", "observed"), [("docs/scenarios.md", ["fault", "healthy"]), ("README.md", ["fault", "healthy"])]
)
def test_the_scenario_of_a_page_runs_as_expected(testbed, tmp_path, page, observed):
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "topology.clab.yml").write_text(blocks(page, "yaml")[0])
    (mine / "scenario.py").write_text(blocks(page, "python")[0])
    done = testbed("run", mine, "--json")
    assert done.status == 0, done.err
    assert [variant["observed"] for variant in done.json["variants"]] == observed


def test_the_pytest_file_of_the_page_on_topologies_passes(testbed, tmp_path):
    (tmp_path / "test_mine.py").write_text(blocks("docs/topologies.md", "python")[0])
    done = testbed("pytest", tmp_path / "test_mine.py")
    assert done.status == 0, done.out
    assert "1 passed" in done.out


def test_the_pytest_file_of_the_guide_passes(testbed, tmp_path):
    (tmp_path / "topology.clab.yml").write_text(blocks("docs/scenarios.md", "yaml")[0])
    (tmp_path / "test_mine.py").write_text(blocks("docs/scenarios.md", "python")[1])
    done = testbed("pytest", tmp_path / "test_mine.py")
    assert done.status == 0, done.out
    assert "1 passed" in done.out
    assert testbed("pytest", tmp_path / "no_such_test.py").status == 2


@pytest.mark.slow
def test_the_pytest_files_of_the_page_on_traffic_pass(testbed, tmp_path):
    (command,) = re.findall(r"^testbed (topology new .*)$", (TOP / "docs/traffic.md").read_text(), re.MULTILINE)
    assert testbed(*command.split()).status == 0
    snippets = blocks("docs/traffic.md", "python")
    for number, snippet in enumerate(snippets):
        (tmp_path / f"test_{number}.py").write_text(snippet)
    done = testbed("pytest", tmp_path)
    assert done.status == 0, done.out
    assert f"{len(snippets)} passed" in done.out


def test_the_frames_of_scapy_of_their_page(testbed, tmp_path):
    for number, snippet in enumerate(blocks("docs/frames.md", "python")):
        (tmp_path / f"test_{number}.py").write_text(snippet)
    done = testbed("pytest", tmp_path)
    assert done.status == 0, done.out
    assert "2 passed" in done.out


@pytest.mark.slow
def test_the_notebook_runs_and_its_knob_turns_marks_into_pauses(tmp_path):
    packages = tmp_path / "packages"
    install = (sys.executable, "-m", "pip", "install", "--quiet", "--require-hashes", "--target", packages)
    done = run(*install, "--requirement", TOP / "tests/docs/notebooks.lock", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    script, source = TOP / "tests/docs/notebook.py", TOP / "docs/notebooks/dcqcn.ipynb"
    done = run(sys.executable, script, source, tmp_path / "ran.ipynb", cwd=tmp_path, PYTHONPATH=f"{packages}:{TOP}")
    assert done.returncode == 0, done.stderr
    cells = json.loads((tmp_path / "ran.ipynb").read_text())["cells"]
    outputs = [output["data"] for cell in cells for output in cell.get("outputs", ())]
    (table,) = ["".join(data["text/plain"]) for data in outputs if "text/html" in data]
    rows = [[float(word) for word in line.split()[1:]] for line in table.splitlines()[1:]]
    pauses = {kmin: frames for kmin, _, _, frames in rows}
    assert [frames for kmin, frames in pauses.items() if kmin <= 20_000] == [0, 0, 0]
    assert pauses[100_000] > 500
    assert all(40 < mbit < 52 for _, mbit, _, _ in rows)
    assert any("image/png" in data for data in outputs)


@pytest.mark.slow
def test_the_training_script_of_the_tutorial_survives_the_link_that_goes_down(testbed, tmp_path):
    (script,) = blocks("docs/training.md", "python")
    (tmp_path / "train.py").write_text(script)
    command, *_ = re.findall(r"^\$ testbed (train .*)$", (TOP / "docs/training.md").read_text(), re.MULTILINE)
    done = testbed(*shlex.split(command), "--json")
    assert done.status == 0, done.err
    [variant] = done.json["variants"]
    ranks = variant["job"]["ranks"]
    assert [(rank["steps"], rank["saw"]) for rank in ranks] == [(12, "completed")] * 4
    assert all(rank["slowest_s"] > 3 for rank in ranks)


@pytest.mark.slow
def test_the_plugin_of_its_page_is_found_to_announce_nothing_and_is_fixed(testbed, tmp_path):
    """A plugin author's walk, with what comes back of the test that fails."""
    python = blocks("docs/cni-own.md", "python")
    (plugin,) = [block for block in python if block.startswith("#!")]
    (test,) = [block for block in python if "def test_" in block]
    (fix,) = [block for block in python if block.startswith("    in_pod(")]
    (command,) = re.findall(
        r"^testbed (pytest test_fabric.py .*)$", (TOP / "docs/cni-own.md").read_text(), re.MULTILINE
    )
    file = tmp_path / "cni-plugins" / "fabric"
    file.parent.mkdir()
    file.write_text(plugin)
    file.chmod(0o755)
    (tmp_path / "test_fabric.py").write_text(test)

    done = testbed(*command.split())

    assert done.status == 1, done.out + done.err
    assert "RDMA_CM_EVENT_UNREACHABLE" in done.out
    (case,) = ElementTree.parse(tmp_path / "junit.xml").iter("testcase")  # noqa: S314  # our own file
    assert "for the pod on node2, whose MAC is" in case.find("failure").text
    (directory,) = (tmp_path / "runs/pytest/latest/tmp").glob("test_the_next_pod*0")
    assert '"text":"ADD rdma on eth0 by fabric, rxe: 10.0.20.100/24"' in (directory / "events.jsonl").read_text()
    assert (directory / "tables.jsonl").exists()

    lines = plugin.splitlines(keepends=True)
    (place,) = [number for number, line in enumerate(lines, 1) if '"route", "add"' in line]
    file.write_text("".join([*lines[:place], fix, *lines[place:]]))
    done = testbed(*command.split())
    assert done.status == 0, done.out + done.err
    (log,) = (tmp_path / "runs/pytest/latest/tmp").glob("test_the_next_pod*0/node2-cni.log")
    assert "ARPING 10.0.20.100 from 10.0.20.100 eth0" in log.read_text()
    assert not list(ElementTree.parse(tmp_path / "junit.xml").iter("failure"))  # noqa: S314  # our own file


@pytest.mark.slow
def test_the_mininet_script_of_its_page_passes(testbed, tmp_path):
    (tmp_path / "test_pingpong.py").write_text(blocks("docs/mininet.md", "python")[0])
    done = testbed("pytest", tmp_path / "test_pingpong.py")
    assert done.status == 0, done.out
    assert "1 passed" in done.out


def test_the_topo_of_the_page_about_mininet_becomes_the_file_beside_it(testbed, tmp_path):
    (tmp_path / "pair.py").write_text(blocks("docs/mininet.md", "python")[1])
    assert testbed("topology", "from-mininet", "pair.py").out == blocks("docs/mininet.md", "yaml")[0]


def test_the_containerlab_file_of_its_page_reaches_through_its_router(testbed, tmp_path):
    (tmp_path / "routed.clab.yml").write_text(blocks("docs/mininet.md", "yaml")[1])
    (tmp_path / "test_routed.py").write_text(
        "import pytest\n\n\n@pytest.mark.topology('routed.clab.yml')\n"
        "def test_ping(lab):\n    assert lab['pc1'].ping('192.168.2.10', within=1)\n"
    )
    done = testbed("pytest", tmp_path / "test_routed.py")
    assert done.status == 0, done.out


@pytest.mark.slow
def test_what_the_pages_say_that_a_command_prints_is_what_it_prints():
    """In names, outcomes and words of evidence; times and traces are those of the day (`make examples`)."""
    examples = module("examples")
    found = list(examples.examples())
    assert [command for command, _ in found] == ["make scenario=ip-reuse"]
    for command, text in found:
        assert examples.stable(examples.printed(command)) == examples.stable(text), command


@pytest.mark.slow
def test_the_tutorial_of_labs_that_live_works_when_it_is_followed(tmp_path):
    steps = list(module("tutorial").walk(tmp_path))
    silent, ping = "testbed rdma write --silent host3 p2", "testbed exec host3 -- ping -c 2 -W 1 10.1.1.100"
    assert [step.command for step in steps if step.status] == [silent, ping]
    shown = {step.command: step.shown for step in steps}
    assert "RETRY_EXC_ERR" in shown[silent]
    for write in "testbed rdma write host3 p1", "testbed rdma write host3 p2":
        assert "SUCCESS" in shown[write]
    directory = tmp_path / "runs" / "leaf-spine" / "latest"
    typed = [events.TYPED.of(event) for event in read(directory / "events.jsonl")]
    back = [(f"testbed {one.command}", one.status, one.back) for one in typed if one]
    assert [(status, "RETRY_EXC_ERR" in text) for command, status, text in back if command == silent] == [(1, True)]
    assert [status for command, status, _ in back if command == ping] == [1, 0]
    assert "2 packets transmitted, 0 received" in next(text for command, _, text in back if command == ping)
    assert (directory / "report.html").is_file()
    assert "2 received" in shown["testbed exec host3 -- ping -c 2 -W 1 10.1.1.100"]
    assert "ages out" in shown["testbed events | grep 10.1.1.100"]
    assert "report.html" in shown["testbed down"]


PLAYED_OFTEN = 1, 8, 10
"""Lessons of the course that are played in each test run: a host, a lossless class, EVPN."""
SYMPTOM = re.compile(r"^((?![a-z-]+, since).* since [0-9:]+.*|It went on by itself\.)\n", re.MULTILINE)
"""What a ticket has seen: it depends on milliseconds, and so on the version."""


@pytest.mark.parametrize(
    "number", [pytest.param(n, marks=() if n in PLAYED_OFTEN else pytest.mark.slow) for n in range(1, 11)]
)
def test_a_lesson_of_the_course_is_as_the_page_has_it(tmp_path, number):
    course, stable = module("course"), module("examples").stable
    lessons = course.lessons(course.PAGE.read_text())
    assert len(lessons) == 10
    expected, played = course.transcript(lessons[number - 1]), course.play(lessons[number - 1], tmp_path)
    for one, other in zip(expected, played, strict=True):
        assert stable(SYMPTOM.sub("", other.printed)) == stable(SYMPTOM.sub("", one.printed)), one.command
    for answer in expected[-1], played[-1]:
        assert answer.printed.startswith("100 of 100 points\n")
