"""`testbed cni`: the work of CNI's cnitool, for a pod that is made for it."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from testbed.cni.runtime.libcni import Runtime
from testbed.cni.runtime.pods import PodNetworks
from testbed.cni.spec import conflist
from testbed.cni.spec.conflist import Attachment, Conflist
from testbed.cni.spec.versions import Result
from testbed.documents.json import loads
from testbed.errors import InputError, TestbedError, did_you_mean
from testbed.kernel import netns
from testbed.lab import Lab
from testbed.lab.context import Emit
from testbed.lab.leaks import inventory
from testbed.protocol import CniAnswer
from testbed.protocol.requests import Cni
from testbed.switch.profile import load_profiles, value_problems
from testbed.topology import Plan, Topology
from testbed.topology.kinds import KINDS

TOPOLOGY = Path(__file__).with_name("default.clab.yml")
POD = "cnitool"
INTERFACE = re.compile(r"[^\s/:]+")
INTERFACE_BYTES = 15


class CniCommand:
    """A request of `testbed cni`, checked as far as that needs no kernel. Raises InputError for what is wrong in it."""

    def __init__(self, request: Cni) -> None:
        self.network: Conflist = conflist.load(Path(request.conflist))
        self.plugins = [Path(directory).resolve() for directory in request.plugins]
        topology = Topology.load(request.topology or TOPOLOGY)
        self.plan: Plan = topology.plan(profiles=load_profiles(), check_values=value_problems)
        hosts = [node.name for node in self.plan.nodes.values() if KINDS[node.kind].is_host]
        if not hosts:
            raise InputError("the topology has no host for the pod")
        self.node = request.node or hosts[0]
        if self.node not in hosts:
            hint = f"{did_you_mean(self.node, hosts)}Hosts: {', '.join(hosts)}."
            raise InputError(f"the topology has no host {self.node}", hint=hint)
        self.request = request
        if not is_interface(request.interface):
            wrong = "cannot be an interface's name: at most 15 bytes, no '/', ':' or space"
            raise InputError(f"{request.interface!r} {wrong}")
        self.arguments = arguments(request.arguments)
        self.capabilities = capabilities(request.capabilities, self.network)

    def run(self, out: Path, emit: Emit) -> CniAnswer:
        """ADD in a new pod of a new lab, then CHECK if that is the command, and DEL in any case."""
        networks = PodNetworks(Path(), self.plugins)
        with Lab(self.plan, out, emit, networks=networks) as lab:
            node = lab.host(self.node)
            runtime = networks.runtime(node)
            network = runtime.validate(self.network, POD)
            path = str(netns.path(lab.pods.create(node, POD, []).namespace))
            container = f"cnitool-{hashlib.sha512(path.encode()).digest()[:10].hex()}"  # as cnitool calls it
            attachment = Attachment(POD, container, path, self.request.interface, self.arguments, self.capabilities)
            if self.request.command == "del":
                return {"result": None, "kept": kept(lab, runtime, network, attachment)}
            with attached(runtime, network, attachment) as result:
                if self.request.command == "check":
                    runtime.check(network, attachment)
            return {"result": result, "kept": []}


def is_interface(name: str) -> bool:
    """Whether Linux lets an interface have this name."""
    try:
        fits = len(os.fsencode(name)) <= INTERFACE_BYTES
    except UnicodeEncodeError:
        fits = False
    return fits and bool(INTERFACE.fullmatch(name)) and name not in (".", "..")


def kept(lab: Lab, runtime: Runtime, network: Conflist, attachment: Attachment) -> list[str]:
    """The things that the first pod of a node leaves, such as a bridge. Raises TestbedError if each pod leaves some."""
    found = [inventory(lab.file("cni"))]
    for _ in range(2):
        with attached(runtime, network, attachment):
            pass
        found.append(inventory(lab.file("cni")))
    before, first, second = found
    if second - first:
        raise TestbedError(f'network "{network.name}": after DEL there is left: {"; ".join(sorted(second - first))}')
    return sorted(first - before)


@contextmanager
def attached(runtime: Runtime, network: Conflist, attachment: Attachment) -> Iterator[Result]:
    """ADD, and at the end DEL, which CNI demands after a failed ADD too."""
    try:
        yield runtime.add(network, attachment)
    except TestbedError as error:
        try:
            runtime.delete(network, attachment)
        except TestbedError as later:
            error.add_note(f"DEL failed then, too: {later}")
        raise
    runtime.delete(network, attachment)


def arguments(text: str) -> dict[str, str]:
    """CNI_ARGS: ``K=V;K=V``."""
    found = {}
    for pair in filter(None, text.split(";")):
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise InputError(f"--args: {pair!r} is not of the form KEY=VALUE", hint="Several are divided by `;`.")
        found[key] = value
    return found


def capabilities(text: str, network: Conflist) -> dict[str, Any]:
    """CAP_ARGS: a JSON object. InputError for what none of the plugins would be given."""
    try:
        found = loads(text or "{}", "")
    except InputError as error:
        raise InputError(f"--capability-args: {error.message}") from None
    if not isinstance(found, dict):
        raise InputError("--capability-args: a JSON object is due, by capability")
    known = network.capabilities()
    for name in found:
        if name not in known:
            wrong = f'--capability-args: no plugin of network "{network.name}" has the capability {name!r}'
            hint = f"{did_you_mean(name, known)}It has: {', '.join(sorted(known)) or 'none'}."
            raise InputError(wrong, hint=hint)
    return found
