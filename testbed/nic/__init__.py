"""NIC models: what a hardware NIC does and soft-RoCE does not."""

from testbed.nic.connections import Connection
from testbed.nic.hardware import HardwareNic, HardwareNics, prepare

__all__ = ["Connection", "HardwareNic", "HardwareNics", "prepare"]
