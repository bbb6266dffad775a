"""RoCE in Mininet: hosts with a soft-RoCE device on each interface, for a Mininet script that runs as root.

``Mininet(topo, host=RdmaHost)`` is enough. docs/mininet.md has an example; Debian ships Mininet 2.3.
"""

from contextlib import suppress
from ipaddress import ip_address
from typing import Any

from mininet.log import lg
from mininet.node import Host, Node, Switch
from mininet.util import moveIntf

from testbed.kernel import netns, own_devices, rxe_devices
from testbed.kernel.links import Links
from testbed.workload.queue_pair import gid_index, open_device

lg.propagate = False  # pyverbs gives the root logger a handler, which would repeat each line of Mininet's


class RdmaHost(Host):  # type: ignore[misc]  # Mininet has no types
    """A host whose interfaces have RDMA devices as soon as it is configured, which is in `Mininet.build`.

    Its programs see only its own devices. `rdma` has the device of each interface: named like it (`h1-eth0`), with
    `h1-` before names that do not begin with the host's. The RDMA mode, shared or exclusive, is the kernel's: `rdma
    system set netns exclusive` changes it while there is no host.
    """

    def __init__(self, name: str, **params: Any) -> None:
        self.rdma: dict[str, str] = {}
        self._configured = False
        super().__init__(name, **params)

    @property
    def namespace(self) -> str:
        """Return the host's network namespace for testbed's own tools, such as `testbed.workload.Endpoint`."""
        return namespace(self)

    # Mininet's names, called in this order: addIntf for each link, config, delIntf, terminate.

    def config(self, **params: Any) -> dict[str, Any]:
        result: dict[str, Any] = super().config(**params)
        self._configured = True
        for intf in self.intfList():
            self._add_rdma(intf)
        return result

    def addIntf(self, intf: Any, port: int | None = None, moveIntfFn: Any = moveIntf) -> None:  # noqa: N802, N803
        """Give a running host's new interface its device at once."""
        super().addIntf(intf, port=port, moveIntfFn=moveIntfFn)
        if self._configured:
            self._add_rdma(intf)

    def delIntf(self, intf: Any) -> None:  # noqa: N802
        """Wait until the device is gone: Mininet has deleted the interface before, and the device goes with it."""
        self._delete_rdma(intf.name)
        super().delIntf(intf)

    def terminate(self) -> None:
        self._delete_rdma(*self.rdma)
        super().terminate()

    def _add_rdma(self, intf: Any) -> None:
        """Return when the interface's address, if it has one, is a GID."""
        if intf.name in self.rdma:
            return
        device = intf.name if intf.name.startswith(f"{self.name}-") else f"{self.name}-{intf.name}"
        rxe_devices.add(self.namespace, intf.name, device)
        own_devices.show_in(self.pid)
        self.rdma[intf.name] = device
        if intf.IP():
            with open_device(self.namespace, device) as context:
                gid_index(context, ip_address(intf.IP()))

    def _delete_rdma(self, *interfaces: str) -> None:
        names = [self.rdma.pop(interface) for interface in interfaces if interface in self.rdma]
        if names:
            rxe_devices.delete(self.namespace, names)
            own_devices.show_in(self.pid)


class KernelBridge(Switch):  # type: ignore[misc]
    """A learning bridge of the kernel: Mininet's LinuxBridge without `brctl`, or OVSBridge without its daemons."""

    def start(self, controllers: list[Any]) -> None:
        with netns.entered(namespace(self)), Links() as kernel:
            bridge = kernel.add_bridge(self.name)
            for port in self._ports(kernel):
                kernel.enslave(port, bridge)
        self.connected()  # the kernel lets a port forward when it is queried, or a second later

    def connected(self) -> bool:
        with netns.entered(namespace(self)), Links() as kernel:
            return kernel.carry(self._ports(kernel))

    def stop(self, deleteIntfs: bool = True) -> None:  # noqa: N803
        with netns.entered(namespace(self)), Links() as kernel, suppress(OSError):  # it is gone
            kernel.delete_link(kernel.index(self.name))
        super().stop(deleteIntfs)

    def _ports(self, kernel: Links) -> list[int]:
        return [kernel.index(name) for name in self.intfNames() if name != "lo"]


def namespace(node: Node) -> str:
    """Return a node's network namespace for testbed's own tools: Mininet gives it no name."""
    return f"/proc/{node.pid}/ns/net"
