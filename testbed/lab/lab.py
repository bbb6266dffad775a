"""A lab that runs."""

import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol, Self

from testbed.errors import DeadlineError, InputError, TestbedError, UnsupportedError, did_you_mean
from testbed.kernel import borrowed_nics, netns, own_devices, rdma
from testbed.kernel.impairments.cables import Port
from testbed.kernel.links import End
from testbed.lab import beginning, rebooting
from testbed.lab.context import Context
from testbed.lab.control_planes import ControlPlanes
from testbed.lab.interface import Interface
from testbed.lab.kernel_view import KernelView
from testbed.lab.leaks import CNI_AGENT, inventory
from testbed.lab.lossless_network import LosslessNetwork
from testbed.lab.node import Node, find_interface, take_down
from testbed.lab.nodes import KINDS
from testbed.lab.nodes.host_node import Host, Pod
from testbed.lab.nodes.switch_node import Switch
from testbed.lab.pods import Networks, Objects, Pods, Rollout
from testbed.lab.port_statistics import PortStatistics
from testbed.lab.routing import Routing
from testbed.lab.scheduler import Scheduler
from testbed.lab.seal import Seal
from testbed.nic import RdmaDevices
from testbed.protocol import events
from testbed.protocol.events import Emit
from testbed.switch.profile import Profile, load_profiles, value_problems
from testbed.topology import Interface as InterfacePlan
from testbed.topology import Plan, RdmaMode, Topology
from testbed.topology.plan import ETHERNET_MTU

SHARED_AT_MOST = 16
"""RDMA devices up to which a lab is in shared mode: each namespace has a copy of each device there."""
LINKS_S = 10.0
CABLES_S = 60.0
"""Seconds for the links of hardware, whose ends negotiate and train."""
LACP_S = 10.0
"""Seconds for LACP; its partners agree within three."""
SPANNING_TREE_S = 60.0
"""Seconds for spanning tree: its ports listen for 15 s and learn for 15 s (802.1D's forward delay)."""


def _nothing(*_: object, **__: object) -> None:
    """Take an event that nobody listens to."""


class PowerOn(Protocol):
    def __call__(self, *, late_del: bool = True) -> Rollout:
        """Boot the hosts, and start their pods again."""


