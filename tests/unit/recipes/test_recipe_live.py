"""The recipe "A live verb" of docs/architecture.md, carried out on a copy of the package."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import testbed

PACKAGE = Path(testbed.__file__).parent
RECIPE = PACKAGE.parent / "docs" / "architecture.md"
EDITS = {
    "protocol/live.py": (
        "\n\nregister(*LiveRequest",
        '''

class Size(LiveRequest[int], handler="inspecting:size", touches=False):
    """Count the nodes of the lab."""
''',
    ),
    "executor/live/inspecting.py": (
        "\n\ndef node_row(",
        """

def size(_: live.Size, call: Call) -> int:
    return len(call.lab.nodes)
""",
    ),
    "cli/live/inspect_commands.py": (
        "\n\n@click.command(help",
        '''

@click.command(help="""Count the nodes of a lab.""")
@lab_options
def size(name: str, form: str) -> int:
    from testbed.protocol.live import Size

    found = ask(name, Size())
    return show(form, {"nodes": found}, f"{found} nodes")
''',
    ),
    "cli/main.py": (
        '\n    "top": (',
        '\n    "size": ("testbed.cli.live.inspect_commands:size", "Count the nodes of a lab."),',
    ),
}
"""For each file of the recipe a text of it, and what is put before that."""
TRIED = '''
import json, socket, threading
from types import SimpleNamespace

from testbed.cli.main import invoke
from testbed.executor.live.server import Server
from testbed.machine.live import labs
from testbed.protocol import live, messages


class Wire:
    """The machine's end of a wire whose other end is a command itself."""

    virtual = True

    def __init__(self, connection):
        self._connection, self._file, self._come = connection, connection.makefile("rb"), []

    def pause(self, _):
        line = self._file.readline()
        self._come = [json.loads(line) if line else messages.ask(0, live.Down())]

    def receive(self):
        come, self._come = self._come, []
        return come

    def send(self, line):
        self._connection.sendall(line + b"\\n")


def serve(listener):
    while True:
        connection, _ = listener.accept()
        Server(lab, SimpleNamespace(), Wire(connection), "").serve()


scheduler = SimpleNamespace(sources=[], idle=lambda _: None, sleep=lambda _: None, catch_up=lambda: None)
kernel = SimpleNamespace(routes_by_hand=list)
node = SimpleNamespace(now=lambda: SimpleNamespace(links={}, addresses={}), interfaces={}, kernel=kernel)
lab = SimpleNamespace(nodes={"h1": node, "h2": node, "leaf": node}, scheduler=scheduler)
record = labs.Lab("mine", "x.yml", "virtual", 1.0, 1, "0.1", "", "up")
with labs.claimed(record), labs.listener(record) as listener:
    listener.listen()
    threading.Thread(target=serve, args=[listener], daemon=True).start()
    for words in ["--help"], ["size"], ["size", "-f", "json"]:
        assert invoke(words) == 0
'''


def recipe() -> str:
    """The paragraph of the recipe."""
    found = re.search(r"\*\*A live verb\.\*\*.*?\n\n", RECIPE.read_text(), re.DOTALL)
    assert found
    return found[0]


def test_a_verb_made_by_the_recipe_is_in_the_help_and_is_answered_in_a_lab(tmp_path: Path) -> None:
    copy = tmp_path / "testbed"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__", "*.o"))
    for name, (place, text) in EDITS.items():
        before, found, after = (copy / name).read_text().partition(place)
        assert found, f"{name} has no {place!r}"
        (copy / name).write_text(before + text + found + after)
    imports = copy / "cli/live/inspect_commands.py"
    imports.write_text(imports.read_text().replace("live_options import ", "live_options import ask, show, ", 1))
    env = {**os.environ, "PYTHONPATH": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "state")}
    done = subprocess.run([sys.executable, "-P", "-c", TRIED], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    help_, *answers = done.stdout.rsplit("\n", 3)[:-1]
    assert re.search(r"^  size +Count the nodes of a lab\.$", help_, re.MULTILINE)
    assert answers == ["3 nodes", '{"nodes": 3}']


def test_the_recipe_names_the_files_that_a_verb_takes() -> None:
    named = set(re.findall(r"`((?:protocol|executor|cli)/[\w/]+(?:\.py)?)`", recipe()))
    assert named == {name if name in named else str(Path(name).parent) for name in EDITS}
