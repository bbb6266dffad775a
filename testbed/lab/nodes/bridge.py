"""Plain learning bridges."""

from __future__ import annotations

import socket

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
        self.ip.link("add", ifname=BRIDGE, kind="bridge", br_mcast_snooping=0)
        with self.entered():
            index = socket.if_nametoindex(BRIDGE)
        self.ip.link("set", index=index, state="up")
        for interface in self.interfaces.values():
            self.ip.link("set", index=interface.index, master=index)
