"""What goes wrong in an incident, who does it, and what mends it.

What a person or a program did wrong is done by commands, which leave what they would leave on a cluster, and can be
undone as there. What is broken in hardware are faults, which nobody in the lab can mend: the link is taken out.
"""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

from testbed.faults.catalogue import KINDS
from testbed.faults.fault import make
from testbed.faults.secret import SecretInjection
from testbed.lab import Lab, Pod

PKILL = "pkill --ns $$ --nslist net -f [j]ob.py"
"""The head of a command that sends a signal to the ranks of one host alone. Hosts share a kernel."""
ON_S, OFF_S = 5, 45
"""Seconds for which what heals and comes back is there, and gone."""


class Act(Protocol):
    """Something that is done to a lab."""

    def do(self, lab: Lab) -> None: ...


@dataclass(frozen=True)
class Typed:
    """A command that somebody typed on a node."""

    node: str
    command: str

    def do(self, lab: Lab) -> None:
        lab.nodes[self.node].run(*shlex.split(self.command), check=False)


@dataclass(frozen=True)
class Entered:
    """Lines that somebody entered in the configuration of a switch's bgpd."""

    switch: str
    lines: Sequence[str]

    def do(self, lab: Lab) -> None:
        lab.routing.ask(lab.switch(self.switch), "bgpd", "configure terminal", *self.lines)


@dataclass(frozen=True)
class Set:
    """Values of a switch's profile that somebody set."""

    switch: str
    values: Mapping[str, Any]

    def do(self, lab: Lab) -> None:
        lab.switch(self.switch).change_profile(**self.values)


@dataclass(frozen=True)
class Left:
    """A program that somebody left running on a node: a script of the shell, under a name."""

    node: str
    name: str
    script: str

    def do(self, lab: Lab) -> None:
        lab.nodes[self.node].launch("sh", "-c", self.script, self.name)


@dataclass(frozen=True)
class Started:
    """A pod that somebody started on a host, attached to these networks."""

    host: str
    pod: str
    networks: Sequence[Mapping[str, Any]]

    def do(self, lab: Lab) -> None:
        lab.pods.create(lab.host(self.host), self.pod, self.networks)


@dataclass(frozen=True)
class Deleted:
    """A pod that somebody deleted."""

    pod: str

    def do(self, lab: Lab) -> None:
        lab.pods.delete(cast(Pod, lab[self.pod]))


@dataclass(frozen=True)
class Broken:
    """A fault of hardware. One that `returns` is there for ON_S, gone for OFF_S, and so on."""

    fault: str
    parameters: Mapping[str, Any]
    returns: bool = False

    def do(self, lab: Lab) -> None:
        injection = SecretInjection(lab, make(KINDS, self.fault, dict(self.parameters)))

        def begin() -> None:
            injection.inject()
            if self.returns:
                lab.scheduler.after(ON_S, end)

        def end() -> None:
            injection.recover()
            lab.scheduler.after(OFF_S, begin)

        begin()


@dataclass(frozen=True)
class Trouble:
    """What is wrong in a lab. `causes` are those that an answer may name, the first one is the usual word; `places` the
    nodes, links and ranks of which it has to name one. `mend` are the commands of the solution, as `testbed` takes them
    after its name; each of `wrong` is a fix that is often tried, and does not help. Of two troubles in a lab none
    touches a part that the other one does."""

    causes: Sequence[str]
    places: Sequence[str]
    story: str
    """What happened, as a sentence without its first capital and its full stop."""
    acts: Sequence[Act]
    mend: Sequence[str]
    wrong: Sequence[str]
    hints: tuple[str, str]
    parts: frozenset[str]
    scene: str = "cluster"
    """The cluster that has it: the name in its topology file."""
    by_restart: bool = False
    """Whether a restart of the job mends it, too: it is alone then."""


@dataclass(frozen=True)
class Trace:
    """What somebody did to the lab before, and what the ticket says about it: harmless (`undo` is empty), or a fix that
    was tried, did not help, and breaks something itself."""

    text: str
    acts: Sequence[Act]
    undo: Sequence[str] = ()
    parts: frozenset[str] = field(default=frozenset())
