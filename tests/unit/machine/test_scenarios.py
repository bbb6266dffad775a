"""Where scenarios are, what travels to a machine, and what is said of a file that is none.

A description runs the user's code in a process of its own, here mostly in a fork: a real one takes a second.
"""

import asyncio
import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from testbed.errors import InputError, TestbedError, UnsupportedError
from testbed.machine import files, local, questions, runs, scenarios, snapshot
from testbed.machine.jobs import Job
from testbed.machine.local import LocalMachine
from testbed.machine.scenarios import Source
from testbed.protocol import ScenarioInfo

pytestmark = pytest.mark.usefixtures("forked")

GOOD = '''
from testbed import Scenario, Variant
class Story(Scenario):
    """
    What happens.

        indented
    """
    title = "A story"
    tags = "arp", "switch"
    limit_s = 120
    variants = Variant("as-is", "fault", "it breaks"), Variant("cure", "healthy", "it works")
    def run(self, run, parameters): ...
'''
TOPOLOGY = """\
name: pair
topology:
  nodes:
    a: {kind: host}
    leaf: {kind: switch, profile: sonic}
  links:
    - endpoints: ["a:eth1", "leaf:e1"]
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's current directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(directory: Path, text: str, name: str = "scenario.py", *, topology: str = TOPOLOGY) -> Source:
    directory.mkdir(exist_ok=True)
    (directory / "topology.clab.yml").write_text(topology)
    (directory / name).write_text(text)
    return Source(directory.name, directory / name)


def describe(source: Source, **settings: str) -> ScenarioInfo:
    return asyncio.run(scenarios.describe([(source, settings)]))[0]


def refused(source: Source, **settings: str) -> TestbedError:
    with pytest.raises(TestbedError) as said:
        describe(source, **settings)
    assert said.value.exit_status == 2
    return said.value


# Names and paths


def test_a_shipped_scenario_has_its_directory_s_name() -> None:
    found = scenarios.resolve("ip-reuse")
    assert (found.name, found.file) == ("ip-reuse", scenarios.SCENARIOS / "ip-reuse" / "scenario.py")
    assert found in scenarios.shipped()


def test_a_directory_with_a_scenario_is_one(home: Path) -> None:
    write(home / "mine", GOOD)
    for path in ("mine", "./mine/", str(home / "mine")):
        found = scenarios.resolve(path)
        assert found.name == "mine"
        assert found.file.resolve() == home / "mine" / "scenario.py"


def test_a_file_has_its_own_name_unless_it_is_called_scenario(home: Path) -> None:
    write(home / "mine", GOOD)
    write(home / "mine", GOOD, "other.py")
    assert scenarios.resolve("mine/scenario.py").name == "mine"
    assert scenarios.resolve("mine/other.py").name == "other"


def test_the_current_directory_has_a_name_too(home: Path) -> None:
    write(home, GOOD)
    assert scenarios.resolve(".").name == scenarios.resolve("scenario.py").name == home.name


def test_a_shipped_name_wins_over_a_directory_of_that_name(home: Path) -> None:
    write(home / "ip-reuse", GOOD)
    assert scenarios.resolve("ip-reuse").file.is_relative_to(scenarios.SCENARIOS)
    assert scenarios.resolve("./ip-reuse").file.resolve().is_relative_to(home)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("ip-reus", "Did you mean ip-reuse? `testbed list`"),
        ("zzz", "`testbed list` shows the shipped scenarios"),
        ("mien/flap", "Did you mean mine/flap? "),
        ("mine/flip", "Did you mean mine/flap? "),
        ("mine/flap/scenrio.py", "Did you mean mine/flap/scenario.py? "),
        ("mine/data", "`testbed list` shows the shipped scenarios"),
    ],
)
def test_an_unknown_name_gets_the_closest_one_or_the_rule(home: Path, name: str, hint: str) -> None:
    (home / "mine" / "flap").mkdir(parents=True)
    (home / "mine" / "flap" / "scenario.py").touch()
    (home / "mine" / "dat").mkdir()
    with pytest.raises(InputError, match=f"scenario '{name}' does not exist") as said:
        scenarios.resolve(name)
    assert said.value.hint.startswith(hint)


def test_a_name_that_no_file_can_have_is_refused(home: Path) -> None:
    with pytest.raises(InputError, match="cannot be read: File name too long"):
        scenarios.resolve("a" * 300)


def test_a_directory_without_a_scenario_is_none(home: Path) -> None:
    (home / "empty").mkdir()
    with pytest.raises(InputError, match=r"empty: this directory has no scenario\.py"):
        scenarios.resolve("empty")


# What travels


def test_everything_beside_a_scenario_travels_but_for_what_is_hidden_or_compiled(tmp_path: Path) -> None:
    source = write(tmp_path / "mine", GOOD)
    for name in ("lib/model.py", "lib/__pycache__/model.pyc", ".git/HEAD", "lib/.swp", ".env"):
        path = tmp_path / "mine" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    (tmp_path / "outside").write_text("not beside it")
    assert list(source.files()) == ["lib/model.py", "scenario.py", "topology.clab.yml"]
    assert source.files()["lib/model.py"] == b"lib/model.py"


def test_what_runs_left_beside_a_scenario_does_not_travel(tmp_path: Path) -> None:
    source = write(tmp_path / "mine", GOOD)
    for out in (tmp_path / "mine" / "runs", tmp_path):  # --out runs, the default, and --out ..
        for _ in range(2):
            (runs.run_directory(out, "mine") / "wire.pcap").write_text("of a run")
    (tmp_path / "mine" / "lib").mkdir()
    (tmp_path / "mine" / "lib" / "model.py").write_text("mine")
    assert list(source.files()) == ["lib/model.py", "scenario.py", "topology.clab.yml"]


def test_a_directory_of_one_s_own_travels_although_it_is_called_as_a_run_is(tmp_path: Path) -> None:
    source = write(tmp_path / "mine", GOOD)
    (tmp_path / "mine" / "20260102-030405").mkdir()
    (tmp_path / "mine" / "20260102-030405" / "words.txt").write_text("mine")
    assert "20260102-030405/words.txt" in source.files()


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write(tmp_path / "mine", GOOD)
    closed = tmp_path / "mine" / "topology.clab.yml"
    read_bytes = Path.read_bytes

    def read(file: Path) -> bytes:
        if file == closed:
            raise PermissionError(errno.EACCES, "Permission denied", str(file))
        return read_bytes(file)

    monkeypatch.setattr(Path, "read_bytes", read)
    with pytest.raises(InputError, match="cannot be read: Permission denied") as said:
        source.files()
    assert said.value.where == str(closed)


def test_a_hidden_place_of_the_scenario_itself_hides_nothing(tmp_path: Path) -> None:
    (tmp_path / ".work").mkdir()
    assert "scenario.py" in write(tmp_path / ".work" / "mine", GOOD).files()


def test_a_directory_that_is_too_large_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write(tmp_path / "mine", GOOD)
    monkeypatch.setattr(files, "FILES_BYTES", 1 << 20)
    monkeypatch.setattr(files, "read", lambda file: pytest.fail(f"{file} is read"))
    (tmp_path / "mine" / "trace").write_bytes(bytes(1 << 20))
    with pytest.raises(InputError, match="has more than 1 MiB") as said:
        source.files()
    assert said.value.where == str(tmp_path / "mine")
    assert said.value.hint.startswith("trace has 1 MiB. Remove the debug information of a program: `strip`")


def test_a_file_that_is_too_large_is_refused_with_its_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "FILES_BYTES", 1 << 20)
    (tmp_path / "multus").write_bytes(bytes((1 << 20) + 1))
    with pytest.raises(InputError, match="the file has 2 MiB; a machine accepts 1 MiB\n  Remove the debug"):
        files.read(tmp_path / "multus")


def test_which_files_can_be_executed_travels_with_them(tmp_path: Path) -> None:
    source = write(tmp_path / "mine", GOOD)
    plugin = tmp_path / "mine" / "cni-plugins" / "mine"
    plugin.parent.mkdir()
    plugin.write_text("#!/bin/sh\n")
    plugin.chmod(0o755)
    assert source.executable(source.files()) == ["cni-plugins/mine"]


def test_a_link_to_a_file_travels_as_that_file(tmp_path: Path) -> None:
    source = write(tmp_path / "mine", GOOD)
    (tmp_path / "built").write_text("#!/bin/sh\n")
    (tmp_path / "built").chmod(0o755)
    (tmp_path / "mine" / "mine").symlink_to("../built")
    (tmp_path / "mine" / "gone").symlink_to("../nowhere")
    assert source.files()["mine"] == b"#!/bin/sh\n"
    assert source.executable(source.files()) == ["mine"]
    assert "gone" not in source.files()


# What a scenario says of itself


def test_a_description_is_what_the_class_says(tmp_path: Path) -> None:
    said = describe(write(tmp_path / "mine", GOOD))
    assert (said["name"], said["title"], said["tags"]) == ("mine", "A story", ["arp", "switch"])
    assert said["text"] == "What happens.\n\n    indented"
    assert [(v["name"], v["expected"]) for v in said["variants"]] == [("as-is", "fault"), ("cure", "healthy")]
    assert said["limit_s"] == 120


@pytest.mark.usefixtures("own_process")
def test_a_scenario_s_code_is_never_imported_here(tmp_path: Path) -> None:
    describe(write(tmp_path / "mine", f"import sys; sys.modules['seen_here'] = sys\n{GOOD}"))
    assert "seen_here" not in sys.modules


BOMB = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 20))


@pytest.mark.parametrize(
    ("topology", "place", "message"),
    [
        (TOPOLOGY.replace("kind: host", "kind: hots"), "4:15", "kind 'hots' is not supported"),
        (TOPOLOGY.replace("leaf:e1", "leef:e1"), "7:29", "leef"),
        (TOPOLOGY.replace("sonic", "sonik"), "5:35", "unknown profile 'sonik'"),
        (BOMB, "6:15", "more than "),
    ],
)
def test_an_error_of_the_topology_is_found_with_its_line(
    tmp_path: Path, topology: str, place: str, message: str
) -> None:
    error = refused(write(tmp_path / "mine", GOOD, topology=topology))
    assert error.where == f"{tmp_path}/mine/topology.clab.yml:{place}"
    assert message in error.message


def test_a_topology_that_is_missing_is_named(tmp_path: Path) -> None:
    error = refused(write(tmp_path / "mine", f"{GOOD}    topology = 'lab.clab.yml'\n"))
    assert (error.where, error.message) == (f"{tmp_path}/mine/lab.clab.yml", "no such file")
    assert "Did you mean topology.clab.yml?" in error.hint


PROFILED = """
from testbed import Parameters
from testbed.switch.profile import profile
class Switch(Parameters):
    profile: str = "sonic"
    arp_age: float = 60
