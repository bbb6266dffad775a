"""`testbed cni`: the work of CNI's cnitool, for a pod made for this purpose."""

import hashlib
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from testbed.cni.runtime.libcni import Runtime
from testbed.cni.runtime.pod_networks import PodNetworks
from testbed.cni.spec import Result, conflist
from testbed.cni.spec.conflist import Attachment, Conflist
from testbed.documents.json import loads
from testbed.errors import InputError, TestbedError, did_you_mean
from testbed.kernel import netns
from testbed.lab import Lab, Pod
from testbed.lab.leaks import inventory
from testbed.lab.steps import Steps
from testbed.protocol import CniAnswer
from testbed.protocol.events import Emit
from testbed.protocol.requests import Cni
from testbed.switch.profile import load_profiles, value_problems
from testbed.topology import Plan, Topology
from testbed.topology.kinds import KINDS

TOPOLOGY = Path(__file__).with_name("default.clab.yml")
POD = "cnitool"
CLEANUP_S = 1.0
"""Virtual seconds in which the kernel deletes the devices of a lost namespace."""
INTERFACE = re.compile(r"[^\s/:]+")
INTERFACE_BYTES = 15
T = TypeVar("T")


class CniCommand:
    """A request of `testbed cni`, checked as far as possible without a kernel. Raises InputError."""

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
        """Run in a new lab: ADD in a new pod, CHECK if requested, and DEL or GC; or STATUS only."""
        networks = PodNetworks(Path(), self.plugins)
        with Lab(self.plan, out, emit, networks=networks) as lab:
            trial = Trial(lab, networks.runtime(lab.host(self.node)), self)
            match self.request.command:
                case "status":
                    trial.status()
                case "gc":
                    return {"result": None, "kept": trial.kept("GC", trial.lose)}
                case "del":
                    pod = trial.pod()
                    return {"result": None, "kept": trial.kept("DEL", lambda: trial.add_and_delete(pod))}
                case command:
                    return {"result": trial.add_and_delete(trial.pod(), check=command == "check"), "kept": []}
            return {"result": None, "kept": []}


class Trial:
    """The network of a command on a node of a lab. Each method returns when all plugins have ended."""

    def __init__(self, lab: Lab, runtime: Runtime, command: CniCommand) -> None:
        self._lab, self._runtime, self._command = lab, runtime, command
        self._lost = 0
        self._network = self._now(runtime.validate(command.network, f"pod {POD}"))

    def _now(self, job: Steps[T]) -> T:
        return self._lab.scheduler.run(job)

    def pod(self) -> Pod:
        """Make a pod without networks."""
        return self._lab.pods.create(self._lab.host(self._command.node), POD, [])

    def _attachment(self, pod: Pod, life: int = 0) -> Attachment:
        """Return the attachment of one life of a pod: `life` counts its different containers."""
        path = str(netns.path(pod.namespace))
        seed = f"{path}-{life}" if life else path
        container = f"cnitool-{hashlib.sha512(seed.encode()).digest()[:10].hex()}"  # cnitool's name for it
        command = self._command
        return Attachment(POD, container, path, command.request.interface, command.arguments, command.capabilities)

    def status(self) -> None:
        self._now(self._runtime.status(self._network))

    def add_and_delete(self, pod: Pod, *, check: bool = False) -> Result:
        """Run ADD, then DEL, which CNI requires after a failed ADD too; return the result of ADD."""
        attachment = self._attachment(pod)
        try:
            result = self._now(self._runtime.add(self._network, attachment))
            if check:
                self._now(self._runtime.check(self._network, attachment))
        except TestbedError as error:
            try:
                self._now(self._runtime.delete(self._network, attachment))
            except TestbedError as later:
                error.add_note(f"DEL failed then, too: {later}")
            raise
        self._now(self._runtime.delete(self._network, attachment))
        return result

    def lose(self) -> None:
        """Run ADD in a pod that ends without DEL, and GC."""
        self._lost += 1
        pod = self.pod()
        self._now(self._runtime.add(self._network, self._attachment(pod, self._lost)))
        pod.lose()
        self._now(self._runtime.collect(self._network, list))

    def kept(self, command: str, life: Callable[[], object]) -> list[str]:
        """Return what the first pod of a node leaves, such as a bridge. TestbedError if each pod leaves something.
        `life` is all of a pod's life, which ends with `command`."""
        files = self._lab.file("cni")
        found = [inventory(files)]
        for _ in range(2):
            life()
            self._lab.scheduler.wait(lambda: inventory(files) <= found[-1], CLEANUP_S)
            found.append(inventory(files))
        before, first, second = found
        if left := sorted(second - first):
            name = self._network.name
            raise TestbedError(f'network "{name}": {command} left: {"; ".join(left)}')
        return sorted(first - before)


def is_interface(name: str) -> bool:
    """Return whether Linux accepts the name for an interface."""
    try:
        fits = len(os.fsencode(name)) <= INTERFACE_BYTES
    except UnicodeEncodeError:
        fits = False
    return fits and bool(INTERFACE.fullmatch(name)) and name not in (".", "..")


def arguments(text: str) -> dict[str, str]:
    """Read CNI_ARGS: ``K=V;K=V``."""
    found = {}
    for pair in filter(None, text.split(";")):
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise InputError(f"--args: {pair!r} is not of the form KEY=VALUE", hint="Separate several by `;`.")
        found[key] = value
    return found


def capabilities(text: str, network: Conflist) -> dict[str, Any]:
    """Read CAP_ARGS: a JSON object. InputError for what no plugin would get."""
    try:
        found = loads(text or "{}", "")
    except InputError as error:
        raise InputError(f"--capability-args: {error.message}") from None
    if not isinstance(found, dict):
        raise InputError("--capability-args: expected a JSON object with a key for each capability")
    known = network.capabilities()
    for name in found:
        if name not in known:
            wrong = f'--capability-args: no plugin of network "{network.name}" has the capability {name!r}'
            hint = f"{did_you_mean(name, known)}It has: {', '.join(sorted(known)) or 'none'}."
            raise InputError(wrong, hint=hint)
    return found
