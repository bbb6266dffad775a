"""Rows of load balancing and of HPCC: what papers print, and what a packet simulator gives that shares nothing with
the lab's programs (simulator/). No scenario and no test has the rates, sizes and numbers of hosts that are compared.
"""

import random
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

from measure import Figures, figures, seeded
from rows import Experiment, Mean, Published, Row, number
from simulator.hpcc import Values
from simulator.network import Balance, at_random, flowlets, in_turn, shortest_queue
from simulator.scenes import Chain, Controlled, LeafSpine, Rates, Steady, bulk, controlled, ecmp, progress, steady

SIMULATED = 0.06
"""By how much the lab may be off the simulation; the interval of random draws counts, too."""
SEEDS = range(1, 4)
DRAWN = "bisection or random-even or bulk"
"""The tests of inside/spraying.py that are random: one machine for each seed has all."""
HOSTS, UPLINK, RECEIVER, SLOW = (6.1e6, 6.7e6, 7.3e6, 7.9e6, 8.3e6), 13.7e6, 9.7e6, 5.1e6
EVEN = Rates(HOSTS, RECEIVER, (UPLINK,) * 3, UPLINK)
WHOLE = Rates((8.2e6,) * 5, RECEIVER, (UPLINK,) * 3, UPLINK)
UNEVEN = Rates(HOSTS, RECEIVER, (UPLINK, SLOW, UPLINK), UPLINK)
BULK, SHARE, BURST, GAP_S, MESSAGE = 301, 101, 31, 0.03, 23
"""As in inside/spraying.py."""
LINE, LAST, HPCC_MESSAGE = 37e6, 29e6, 33
VALUES = Values(31e-6 * 500, 284e6 * 31e-6 / 8)
PARKING_LINE, PARKING, PARKING_VALUES = 17e6, (14.1e6, 10.3e6), replace(VALUES, base_rtt=31e-6 * 1100)
PACKET = 1082
LINK_BITS = 8 * (PACKET + 24)
"""A packet on the wire."""
PAPER, PAPER_SENDERS, PAPER_RTT_S, DELAY_S = 25e6, 16, 4.2e-6 * 4000, 0.004
"""As in inside/hpcc.py: 100 Gbit/s in slow motion."""


def simulated(
    what: str,
    ours: float | Mean,
    computed: float | Mean,
    form: str = "{:.2f}",
    why: str = "",
    within: float = SIMULATED,
) -> Row:
    return number(what, ours, computed=computed, form=form, within=within, why=why)


def of_seeds(compute: Callable[[int], float], seeds: Sequence[int] = range(1, 6)) -> Mean:
    return Mean.of([compute(seed) for seed in seeds])


def spraying() -> Iterator[Row]:
    drawn = seeded("spraying.py", DRAWN, SEEDS)
    single = figures("spraying.py", "turn or shortest")
    draws = [draw for found in drawn for draw in found["bulk"]["ecmp"]]
    yield simulated(
        f"ECMP, 5 flows over 3 uplinks, {len(draws)} draws of flow labels: seconds of the slowest flow",
        statistics.fmean(draw["seconds"] for draw in draws),
        statistics.fmean(ecmp(EVEN, draw["picks"], BULK) for draw in draws),
        "{:.3f}",
        "the uplinks are those that the kernel's hash picked",
    )
    yield simulated(
        "all-to-all of 5 and 5 hosts, packets at random: seconds",
        statistics.fmean(seconds for found in drawn for seconds in found["bulk"]["all_to_all"]),
        all_to_all(),
        "{:.3f}",
    )
    yield simulated(
        "flowlets, bursts of 5 flows over 3 uplinks: seconds of the slowest",
        Mean.of([seconds for found in drawn for seconds in found["bulk"]["flowlet"]]),
        of_seeds(bursts),
        "{:.4f}",
    )
    yield from queues("in turn", single["steady[turn-even]"], in_turn)
    yield from queues("by the shortest queue", single["steady[shortest-even]"], shortest_queue)
    yield from at_random_rows([found["steady[random-even]"] for found in drawn])
    yield from uneven("in turn", single["steady[turn-slow]"], in_turn)
    yield from uneven("by the shortest queue", single["steady[shortest-slow]"], shortest_queue)


def all_to_all() -> float:
    net = LeafSpine(EVEN, lambda: at_random(random.Random(1)))  # noqa: S311
    return bulk(net, [(near, far) for near in net.near for far in net.far], SHARE)


def bursts(seed: int) -> float:
    dice = random.Random(seed)  # noqa: S311
    net = LeafSpine(EVEN, lambda: flowlets(dice, GAP_S / 3))
    return bulk(net, list(zip(net.near, net.far, strict=True)), BURST, 100, GAP_S)


