"""What is said of a file that holds no good scenario, before any machine is started."""

from collections.abc import Callable
from pathlib import Path

import pytest

from testbed.errors import InputError
from testbed.scenario import loading
from testbed.scenario.model import Scenario

HEAD = "from pydantic import Field\nfrom testbed import Parameters, Scenario, Variant\n"
ONE = 'variants = (Variant("a", "fault", ""),)'
RUN = "def run(self, run, parameters): ..."


def scenario(*lines: str) -> str:
    return f"{HEAD}class Story(Scenario):\n" + "".join(f"    {line}\n" for line in lines)


def refused(path: Path) -> InputError:
    with pytest.raises(InputError) as said:
        loading.load(path)
    return said.value


def test_a_good_file_is_its_scenario(write: Callable[..., Path]) -> None:
    found = loading.load(write(scenario('"A story."', ONE, RUN)))
    assert issubclass(found, Scenario)
    assert (found.__name__, found.words()) == ("Story", ("A story", ""))


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("x = 1\ndef story(:\n", 2, "SyntaxError: invalid syntax"),
        ("if True:\nx = 1\n", 2, "IndentationError"),
        ("\n\nraise OSError('no such card')\n", 3, "OSError: no such card"),
        ("\nimport no_such_module\n", 2, "ModuleNotFoundError: No module named 'no_such_module'"),
        ("def f():\n    return 1 / 0\n\nf()\n", 2, "ZeroDivisionError"),
        (f"{HEAD}class Story(Scenario):\n    title = missing\n", 4, "NameError: name 'missing' is not defined"),
    ],
)
def test_an_error_of_the_file_is_at_its_line(write: Callable[..., Path], text: str, line: int, message: str) -> None:
    error = refused(write(text))
    assert error.where == f"scenario.py:{line}"
    assert error.message.startswith(message)


def test_an_error_in_a_module_beside_it_is_at_the_line_that_imports_it(write: Callable[..., Path]) -> None:
    write("\n\n\n\nraise OSError('no such card')\n", "broken_beside.py")
    error = refused(write("x = 1\nimport broken_beside\n"))
    assert (error.where, error.message) == ("scenario.py:2", "OSError: no such card")


@pytest.mark.parametrize(
    ("text", "count"), [("", 0), (HEAD, 0), (scenario(ONE, RUN) + "class Second(Story): ...\n", 2)]
)
def test_a_file_holds_exactly_one_scenario(write: Callable[..., Path], text: str, count: int) -> None:
    error = refused(write(text))
    assert error.message == f"a scenario file must define one subclass of testbed.Scenario; this one defines {count}"
    assert error.where == "scenario.py"
    assert "docs/scenarios.md" in error.hint


def test_a_scenario_that_is_only_imported_is_not_the_file_s(write: Callable[..., Path]) -> None:
    write(scenario('"Base."', ONE, RUN), "base_beside.py")
    found = loading.load(write('from base_beside import Story\nclass Mine(Story):\n    "Mine."\n'))
    assert (found.__name__, found.words()) == ("Mine", ("Mine", ""))


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([ONE, RUN], "class Story has no docstring"),
        (['"""   """', ONE, RUN], "class Story has no docstring"),
        (['"A story."', RUN], "class Story has no `variants`"),
        (['"A story."', ONE], "class Story has no method `run`"),
        (['"A story."', "variants = ()", RUN], "class Story has no variants"),
        (['"A story."', 'variants = [Variant(name, "fault", "") for name in "abcb"]', RUN], "variant b is given twice"),
        (
            ['"A story."', 'variants = (Variant("a", "broken", ""),)', RUN],
            "variant a expects 'broken', not 'fault' or 'healthy'",
        ),
        (
            ['"A story."', 'variants = (Variant("a", "fault", "", {"colour": 1}),)', RUN],
            "parameters of variant a: there is no 'colour'",
        ),
    ],
)
def test_what_every_scenario_must_say_is_asked_for(write: Callable[..., Path], lines: list[str], message: str) -> None:
    error = refused(write(scenario(*lines)))
    assert error.message == message
    assert error.exit_status == 2
