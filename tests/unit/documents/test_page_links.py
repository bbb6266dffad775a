"""Links between the pages of the documentation: each page and each section that one names is there."""

import re
from pathlib import Path

import pytest

TOP = Path(__file__).parents[3]
PAGES = [TOP / "README.md", TOP / "CHANGELOG.md", *sorted((TOP / "docs").glob("*.md"))]


def prose(page: Path) -> str:
    """Without blocks of code."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"`[^`\n]+`", lambda code: code[0].strip("`"), text)


def anchors(page: Path) -> set[str]:
    """As GitHub makes them of headings: lower case, no punctuation, `-` for a space."""
    headings = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page: Path) -> None:
    dead = []
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        name, _, section = target.partition("#")
        if "://" in name:
            continue
        file = page.parent / name if name else page
        if not file.exists() or (section and section not in anchors(file)):
            dead.append(target)
    assert not dead
