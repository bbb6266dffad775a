"""A lab that runs: built from a plan in one pass, taken down in the order the kernel needs."""

from __future__ import annotations

import heapq
import itertools
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol, Self

from testbed.errors import DeadlineError, InputError, TestbedError, did_you_mean
from testbed.kernel import devices, netns, rdma
from testbed.kernel.readiness import readable
from testbed.lab import own_devices
from testbed.lab.changes import Changes
from testbed.lab.links import Direction
from testbed.lab.nodes import Bridge, Host, Node, Pod, Switch
from testbed.lab.processes import Process
from testbed.lab.routing import Routing
from testbed.nic import HardwareNics
from testbed.switch import dataplane
from testbed.switch.agent import Agent
from testbed.switch.profile import DEFAULT, Profile, load_profiles, profile, value_problems
from testbed.switch.sentences import sentence
from testbed.topology import Interface, Plan, Quality, RdmaMode, Topology
from testbed.topology import Node as NodePlan
from testbed.topology.values import check_label

SHARED_AT_MOST = 16
"""RDMA devices up to which a lab is in shared mode: there each namespace has a copy of each device, which grows with
the square."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.01, 1.0
"""Between two looks at a condition that nothing announces; they double."""
LINKS_S = 10.0


def exact_timeout(left: float) -> float:
    """What to give to `readable` for a wait that must not be late: the kernel adds a thousandth to it, up to 0.1 s."""
    return left - 0.11 if left > 0.2 else left


def sysctls_of(plan: NodePlan, *, interfaces: bool) -> list[tuple[str, str]]:
    """The sysctls of single interfaces, which must be there, or the others, which interfaces may inherit."""
    names = {interface.name for interface in plan.interfaces}
    return [(path, value) for path, value in plan.sysctls if names.isdisjoint(path.split("/")) is not interfaces]


Network = str | Path | Mapping[str, Any]
"""A network that a pod is attached to: a CNI conflist, as a file or as what is in one."""


class Networks(Protocol):
    """What attaches pods to networks: `testbed.cni.pods.PodNetworks`. It is given to a lab from above, which itself
    knows nothing of CNI."""

    def attach(self, pod: Pod, networks: Sequence[Network]) -> None:
        """Gives the pod its interfaces. What it did before it failed is undone by `detach`."""

    def check(self, pod: Pod) -> None: ...

    def detach(self, pod: Pod) -> None:
        """Takes the pod off its networks, the last one first."""


class Emit(Protocol):
    """Where a lab tells what happens; the scenario's event log in a run."""

    def __call__(self, kind: str, node: str, text: str, /, **data: Any) -> None: ...


