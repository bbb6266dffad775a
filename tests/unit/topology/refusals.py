"""Bad input: each is one InputError (exit status 2) that names the place and says what would be right."""

import pytest

from testbed.errors import InputError
from testbed.topology import Topology

HEAD = """\
name: lab
topology:
  nodes:
    sw: {kind: switch, vlans: {10: 10.0.10.1/24, 20: null}}
    a: {kind: host}
    b: {kind: host}
    br: {kind: bridge}
  links:
"""
"""Eight lines: the first link that a test adds is in line 9."""


def refused(text: str, **options: object) -> list[str]:
    """The lines of the error for a topology that must not pass."""
    with pytest.raises(InputError) as caught:
        Topology.parse(text, source="t.yml").plan(**options)  # type: ignore[arg-type]
    assert caught.value.exit_status == 2
    return str(caught.value).splitlines()


def assert_refused_at_caret(text: str, message: str) -> None:
    """Some line of the error names the place where `text` has a ^ (which is taken out) and contains `message`."""
    before, after = text.split("^")
    line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
    lines = refused(before + after)
    assert any(found.startswith(f"t.yml:{line}:{column}: ") and message in found for found in lines), lines


def with_links(*links: str) -> str:
    return HEAD + "".join(f"    - {link}\n" for link in links)


def with_node(body: str) -> str:
    return f"name: lab\ntopology:\n  nodes:\n    n: {body}\n"
