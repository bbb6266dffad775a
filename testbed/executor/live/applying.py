"""`testbed apply`: a lab that lives becomes its edited file; objects of Kubernetes are added or replaced."""

import base64
import contextlib
import os
import tempfile
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed import faults
from testbed.errors import InputError, TestbedError
from testbed.executor.live.by_hand import given_again, state
from testbed.executor.live.server import Call
from testbed.executor.topologies import fault_problem
from testbed.faults import Fault
from testbed.lab import Host, beginning, changing
from testbed.protocol import Event, events, live
from testbed.protocol.live import Applied, ChangeRow
from testbed.switch.profile import load_profiles, value_problems
from testbed.topology import Plan, Topology, changes
from testbed.topology.changes import Changes

HALF = "The lab is partly as its old file says, partly as the edited one"


@dataclass
class Order:
    """What is to be done: the plan, the changes, and the files that have other contents."""

    plan: Plan
    changes: Changes
    files: dict[Path, bytes]
    executable: list[Path]


def apply(request: live.Apply, call: Call) -> list[ChangeRow]:
    if call.server.cannot_apply:
        raise InputError(call.server.cannot_apply, hint="`testbed down`, then `testbed up` the file.")
    if off := [node.name for node in call.lab.nodes.values() if isinstance(node, Host) and node.off]:
        raise InputError(f"{', '.join(off)} reboots: the file is applied when it is up", hint="Apply it again then.")
    order = _order(request, call)
    rows: list[ChangeRow] = [
        {"what": what, "name": name, "change": how, "text": text} for what, name, how, text in order.changes.rows()
    ]
    if request.dry:
        return rows
    changing.check(call.lab, order.changes)
    for row in rows:
        changed = events.LAB_CHANGED(what=row["what"], name=row["name"], change=row["change"])
        text = f"{row['what']} {row['name']} is {row['change']}"
        call.lab.emit(changed, "", f"{text}: {row['text']}" if row["text"] else text)
    try:
        _carry_out(order, call)
    except BaseException as error:
        call.server.cannot_apply = HALF
        if isinstance(error, TestbedError):
            error.hint = f"{error.hint} {HALF}: `testbed down`, then `testbed up` the file.".strip()
        raise
    call.server.source = request.text
    for listener in call.server.rebuilt_listeners:
        listener()
    call.lab.pods.reconcile()
    return [_observed(call, row, order.changes) for row in rows]


def _order(request: live.Apply, call: Call) -> Order:
    lab = call.lab
    topology = Topology.parse(request.text, source=request.name)
    plan = topology.plan(profiles=load_profiles(), check_fault=fault_problem, check_values=value_problems, lab=lab.plan)
    if missing := [image for image in plan.images if image not in lab.plan.images]:
        hint = f"`testbed down {plan.name}`, then `testbed up` the file: a machine gets its images at its start."
        raise InputError(f"the lab's machine does not have the image {missing[0]}", hint=hint)
    files = {_path(call, name): base64.b64decode(data) for name, data in request.files.items()}
    edited = {path: data for path, data in files.items() if not path.is_file() or path.read_bytes() != data}
    found = changes.between(lab.plan, plan, mounting(plan, call, edited))
    return Order(plan, found, edited, [_path(call, name) for name in request.executable])


def _carry_out(order: Order, call: Call) -> None:
    lab, found = call.lab, order.changes
    for path, data in order.files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    for path in order.executable:
        path.chmod(0o755)
    old, before = lab.plan, {name: state(node) for name, node in lab.nodes.items()}
    again = _recover(call, found, order.plan)
    changing.change(lab, order.plan, found)
    rewired = {end.node for link in found.links_new for end in link}
    for name, node in lab.nodes.items():
        if name in rewired and name in before and name not in found.anew:
            for command in given_again(node, before[name], old.nodes[name]):
                node.use(*command)
    containers = [node for node in lab.nodes.values() if isinstance(node, Host) and node.container]
    begun = any(node.name in found.anew or node.name not in before for node in containers)
    if call.server.wire.virtual and begun:
        beginning.settle(containers, lab.scheduler)
    call.server.by_hand.applied(lab, before, found.anew)
    _forget(call, found)
    for fault in [*again, *map(_fault, found.faults_new)]:
        faults.Injection(lab, fault).inject()


