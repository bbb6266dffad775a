"""Files as containerlab's users write them: each is planned, with notes on what has no effect, or refused for the one
reason that there is."""

import re
from pathlib import Path

import pytest

from testbed.errors import InputError
from testbed.topology import Topology

FILES = sorted((Path(__file__).parent / "containerlab").glob("*.clab.yml"))


def said(file: Path, what: str) -> str:
    """The comments at the head of a file, by their first word."""
    return " ".join(re.findall(rf"^# {what}: (.*)$", file.read_text(), re.MULTILINE))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_file_is_planned_with_notes_or_refused_for_its_one_reason(file: Path) -> None:
    assert said(file, "form")
    reason = said(file, "refused")
    if not reason:
        topology = Topology.load(file)
        assert topology.plan().nodes
        assert {note.key for note in topology.notes} == set(said(file, "notes").split())
        return
    with pytest.raises(InputError) as caught:
        Topology.load(file).plan()
    (line,) = str(caught.value).splitlines()
    assert line.startswith(f"{file}:{reason}")


def test_most_are_planned() -> None:
    assert len(FILES) >= 20
    assert sum(not said(file, "refused") for file in FILES) >= 12
