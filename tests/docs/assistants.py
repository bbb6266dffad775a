"""The table of tools and the session in docs/mcp.md. `make examples` writes both; `--check` compares the table."""

import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

from mcp import Client, StdioServerParameters
from written import write

from testbed.cli.mcp.tool_list import TOOLS

PAGE = Path(__file__).parents[2] / "docs" / "mcp.md"
TABLE = re.compile(r"(?<=<!-- tools -->\n).*?(?=<!-- /tools -->)", re.DOTALL)
SESSION = re.compile(r"(?<=<!-- session -->\n).*?(?=<!-- /session -->)", re.DOTALL)
COMMAND = [sys.executable, "-P", "-m", "testbed"]
WIDTH, MOST_LINES = 110, 5
TOPOLOGY = """name: moved
topology:
  nodes:
    leaf: {kind: switch, vlans: {10: 10.0.10.1/24, 20: 10.0.20.1/24}}
    h1: {kind: host}
    h2: {kind: host}
    h3: {kind: host}
  links:
    - {endpoints: ["leaf:e1", "h1:eth1"], vlan: 10}
    - {endpoints: ["leaf:e2", "h2:eth1"], vlan: 10}
    - {endpoints: ["leaf:e3", "h3:eth1"], vlan: 20}
"""
BEFORE = (
    "up moved.clab.yml --clock virtual",
    "address add h1 10.0.10.100/24",
    "rdma write h3 10.0.10.100",
    "address move 10.0.10.100 h2",
)
WROTE = {"source": "h3", "target": "10.0.10.100", "silent": True}
CALLS = (
    ("rdma_write", WROTE),
    ("inspect", {"node": "h2"}),
    ("tables", {"switch": "leaf", "table": "arp", "contains": "10.0.10.100"}),
    ("capture", {"end": "leaf:e1", "filter": "udp port 4791", "packets": 1, "during": WROTE}),
    ("announce", {"end": "h2", "ip": "10.0.10.100"}),
    ("rdma_write", WROTE),
)


def table() -> str:
    rows = ["| Tool | What it does | With `--read-only` |", "|---|---|---|"]
    for tool in TOOLS:
        if not tool.only_reading:
            text = " ".join((tool.function.__doc__ or "").split())
            stays = tool.effect == "reads" or any(one.called == tool.called for one in TOOLS if one.only_reading)
            rows.append(f"| `{tool.called}` | {first_sentence(text)} | {'yes' if stays else ''} |")
    return "\n".join(rows) + "\n"


def first_sentence(text: str) -> str:
    return text.partition(". ")[0].rstrip(".") + "."


def session() -> str:
    """The calls in a lab, and what the SDK's client gets."""
    with tempfile.TemporaryDirectory() as name:
        env = {**os.environ, "XDG_STATE_HOME": f"{name}/state"}
        (Path(name) / "moved.clab.yml").write_text(TOPOLOGY)
        try:
            for words in BEFORE:
                subprocess.run([*COMMAND, *words.split()], cwd=name, env=env, check=True, capture_output=True)
            server = StdioServerParameters(command=COMMAND[0], args=[*COMMAND[1:], "mcp"], env=env, cwd=name)
            return asyncio.run(called(server))
        finally:
            subprocess.run([*COMMAND, "down", "--all"], cwd=name, env=env, check=True, capture_output=True)


async def called(server: StdioServerParameters) -> str:
    lines = []
    async with Client(server) as client:
        for name, given in CALLS:
            result = await client.call_tool(name, given)
            lines += [
                *wrapped(f"{name} {json.dumps(given)}"),
                *wrapped(json.dumps(result.structured_content), "  "),
                "",
            ]
    return "\n".join(["```text", *lines[:-1], "```", ""])


def wrapped(text: str, indent: str = "") -> list[str]:
    """The first lines of a text."""
    lines = textwrap.wrap(text, WIDTH, initial_indent=indent, subsequent_indent=indent or "  ")
    return [*lines[:MOST_LINES], *([f"{indent}…"] if lines[MOST_LINES:] else [])]


def main() -> None:
    text = TABLE.sub(lambda _: table(), PAGE.read_text())
    if "--check" not in sys.argv:
        made = session()
        text = SESSION.sub(lambda _: made, text)
    write(PAGE, text)


if __name__ == "__main__":
    main()
