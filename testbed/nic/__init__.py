"""NIC models: the behaviour of hardware NICs that soft-RoCE lacks."""

from testbed.nic.connections import Connection
from testbed.nic.hardware import HardwareNic, HardwareNics, prepare

__all__ = ["Connection", "HardwareNic", "HardwareNics", "prepare"]