def run(rates: Rates, balance: Callable[[random.Random], Balance], seeds: Sequence[int] = SEEDS) -> list[Steady]:
    return [steady(rates, balance, MESSAGE, 10.0, seed) for seed in seeds]


def queues(name: str, found: Figures, balance: Callable[[random.Random], Balance]) -> Iterator[Row]:
    ours = statistics.fmean(found["queues"])
    computed = Mean.of([statistics.fmean(one.queues) for one in run(EVEN, balance)])
    what, why = f"packets {name}, uplinks 88 % in use: mean queue of one, in packets", "less than a packet: to 0.1"
    yield simulated(what, ours, computed, why=why, within=0.1 / computed.mean)


def at_random_rows(found: Sequence[Figures]) -> Iterator[Row]:
    computed = run(EVEN, at_random, range(1, 7))
    yield simulated(
        "packets at random, uplinks 88 % in use: mean queue of one, in packets",
        Mean.of([statistics.fmean(one["queues"]) for one in found]),
        Mean.of([statistics.fmean(one.queues) for one in computed]),
    )
    yield simulated(
        "the same: packets that the 5 receivers hold to put them in order",
        Mean.of([one["held"] for one in found]),
        Mean.of([one.held for one in computed]),
    )
    yield simulated(
        "the same: the part of all packets that the least used of 3 uplinks has",
        Mean.of([min(one["uplinks"]) / sum(one["uplinks"]) for one in found]),
        Mean.of([min(one.uplinks) / sum(one.uplinks) for one in computed]),
        "{:.3f}",
    )


def uneven(name: str, found: Figures, balance: Callable[[random.Random], Balance]) -> Iterator[Row]:
    computed = run(UNEVEN, balance)
    what = f"one of 3 uplinks has 37 % of its rate, packets {name}"
    yield simulated(
        f"{what}: packets per second of all hosts",
        sum(found["receivers"]),
        Mean.of([sum(one.receivers) for one in computed]),
        "{:.0f}",
    )
    yield simulated(
        f"{what}: mean queue of the slow uplink, in packets",
        found["queues"][1],
        Mean.of([one.queues[1] for one in computed]),
        "{:.1f}",
    )
    yield simulated(
        f"{what}: packets that receivers hold", found["held"], Mean.of([one.held for one in computed]), "{:.0f}"
    )


def hpcc() -> Iterator[Row]:
    found = figures("hpcc.py", "incast or newcomer or parking")
    for senders in 3, 7, 11:
        ours, computed = found[f"incast[{senders}]"], incast(senders)
        what = f"HPCC, incast of {senders}"
        yield simulated(
            f"{what}: mean queue in packets", statistics.fmean(ours["queues"][0]), statistics.fmean(computed.queues[0])
        )
        yield simulated(
            f"{what}: part of the link in use",
            sum(ours["rates"]) * LINK_BITS / LAST,
            sum(computed.rates) * LINK_BITS / LAST,
            "{:.3f}",
        )
    yield simulated(f"{what}: Jain's index of the rates", jain(ours["rates"]), jain(computed.rates), "{:.4f}")
    yield latecomer(first_share(found["newcomer"]["sent"]))
    yield from two_bottlenecks(found["parking_lot"], parking_lot())


def two_bottlenecks(ours: Figures, computed: Controlled) -> Iterator[Row]:
    what = "HPCC, two full links in a row"
    flows = zip(("both", "the first", "the second"), ours["rates"], computed.rates, strict=True)
    for name, rate, other in flows:
        yield simulated(f"{what}: packets per second of the flow over {name}", rate, other, "{:.0f}")
    for name, seen, others in zip(("first", "second"), ours["queues"], computed.queues, strict=True):
        yield simulated(
            f"{what}: mean queue of the {name}, in packets", statistics.fmean(seen), statistics.fmean(others)
        )


def incast(senders: int) -> Controlled:
    net, dice = Chain(), random.Random(1)  # noqa: S311
    receiver = net.host(0, LAST)
    flows = [net.flow(net.host(0, LINE), receiver, HPCC_MESSAGE, VALUES, dice.random() / 100) for _ in range(senders)]
    return controlled(net, flows, net.switches[0].routes[receiver], 6.0, 0.0037)


def latecomer(ours: float) -> Row:
    """The window of the others, and with it the share, depends on when in their round trip it comes."""
    drawn = [first_share(newcomer(2 + VALUES.base_rtt * phase / 8)) for phase in range(16)]
    what = "HPCC, a third flow comes: its part of the packets of its first half second"
    why = f"{min(drawn):.3f} to {max(drawn):.3f}, by the moment at which it comes"
    row = simulated(what, ours, Mean.of(drawn), "{:.3f}", why)
    return row._replace(agrees=min(drawn) * (1 - SIMULATED) <= ours <= max(drawn) * (1 + SIMULATED))


