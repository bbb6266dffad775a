"""What can be broken on purpose. A fault is injected, seen, recovered, and seen to be gone: `injected(lab, fault)`."""

from testbed.faults.catalogue import KINDS, break_from_the_start, descriptions, problem
from testbed.faults.fault import Fault, FaultError, Injection, injected, make
from testbed.faults.link import (
    LinkCorrupt,
    LinkDelay,
    LinkDown,
    LinkDuplicate,
    LinkFlap,
    LinkLoss,
    LinkMtu,
    LinkRate,
    LinkReorder,
    NicDown,
)
from testbed.faults.packet import ExactPacket

__all__ = [
    "KINDS",
    "ExactPacket",
    "Fault",
    "FaultError",
    "Injection",
    "LinkCorrupt",
    "LinkDelay",
    "LinkDown",
    "LinkDuplicate",
    "LinkFlap",
    "LinkLoss",
    "LinkMtu",
    "LinkRate",
    "LinkReorder",
    "NicDown",
    "break_from_the_start",
    "descriptions",
    "injected",
    "make",
    "problem",
]
