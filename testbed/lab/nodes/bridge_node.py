"""Plain learning bridges."""

from testbed.lab.interface import Interface
from testbed.lab.node import Node
from testbed.topology import Interface as InterfacePlan

BRIDGE = "br0"


class Bridge(Node[Interface]):
    """An unmanaged layer-2 segment."""

    def make_interface(self, name: str, index: int, mac: str, plan: InterfacePlan | None) -> Interface:
        return Interface(self, name, index, mac, plan)

    def configure(self) -> None:
        super().configure()
        bridge = self.kernel.add_bridge(BRIDGE, stp=bool(self.plan and self.plan.stp))
        for interface in self.interfaces.values():
            self.kernel.enslave(interface.index, bridge)

    def join(self, interface: Interface) -> None:
        self.kernel.enslave(interface.index, self.kernel.index(BRIDGE))
