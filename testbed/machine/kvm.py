"""Detection of working KVM. /dev/kvm may exist and QEMU still abort or the guest hang: only a boot shows it."""

import os
import platform
import secrets
import time
from pathlib import Path

from testbed.errors import MachineError
from testbed.machine import cache, emulator, qemu, snapshot
from testbed.machine.image import Image
from testbed.machine.memory_files import Bundle, Outcome
from testbed.machine.qemu import Flavour, Ram
from testbed.protocol import Clock

DEVICE = Path("/dev/kvm")
MACHINE_ID = Path("/etc/machine-id")
BOOT_S = 25.0
"""Seconds with a CPU that a boot may take; with working KVM it takes about two."""
RETRY_S = 86400.0
"""Wall seconds after which a failed boot is tried again: the host may have been short of memory, or busy."""


async def flavour(image: Image, clock: Clock) -> Flavour:
    """Return KVM for the real clock if it works, by the cached answer or a boot. Only TCG counts instructions."""
    if clock == "virtual":
        return Flavour(clock)
    known = answer()
    if known is None:
        known = await _boots(image)
        path = _memory()
        new = path.with_suffix(f".{secrets.token_hex(8)}")
        new.write_text("works\n" if known else "fails\n")
        new.rename(path)
    return Flavour(clock, "kvm" if known else "tcg")


def answer() -> bool | None:
    """Return the cached answer for this machine, kernel and QEMU; None if unknown. Without the device it is False."""
    if not os.access(DEVICE, os.R_OK | os.W_OK):
        return False
    path = _memory()
    if not path.exists():
        return None
    if path.read_text() == "works\n":
        return True
    age_s = time.time() - path.stat().st_mtime
    return False if 0 <= age_s <= RETRY_S else None  # negative: the clock was set back


def _memory() -> Path:
    identity = MACHINE_ID.read_text().strip() if MACHINE_ID.exists() else ""
    identity = identity or platform.node()  # an image that machines are cloned from has an empty file
    return cache.directory("kvm") / cache.digest(identity, platform.release(), emulator.emulator().identity)[:16]


async def _boots(image: Image) -> bool:
    try:
        with Bundle() as bundle, Outcome() as outcome, snapshot.memory(qemu.MEMORY) as handle:
            ram, flavour = Ram(handle, shared=True), Flavour("real", "kvm")
            async with snapshot.running(image, flavour, None, ram, bundle, outcome) as machine:
                await snapshot.pause_within(machine, BOOT_S)
    except MachineError:
        return False
    return True
