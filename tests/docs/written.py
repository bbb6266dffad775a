"""The file that a generator of a page writes."""

import sys
from pathlib import Path


def write(page: Path, text: str) -> None:
    """Write a page, or with `--check` end with status 1 if it differs from the text."""
    if "--check" not in sys.argv:
        page.write_text(text)
    elif not page.exists() or page.read_text() != text:
        raise SystemExit(f"{page} is out of date: make examples")