class Lab:
    """
    A lab, up while it is entered as a context manager.

    ``lab["name"]`` is a node, ``lab["host1"]["eth1"]`` an interface of it.

    `scheduler` waits, sleeps and keeps timers, `pods` creates pods, `directory` takes captures and outputs.
    """

    def __init__(
        self,
        topology: Topology | Plan,
        directory: Path = Path(),
        emit: Emit = _nothing,
        *,
        rdma_mode: RdmaMode | None = None,
        profiles: Mapping[str, Profile] | None = None,
        networks: Networks | None = None,
        zero_ns: int = 0,
        files: Path = Path(),
        kernel_ends: bool = False,
        sealed: bool = False,
    ) -> None:
        """`rdma_mode` wins over the file's; `profiles` replaces the profile of a switch by its name, `profile_values`
        included; pods need `networks`. `zero_ns` is CLOCK_MONOTONIC at t = 0 of the events. `files` is the directory
        of the topology file, for the binds of containers. With `kernel_ends` the kernel ends after the lab, as that of
        a micro-VM does: what only the kernel has is not taken down. `sealed`: programs of users see nothing of what
        the lab hides. UnsupportedError for hardware that this machine does not have, or uses, and for containers in
        a sealed lab."""
        if isinstance(topology, str | os.PathLike):
            hint = "There, Topology.load reads a file. In a notebook or a script: testbed.session.up(FILE)."
            raise InputError(f"a Lab of the file {os.fspath(topology)} is for code inside a machine", hint=hint)
        if isinstance(topology, Topology):
            topology = topology.plan(profiles=load_profiles(), check_values=value_problems)
        require_hardware(topology)
        self.plan = topology
        self.directory = directory
        self.emit = emit
        self.zero_ns = zero_ns
        self._preferred = not (rdma_mode or self.plan.rdma_mode)
        """True if its RDMA netns mode is only the one that suits its size."""
        number = sum(interface.rdma is not None for node in self.plan.nodes.values() for interface in node.interfaces)
        by_size: RdmaMode = "shared" if number <= SHARED_AT_MOST else "exclusive"
        self.rdma_mode: RdmaMode = rdma_mode or self.plan.rdma_mode or by_size
        self.scheduler = Scheduler(directory)
        self.nodes: dict[str, Node[Any]] = {}
        self.injections: list[Any] = []
        """Faults that were injected (testbed.faults.Injection), in their order."""
        self.recorders: list[Callable[[], tuple[str, str]]] = []
        """Functions of jobs that return the path of a file in the run directory, and its text as it would be now."""
        self.profiles = dict(profiles or {})
        """The profiles of switches that are not as their file says."""
        self._devices = RdmaDevices()
        self.view = KernelView()
        self.seal = Seal(directory / "seal.log") if sealed else None
        """What hides something from those who work on it."""
        self.context = Context(
            self.plan.name, directory, emit, self.scheduler, self.view, self._devices, files.absolute(), self.seal
        )
        self.pods = Pods(self.nodes, networks, self.context)
        self.control_planes = ControlPlanes(self.context, self.plan, self.nodes)
        self.lossless: LosslessNetwork | None = None
        """Its lossless links, if it has classes for them."""
        self._kernel_ends = kernel_ends
        self._undo = ExitStack()

    def __getitem__(self, name: str) -> Node[Any]:
        if name not in self.nodes:
            near = did_you_mean(name, self.nodes)
            raise InputError(f"the lab has no node {name}", hint=f"{near}It has: {', '.join(self.nodes)}.")
        return self.nodes[name]

    def host(self, name: str) -> Host:
        node = self[name]
        if not isinstance(node, Host):
            raise InputError(f"{name} is not a host")
        return node

    def switch(self, name: str) -> Switch:
        node = self[name]
        if not isinstance(node, Switch):
            raise InputError(f"{name} is not a switch")
        return node

    def switches(self) -> list[Switch]:
        return [node for node in self.nodes.values() if isinstance(node, Switch)]

    def interface(self, end: str) -> Interface:
        """Return the end of a link by its name in the file, such as ``leaf:e1``."""
        return find_interface(self.nodes.values(), end)

    @property
    def routing(self) -> Routing:
        """Return FRR on the switches."""
        return self.control_planes.routing

    @property
    def objects(self) -> Objects:
        """Return the objects of pods' networks in Kubernetes' API server: definitions, pools, pods."""
        return self.pods.objects

    def reboot(self, *hosts: str, down: float = 60.0, late_del: bool = True) -> Rollout:
        """
        Reboot hosts, all at once; `down` in seconds, in which their links have no carrier.

        Programs, pods, RDMA devices, VFs, addresses and what commands made are gone. After the boot the hosts have what
        the topology file says, and their pods start again: the same objects in new sandboxes, with other MACs. The DEL
        of an old sandbox comes before that, without a network namespace, or never (`late_del=False`), as after the loss
        of a runtime's state. After 340 s, or as its tolerations say, a pod counts as evicted: its controller makes
        another one elsewhere, unless it is a StatefulSet. InputError for what is no host.
        """
        power_on = self.power_off(*hosts, gracefully=True)
        self.scheduler.sleep(down)
        return power_on(late_del=late_del)

    def power_off(self, *hosts: str, gracefully: bool = False) -> PowerOn:
        """Switch hosts off, all at once. They are gone without a word: no connection is closed. `gracefully` their
        programs end first, as at the begin of a `reboot`. The returned function boots them, with `late_del` as there.
        InputError for what is no host, or is off."""
        machines = [self.host(name) for name in dict.fromkeys(hosts)]
        if pods := [one.name for one in machines if isinstance(one, Pod)]:
            raise InputError(f"{pods[0]} is a pod", hint="Delete it, and its workload makes another one.")
        if off := [one.name for one in machines if one.off]:
            raise InputError(f"{off[0]} is down already")
        lost = []
        if not gracefully:
            inside = [node for node in self.nodes.values() if isinstance(node, Pod) and node.host in machines]
            rebooting.cut(machines, [pod.namespace for pod in inside])
        for host in machines:
            lost += self.pods.crash(host)
            rebooting.power_off(host)

        def power_on(*, late_del: bool = True) -> Rollout:
            rebooting.power_on(machines, self.nodes.values(), self.scheduler, self.await_bonds)
            return self.pods.come_back(machines, lost, late_del=late_del)

        return power_on

    def file(self, name: str) -> Path:
        """Return a path in the run directory. InputError for a name that the run itself needs."""
        return self.context.file(name)

    def resources(self) -> set[str]:
        """Return in words what labs, pods and CNI plugins make: namespaces, interfaces, addresses, RDMA devices,
        processes, the plugins' files. One that did not exist before is a leak."""
        return {line for line in inventory(self.file("cni")) if CNI_AGENT not in line}

    def defer(self, undo: Callable[[], object]) -> None:
        """Register `undo` to be called before anything is taken down; the last one first."""
        self._undo.callback(undo)

    def __enter__(self) -> Self:
        self._set_rdma_mode()
        self.emit(events.LAB(nodes=len(self.plan.nodes), rdma_mode=self.rdma_mode), "", f"build {self.plan.name}")
        try:
            own_devices.begin()
            for name, plan in self.plan.nodes.items():  # each as soon as there is something of it to take down
                node = self.nodes[name] = KINDS[plan.kind](self.context, name, plan)
                node.prepare()
            for switch, profile in self.profiles.items():
                self.switch(switch).first_profile = profile
            self._connect()
        except BaseException:
            self.close()
            raise
        self.emit(events.LAB(up=True), "", f"{self.plan.name} is up")
        if sizes := self._mtus():
            self.emit(events.MTUS(sizes=sizes), "", f"MTUs: {', '.join(f'{end} {mtu}' for end, mtu in sizes.items())}")
        return self

    def _mtus(self) -> dict[str, int]:
        """Return the MTUs of interfaces that are not Ethernet's, as the kernel has them."""
        found: dict[str, int] = {}
        for node in self.nodes.values():
            links = node.now().links
            ends = [(end, links.get(end.index)) for end in node.interfaces.values()]
            found |= {str(end): link.mtu for end, link in ends if link and link.mtu != ETHERNET_MTU}
        return found

    def _set_rdma_mode(self) -> None:
        """Set the kernel's mode. Without a request it stays as it is where others have network namespaces."""
        with rdma.Rdma() as system:
            try:
                system.set_exclusive(self.rdma_mode == "exclusive")
            except TestbedError:
                if not self._preferred:
                    raise
                self.rdma_mode = "exclusive" if system.exclusive else "shared"

    def _connect(self) -> None:
        """Make the links, start all nodes and services, and return when the lab is up."""
        links, nodes = self.plan.links, self.nodes.values()
        for left, right in links:
            make_link(self.nodes[left.node], left, self.nodes[right.node], right)
        for node in nodes:
            node.configure()
        for node in nodes:
            node.pair_bonds()
        if self.plan.lossless:  # before any frame is sent
            self.lossless = LosslessNetwork(self.context, self.plan, self.plan.lossless, self.nodes)
        self.control_planes.start(nodes)
        within = time_of_links(links, nodes)
        if not self.scheduler.wait_quietly(lambda: all(node.links_work() for node in nodes), within):
            raise DeadlineError(f"the links of {self.plan.name} did not come up within {within:g} s")
        self.await_bonds(self.nodes.values())
        self.control_planes.links_work()
        for node in nodes:
            node.complete()
        self.control_planes.complete()
        for node in nodes:
            self.view.watch(node)
        self.scheduler.sources.append(self.view)
        if self.seal:
            if inside := [str(node) for node in nodes if isinstance(node, Host) and node.container]:
                raise UnsupportedError(f"{inside[0]} has a container, whose programs would see what a sealed lab hides")
            ends = (end for node in nodes for end in node.interfaces.values() if end.plan and not end.plan.bond)
            self.seal.cover(Port(end.node.namespace, end.index) for end in ends)
            if self.lossless:
                self._undo.callback(PortStatistics(nodes).close)
        beginning.begin(nodes, self.scheduler)

    def await_bonds(self, nodes: Iterable[Node[Any]]) -> None:
        """Wait for LACP. A bond whose far end does not speak it works with one member: that is a warning."""
        waiting = [node for node in nodes if not node.bonds_aggregate()]
        if waiting and not self.scheduler.wait_quietly(lambda: all(node.bonds_aggregate() for node in waiting), LACP_S):
            names = [str(end) for node in waiting for end in node.members_out()]
            text = f"LACP: after {LACP_S:g} s no traffic by {', '.join(names)}"
            self.scheduler.programs.warnings.append(text)

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Take everything down, whatever state it is in."""
        with ExitStack() as steps:  # the last one entered is the first one taken
            steps.callback(self.scheduler.programs.close)
            steps.callback(self.view.close)
            if not self._kernel_ends:
                steps.callback(own_devices.end)
            steps.callback(self.control_planes.stop)
            steps.callback(self._devices.close)
            steps.callback(self.nodes.clear)
            steps.callback(take_down, list(reversed(self.nodes.values())), kernel_ends=self._kernel_ends)
            if self.lossless:
                steps.callback(self.lossless.close)
            steps.callback(self.control_planes.stop_routing)
            steps.callback(self.view.stop)
            steps.callback(self._undo.close)
            self.scheduler.close()


def require_hardware(plan: Plan) -> None:
    """Raise UnsupportedError if this machine does not have the hardware of the plan, or uses it."""
    for link in plan.links:
        for end in link:
            if end.is_hardware:
                borrowed_nics.require(end.hardware, end.nic)


def time_of_links(links: Iterable[tuple[InterfacePlan, InterfacePlan]], nodes: Iterable[Node[Any]]) -> float:
    """Return the seconds that links may take to carry frames."""
    cables = any(end.is_hardware for link in links for end in link)
    stp = any(node.plan and node.plan.stp for node in nodes)
    return max(LINKS_S, cables * CABLES_S, stp * SPANNING_TREE_S)


def make_link(
    near: Node[Any], left: InterfacePlan, far: Node[Any], right: InterfacePlan, *, late: bool = False
) -> None:
    """Make a veth pair, each end born in its namespace with its planned MAC. Use hardware as it is cabled. `late` is
    for a lab that is up."""
    peer, end = far.expect(right, late=late), near.expect(left, late=late)
    end.peer, peer.peer = peer, end
    if left.is_hardware:
        near.borrow(end, left)
        far.borrow(peer, right)
        return
    ends = End(end.name, end.mac, left.mtu), End(peer.name, peer.mac, right.mtu)
    near.kernel.add_veth(end.index, *ends, netns.path(far.namespace), peer.index)
