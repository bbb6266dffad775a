"""Hosts, the pods on them, and Services of Kubernetes."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Interface, ip_address
from typing import Any, Protocol

from testbed.errors import InputError
from testbed.kernel import ipv6, link_readings, netns, nftables, own_devices, syscalls
from testbed.kernel.rdma import Rdma
from testbed.lab.context import Context
from testbed.lab.docker.container import DockerContainer
from testbed.lab.host_interface import HostInterface
from testbed.lab.host_routes import HostRoutes, Route
from testbed.lab.kernel_view import Seen
from testbed.lab.namespace import Namespace
from testbed.lab.node import Node
from testbed.lab.processes import Process
from testbed.protocol import events
from testbed.topology import Container, NicModel, address_of, link_local, pod_mac
from testbed.topology import Interface as InterfacePlan
from testbed.topology import Node as NodePlan

PORTS = range(1, 1 << 16)
SIGNALLED = 128
"""What runtimes add to the number of the signal that has ended a container."""
IFNAMSIZ = 16
"""Bytes of an interface's name with the NUL behind it."""


class Host(Node[HostInterface]):
    """A machine with RoCE interfaces. `nic` is how its NICs behave."""

    def __init__(
        self,
        context: Context,
        name: str,
        plan: NodePlan | None = None,
        nic: NicModel | None = None,
        of: Namespace | None = None,
    ) -> None:
        super().__init__(context, name, plan, of)
        self.nic = nic or (plan.nic if plan else "rxe")
        self.container = DockerContainer(self, plan.container) if plan and plan.container else None
        """The container in which its programs run, if it has one."""
        self.routes = HostRoutes(self, self._lives)
        self._vfs: dict[int, str] = {}
        """MACs of its virtual functions, by index."""
        self._lent: dict[str, _Lent] = {}
        self.off = False
        """True while it reboots."""

    def __getitem__(self, interface: str) -> HostInterface:
        known = interface in self.interfaces
        found = super().__getitem__(interface)
        if not known:
            with self.entered(), Rdma() as here:
                device = here.links().get(interface)
            if device:
                found.adopt_rdma(device)
        return found

    def make_interface(self, name: str, index: int, mac: str, plan: InterfacePlan | None) -> HostInterface:
        model = "rxe" if plan and plan.nic else self.nic  # a NIC does by itself what a model of one does to soft-RoCE
        return HostInterface(self, name, index, mac, plan, model, self.routes)

    def _lives(self, hop: Route) -> bool:
        """Return whether a next hop's interface is up: the one that it names, or that has an address in the gateway's
        subnet. An interface that the lab did not make, such as `lo`, counts as up."""
        ip = ip_address(hop["gateway"])
        known = ((name, interface.addresses.get(ip.version)) for name, interface in self.interfaces.items())
        beside = (name for name, address in known if address and ip in address.network)
        interface = hop.get("dev") or next(beside, "")
        return interface not in self.interfaces or self[interface].is_up

    def prepare(self) -> None:
        if self.plan and self.plan.ipv6:
            with self.entered():
                ipv6.enable_node()
        if self.container:  # Docker's daemon has it on, and a new namespace inherits it (devconf_inherit_init_net 0)
            self.sysctl("net/ipv4/ip_forward", 1)
        self._set_sysctls(of_interfaces=False)

    def configure(self) -> None:
        self._set_sysctls(of_interfaces=True)
        self.make_bonds()
        for interface in self.interfaces.values():
            self.join(interface)
        for dummy in self.plan.dummies if self.plan else ():
            index = self.kernel.add_dummy(dummy.name, dummy.mac)
            for address in dummy.addresses:
                self.kernel.set_address(index, address)
        for route in self.plan.routes if self.plan else ():
            self.add_route(route.destination, *route.via)

    def _set_sysctls(self, *, of_interfaces: bool) -> None:
        """Set those of single interfaces, which must exist, or the others, which interfaces may inherit."""
        if self.plan:
            names = {interface.name for interface in self.plan.interfaces}
            given = [(path, value) for path, value in self.plan.sysctls]
            self.set_sysctls(one for one in given if names.isdisjoint(one[0].split("/")) is not of_interfaces)

    def join(self, interface: HostInterface) -> None:
        super().join(interface)
        for address in interface.plan.addresses if interface.plan else ():
            interface.add_address(address)

    def complete_end(self, interface: HostInterface) -> None:
        super().complete_end(interface)
        if interface.plan and interface.plan.rdma:
            give = interface.adopt_rdma if interface.plan.nic else interface.add_rdma
            give(interface.plan.rdma)

    def change_end(self, interface: HostInterface, before: InterfacePlan, now: InterfacePlan) -> None:
        super().change_end(interface, before, now)
        had = self.kernel.routes_by_hand()
        for address in before.addresses:
            if address not in now.addresses and address in interface.all_addresses:
                interface.remove_address(address)
        for address in now.addresses:
            if address not in interface.all_addresses:
                interface.add_address(address)
        there = {route.to for route in self.kernel.routes_by_hand()}
        lost = {route.to for route in had} - there
        for route in self.plan.routes if self.plan else ():  # the kernel takes them away with the last address
            if route.destination in lost:
                self.add_route(route.destination, *route.via)

    def came_up(self, index: int) -> None:
        """Give an interface its link-local IPv6 address again, which the kernel does not make here (kernel/ipv6.py).
        The kernel refuses one whose IPv6 is off: before its first address, or after a command has set it so."""
        for interface in self.interfaces.values():
            if interface.index == index and interface.plan and interface.plan.address6:
                with contextlib.suppress(PermissionError):
                    self.kernel.set_address(index, IPv6Interface((link_local(interface.mac), 64)))

    def begin(self) -> None:
        if self.container:
            self.container.start()

    def launcher(self, program: str, *, terminal: bool = False) -> list[str]:
        return self.container.launcher(program, terminal=terminal) if self.container else []

    def delete_rdma(self, interface: HostInterface) -> None:
        """Delete the soft-RoCE device of an interface; return when it is gone."""
        if interface.rdma:
            self.context.devices.delete(self.namespace, [interface.device])
            interface.rdma = interface.nic = None

    def delete_devices(self) -> None:
        ends = [end for end in self.interfaces.values() if end.rdma and not (end.plan and end.plan.nic)]
        self.context.devices.delete(self.namespace, [end.device for end in ends])
        super().delete_devices()

    def add_vf(self, name: str, parent: str) -> None:
        """Add a virtual function of the NIC behind `parent`, as far as the network sees: another MAC on the same port.

        It is a macvlan child, which the plugin host-device can give to a pod. It comes back when the pod's namespace
        ends without DEL: down, and named as in the pod, or dev and its index if the host has that name.
        """
        self._add_vf(name, self[parent].index)

    def _add_vf(self, name: str, parent: int) -> None:
        mac = pod_mac(self.context.lab, f"{self.name}/{name}")
        self.kernel.add_macvlan(name, parent, mac)
        self._vfs[self.kernel.index(name)] = mac

    def claim_vf(self, name: str, parent: str, *, vlan: int = 0, mtu: int = 0) -> None:
        """Make a VF that is known by its PCI address, if it does not exist, or give it its name again.

        With a `vlan` its frames are in this VLAN on the NIC's link, and have no tag on the VF. An `mtu`, in bytes, is
        that of the NIC, too.
        """
        nic = self[parent]
        if mtu and nic.mtu != mtu:
            nic.set_mtu(mtu)
        below = self._vlan_device(parent, vlan) if vlan else nic.index
        mac = pod_mac(self.context.lab, f"{self.name}/{name}")
        for index, (present, its) in self.kernel.macvlans().items():
            if name == present or self._vfs.get(index) == mac or its == mac:
                if self.kernel.parent(index) == below:
                    self.kernel.set_link(index, up=False, name=name, mtu=mtu)
                    return
                self.kernel.delete_link(index)
                break
        self._add_vf(name, below)

    def _vlan_device(self, parent: str, vlan: int) -> int:
        """Return the index of the device by which VFs of a NIC are in a VLAN, which is made if there is none."""
        index = self[parent].index
        there = next((name for name, number in self.kernel.vlans_on(index).items() if number == vlan), "")
        name = f"{parent}.{vlan}" if len(parent) + 5 < IFNAMSIZ else f"vf{index}.{vlan}"
        found = self.kernel.index(there) if there else self.kernel.add_vlan(name, index, vlan)
        self.kernel.set_link(found, up=True)
        return found

    def forget_vfs(self) -> None:
        """Forget its VFs, which end with a reboot: device plugins make them again."""
        self._vfs.clear()

    def take_back_vfs(self, ending: Namespace) -> None:
        """Take the VFs that are in a namespace which ends, as the kernel does with hardware (default_device_exit_net in
        net/core/dev.c), and the NICs that were lent to it. It would delete these ones: they are no hardware."""
        for name in [name for name, lent in self._lent.items() if lent.to is ending]:
            self.take_back(name, up=False)
        if not self._vfs:
            return
        macs = set(self._vfs.values())
        with syscalls.closing_fd(os.open(netns.path(self.namespace), os.O_RDONLY)) as here:
            for index, (name, mac) in ending.kernel.macvlans().items():
                if index in self._vfs or mac in macs:
                    ending.kernel.set_link(index, up=False)
                    taken = {link.name for link in link_readings.link_states(self.kernel.dump_links()).values()}
                    ending.kernel.move(index, here, f"dev{index}" if name in taken else name)

    def lend(self, name: str, to: Pod, called: str) -> int:
        """Move one of its NICs into a pod, as a driver of devices does, and return its index there: down, without
        addresses and RDMA device. InputError for the end of a lossless link: its queues are programs of the node."""
        end = self[name]
        if end.port:
            raise InputError(f"{end} is the end of a lossless link, and cannot be given to a pod")
        if called in [link.name for link in to.now().links.values()]:
            raise InputError(f"{end} cannot be {called} of {to}, which has an interface of this name")
        rdma = end.rdma
        self.delete_rdma(end)
        self.kernel.set_link(end.index, up=False)
        with syscalls.closing_fd(os.open(netns.path(to.namespace), os.O_RDONLY)) as there:
            self.kernel.move(end.index, there, called)
        self._lent[name] = _Lent(to, to.kernel.index(called), rdma)
        return self._lent[name].index

    def lent_rdma(self, name: str) -> str | None:
        """Return the name of the RDMA device that a NIC had before it was lent."""
        return self._lent[name].rdma

    def take_back(self, name: str, *, up: bool) -> None:
        """Take a NIC back that was lent, with its name and its RDMA device and without addresses. Nothing comes back
        that a command has deleted in the pod."""
        lent = self._lent.pop(name)
        end = self.interfaces[name]
        if lent.index not in lent.to.now().links:
            return
        lent.to.kernel.set_link(lent.index, up=False)
        with syscalls.closing_fd(os.open(netns.path(self.namespace), os.O_RDONLY)) as here:
            lent.to.kernel.move(lent.index, here, name, end.index)
        if up:
            end.up()
        if lent.rdma:
            end.add_rdma(lent.rdma)

    def service(self, address: IPv4Address | str, port: int) -> Service:
        """Return a stable address and TCP port for what moves between hosts: ``host.service(address, 80).forward(to,
        8080)``. The host needs a route to the address."""
        found = address_of(address)
        if found.version == 6:
            raise InputError(f"{found} is an IPv6 address: services are of IPv4")
        return Service(self, found, port)


