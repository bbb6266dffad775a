"""Whatever is wrong with a scenario is one message with its place, before a machine is started, and no traceback."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from testbed import executor
from testbed.errors import InputError
from testbed.executor import topologies
from testbed.protocol.requests import Describe

HEAD = """\
from pydantic import Field
from testbed import Parameters, Scenario, Variant
class Rude(BaseException): ...
class Mute(Exception):
    def __str__(self): raise KeyError("text")
class Size(Parameters):
    packets: int = Field(4, gt=0)
class Story(Scenario):
    title = "A story"
    variants = (Variant("a", "fault", "it breaks"),)
    parameters = Size
    def run(self, run, parameters): ...
"""
LINE = HEAD.count("\n") + 1
TOPOLOGY = "{name: tiny, topology: {nodes: {a: {kind: host}, leaf: {kind: switch}}}}"


@pytest.fixture
def describe(
    write: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., dict[str, object]]:
    """What `testbed describe` answers for a file of these lines, in this process."""
    monkeypatch.setattr("testbed.scenario.noninteractive.refuse_input", lambda files: None)
    write(TOPOLOGY, "topology.clab.yml")
    topologies.planned_file.cache_clear()

    def ask(*lines: str, settings: dict[str, str] | None = None, text: str = HEAD) -> dict[str, object]:
        path = write(text + "".join(f"    {line}\n" for line in lines))
        request = Describe(name="story", scenario=path.name, settings=settings or {}, named=[])
        found = executor.handle(request, executor.Context(tmp_path, tmp_path, lambda _: None))
        whole: dict[str, object] = json.loads(json.dumps(found))
        return whole

    return ask


def test_the_scenario_that_the_others_are_made_of_is_good(describe: Callable[..., dict[str, object]]) -> None:
    assert describe()["title"] == "A story"
    assert describe("limit_s = 3", 'tags = ["a"]', "training = True", 'compared = "a"')["training"] is True


AT_CLASS = [
    ("title = 5", "`title` of class Story is a text, not 5"),
    ("title = None", "`title` of class Story is a text, not None"),
    ("topology = 7", "`topology` of class Story must be a file name, not 7"),
    ("compared = 3", "`compared` of class Story must be the name of a variant, not 3"),
    ('training = "yes"', "`training` of class Story must be True or False, not 'yes'"),
    ('limit_s = "1 h"', "`limit_s` of class Story must be a number of seconds, not '1 h'"),
    ("limit_s = -1", "`limit_s` of class Story must be a number of seconds, not -1"),
    ('limit_s = float("inf")', "`limit_s` of class Story must be a number of seconds, not inf"),
    ('limit_s = float("nan")', "`limit_s` of class Story must be a number of seconds, not nan"),
    ('tags = "arp"', "`tags` of class Story must be a tuple of strings, not 'arp'"),
    ("tags = (1, 2)", "`tags` of class Story must be a tuple of strings, not (1, 2)"),
    ("run = 5", "class Story has no method `run`"),
    ("parameters = dict", "`parameters` of class Story must be a subclass of testbed.Parameters, not <class 'dict'>"),
    (
        "parameters = Size()",
        "`parameters` of class Story must be a subclass of testbed.Parameters, not Size(packets=4)",
    ),
    ("variants = 5", "`variants` of class Story must be a tuple of Variant, not 5"),
    ('variants = Variant("a", "fault", "")', "`variants` of class Story must be a tuple of Variant, not Variant("),
    ('variants = ("a",)', "class Story has 'a' among its variants, which is not a Variant"),
    ('variants = (Variant(5, "fault", ""),)', "a variant cannot have the name 5"),
    ('variants = (Variant("../a", "fault", ""),)', "a variant cannot have the name '../a'"),
    ('variants = (Variant("result.json", "fault", ""),)', "a variant cannot have the name 'result.json'"),
    ('variants = (Variant("README.txt", "fault", ""),)', "a variant cannot have the name 'README.txt'"),
    ('variants = (Variant("scenario", "fault", ""),)', "a variant cannot have the name 'scenario'"),
    ('variants = (Variant("a", ["fault"], ""),)', "variant a expects ['fault'], not 'fault' or 'healthy'"),
    ('variants = (Variant("a", "fault", None),)', "the text of variant a is None"),
    ('variants = (Variant("a", "fault", "", [1]),)', "must be a mapping of parameters, not [1]"),
    ('variants = (Variant("a", "fault", "", {1: 2}),)', "the settings of variant a must be a mapping of parameters"),
    ('variants = (Variant("a", "fault", "", {"packets": object()}),)', "packets: Input should be a valid integer"),
    ("def topology_for(self, parameters): return None", "topology_for returns None, which is not a file name"),
    ("def profiles(self, parameters): return None", "profiles returns None; expected profiles"),
    ('def profiles(self, parameters): return {"leaf": "sonic"}', "for leaf, which is not a Profile"),
    ('def profiles(self, parameters): return {"spine": 1}', "profiles names 'spine', which is not a switch of tiny"),
]


@pytest.mark.parametrize(("line", "message"), AT_CLASS, ids=[line for line, _ in AT_CLASS])
def test_what_is_wrong_in_a_class_is_said_of_the_file(describe: Callable[..., object], line: str, message: str) -> None:
    with pytest.raises(InputError) as said:
        describe(line)
    assert said.value.message.startswith(message) or message in said.value.message
    assert said.value.where in ("scenario.py", "")


AT_LINE = [
    ("def __init__(self): raise RuntimeError('no')", "RuntimeError: no"),
    ("def __init__(self, extra): ...", "TypeError: "),
    ("def topology_for(self): ...", "TypeError: "),
    ("def topology_for(self, parameters): return parameters.colour", "AttributeError: "),
    ("def topology_for(self, parameters): raise SystemExit(3)", "SystemExit: 3"),
    ("def topology_for(self, parameters): raise KeyboardInterrupt", "KeyboardInterrupt: "),
    ("def topology_for(self, parameters): raise Rude('no')", "Rude: no"),
    ("def topology_for(self, parameters): raise Mute", "Mute, whose text cannot be made: KeyError"),
    ("def profiles(self, parameters): return self.profiles(parameters)", "RecursionError: "),
    ("import sys; sys.exit('enough')", "SystemExit: enough"),
]


@pytest.mark.parametrize(("line", "message"), AT_LINE, ids=[line for line, _ in AT_LINE])
def test_what_the_code_of_a_scenario_raises_is_said_of_its_line(
    describe: Callable[..., object], line: str, message: str
) -> None:
    with pytest.raises(InputError) as said:
        describe(line)
    assert said.value.message.startswith(message)
    # A call that does not fit is raised by testbed, which has no line in the file.
    assert said.value.where == ("scenario.py" if "TypeError" in message else f"scenario.py:{LINE}")


def test_parameters_that_no_json_holds_are_refused(describe: Callable[..., object]) -> None:
    text = HEAD.replace("packets: int = Field(4, gt=0)", "hook: type = Field(int)")
    with pytest.raises(InputError) as said:
        describe(text=text)
    assert "the parameters cannot be written as JSON: " in said.value.message


def test_a_validator_of_the_user_s_may_raise_anything(describe: Callable[..., object]) -> None:
    text = HEAD.replace(
        "packets: int = Field(4, gt=0)",
        "packets: int = 4\n    def model_post_init(self, context): raise KeyError('odd')",
    )
    with pytest.raises(InputError) as said:
        describe(text=text)
    assert said.value.message == "KeyError: 'odd'"


def test_a_topology_that_is_not_there_is_named(describe: Callable[..., object]) -> None:
    with pytest.raises(InputError, match="no such file") as said:
        describe('topology = "other.clab.yml"')
    assert said.value.where == "other.clab.yml"


def test_a_class_that_inspection_cannot_read_is_refused(describe: Callable[..., object]) -> None:
    with pytest.raises(InputError) as said:
        describe("title = property(lambda self: 1 / 0)", "__doc__ = 7")
    assert said.value.message.startswith("`title` of class Story is a text, not <property")
