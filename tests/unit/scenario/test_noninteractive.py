"""Code that asks for input is refused at its line. It runs in a process of its own, as it does inside."""

import subprocess
import sys
from pathlib import Path

RUNNER = """
import runpy
from pathlib import Path
from testbed.errors import InputError
from testbed.scenario.noninteractive import refuse_input
here = Path.cwd()
refuse_input(here)
for file in sorted(here.glob("story*.py")):
    try:
        runpy.run_path(str(file))
    except InputError as error:
        print(error.where, error.message, sep="|")
"""
IMPORTS = "import cmd, code, getpass, pdb, select, subprocess, sys\nsys.path.insert(0, '.')\n"


def outcome(directory: Path, *texts: str) -> list[str]:
    """What programs write, one after the other; their standard input is a pipe on which nothing ever comes."""
    for number, text in enumerate(texts):
        (directory / f"story{number}.py").write_text(IMPORTS + text)
    with subprocess.Popen(
        [sys.executable, "-c", RUNNER],
        cwd=directory,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        try:
            process.wait(timeout=30)
        finally:
            process.kill()
        assert process.stdout
        return process.stdout.read().splitlines()


def test_code_that_asks_for_input_is_refused_at_its_line(tmp_path: Path) -> None:
    asks = [
        "input('> ')",
        "breakpoint()",
        "sys.stdin.read()",
        "[line for line in sys.stdin]",
        "select.select([sys.stdin], [], [])",
        "select.poll().register(sys.stdin)",  # as Mininet's CLI does
        "cmd.Cmd().cmdloop()",
        "code.interact()",
    ]
    said = outcome(tmp_path, *(f"def ask():\n    {one}\nask()\n" for one in asks))
    for number, one in enumerate(asks):
        expected = f"story{number}.py:4|`{one}` asks for input, but a machine has no keyboard"
        assert expected in said


def test_a_debugger_is_refused(tmp_path: Path) -> None:
    """At the line of set_trace, or before Python 3.13 at the next one."""
    said = outcome(tmp_path, "pdb.set_trace()\nx = 1\n")
    assert any(line.startswith("story0.py:") and "asks for input" in line for line in said)


def test_the_line_is_the_innermost_of_the_user_s_files(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("def ask():\n\n    return input()\n")
    said = outcome(tmp_path, "import beside\nbeside.ask()\n")
    assert said == ["beside.py:3|`return input()` asks for input, but a machine has no keyboard"]


def test_a_program_finds_its_input_at_the_end(tmp_path: Path) -> None:
    assert outcome(tmp_path, "print(subprocess.run(['cat']).returncode)\n") == ["0"]