@dataclass(frozen=True)
class _Lent:
    """A NIC of a host that a pod has: its index there, and the RDMA device that it had on the host."""

    to: Pod
    index: int
    rdma: str | None


Program = Callable[["Pod"], Process | None]
"""Starts the program of a pod on the lab's machine; None for a pod that has none to start."""


class PodOwner(Protocol):
    """The owner that makes and ends pods: `Pods` of a lab."""

    def check(self, pod: Pod) -> None: ...

    def delete(self, pod: Pod) -> None: ...

    def lose(self, pod: Pod) -> None: ...

    def detach(self, pod: Pod) -> None:
        """Detach the pod from its networks, if it is on some."""


@dataclass(frozen=True)
class PodMetadata:
    """The metadata that Kubernetes has for a pod besides its name."""

    namespace: str = "default"
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    owner: str = ""
    """The maker of the pod, such as ``StatefulSet/web``: an object of its namespace, whose template has more labels,
    annotations and containers."""
    privileged: bool = False
    """True for a privileged container: its programs find the RDMA devices of its node and of all pods there."""
    resources: Mapping[str, int] = field(default_factory=dict)
    """Limits of its first container, such as ``{"spidernet.io/gpu1sriov": 1}``."""
    container: Container | None = None
    """Its first container. Without one its programs are those of the lab's machine."""
    host_network: bool = False
    """True if it has no network of its own but its node's (`hostNetwork`): no plugin is called for it."""
    manifest: Mapping[str, Any] = field(default_factory=dict)
    """The object of the pod in the API server before its start, in the place of what the other fields say of it."""

    @property
    def uid(self) -> str:
        """Return the UID of its object, if it has one already."""
        return str(self.manifest.get("metadata", {}).get("uid", ""))


