"""NIC models: the behaviour of hardware NICs that soft-RoCE lacks."""

from testbed.nic.connections import Connection
from testbed.nic.hardware_nic import HardwareNic, HardwareNics, RdmaDevices, prepare

__all__ = ["Connection", "HardwareNic", "HardwareNics", "RdmaDevices", "prepare"]
