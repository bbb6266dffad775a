"""The fixed point of DCQCN's fluid model: where the marking probability, and with it the queue, settles.

"Congestion Control for Large-Scale RDMA Deployments" (SIGCOMM 2015), equations 5 to 9, with all derivatives 0; that it
is the only one is shown in "ECN or Delay" (CoNEXT 2016), theorem 1.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Parameters:
    """Times in seconds, rates in packets per second; the defaults are the paper's."""

    cnp: float = 50e-6
    alpha: float = 55e-6
    increase: float = 55e-6
    increase_packets: float = 10e6 / 1000
    stages: int = 5
    additive: float = 40e6 / 8000


def excess(p: float, rate: float, values: Parameters) -> float:
    """By how much a flow's rate grows at a marking probability: positive below the fixed point."""
    cut = 1 - (1 - p) ** (values.cnp * rate)
    alpha = 1 - (1 - p) ** (values.alpha * rate)
    grow = 0.0
    additive = 0.0
    for packets in values.increase_packets, values.increase * rate:
        events = rate * p / ((1 - p) ** -packets - 1)
        grow += events
        additive += values.additive * (1 - p) ** (values.stages * packets) * events
    above = values.cnp * additive / cut  # target over current rate, where the target does not move
    return above / 2 * grow - rate * alpha / (2 * values.cnp) * cut


def marking_probability(rate: float, values: Parameters) -> float:
    """The fixed point of a flow that has `rate`, its share of the link."""
    low, high = 1e-7, 0.9
    for _ in range(100):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if excess(middle, rate, values) > 0 else (low, middle)
    return low


def queue(probability: float, least: float, most: float, highest: float) -> float:
    """Bytes in a queue that marks so often, with Kmin, Kmax and Pmax."""
    return least + probability / highest * (most - least)
