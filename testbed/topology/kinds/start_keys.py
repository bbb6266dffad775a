"""When a node of containerlab's files starts: its stages, the nodes that it waits for, its container's health.

Source: containerlab's manual (Nodes: stages, startup-delay, healthcheck), types/stages.go and types/healthcheck.go.
"""

import shlex
from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema

from testbed.documents.text import describe
from testbed.topology.definition import Definition
from testbed.topology.kinds.host_kind import Command
from testbed.topology.plan import STAGES, Health, Stage, StageName, Start
from testbed.topology.values import Label


def parse_test(value: Any) -> Any:
    """Return the words of Docker's `HEALTHCHECK`: ["CMD", …] or ["CMD-SHELL", "…"]."""
    words = value if isinstance(value, list | tuple) else [value]
    if not words or not all(isinstance(word, str) for word in words):
        raise ValueError(f"'test' must be a list such as [CMD-SHELL, 'ls /ready'], not {describe(value)}")
    if words[0] not in ("CMD", "CMD-SHELL", "NONE"):
        raise ValueError(f"'test' must begin with CMD, CMD-SHELL or NONE, not {describe(words[0])}")
    if words[0] == "CMD-SHELL":
        return ("sh", "-c", " ".join(words[1:]))
    return tuple(words[1:]) if words[0] == "CMD" else ()


def parse_target(value: Any) -> Any:
    if value == "host":
        raise ValueError("'target: host' runs a command on the machine with the containers, which a lab does not have")
    return value


Seconds = Annotated[int, Field(ge=0, le=86400)]


class WaitDefinition(Definition):
    """A stage of another node that must be over."""

    node: Label
    """Another node of this file."""
    stage: StageName = "create"
    """Its stage."""


class StageExecDefinition(Definition):
    """A command of a stage."""

    command: Command
    """A command without a shell."""
    target: Annotated[Literal["container"], BeforeValidator(parse_target)] = "container"
    """Where it is run: in the node."""
    phase: Literal["on-enter", "on-exit"] = "on-enter"
    """When: at the begin of the stage, or at its end."""


class StageDefinition(Definition):
    wait_for: list[WaitDefinition] | None = Field(None, alias="wait-for")
    """The stages of other nodes that must be over before this stage begins."""
    exec: list[StageExecDefinition] | None = None
    """Commands of the stage."""


class StagesDefinition(Definition):
    """The stages of a node's start, in their order."""

    create: StageDefinition | None = None
    """The container starts."""
    create_links: StageDefinition | None = Field(None, alias="create-links")
    """Its links are made: in a lab they are there before."""
    configure: StageDefinition | None = None
    """The commands of `exec` are run."""
    healthy: StageDefinition | None = None
    """Its `healthcheck` passes."""
    exit: StageDefinition | None = None
    """Its container has ended."""


class HealthDefinition(Definition):
    """The test of a container's health, as in Docker."""

    test: Annotated[
        tuple[str, ...],
        BeforeValidator(parse_test),
        WithJsonSchema({"type": "array", "items": {"type": "string"}, "minItems": 1}),
    ]
    """`[CMD, program, argument…]`, or `[CMD-SHELL, "command of a shell"]`."""
    interval: Seconds = 30
    """Seconds between two tests."""
    timeout: Seconds = 30
    """Seconds that a test may take."""
    retries: Seconds = 3
    """No effect: a stage waits until the test passes."""
    start_period: Seconds = Field(0, alias="start-period")
    """No effect: a stage waits until the test passes."""


class StartKeys(Definition):
    startup_delay: Seconds | None = Field(None, alias="startup-delay")
    """Linux: seconds before it starts."""
    wait_for: list[Label] | None = Field(None, alias="wait-for")
    """Linux: nodes that must have started before it does."""
    stages: StagesDefinition | None = None
    """Linux: stages of its start, with the stages of other nodes that each waits for, and its commands."""
    healthcheck: HealthDefinition | None = None
    """Linux with an image: the test by which its stage `healthy` is reached."""


def start(keys: StartKeys) -> Start | None:
    """Return the plan of a node's start, None if nothing is special."""
    if not (keys.startup_delay or keys.wait_for or keys.stages):
        return None
    stages = []
    for name in STAGES:
        given: StageDefinition | None = getattr(keys.stages, name.replace("-", "_"), None)
        waits = [(wait.node, wait.stage) for wait in (given and given.wait_for) or ()]
        if name == "create":
            waits += [(node, name) for node in keys.wait_for or ()]
        commands = (given and given.exec) or ()
        stages.append(Stage(name, tuple(waits), _phase(commands, "on-enter"), _phase(commands, "on-exit")))
    return Start(float(keys.startup_delay or 0), tuple(stages))


def _phase(commands: Iterable[StageExecDefinition], phase: str) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(shlex.split(one.command)) for one in commands if one.phase == phase)


def health(keys: StartKeys) -> Health | None:
    given = keys.healthcheck
    return Health(given.test, given.interval, given.timeout) if given and given.test else None
