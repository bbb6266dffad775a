"""Labs that a server brings up itself: from the text of a topology, for as long as the server lives."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field
from typing_extensions import TypedDict

from testbed.cli.live import up as up_command
from testbed.cli.live.source import Found, topology_name
from testbed.cli.mcp.changing_tools import MOST_TEXT
from testbed.cli.mcp.lab_calls import Access, LabCalls
from testbed.cli.mcp.reading_tools import State, inspect
from testbed.errors import InputError, TestbedError
from testbed.machine.live import labs

FILE = "topology.clab.yml"
SHOWN = "of testbed mcp"
"""In place of the path of a topology file, for `testbed ps`."""
MOST_LABS = 4

_OURS: dict[str, contextlib.ExitStack] = {}
"""What keeps each of these labs up, by its name: it ends with this process, however that ends."""
_TURN = threading.Lock()


def up(
    access: Access,
    text: Annotated[str, Field(max_length=MOST_TEXT, description="A topology in containerlab's format.")],
    name: Annotated[str, Field(description="Name of the lab. Empty: the name in the text.")] = "",
    clock: Literal["virtual", "real"] = "virtual",
    seed: Annotated[int, Field(ge=0)] = 1,
) -> State:
    """Bring up a lab of your own from the text of a topology; it ends with down, or when the assistant goes. It takes
    some seconds. testbed://docs/topologies has more of the format. Example:

    name: pair
    topology:
      nodes:
        leaf: {kind: switch, vlans: {10: 10.0.10.1/24}}
        h1: {kind: host}
        h2: {kind: host}
      links:
        - {endpoints: ["leaf:e1", "h1:eth1"], vlan: 10}
        - {endpoints: ["leaf:e2", "h2:eth1"], vlan: 10}
    """
    found = source(text, name)
    with _TURN:
        _forget()
        if len(_OURS) >= MOST_LABS:
            raise InputError(f"{MOST_LABS} labs are up already", hint=f"Call down for one of: {', '.join(_OURS)}.")
        with contextlib.ExitStack() as stack:
            stack.enter_context(up_command.brought_up(found, clock, seed, None, access.out, attached=True))
            _OURS[found.name] = stack.pop_all()
    return inspect(LabCalls.of(found.name, ""))


def source(text: str, name: str) -> Found:
    """Return the source of a lab that has nothing but this text: no file of the host goes with it."""
    data = text.encode()
    if b"image" in data:
        hint = "An image and the files that it mounts are of the host: `testbed up FILE`."
        raise InputError("a topology with containers cannot be brought up here", hint=hint)
    given = name or topology_name(data, Path(FILE))
    return Found(given, SHOWN, {FILE: data}, {"topology": FILE}, str)


def _forget() -> None:
    """Forget those that somebody else has ended."""
    alive = {lab.name for lab in labs.every() if lab.alive()}
    for name in [name for name in _OURS if name not in alive]:
        _OURS.pop(name).close()


class Ended(TypedDict):
    ended: str


def down(lab: Annotated[str, Field(description="Name of a lab that up has brought up.")]) -> Ended:
    """End a lab of your own. Those of the user are not yours to end."""
    with _TURN:
        if lab not in _OURS:
            hint = f"Yours: {', '.join(_OURS) or 'none'}. `testbed down` is for the others."
            raise InputError(f"lab {lab} is not one that up has brought up", hint=hint)
        with _OURS.pop(lab), contextlib.suppress(InputError):  # somebody else has ended it
            found = labs.named(lab)
            up_command.take_down(found, force=False)
            up_command.page(found)
    return {"ended": lab}


def end_all() -> None:
    """End all of them, at the end of the server."""
    for name in [*_OURS]:
        with contextlib.suppress(TestbedError):
            down(name)
