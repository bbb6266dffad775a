"""Resources of `testbed mcp`: the topology of a lab as it is now, the documentation, the kinds of faults."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mcp.server.mcpserver.exceptions import ResourceError, ResourceNotFoundError

from testbed.cli.mcp.bounds import PAGE, clean, compact, shortened
from testbed.cli.mcp.lab_calls import Access
from testbed.cli.mcp.reading_tools import topology
from testbed.errors import TestbedError
from testbed.machine.questions import kept
from testbed.machine.shipped import DOCS
from testbed.protocol import requests

if TYPE_CHECKING:
    from mcp.server.mcpserver import MCPServer

MARKDOWN, YAML, JSON = "text/markdown", "application/yaml", "application/json"


def add(server: MCPServer[Any], access: Access, calling: Callable[..., Awaitable[Any]]) -> None:
    """Add them to a server. `calling` calls a function with the calls to a lab of this name."""

    @server.resource("testbed://labs/{lab}/topology", name="topology", mime_type=YAML)
    async def topology_of(lab: str) -> str:
        """The topology file of a lab in its present state."""
        if access.only not in ("", lab):
            raise ResourceNotFoundError(f"this server is for lab {access.only}")
        try:
            found = await calling(topology, lab)
        except TestbedError as error:
            raise ResourceError(error.message) from None
        return shortened(str(clean(found["text"])), PAGE)

    @server.resource("testbed://docs", name="docs", mime_type=MARKDOWN)
    def index() -> str:
        """The pages of the documentation."""
        return "\n".join(f"- testbed://docs/{name}: {title(file)}" for name, file in pages().items())

    @server.resource("testbed://docs/{page}", name="page", mime_type=MARKDOWN)
    def page(page: str) -> str:
        """A page of the documentation: counters, events, faults, switches, live, fidelity, …"""
        if page not in pages():
            raise ResourceNotFoundError(f"there is no page {page}: testbed://docs lists them")
        return shortened(pages()[page].read_text(encoding="utf-8"), PAGE)

    @server.resource("testbed://faults", name="faults", mime_type=JSON)
    def faults() -> str:
        """The kinds of faults that can be injected, with the JSON Schemas of their parameters."""
        return compact(kept(requests.Faults()))


def pages() -> dict[str, Path]:
    return {file.stem: file for file in sorted(DOCS.glob("*.md"))}


def title(page: Path) -> str:
    return page.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")
