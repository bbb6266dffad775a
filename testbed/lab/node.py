"""A node of a lab: a network namespace with interfaces. Each kind of node is a class of its own in `nodes`."""

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from typing import Any, ClassVar, Generic, TypeVar

from testbed.errors import InputError, did_you_mean
from testbed.kernel import borrowed_nics
from testbed.kernel.links import End
from testbed.lab import bonding
from testbed.lab.context import Context
from testbed.lab.interface import Interface
from testbed.lab.namespace import Namespace
from testbed.switch import ecmp
from testbed.topology import AnAddress, ANetwork, Quality, address_of, network_of
from testbed.topology import Interface as InterfacePlan
from testbed.topology import Node as NodePlan

FIRST_INDEX = 2
"""The first number of interfaces in a new namespace; `lo` is 1."""
ROUTED_STEP = 100
"""The numbers of routed ports are multiples of it. FRR's zebra looks after router advertisements by a wheel with a
hundred slots a second, an interface's slot being its number (zebra/zebra_router.c): in one slot they wake it once a
second, else once for each port."""
AnInterface = TypeVar("AnInterface", bound=Interface)


class Node(Namespace, Generic[AnInterface]):
    """A node of a lab. ``node["eth1"]`` is one of its `interfaces`, which are in the order of the file, or one that the
    kernel has beside them, such as a bond that a command made; it is one of them from then on."""

    lacp_strict: ClassVar[bool] = False
    """Whether its bonds are down while LACP has no partner."""

    def __init__(self, context: Context, name: str, plan: NodePlan | None = None, of: Namespace | None = None) -> None:
        """`plan` is its part of the topology, None for a pod; `of` is the node whose namespace it shares."""
        super().__init__(context, name, of)
        self.plan = plan
        self.interfaces: dict[str, AnInterface] = {}
        if plan:
            self.env = dict(plan.env)

    def __getitem__(self, interface: str) -> AnInterface:
        if interface not in self.interfaces:
            if not self.gone and interface in [link.name for link in self.now().links.values()]:
                return self.adopt(interface)
            known = ", ".join(self.interfaces) or "none"
            near = did_you_mean(interface, self.interfaces)
            raise InputError(f"{self.name} has no interface {interface}", hint=f"{near}It has: {known}.")
        return self.interfaces[interface]

    def expect(self, plan: InterfacePlan, *, late: bool = False) -> AnInterface:
        """Register a link's end that is made next, under the number that the kernel then gives it; `late` in a lab that
        is up, where others may have made interfaces, too."""
        index = FIRST_INDEX + len(self.interfaces)
        if late:
            now = self.now()
            index = max((*now.links, *now.gone), default=1) + 1
        if plan.routed:
            index = -(-index // ROUTED_STEP) * ROUTED_STEP if late else (index + ROUTED_STEP) * ROUTED_STEP
        made = self.interfaces[plan.name] = self.make_interface(plan.name, index, plan.mac, plan)
        return made

    def borrow(self, interface: AnInterface, plan: InterfacePlan) -> None:
        """Move an interface of this machine to the node."""
        end = End(interface.name, interface.mac, plan.mtu)
        borrowed_nics.borrow(plan.hardware, plan.nic, self.namespace, end, interface.index)

    def adopt(self, interface: str, mac: str = "") -> AnInterface:
        """Register an interface that somebody else made in this namespace. InputError if it has another MAC."""
        with self._refusing(f"{interface} cannot be registered"):
            index = self.kernel.index(interface)
        has = self.kernel.mac(index)
        if mac and mac.lower() != has:
            raise InputError(f"{interface} of {self.name} has MAC {has}, not {mac}")
        made = self.interfaces[interface] = self.make_interface(interface, index, has, None)
        return made

    @abstractmethod
    def make_interface(self, name: str, index: int, mac: str, plan: InterfacePlan | None) -> AnInterface:
        """Return the object for an interface of this kind of node."""

    def links_work(self) -> bool:
        """Return whether every link can carry frames, or is blocked by the node's spanning tree."""
        indices = [interface.index for interface in self.interfaces.values()]
        return self.kernel.carry(indices, stp=bool(self.plan and self.plan.stp))

    def prepare(self) -> None:
        """Set what its interfaces inherit; they are made next."""

    def configure(self) -> None:
        """Make its bonds, and set its interfaces up. The links exist."""
        self.make_bonds()
        for interface in self.interfaces.values():
            self.set_up(interface)

    def make_bonds(self) -> None:
        """Make its bonds; `set_up` of their members puts them in."""
        for plan in self.plan.bonds if self.plan else ():
            if plan.bond:
                index = bonding.make(self.kernel, plan, plan.bond, lacp_strict=self.lacp_strict)
                self.interfaces[plan.name] = self.make_interface(plan.name, index, plan.mac, plan)

    def set_up(self, interface: AnInterface) -> None:
        """Set an interface up, in its bond if it is a member of one."""
        master = self.interfaces[interface.plan.master] if interface.plan and interface.plan.master else None
        if master and master.plan and master.plan.bond:
            bonding.join(self.kernel, interface.index, interface.name, master.index, master.plan.bond)
        else:
            self.kernel.set_link(interface.index, up=True)

    def join(self, interface: AnInterface) -> None:
        """Do for one interface, whose link was made late, what `configure` does."""
        self.set_up(interface)

    def pair_bonds(self) -> None:
        """Join its bonds with the far ends of their first members, or their bonds."""
        for plan in self.plan.bonds if self.plan else ():
            far = self.interfaces[plan.bond.members[0]].peer if plan.bond else None
            if far and far.plan and far.plan.master and isinstance(far.node, Node):
                far = far.node.interfaces[far.plan.master]
            self.interfaces[plan.name].peer = far

    def bonds_aggregate(self) -> bool:
        """Return whether all members of its bonds with LACP carry traffic."""
        return not self.members_out()

    def members_out(self) -> list[AnInterface]:
        """Return the members of its bonds with LACP that carry no traffic."""
        bonds = [
            end.bond for end in (self.plan.bonds if self.plan else ()) if end.bond and end.bond.mode == bonding.LACP
        ]
        members = [self.interfaces[name] for bond in bonds for name in bond.members]
        return [member for member in members if not self.kernel.aggregates(member.index)]

    def complete(self) -> None:
        """Make what needs links that carry frames."""
        for interface in self.interfaces.values():
            self.complete_end(interface)

    def complete_end(self, interface: AnInterface) -> None:
        if interface.plan and interface.plan.sends != Quality():
            interface.sends.apply()

    def change(self, before: NodePlan, now: NodePlan) -> None:
        """Take the values of another plan that can change while the lab lives, without those of its ends."""
        self.plan = now
        self.env = dict(now.env)
        self.set_sysctls(one for one in now.sysctls if one not in before.sysctls)
        there = {route.to: {hop for _, hop in route.hops} for route in self.kernel.routes_by_hand()}
        stay = {route.destination for route in now.routes}
        for to in [route.destination for route in before.routes]:
            if to in there and to not in stay:
                self.use("ip", f"-{to.version}", "route", "del", str(to))
        for route in [route for route in now.routes if route not in before.routes]:
            if there.get(route.destination) != set(route.via):
                self.add_route(route.destination, *route.via, replace=True)

    def add_route(self, destination: ANetwork, *via: AnAddress, replace: bool = False) -> None:
        """Add a route. Several next hops have equal cost: each flow takes one of them. InputError if the kernel refuses
        it, as it does for one that exists, unless `replace`."""
        if len(via) > 1:
            for path, value in ecmp.sysctls(self.name, self.plan.ecmp_seed if self.plan else 0).items():
                self.sysctl(f"net/{path}", value)
        with self._refusing(f"a route to {destination} via {', '.join(map(str, via))} cannot be added"):
            self.kernel.add_route(network_of(destination), map(address_of, via), replace=replace)

    def change_end(self, interface: AnInterface, before: InterfacePlan, now: InterfacePlan) -> None:
        """Take the values of another plan at an end whose link stays."""
        interface.plan = now
        if before.mtu != now.mtu:
            interface.set_mtu(now.mtu)
        if before.sends != now.sends:
            interface.sends.take(before.sends, now.sends)

    def begin(self) -> None:
        """Start what the node runs by itself. All nodes are complete."""

    def delete_devices(self) -> None:
        """Delete what has to go before the namespace, and return the hardware that it has of this machine."""
        borrowed_nics.give_back_all(self.namespace)


def find_interface(nodes: Iterable[Node[Any]], end: str) -> Interface:
    """Return the end of a link by its name in the file, such as ``leaf:e1``."""
    found: Iterable[Interface] = (interface for node in nodes for interface in node.interfaces.values())
    ends = {str(interface): interface for interface in found if interface.plan}
    if end not in ends:
        raise InputError(f"no link has an end {end!r}", hint=f"{did_you_mean(end, ends)}Ends: {', '.join(ends)}.")
    return ends[end]


def take_down(nodes: Sequence[Node[Any]], *, kernel_ends: bool = False) -> None:
    """End the programs of all nodes, then delete the devices of all, then the namespaces: the kernel needs this order.
    With a kernel that ends, end the programs alone, which may still write files. Every step runs even if others fail;
    the first failure is raised at the end."""
    with ExitStack() as steps:  # the last one entered is the first one taken
        for step in ("end_programs",) if kernel_ends else ("close", "delete_devices", "release"):
            for node in reversed(nodes):
                steps.callback(getattr(node, step))