class Pod(Host):
    """A pod on a host: a namespace with its networks' interfaces, `eth0` first. Made by `Pods.create` of a lab."""

    def __init__(
        self, host: Host, name: str, owner: PodOwner, metadata: PodMetadata, uid: str, program: Program | None = None
    ) -> None:
        """`uid` is that of the pod's object, the same in each of its sandboxes. `program` starts its program, if that
        is of the lab's machine."""
        super().__init__(host.context, name, nic=host.nic, of=host if metadata.host_network else None)
        self.host = host
        self.uid = uid
        self.metadata = metadata
        self.container = DockerContainer(self, metadata.container) if metadata.container else None
        self.command: Sequence[str] = ()
        """The command of its first container with its arguments, variables replaced."""
        self.directory = ""
        """The working directory of its first container, empty for that of its image."""
        self._program = program
        self._process: Process | None = None
        self.last_status: int | None = None
        """The status with which its container or its program ended at last, as `exit_status` has it."""
        self._owner = owner
        if not self.shares:
            own_devices.add(self.namespace, self.host_name, host.namespace, privileged=metadata.privileged)

    @property
    def host_name(self) -> str:
        """Return the host name of its programs: that of its object, else its own name."""
        return str((self.metadata.manifest.get("spec") or {}).get("hostname") or self.name)

    def __getitem__(self, interface: str) -> HostInterface:
        return self.host[interface] if self.shares else super().__getitem__(interface)

    def now(self) -> Seen:
        return self.host.now() if self.shares else super().now()

    def check(self) -> None:
        """Run CNI's CHECK: the networks' plugins verify that the pod is as they made it. Raise what they miss."""
        self._owner.check(self)

    def delete(self) -> None:
        """End the pod as a container runtime does: processes, networks, namespace. A second call does nothing."""
        self._owner.delete(self)

    def lose(self) -> None:
        """End the pod as a crash of its runtime does: processes and namespace go, and no plugin is called.

        What the plugins hold for it, such as its address, stays until `Pods.collect`.
        """
        self._owner.lose(self)

    def begin(self) -> None:
        super().begin()
        if self._program and not self.container:
            self._process = self._program(self)

    def exit_status(self) -> int | None:
        """Return the status with which its container or its program has ended, above 128 for a signal; None if it runs
        or there is none."""
        if self.container:
            status = self.container.exit_status()
        else:
            status = self._process.ended if self._process else None
            status = SIGNALLED - status if status is not None and status < 0 else status
        self.last_status = self.last_status if status is None else status
        return status

    @property
    def first_process(self) -> int | None:
        """Return the first process of its container or its program, as the machine numbers it; None without one."""
        if self.container:
            return self.container.pid
        return self._process.pid if self._process else None

    def start_again(self) -> None:
        """Start its container or its program again, which has ended."""
        if self.container:
            self.container.start_again()
        elif self._program:
            self._process = self._program(self)

    def delete_devices(self) -> None:
        if not self.shares:
            super().delete_devices()
            self.host.take_back_vfs(self)

    def keep_addresses(self) -> None:
        """Remember the addresses of its interfaces: it is about to go."""
        for interface in self.interfaces.values():
            interface.keep_addresses()

    def release(self) -> None:
        try:
            super().release()
        finally:
            self._owner.detach(self)


