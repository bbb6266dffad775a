"""The RDMA devices of a lab, and the hardware NICs that they stand for."""

from __future__ import annotations

from collections.abc import Sequence

from testbed.kernel import devices, netns
from testbed.nic import HardwareNic, HardwareNics
from testbed.topology import NicModel


class RdmaDevices:
    """The devices of a lab. With `nic: hardware` a device behaves like a hardware NIC."""

    def __init__(self) -> None:
        self._hardware: HardwareNics | None = None

    def adopt(self, namespace: str, interface: str, device: str, model: NicModel) -> HardwareNic | None:
        """Takes in a device that an interface has."""
        if model != "hardware":
            return None
        if self._hardware is None:
            self._hardware = HardwareNics()
        return self._hardware.add(lambda: netns.entered(namespace), interface, device)

    def delete(self, namespace: str, names: Sequence[str]) -> None:
        """Returns when the devices are gone."""
        if self._hardware:
            for name in names:
                self._hardware.remove(name)
        devices.delete(namespace, names)

    def close(self) -> None:
        if self._hardware:
            hardware, self._hardware = self._hardware, None
            hardware.close()