class Lab:
    """Use as a context manager. `lab["name"]` is a node; `directory` takes captures and outputs."""

    def __init__(
        self,
        topology: Topology | Plan,
        directory: Path,
        emit: Emit,
        *,
        rdma_mode: RdmaMode | None = None,
        profiles: Mapping[str, Profile] | None = None,
        networks: Networks | None = None,
    ) -> None:
        """`rdma_mode` wins over the file's; `profiles` replaces the profile of a switch by its name, `profile_values`
        included; pods need `networks`."""
        if isinstance(topology, Topology):
            topology = topology.plan(profiles=load_profiles(), check_values=value_problems)
        self.plan = topology
        self.directory = directory
        self.emit = emit
        number = sum(interface.rdma is not None for node in self.plan.nodes.values() for interface in node.interfaces)
        by_size: RdmaMode = "shared" if number <= SHARED_AT_MOST else "exclusive"
        self.rdma_mode: RdmaMode = rdma_mode or self.plan.rdma_mode or by_size
        self.nodes: dict[str, Node] = {}
        self.programs: list[Process] = []
        """Those that nodes have started with `spawn` and that were not seen to end."""
        self._profiles = dict(profiles or {})
        self._networks = networks
        self._agent: Agent | None = None
        self._routing: Routing | None = None
        self._cards: HardwareNics | None = None
        self._directions: dict[tuple[str, str], Direction] = {}
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._actions: deque[Callable[[], None]] = deque()
        self._undo = ExitStack()

    def __getitem__(self, name: str) -> Node:
        if name not in self.nodes:
            raise InputError(f"the lab has no node {name}", hint=f"It has: {', '.join(self.nodes)}.")
        return self.nodes[name]

    def host(self, name: str) -> Host:
        node = self[name]
        if not isinstance(node, Host):
            raise InputError(f"{name} is no host")
        return node

    def switch(self, name: str) -> Switch:
        node = self[name]
        if not isinstance(node, Switch):
            raise InputError(f"{name} is no switch")
        return node

    def switches(self) -> list[Switch]:
        return [node for node in self.nodes.values() if isinstance(node, Switch)]

    def interface(self, end: str) -> Interface:
        """The end of a link by its name in the file, such as ``leaf:e1``."""
        node, _, name = end.partition(":")
        plan = self.plan.nodes.get(node)
        for interface in plan.interfaces if plan else ():
            if interface.name == name:
                return interface
        ends = [f"{i.node}:{i.name}" for plan in self.plan.nodes.values() for i in plan.interfaces]
        raise InputError(f"no link has an end {end!r}", hint=f"{did_you_mean(end, ends)}Ends: {', '.join(ends)}.")

    def direction(self, end: str) -> Direction:
        """The packets that an end of a link sends, such as ``leaf:e1``."""
        sender = self.interface(end)
        key = sender.node, sender.name
        if key not in self._directions:
            self._directions[key] = Direction(self, sender)
        return self._directions[key]

    @property
    def agent(self) -> Agent:
        """The control plane of all switches."""
        if self._agent is None:
            raise InputError("the lab has no switch")
        return self._agent

    @property
    def routing(self) -> Routing:
        """FRR on the switches."""
        if self._routing is None:
            raise InputError("the lab's routes are static", hint="`routing: frr` in its topology makes FRR find them.")
        return self._routing

    @property
    def networks(self) -> Networks:
        if self._networks is None:
            raise InputError("this lab has no pods", hint="Give it `networks=PodNetworks(…)` of testbed.cni.pods.")
        return self._networks

    def file(self, name: str) -> Path:
        """A path in the run directory for a node to write to."""
        return self.directory / name

    def __enter__(self) -> Self:
        self.emit("lab", "", f"build {self.plan.name}", nodes=len(self.plan.nodes), rdma_mode=self.rdma_mode)
        try:
            self._build()
        except BaseException:
            self.close()
            raise
        self.emit("lab", "", f"{self.plan.name} is up")
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _build(self) -> None:
        with rdma.Rdma() as system:
            system.set_exclusive(self.rdma_mode == "exclusive")
        own_devices.begin()
        for plan in self.plan.nodes.values():
            self.nodes[plan.name] = self._make_node(plan)
            self.nodes[plan.name].env = dict(plan.env)
            self._prepare(self.nodes[plan.name], plan)
        for left, right in self.plan.links:
            self._make_link(left, right)
        for plan in self.plan.nodes.values():
            self._configure(self.nodes[plan.name], plan)
        self._start_switches()
        if not self.wait_quietly(lambda: all(node.links_work() for node in self.nodes.values()), LINKS_S):
            raise DeadlineError(f"the links of {self.plan.name} did not come up within {LINKS_S:g} s")
        if any(plan.bgp for plan in self.plan.nodes.values()):
            self._routing = Routing(self)
            self._routing.start()
        for plan in self.plan.nodes.values():
            for interface in plan.interfaces:
                if interface.sends != Quality():
                    self.direction(f"{interface.node}:{interface.name}").apply()
                if interface.rdma:
                    self.add_rdma(self.host(plan.name), interface.name, interface.rdma)
        if self._routing:
            self._routing.converged()
        for plan in self.plan.nodes.values():
            self.nodes[plan.name].execute(plan.exec)

    def _make_node(self, plan: NodePlan) -> Node:
        match plan.kind:
            case "host":
                return Host(self, plan.name, plan.nic)
            case "switch":
                return Switch(self, plan.name)
            case "bridge":
                return Bridge(self, plan.name)

    def _prepare(self, node: Node, plan: NodePlan) -> None:
        """What the interfaces that come inherit."""
        if isinstance(node, Host):
            if plan.ipv6:
                node.enable_ipv6()
            node.set_sysctls(sysctls_of(plan, interfaces=False))

    def _make_link(self, left: Interface, right: Interface) -> None:
        """A veth pair, each end born in its namespace with its planned MAC."""
        near, far = self.nodes[left.node], self.nodes[right.node]
        far.next_index(right.name)
        near.ip.link(
            "add",
            kind="veth",
            ifname=left.name,
            address=left.mac,
            mtu=left.mtu,
            index=near.next_index(left.name),
            peer={
                "ifname": right.name,
                "address": right.mac,
                "mtu": right.mtu,
                "net_ns_fd": str(netns.path(far.namespace)),
            },
        )

    def _configure(self, node: Node, plan: NodePlan) -> None:
        if isinstance(node, Host):
            node.set_sysctls(sysctls_of(plan, interfaces=True))
        for interface in plan.interfaces:
            node.ip.link("set", index=node.index(interface.name), state="up")
        if isinstance(node, Host):
            self._configure_host(node, plan)
        elif isinstance(node, Bridge):
            node.join([interface.name for interface in plan.interfaces])

    def _configure_host(self, host: Host, plan: NodePlan) -> None:
        for interface in plan.interfaces:
            host.macs[interface.name] = interface.mac
            for address in interface.addresses:
                host.add_address(interface.name, address)
        for route in plan.routes:
            host.add_route(route.destination, *route.via)

    def _start_switches(self) -> None:
        planes = []
        for switch in self.switches():
            plan = self.plan.nodes[switch.name]
            of_file = profile(plan.profile or DEFAULT).replace(**dict(plan.profile_values))
            chosen = self._profiles.get(switch.name, of_file)
            with switch.entered():
                planes.append((dataplane.build(switch.ip, plan, chosen), chosen))
        if planes:
            self._agent = Agent.start(planes)

    # Time

    def drain(self) -> None:
        """Takes over all that the switches did until now."""
        if self._agent:
            self._agent.catch_up()
        self._take_over()

    def _take_over(self) -> None:
        """What the switches have told since the last look; of the last moment they may not have told yet."""
        if self._agent:
            self._tell(self._agent.events())
        if self._routing:
            self._routing.check()

    def _tell(self, events: list[dict[str, Any]]) -> None:
        for event in events:
            if self._routing:
                self._routing.hear(event)
            data = {key: value for key, value in event.items() if key not in ("t", "kind", "switch")}
            self.emit(event["kind"], event["switch"], sentence(event), at_ns=event["t"], **data)

    def after(self, seconds: float, action: Callable[[], None]) -> Callable[[], None]:
        """Has `action` called when `seconds` have passed, by whatever waits then: `sleep`, `wait`, a completion, a
        program. A system call that blocks comes first: the resolution of a MAC in a modify to RTR. What is returned
        cancels it."""
        entry = (time.monotonic() + seconds, next(self._numbers), action)
        heapq.heappush(self._timers, entry)

        def cancel() -> None:
            self._timers = [other for other in self._timers if other is not entry]
            heapq.heapify(self._timers)

        return cancel

    def every(self, seconds: float, action: Callable[[], None]) -> Callable[[], None]:
        """The same again and again, with `seconds` before each time."""

        def again() -> None:
            action()
            pending[0] = self.after(seconds, again)

        def cancel() -> None:
            pending[0]()

        pending = [self.after(seconds, again)]
        return cancel

    def one_by_one(self, action: Callable[[], None]) -> None:
        """Carries out `action`; one that is due while another waits for something comes after that."""
        self._actions.append(action)
        if len(self._actions) > 1:
            return
        try:
            while self._actions:
                self._actions[0]()
                self._actions.popleft()
        finally:
            self._actions.clear()

    def ready(self, watched: Sequence[Any], within: float, *, or_timer: bool = False) -> bool:
        """Whether one of `watched` is readable, or with `or_timer` one of `after` was due, before `within` seconds have
        passed. All that waits in a lab waits here, so that timers are kept."""
        deadline = time.monotonic() + within
        while True:
            acted = False
            while self._timers and self._timers[0][0] <= time.monotonic():
                heapq.heappop(self._timers)[2]()
                acted = True
            if acted and or_timer:
                return True
            until = min(deadline, self._timers[0][0]) if self._timers else deadline
            left = max(0.0, until - time.monotonic())
            if readable(watched, exact_timeout(left)):
                return True
            if time.monotonic() >= deadline:
                return False

    def sleep(self, seconds: float) -> None:
        """Lets time pass, and tells what the switches do meanwhile."""
        deadline = time.monotonic() + seconds
        while True:
            self._take_over()
            left = deadline - time.monotonic()
            if left <= 0:
                return
            self.ready(self._announcing(), left)

    def wait(self, condition: Callable[[], bool], within: float, *, pause: float = LONGEST_PAUSE_S) -> bool:
        """
        Asks `condition` whenever something has happened, for `within` seconds at most; its last answer.

        That is: an event of a switch; a timer of `after`, a fault's among them; a change of a link, an address, a route
        or a neighbour entry of any node; something written to a file of the run directory, as a program's output is;
        the end of a program that `spawn` started. What holds for a short while is found then. Counters change without
        notice: besides, it is asked after pauses that double up to `pause` seconds. A condition that changes such
        things itself, as one that pings, does not wake itself: what happens while it is asked counts once.
        """
        self._take_over()
        if condition():
            return True
        deadline = time.monotonic() + within
        programs = [process.pid for process in self.programs if process.running]
        namespaces = [node.namespace for node in self.nodes.values()]
        with Changes(namespaces, self.directory, programs) as changes:
            return self._wait(condition, deadline, pause, changes)

    def wait_quietly(self, condition: Callable[[], bool], within: float, *, pause: float = LONGEST_PAUSE_S) -> bool:
        """The same, asked at events of switches, timers and pauses only: for what costs much to ask, or changes
        nothing that a node shows."""
        return self._wait(condition, time.monotonic() + within, pause, None)

    def _wait(self, condition: Callable[[], bool], deadline: float, pause: float, changes: Changes | None) -> bool:
        next_pause = FIRST_PAUSE_S
        asked_again = False
        while True:
            self._take_over()
            if condition():
                return True
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            if changes:
                asked_again = changes.pending() and not asked_again
                changes.take()
                if asked_again:
                    continue
            watched = [*self._announcing(), *(changes.watched if changes else ())]
            self.ready(watched, min(left, next_pause), or_timer=True)
            if changes:
                changes.take()
            next_pause = min(next_pause * 2, pause)

    def _announcing(self) -> list[Any]:
        """What is readable when something happens that `drain` takes over."""
        return [source for source in (self._agent, self._routing) if source]

    def defer(self, undo: Callable[[], object]) -> None:
        """Has `undo` called before anything is taken down; the last one first."""
        self._undo.callback(undo)

    def add_rdma(self, host: Host, interface: str, device: str) -> None:
        """Gives an interface its soft-RoCE device."""
        devices.add(host.namespace, interface, device)
        self.adopt_rdma(host, interface, device)

    def adopt_rdma(self, host: Host, interface: str, device: str) -> None:
        """Takes in an RDMA device that an interface has. On a host with `nic: hardware` it behaves like a card from now
        on."""
        host.rdma[interface] = device
        if host.nic == "hardware":
            if self._cards is None:
                self._cards = HardwareNics()
            host.cards[interface] = self._cards.add(host.entered, interface, device)

    def make_pod(self, host: Host, name: str, networks: Sequence[Network]) -> Pod:
        """See `Host.pod`. If a network refuses it, nothing of the pod is left."""
        plugged = self.networks
        if isinstance(host, Pod):
            raise InputError(f"{host} is a pod; pods run on hosts")
        try:
            check_label(name)
        except ValueError as error:
            raise InputError(f"a pod cannot be called so: {error}") from None
        if (there := self.nodes.get(name)) is not None:
            what, hint = f"a {type(there).__name__.lower()} of the topology", "Choose another name."
            if isinstance(there, Pod):
                what, hint = f"a pod on {there.host}", "Delete it first (`pod.delete()`), or choose another name."
            raise InputError(f"{name} is there already: {what}", hint=hint)
        pod = self.nodes[name] = Pod(host, name)
        pod.defer(lambda: plugged.detach(pod))
        try:
            plugged.attach(pod, networks)
        except BaseException as error:
            try:
                self.delete(pod)
            except TestbedError as later:
                error.add_note(f"Then the pod could not be taken away cleanly: {later}")
            raise
        given = [f"{interface} {address.ip}" for interface, address in pod.addresses.items()]
        given += [f"{interface} {address.ip}" for interface, address in pod.addresses6.items()]
        addresses = ", ".join(given)
        self.emit("pod", name, f"created on {host.name}: {addresses}", host=host.name)
        return pod

    def delete(self, node: Node) -> None:
        """Takes one node away: what runs on it, its RDMA devices, then the rest."""
        try:
            self._delete([node])
        finally:
            del self.nodes[node.name]

    def _delete(self, nodes: list[Node]) -> None:
        """Every step is taken, whichever fails; the first failure is raised at the end."""
        with ExitStack() as steps:  # the last one entered is the first one taken
            for node in reversed(nodes):
                steps.callback(node.close)
            for node in reversed(nodes):
                if isinstance(node, Host):
                    steps.callback(self._delete_rdma, node)
            for node in reversed(nodes):
                steps.callback(node.release)

    def _delete_rdma(self, host: Host) -> None:
        names = list(host.rdma.values())
        if self._cards:
            for name in names:
                self._cards.remove(name)
        devices.delete(host.namespace, names)

    def close(self) -> None:
        """Takes everything down, whatever state it is in."""
        nodes = list(reversed(self.nodes.values()))
        with ExitStack() as steps:
            steps.callback(own_devices.end)
            steps.callback(self._stop_agent)
            steps.callback(self._close_cards)
            steps.callback(self._delete, nodes)
            steps.callback(self.nodes.clear)
            steps.callback(self._stop_routing)
            steps.callback(self._undo.close)
            self._timers.clear()

    def _close_cards(self) -> None:
        if self._cards:
            self._cards.close()
            self._cards = None

    def _stop_routing(self) -> None:
        if self._routing:
            routing, self._routing = self._routing, None
            routing.close()

    def _stop_agent(self) -> None:
        if self._agent:
            agent, self._agent = self._agent, None
            self._tell(agent.stop())