def mounting(plan: Plan, call: Call, edited: Collection[Path]) -> list[str]:
    """Return the nodes whose containers mount one of the edited files."""
    binds = [
        (node.name, _path(call, bind.beside))
        for node in plan.nodes.values()
        for bind in (node.container.binds if node.container else ())
    ]
    return [name for name, path in binds if any(file.is_relative_to(path) for file in edited)]


def _path(call: Call, name: str) -> Path:
    """Return a file of the lab, by its path from the topology file. InputError for one above all of the lab's files."""
    path = Path(os.path.normpath(call.lab.context.files / name))
    if not path.is_relative_to(call.server.files):
        hint = f"`testbed down {call.lab.plan.name}`, then `testbed up` the file."
        raise InputError(f"the bind {name} leads further up than those with which the lab came up", hint=hint)
    return path


def _recover(call: Call, found: Changes, plan: Plan) -> list[Fault]:
    """Recover the faults that the file has no longer, and those that name what goes. Return those that come again with
    what is made anew: they are in the file."""
    gone = {node.name for node in found.nodes_gone}
    gone |= {f"{end.node}:{end.name}" for link in found.links_gone for end in link}
    leaving, staying = ([_fault(one) for one in faults_] for faults_ in (found.faults_gone, plan.faults))
    again = []
    for injection in [one for one in reversed(call.lab.injections) if one.active]:
        named = {part for name in injection.named() for part in (name, name.partition(":")[0])}
        if injection.fault in leaving or gone & named:
            injection.recover()
            again += [injection.fault] * (injection.fault in staying)
    return again


def _fault(given: tuple[str, Mapping[str, Any]]) -> Fault:
    return faults.make(faults.KINDS, *given)


def _forget(call: Call, found: Changes) -> None:
    """Forget what commands have set at ends that are gone, or made anew."""
    for end in {f"{end.node}:{end.name}" for link in found.links_gone for end in link}:
        call.server.qualities.pop(end, None)
        call.server.held.pop(end, None)


def _observed(call: Call, row: ChangeRow, found: Changes) -> ChangeRow:
    """Add what the lab does not have of the change, because a fault or a command holds another value."""
    if row["change"] != "changed":
        return row
    ends = [pair for pair in found.ends if f"{pair[1].node}:{pair[1].name}" in row["name"].split(" – ")]
    held = [
        f"{end.node}:{end.name} keeps {values}" for was, end in ends if (values := changing.held(call.lab, was, end))
    ]
    text = f"{row['text']}; by a fault or `link set` {', '.join(held)}"
    return {**row, "text": text} if held else row


def apply_objects(request: live.ApplyObjects, call: Call) -> Applied:
    notes: list[str] = []

    def listen(event: Event) -> None:
        if event["kind"] == events.OBJECT.name and "object" not in event["data"]:
            notes.append(event["text"])

    with from_text(request.name, request.text) as file, call.server.listening(listen):
        done = call.lab.pods.apply(file)
    running = [pod.name for pod in done.pods]
    return {"applied": done.objects, "notes": notes, "running": running, "waiting": done.waiting}


@contextlib.contextmanager
def from_text(name: str, text: str) -> Iterator[Path]:
    """Make a file with the text for the block; errors name it `name`."""
    with tempfile.TemporaryDirectory() as place:
        file = Path(place, Path(name).name)
        file.write_text(text)
        try:
            yield file
        except TestbedError as error:
            error.where = error.where.replace(str(file), name)
            error.also = tuple((where.replace(str(file), name), more) for where, more in error.also)
            raise
