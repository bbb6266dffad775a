"""The buffer of a switch with lossless classes, computed from its profile: docs/lossless.md."""

from dataclasses import dataclass
from typing import Any, NamedTuple

from testbed.errors import InputError
from testbed.kernel.lossless.layout import PRIORITIES, constants
from testbed.switch.profile import Profile
from testbed.topology.plan import CONTROL_PRIORITY, PAUSE_PRIORITY, Lossless

HEADER = 18
"""Bytes of an Ethernet header with a VLAN tag, which the MTU does not count."""


class Marking(NamedTuple):
    """Thresholds in bytes, the probability at the upper one in 1/65536, and the microseconds between two steps of its
    controller, 0: none (struct marking)."""

    min: int = 0
    max: int = 0
    probability: int = 0
    interval_us: int = 0


@dataclass(frozen=True, slots=True)
class Buffer:
    """Sizes in bytes. `shared` is the rest of the buffer after the reserves and the headroom of all ports."""

    shared: int
    headroom: int
    reserve: int
    lossy_reserve: int


def buffer_of(switch: str, profile: Profile, lossless: Lossless, ports: int, mtu: int) -> Buffer:
    """Return the parts of a switch's buffer. InputError for sizes that cannot work, with sizes that would."""
    frame = mtu + HEADER
    groups = ports * len(lossless.priorities)
    queues = ports * (len(PRIORITIES) - len(lossless.priorities) - 2)
    kept = groups * (profile.pfc_headroom + profile.pfc_reserve) + queues * profile.lossy_reserve
    shared = profile.buffer - kept
    least = max(frame, profile.pfc_xon_offset)

    def refuse(wrong: str, hint: str) -> InputError:
        return InputError(f"{switch}: {wrong}", hint=hint)

    if 0 < profile.pfc_headroom < frame:
        needed = f"A frame of the link's MTU has {frame}; usual is space for two frames and the data on the cable."
        raise refuse(f"pfc_headroom ({profile.pfc_headroom} bytes) does not hold one frame", needed)
    if shared < least:
        wrong = f"the buffer ({profile.buffer} bytes) leaves {shared} shared bytes beside reserves and headroom of"
        raise refuse(f"{wrong} {ports} ports ({kept} bytes)", f"The minimum is `buffer: {kept + 2 * least}`.")
    first = min(profile.pfc_alpha, 1.0) * shared / (1 + min(profile.pfc_alpha, 1.0))
    if profile.pfc_xon_offset > first:
        wrong = f"pfc_xon_offset ({profile.pfc_xon_offset} bytes) is above the threshold of a single active group"
        raise refuse(f"{wrong} ({first:.0f})", f"Use `pfc_xon_offset: {int(first / 2)}`, or a larger buffer.")
    return Buffer(shared, profile.pfc_headroom, profile.pfc_reserve, profile.lossy_reserve)


def pool_values(profile: Profile, buffer: Buffer, lossless: Lossless) -> tuple[int, list[dict[str, int]]]:
    """Return the shared size, and the MMU's values by priority (struct pool_class)."""
    classes = []
    for priority in PRIORITIES:
        alpha = profile.pfc_alpha if priority in lossless.priorities else profile.lossy_alpha
        numerator, denominator = alpha.as_integer_ratio() if alpha < 1 else (round(alpha * 128), 128)
        if denominator > 1 << 16:
            numerator, denominator = round(alpha * (1 << 16)), 1 << 16
        lossy = priority not in (*lossless.priorities, CONTROL_PRIORITY, PAUSE_PRIORITY)
        classes.append(
            {
                "alpha_numerator": numerator,
                "alpha_denominator": denominator,
                "xon_offset": profile.pfc_xon_offset,
                "reserve": buffer.lossy_reserve if lossy else 0,
            }
        )
    return buffer.shared, classes


def miss_values(profile: Profile) -> dict[str, int]:
    """Return what becomes of packets without a next hop (struct pool)."""
    gap = round(1e9 / profile.miss_pps) if profile.miss_pps else 0
    return {"miss_action": ("keep", "cpu", "drop").index(profile.miss_packets), "cpu_gap_ns": gap}


def balancing_values(profile: Profile, lossless: Lossless) -> dict[str, Any]:
    """Return how packets share paths of equal cost, by class (struct pool)."""
    given = profile.load_balancing
    chosen = dict.fromkeys(lossless.priorities, given) if isinstance(given, str) else given
    numbers = constants()
    return {
        "balancing": [numbers[chosen.get(priority, "ecmp").upper()] for priority in PRIORITIES],
        "flowlet_ns": round(profile.flowlet_gap * 1e9),
    }


def port_values(profile: Profile, buffer: Buffer, lossless: Lossless) -> dict[str, Any]:
    """Return the values that each port has from the profile (struct port_config)."""
    interval = round(profile.ecn_interval * 1e6) if profile.ecn_control == "adaptive" else 0
    marking = Marking(profile.ecn_min, profile.ecn_max, round(profile.ecn_probability / 100 * (1 << 16)), interval)
    return {
        "headroom": buffer.headroom,
        "reserve": buffer.reserve,
        "watchdog_poll_ns": round(profile.pfc_watchdog_poll * 1e9),
        "watchdog_detect_ns": round(profile.pfc_watchdog * 1e9),
        "watchdog_restore_ns": round(profile.pfc_watchdog_restoration * 1e9),
        "watchdog_action": ("drop", "forward").index(profile.pfc_watchdog_action),
        "marking": dict.fromkeys(lossless.priorities, marking),
    }