def newcomer(begins: float) -> list[list[float]]:
    net = Chain()
    receiver = net.host(0, LAST)
    flows = [
        net.flow(net.host(0, LINE), receiver, HPCC_MESSAGE, VALUES, start) for start in (0.0, 0.003, begins + 0.001)
    ]
    net.clock.run(begins)
    return list(progress(net, flows, 0.8, 0.02))


def parking_lot() -> Controlled:
    net, dice = Chain(PARKING), random.Random(1)  # noqa: S311
    ends = [(net.host(at, PARKING_LINE), net.host(to, PARKING_LINE)) for at, to in ((0, 2), (0, 1), (1, 2))]
    flows = [net.flow(*pair, HPCC_MESSAGE, PARKING_VALUES, dice.random() / 100) for pair in ends]
    return controlled(net, flows, net.right, 12.0, 0.0037)


def percentile(packets: Sequence[int], part: float) -> float:
    """Of grouped data, as statistics.median_grouped: a number of packets is all from half a packet less to half a
    packet more. The one of whole packets jumps by a packet for a thousandth of the time."""
    at, below = part * len(packets), 0
    for waiting, often in sorted(Counter(packets).items()):
        if below + often >= at:
            return waiting - 0.5 + (at - below) / often
        below += often
    raise ValueError(f"{part} is no part")


def jain(rates: Sequence[float]) -> float:
    return sum(rates) ** 2 / (len(rates) * sum(rate * rate for rate in rates))


def first_share(sent: Sequence[Sequence[float]], seconds: float = 0.5) -> float:
    """Of the flow that comes last, from its first packet on."""
    begun = next(before for before, after in pairwise(sent) if after[-1] > sent[0][-1])
    ended = next(one for one in sent if one[0] >= begun[0] + seconds)
    passed = [after - before for before, after in zip(begun[1:], ended[1:], strict=True)]
    return passed[-1] / sum(passed)


def hpcc_paper() -> Iterator[Row]:
    drawn = seeded("hpcc.py", "figure", SEEDS)
    for additive, printed in ((150, "at most 4 KB"), (300, "13 KB")):
        what = f"16-to-1 incast, W_AI of {additive} bytes: 95th percentile of the queue in bytes"
        ours = Mean.of([percentile(one[f"figure_14[{additive}]"]["queues"][0], 0.95) * PACKET for one in drawn])
        computed = percentile(figure_14(additive).queues[0], 0.95) * PACKET
        place, why = "section 5.4 and figure 14b", f"packets have {PACKET} bytes here: {ours.mean / PACKET:.1f} wait"
        yield number(what, ours, computed=computed, form="{:.0f}", published=Published(printed, place), why=why)


def figure_14(additive: int) -> Controlled:
    net, dice = Chain(delay=DELAY_S), random.Random(1)  # noqa: S311
    receiver, values = net.host(0, PAPER), Values(PAPER_RTT_S, additive)
    senders = [net.host(0, PAPER) for _ in range(PAPER_SENDERS)]
    flows = [net.flow(sender, receiver, HPCC_MESSAGE, values, dice.random() / 1000) for sender in senders]
    return controlled(net, flows, net.switches[0].routes[receiver], 10.0, 0.0037)


def bisection() -> Iterator[Row]:
    found = [one["bisection"] for one in seeded("spraying.py", DRAWN, SEEDS)]
    alone = BULK * LINK_BITS / WHOLE.hosts[0]
    draws = [draw for one in found for draw in one["ecmp"]]
    place = "press release of 28 October 2024 on xAI's Colossus"
    yield number(
        "5 flows that need all of 3 uplinks, by the shortest queue: part of the bandwidth in use",
        statistics.fmean(alone / one["adaptive"]["seconds"] for one in found),
        published=Published(0.95, place),
        computed=alone / all_by_shortest_queue(),
        why="NICs put packets in order; 100000 GPUs there",
    )
    yield number(
        f"the same by ECMP, {len(draws)} draws of flow labels",
        Mean.of([alone / draw["seconds"] for draw in draws]),
        published=Published(0.60, place),
        computed=statistics.fmean(alone / ecmp(WHOLE, draw["picks"], BULK) for draw in draws),
        why="it depends on how many flows there are for how many links; computed with the same picks",
    )


def all_by_shortest_queue() -> float:
    dice = random.Random(1)  # noqa: S311
    net = LeafSpine(WHOLE, lambda: shortest_queue(dice))
    return bulk(net, list(zip(net.near, net.far, strict=True)), BULK)


PACKETS = "packet simulation"
EXPERIMENTS = (
    Experiment("E16", f"{PACKETS} of load balancing", spraying),
    Experiment("E17", f"{PACKETS} of HPCC", hpcc),
    Experiment("E18", "Li et al., SIGCOMM 2019", hpcc_paper),
    Experiment("E19", "NVIDIA Spectrum-X", bisection),
)
