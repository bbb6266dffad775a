"""The law of slow motion of docs/lossless.md: bytes stay, times are multiplied by the scale, rates divided by it.

The time of a packet, of a pause, and after which a pause is sent again follow from the link's rate. Seconds that a file
gives do not: the warnings here are about those that break the law.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from testbed.kernel.lossless.layout import constants

LONGEST_BITS = constants()["MOST_QUANTA"] * constants()["QUANTUM_BITS"]
"""The longest pause, in bit times (IEEE 802.1Qbb)."""


def ack_timeout_s(timeout: int) -> float:
    """Return the seconds of an ACK timeout of 1..31."""
    return constants()["TIMEOUT_UNIT_NS"] / 1e9 * (1 << timeout)


def pause_s(rate: int) -> float:
    """Return the seconds for which one pause frame stops a link of a rate in bits per second."""
    return LONGEST_BITS / rate


def refresh_s(rate: int) -> float:
    """Return the seconds after which a port that still means a pause sends it again."""
    return pause_s(rate) / 2


class Watched(NamedTuple):
    """A port with a PFC watchdog: the rate of its link, and its times in seconds."""

    port: str
    rate: int
    detect: float
    poll: float


def watchdog_warnings(ports: Iterable[Watched]) -> list[str]:
    """Return warnings about watchdogs that poll faster than pauses are sent again, one for each switch and rate."""
    found: dict[tuple[str, int], str] = {}
    for port, rate, detect, poll in ports:
        again = refresh_s(rate)
        first = max(detect, again)
        if detect and poll < again:
            switch = port.partition(":")[0]
            text = (
                f"{port}: at {rate / 1e6:g} Mbit/s a pause is sent again after {again:.3g} s, and the watchdog is to "
                f"poll every {poll:g} s: it polls every {again:.3g} s, and finds a storm after {first:.3g} to "
                f"{first + 2 * again:.3g} s. Times of the link's rate: pfc_watchdog_poll {again:.3g}, "
                f"pfc_watchdog {2 * again:.3g} or more"
            )
            found.setdefault((switch, rate), text)
    return list(found.values())


def timeout_warnings(shortest: Iterable[tuple[int, int]]) -> list[str]:
    """Return warnings about queue pairs that send again what only waits for the end of a pause; `shortest` has rates of
    links, and the shortest ACK timeouts t there that are below a pause."""
    found: dict[tuple[int, int], str] = {}
    for rate, timeout in shortest:
        enough = next(longer for longer in range(timeout, 32) if ack_timeout_s(longer) >= pause_s(rate))
        found[rate, timeout] = (
            f"at {rate / 1e6:g} Mbit/s one pause frame stops a link for {pause_s(rate):.3g} s, and queue pairs of a "
            f"lossless class have an ACK timeout of {ack_timeout_s(timeout):.3g} s ({timeout}): they send again "
            f"what only waits. Times of the link's rate: {enough} or more"
        )
    return list(found.values())


def scale_warnings(scales: Mapping[str, float]) -> list[str]:
    """Return warnings about hosts with different scales; `scales` has that of each by its name."""
    if len(several := sorted(set(scales.values()))) < 2:
        return []
    of = {scale: [name for name, one in scales.items() if one == scale] for scale in several}
    shown = "; ".join(f"{scale:g} of {', '.join(names)}" for scale, names in of.items())
    return [f"the hosts are in different slow motions, by the `scale` of congestion control: {shown}"]
