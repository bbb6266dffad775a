"""The tools of `testbed mcp`. A tool that is added here is served, listed in docs/mcp.md and tested for its schema."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from testbed.cli.mcp import changing_tools, incident_tools, own_labs, program_tools, reading_tools
from testbed.cli.mcp.lab_calls import Access


@dataclass(frozen=True)
class ToolEntry:
    """A tool. `function` takes the tool's arguments; before them a `LabCalls`, if it is about a lab, or the `Access`.

    `effect` is what it does to a lab: it reads, it changes what can be changed back, or it may destroy. `newest_last`:
    a result that is too large loses its first rows."""

    function: Callable[..., Any]
    effect: Literal["reads", "changes", "destroys"]
    name: str = ""
    newest_last: bool = False
    everywhere: bool = True
    """False for one that a server of one lab does not have."""
    only_reading: bool = False
    """True for one that stands in for another in a server that only reads."""

    @property
    def called(self) -> str:
        return self.name or self.function.__name__


TOOLS = (
    ToolEntry(reading_tools.labs, "reads"),
    ToolEntry(reading_tools.inspect, "reads"),
    ToolEntry(reading_tools.tables, "reads"),
    ToolEntry(reading_tools.events, "reads", newest_last=True),
    ToolEntry(reading_tools.logs, "reads", newest_last=True),
    ToolEntry(reading_tools.counters, "reads"),
    ToolEntry(reading_tools.metrics, "reads"),
    ToolEntry(reading_tools.diagnose, "reads"),
    ToolEntry(reading_tools.faults, "reads"),
    ToolEntry(reading_tools.get, "reads"),
    ToolEntry(reading_tools.topology, "reads"),
    ToolEntry(program_tools.watch, "reads", "capture", only_reading=True),
    ToolEntry(program_tools.capture, "changes"),
    ToolEntry(program_tools.exec_, "destroys", "exec"),
    ToolEntry(changing_tools.rdma_write, "changes"),
    ToolEntry(changing_tools.probe, "changes"),
    ToolEntry(changing_tools.announce, "changes"),
    ToolEntry(changing_tools.advance, "changes"),
    ToolEntry(changing_tools.address, "changes"),
    ToolEntry(changing_tools.link_set, "changes"),
    ToolEntry(changing_tools.profile_set, "changes"),
    ToolEntry(changing_tools.inject, "changes"),
    ToolEntry(changing_tools.recover, "changes"),
    ToolEntry(changing_tools.pod_add, "changes"),
    ToolEntry(changing_tools.pod_delete, "destroys"),
    ToolEntry(changing_tools.reboot, "destroys"),
    ToolEntry(changing_tools.apply, "destroys"),
    ToolEntry(changing_tools.apply_objects, "changes"),
    ToolEntry(changing_tools.delete_objects, "destroys"),
    ToolEntry(incident_tools.ticket, "reads"),
    ToolEntry(incident_tools.hint, "changes"),
    ToolEntry(incident_tools.answer, "destroys"),
    ToolEntry(own_labs.up, "changes", everywhere=False),
    ToolEntry(own_labs.down, "destroys", everywhere=False),
)


def served(access: Access) -> list[ToolEntry]:
    """Return the tools of a server with this access."""
    return [
        tool
        for tool in TOOLS
        if (tool.effect == "reads" or access.changes)
        and not (tool.only_reading and access.changes)
        and (tool.everywhere or not access.only)
    ]
