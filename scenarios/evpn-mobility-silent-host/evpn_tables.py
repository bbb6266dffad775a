"""A MAC in the tables of three leaves of an EVPN fabric, as the leaf of the client has it and those of its owners."""

from typing import Any

from testbed import Run

LEAF2, LEAF3 = "10.255.0.3", "10.255.0.4"
"""Their tunnels' addresses."""


def entry(run: Run, leaf: str, mac: str) -> dict[str, Any]:
    """A MAC as a leaf has it; empty if it does not."""
    rows = run.lab.switch(leaf).tables()["fdb"]
    return next((row for row in rows if row["mac"] == mac), {})


def behind(run: Run, mac: str) -> list[str]:
    """The switches behind which leaf1 has a MAC."""
    found: list[str] = entry(run, "leaf1", mac).get("vteps", [])
    return found


def becomes(run: Run, mac: str, vtep: str) -> bool:
    """Whether leaf1 comes to have a MAC behind a switch."""
    return run.lab.scheduler.wait(lambda: behind(run, mac) == [vtep], 5)