class Service:
    """An address and a TCP port that no host has, on one node: `forward` sends connections of the node's programs, and
    those that it routes, to a port of a host. The rule is DNAT of nftables, which kube-proxy has for a ClusterIP with
    one endpoint. RoCE does not pass it: a queue pair needs the address of a NIC."""

    def __init__(self, node: Namespace, address: IPv4Address, port: int) -> None:
        check(port)
        self.node = node
        self.address = address
        self.port = port
        self._table = f"service-{address}-{port}".replace(".", "-")
        self._there = False

    def __str__(self) -> str:
        return f"{self.address}:{self.port}"

    def forward(self, to: IPv4Address | str, port: int) -> None:
        """Send new connections to `port` of `to` from now on. Existing ones stay: conntrack knows them, and kube-proxy
        deletes nothing there for TCP."""
        check(port)
        there = address_of(to)
        if there.version == 6:
            raise InputError(f"{there} is an IPv6 address: services are of IPv4")
        with self.node.entered():
            nftables.run(nftables.forwarding(self._table, (self.address, self.port), (there, port)))
        self._there = True
        data = events.SERVICE(address=str(self.address), port=self.port, to=str(there), to_port=port)
        self.node.context.emit(data, self.node.name, f"service {self} forwards to {to}:{port}")

    def connections(self) -> int:
        """Return the number of connections sent to the current destination."""
        with self.node.entered():
            return nftables.forwarded(self._table) if self._there else 0

    def withdraw(self) -> None:
        """Stop forwarding. A second call does nothing."""
        if self._there:
            with self.node.entered():
                nftables.run(f"delete table ip {self._table}")
            self._there = False
            gone = events.SERVICE(address=str(self.address), port=self.port)
            self.node.context.emit(gone, self.node.name, f"service {self} is withdrawn")


def check(port: int) -> None:
    if port not in PORTS:
        raise InputError(f"{port} is not a TCP port", hint=f"Ports are {PORTS[0]} to {PORTS[-1]}.")