Story.parameters = Switch
Story.profiles = lambda self, p: {"leaf": profile(p.profile).replace(arp_age=60 / p.arp_age)}
"""


@pytest.mark.parametrize(
    ("settings", "place", "message"),
    [
        ({"profile": "sonik"}, "", "there is no switch profile 'sonik'"),
        ({"arp_age": "-1"}, "profile sonic", "arp_age: Input should be greater than 0"),
        ({"arp_age": "0"}, f"scenario.py:{len((GOOD + PROFILED).splitlines())}", "ZeroDivisionError: "),
    ],
)
def test_a_profile_that_settings_make_is_checked(
    tmp_path: Path, settings: dict[str, str], place: str, message: str
) -> None:
    error = refused(write(tmp_path / "mine", GOOD + PROFILED), **settings)
    assert error.message.startswith(message)
    assert error.where.endswith(place)


def test_settings_are_checked_for_the_variant_that_is_named_or_else_for_all(tmp_path: Path) -> None:
    rule = """
from pydantic import model_validator
from testbed import Parameters
class Pair(Parameters):
    a: int = 1
    b: int = 1
    @model_validator(mode="after")
    def _fits(self):
        if self.a + self.b > 3:
            raise ValueError("too many")
        return self
Story.parameters = Pair
Story.variants = Variant("few", "fault", ""), Variant("many", "healthy", "", {"a": 2})
"""
    source = write(tmp_path / "mine", GOOD + rule)
    [said] = asyncio.run(scenarios.describe([(source, {"b": "2"})], ["few"]))
    assert said["variants"][0]["settings"] == {"b": "2"}
    with pytest.raises(TestbedError, match=r"^parameters of variant many: Value error, too many\n"):
        describe(source, b="2")


def test_modules_beside_a_scenario_can_be_imported(tmp_path: Path) -> None:
    source = write(tmp_path / "mine", f"import words\n{GOOD}    title = words.TITLE\n")
    (tmp_path / "mine" / "words.py").write_text("TITLE = 'From beside'")
    assert describe(source)["title"] == "From beside"


def test_a_file_beside_a_scenario_may_have_any_name(tmp_path: Path) -> None:
    """The job, which travels with the files, is in a file job.json too."""
    source = write(tmp_path / "mine", f"{GOOD}    title = open(__file__.replace('scenario.py', 'job.json')).read()\n")
    (tmp_path / "mine" / "job.json").write_text("Of my own")
    assert describe(source)["title"] == "Of my own"


@pytest.mark.usefixtures("own_process")
def test_what_a_scenario_prints_disturbs_nothing(tmp_path: Path) -> None:
    noise = "import os, sys\nprint('noise')\nos.write(1, b'noise')\nprint('noise', file=sys.stderr)\n"
    assert describe(write(tmp_path / "mine", noise + GOOD))["title"] == "A story"


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("x = 1\ndef story(:\n", 2, "SyntaxError: invalid syntax"),
        ("\n\nraise OSError('no such card')\n", 3, "OSError: no such card"),
    ],
)
def test_a_file_that_cannot_be_loaded_is_named_with_its_line(
    tmp_path: Path, text: str, line: int, message: str
) -> None:
    error = refused(write(tmp_path / "mine", text))
    assert error.where == f"{tmp_path}/mine/scenario.py:{line}"
    assert message in error.message


def test_a_file_that_is_no_python_is_refused_with_the_rule(tmp_path: Path) -> None:
    error = refused(write(tmp_path / "mine", GOOD, "story.yml"))
    assert (error.where, error.message) == (f"{tmp_path}/mine/story.yml", "is not a Python file")
    assert error.hint == "A scenario is a .py file, or a directory with a scenario.py."


def test_each_of_several_errors_has_the_path_of_its_file(tmp_path: Path) -> None:
    topology = TOPOLOGY.replace("kind: host", "kind: hots").replace('"leaf:e1"', '"leaf"')
    error = refused(write(tmp_path / "mine", GOOD, topology=topology))
    places = [line.split(": ")[0] for line in str(error).splitlines()]
    assert places == [f"{tmp_path}/mine/topology.clab.yml:{place}" for place in ("4:15", "7:29")]


def test_a_file_with_two_scenarios_is_refused(tmp_path: Path) -> None:
    error = refused(write(tmp_path / "mine", f"{GOOD}\nclass Second(Story): ...\n"))
    assert error.message == "a scenario file must define one subclass of testbed.Scenario; this one defines 2"
    assert error.where == f"{tmp_path}/mine/scenario.py"


@pytest.mark.usefixtures("own_process")
def test_a_file_that_ends_the_process_is_refused(tmp_path: Path) -> None:
    error = refused(write(tmp_path / "mine", "import os\nprint('the reason', flush=True)\nos._exit(7)\n"))
    assert error.message == "its code ended the process before testbed had finished:\nthe reason"


@pytest.mark.usefixtures("own_process")
def test_a_file_cannot_reach_the_progress(tmp_path: Path) -> None:
    error = refused(write(tmp_path / "mine", "import os\nos.write(3, b'not json')\n"))
    assert error.message.startswith("OSError: [Errno 9] Bad file descriptor")


@pytest.mark.usefixtures("own_process")
@pytest.mark.parametrize("order", [1, -1])
def test_of_several_files_the_one_that_never_ends_is_named(
    order: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit is reached as soon as only one of the two has not ended."""
    good, bad = write(tmp_path / "good", GOOD), write(tmp_path / "bad", "while True: pass\n")
    receive, one_is_left, ends = Job.receive, asyncio.Event(), []

    def receive_end(job: Job[Any], message: dict[str, Any]) -> None:
        receive(job, message)
        ends.append(message)
        one_is_left.set()

    async def until_one_is_left(follow: Coroutine[Any, Any, None], *_: object) -> None:
        task = asyncio.ensure_future(follow)
        await one_is_left.wait()
        task.cancel()
        raise TimeoutError

    monkeypatch.setattr(Job, "receive", receive_end)
    monkeypatch.setattr(local, "patiently", until_one_is_left)
    with pytest.raises(TestbedError) as said:
        asyncio.run(scenarios.describe([(good, {}), (bad, {})][::order]))
    assert said.value.message == f"cannot be loaded: still running after {questions.LIMIT_S:g} s"
    assert said.value.where == str(bad.file)
    assert [message["response"]["title"] for message in ends] == ["A story"]
    assert str(tmp_path) not in subprocess.run(["ps", "-ef"], capture_output=True, text=True, check=True).stdout


