"""docs/troubleshooting.md speaks of messages that the code has."""

import re
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]
PAGE = (TOP / "docs" / "troubleshooting.md").read_text()
MESSAGES = [
    text for cell in re.findall(r"^\| (`.*?`(?:, `.*?`)*) \|", PAGE, re.MULTILINE) for text in cell[1:-1].split("`, `")
]
CODE = "\n".join(file.read_text() for file in sorted((TOP / "testbed").rglob("*.py")))


def test_there_are_many() -> None:
    assert len(MESSAGES) > 20


@pytest.mark.parametrize("message", MESSAGES)
def test_a_message_is_one_of_the_code(message: str) -> None:
    """Its longest part without names, numbers and places that the code fills in."""
    parts = re.split(r"…|\bNAME\b|\bN\b|\d+|[:;]|mmdebstrap, ", message)
    longest = max((part.strip(" ;:,") for part in parts), key=len)
    words = re.escape(longest).replace(r"\ ", r"(?:\s|\"\n\s*f?\")+")
    assert re.search(words, CODE), longest