def test_several_files_know_nothing_of_each_other(tmp_path: Path) -> None:
    sources = [write(tmp_path / name, f"import words\n{GOOD}    title = words.TITLE\n") for name in ("one", "two")]
    for source in sources:
        (source.file.parent / "words.py").write_text(f"TITLE = 'Of {source.name}'")
    infos = asyncio.run(scenarios.describe([(source, {}) for source in sources]))
    assert [(said["name"], said["title"]) for said in infos] == [("one", "Of one"), ("two", "Of two")]


def test_of_several_files_the_wrong_one_is_named(tmp_path: Path) -> None:
    good, bad = write(tmp_path / "good", GOOD), write(tmp_path / "bad", "x = 1\nraise OSError('no such card')\n")
    with pytest.raises(TestbedError, match="OSError: no such card") as said:
        asyncio.run(scenarios.describe([(good, {}), (bad, {})]))
    assert said.value.where == f"{bad.file}:2"


def asked_of(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The titles of the scenarios whose code runs to be described, from now on."""
    titles: list[str] = []
    answers = questions.answers

    async def noted(asked: Any, found: Any, **keys: Any) -> Any:
        infos = await answers(asked, found, **keys)
        titles.extend(info["title"] for info in infos)
        return infos

    monkeypatch.setattr(questions, "answers", noted)
    return titles


def test_what_was_described_before_is_not_described_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = asked_of(monkeypatch)
    source = write(tmp_path / "mine", GOOD)
    first = describe(source)
    other = write(tmp_path / "other", GOOD.replace("A story", "Another"))
    both = asyncio.run(scenarios.describe([(other, {}), (source, {})]))
    assert (both[1], both[0]["title"]) == (first, "Another")
    assert asked == ["A story", "Another"]


@pytest.mark.parametrize(
    "what", ["its code", "a file beside it", "a setting", "the variants", "testbed", "a damaged description"]
)
def test_what_may_say_something_else_is_described_anew(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache_root: Path
) -> None:
    asked = asked_of(monkeypatch)
    text = f"from testbed import Parameters\nclass Knobs(Parameters):\n    a: int = 1\n{GOOD}    parameters = Knobs\n"
    source = write(tmp_path / "mine", text)
    describe(source)
    match what:
        case "its code":
            source.file.write_text(text.replace("A story", "A longer story"))
        case "a file beside it":
            (source.file.parent / "words.txt").write_text("")
        case "testbed":
            monkeypatch.setattr(snapshot, "code_digest", lambda: "of another version")
        case "a damaged description":
            [kept] = (cache_root / "descriptions").iterdir()
            kept.write_text(kept.read_text()[:-1])
    settings = {"a": "2"} if what == "a setting" else {}
    [said] = asyncio.run(scenarios.describe([(source, settings)], ["cure"] if what == "the variants" else []))
    assert asked == ["A story", said["title"]]
    assert (said["title"] != "A story") == (what == "its code")


@pytest.mark.parametrize(
    ("name", "on_this_kernel", "where"),
    [("ip-reuse", False, "here"), ("mine", False, "in a machine"), ("mine", True, "here")],
)
def test_code_of_others_is_run_in_a_machine_unless_the_user_chose_this_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, on_this_kernel: bool, where: str
) -> None:
    """The tests of machines show that it is the code of a scenario that runs there."""
    (tmp_path / "mine").mkdir()
    for file in "scenario.py", "topology.clab.yml":
        shutil.copy(scenarios.resolve("ip-reuse").file.with_name(file), tmp_path / "mine")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(questions, "ON_THIS_KERNEL", SimpleNamespace(get=lambda: on_this_kernel))
    used = []
    monkeypatch.setattr(questions, "machine_for_code", lambda: used.append("in a machine") or LocalMachine())
    [info] = asyncio.run(scenarios.describe([(scenarios.resolve(name), {})]))
    assert info["name"] == name
    assert (used or ["here"]) == [where]


def test_a_path_or_a_link_that_leads_elsewhere_is_not_testbed_s(tmp_path: Path) -> None:
    place = scenarios.resolve("ip-reuse").file.parents[1]
    shutil.copytree(place / "ip-reuse", tmp_path / "mine")
    around = place / os.path.relpath(tmp_path / "mine", place) / "scenario.py"
    assert not Source("mine", around).is_shipped
    assert Source("ip-reuse", place / "ip-reuse" / ".." / "ip-reuse" / "scenario.py").is_shipped


def test_without_an_image_code_of_others_is_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(questions.image, "find", lambda: None)
    with pytest.raises(UnsupportedError, match="in a micro-VM, and there is no image") as said:
        questions.machine_for_code()
    assert said.value.hint.startswith("`testbed image build` makes it.")
