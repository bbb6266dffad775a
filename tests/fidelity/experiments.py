"""Published results, and what the lab has in their place: an experiment each, with the rows that it gives the table."""

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import fluid
import packets
from measure import figures, variant

CLOSE = 0.15
"""By how much a ratio may be off one where the scaling law promises it: bytes stay, times grow, rates shrink."""
SIGMAS = 3
"""Standard errors by which the mean of random draws may be off."""


class Row(NamedTuple):
    """`ratio` is ours over published. `agrees` is None for what is not compared.

    `known` is why it is expected not to agree.
    """

    what: str
    published: str
    ours: str
    ratio: float | None
    agrees: bool | None
    why: str = ""
    known: str = ""

    @property
    def note(self) -> str:
        return self.known if self.agrees is False and self.known else self.why


@dataclass(frozen=True)
class Experiment:
    id: str
    source: str
    rows: Callable[[], Iterator[Row]]


def close(what: str, published: float, ours: float, form: str = "{:.2f}", why: str = "", known: str = "") -> Row:
    ratio = ours / published
    return Row(what, form.format(published), form.format(ours), ratio, abs(ratio - 1) <= CLOSE, why, known)


def shape(what: str, published: str, ours: str, agrees: bool, why: str = "", known: str = "") -> Row:
    """A rank order, or that something happens."""
    return Row(what, published, ours, None, agrees, why, known)


def absent(what: str, published: str, why: str) -> Row:
    return Row(what, published, "not shown", None, None, why)


def go_back_n() -> Iterator[Row]:
    found = figures("go_back_n.py")["go_back_n"]
    without, dropped = found["without"]["seconds"], found["with"]["seconds"]
    window = 65
    yield close(
        "go-back-N, 1 packet of 256 dropped: goodput against none dropped",
        1 / (1 + window / found["one_of"]),
        without / dropped,
        why=f"1/(1 + pW), W is soft-RoCE's window of {window} packets",
    )
    yield absent("go-back-0, the same drops: goodput", "0", "soft-RoCE has go-back-N only")


def deadlock() -> Iterator[Row]:
    stuck, fixed = (variant("pfc-deadlock-unknown-mac", name) for name in ("as-is", "drop"))
    yield shape(
        "ports of the cycle that hold packets and send none, a minute after the load stopped",
        "4 of 4",
        f"{sum(held > 0 and not moved for held, moved in zip(stuck['stuck_bytes'], stuck['moved'], strict=True))} of 4",
        all(stuck["stuck_bytes"]) and not any(stuck["moved"]),
    )
    yield shape(
        "with the paper's fix: bytes left in the cycle",
        "0",
        str(sum(fixed["stuck_bytes"])),
        sum(fixed["stuck_bytes"]) == 0,
    )


def storm() -> Iterator[Row]:
    plain, watched = (variant("pause-storm-watchdog", name, storm=1.0) for name in ("as-is", "watchdog"))
    before = sum(plain["before"])
    yield shape(
        "rate of flows to other hosts while a NIC pauses for ever",
        "0",
        f"{sum(plain['during']) / before:.2f} of theirs",
        sum(plain["during"]) == 0,
    )
    left = sum(watched["during"]) / sum(watched["before"])
    yield shape("the same with a watchdog in the switch", "theirs", f"{left:.2f} of theirs", left > 1 - CLOSE)


def utilisation() -> Iterator[Row]:
    found = figures("balls_in_bins.py")["balls_in_bins"]["guo"]
    even = found["flows"] / found["uplinks"]
    yield close(
        "3074 equal flows by ECMP over 128 uplinks: utilisation when the fullest is full",
        0.60,
        even / statistics.fmean(found["fullest"]),
        why="collisions of the hash alone; the paper's number has NICs and PFC in it",
    )


def latency() -> Iterator[Row]:
    yield absent("99th percentile, RDMA against TCP", "90 us, 700 us", "CPU time is emulated: a latency says nothing")


def unfairness() -> Iterator[Row]:
    plain, controlled = (variant("pfc-unfairness", name) for name in ("pfc-only", "dcqcn"))
    whole = plain["near"] + sum(plain["far"])
    yield close("PFC alone: the near sender's share", 1 / 2, plain["near"] / whole)
    furthest = max((rate / whole for rate in plain["far"]), key=lambda share: abs(share - 1 / 6))
    yield close("PFC alone: a far sender's share (the one that is most off)", 1 / 6, furthest, "{:.3f}")
    whole = controlled["near"] + sum(controlled["far"])
    yield close("DCQCN: the near sender's share", 1 / 4, controlled["near"] / whole)


def victim() -> Iterator[Row]:
    found = figures("victim.py")["victim"]
    rate = found["rate"]
    runs = {(run["control"], run["more"]): run["victim"] / rate for run in found["runs"]}
    none, two, controlled = runs["none", 0], runs["none", 2], runs["dcqcn", 2]
    yield close(
        "the victim with PFC alone and two senders on T3, over the link's rate",
        4.5 / 40,
        two,
        "{:.3f}",
        "it gets as much as a sender that shares its uplink: an eighth without headers",
    )
    yield shape(
        "the victim with no and with two senders on T3, and with DCQCN and two",
        "middle, least, most",
        f"{none:.2f}, {two:.2f}, {controlled:.2f}",
        two < 0.75 * none and none < controlled and controlled >= 0.5 * (1 - CLOSE),
        "DCQCN: the paper has 20 of 40 Gbit/s; what six equal flows leave of its uplink is two thirds",
    )


def pauses() -> Iterator[Row]:
    found = figures("victim.py")["victim"]["runs"]
    plain, controlled = (
        next(run for run in found if (run["control"], run["more"]) == (name, 2)) for name in ("none", "dcqcn")
    )
    yield shape(
        "pause frames that switches get in the same time, without and with DCQCN",
        "6000000, 300",
        f"{plain['switch_pauses']:.0f}, {controlled['switch_pauses']:.0f}",
        plain["switch_pauses"] > 100 * max(controlled["switch_pauses"], 1),
        "steady flows in a second here, churning ones in minutes there: the order is comparable, the counts are not",
    )


def lossy() -> Iterator[Row]:
    found = figures("load.py")
    plain, paused = found["load[lossy]"], found["load[lossless]"]
    times = plain["completion_s"] / paused["completion_s"]
    yield shape(
        "go-back-N at 70 % load: mean time of a flow without PFC over with it",
        "1.5 to 3",
        f"{times:.2f}",
        1.5 <= times <= 3 and paused["drops"] == 0 < plain["drops"],
        "one switch with six hosts, no fat tree of 54; with a buffer of 250 kB, as one of 840 kB never dropped",
    )
    yield absent("IRN without PFC against RoCE with it", "6 to 83 % better", "soft-RoCE has no selective repeat")


def lumina() -> Iterator[Row]:
    why = "they are times of NICs' hardware and firmware; soft-RoCE's are of its code"
    yield absent("times until NACK and retransmission, of four NICs", "1 us to 83 ms", why)


def entropy() -> Iterator[Row]:
    found = figures("queue_pairs.py")["queue_pairs"]
    one, four = (statistics.fmean(step["seconds"] for step in found[count]) for count in ("1", "4"))
    yield close(
        "four queue pairs a peer instead of one: speed of a step that waits for all",
        1.40,
        one / four,
        why=f"published is the best case; the mean of {len(found['1'])} draws, 4 pairs of hosts over 4 uplinks",
    )


def polarisation() -> Iterator[Row]:
    found = figures("balls_in_bins.py")["polarisation"]
    one, own = (sum(1 for load in found[seeds] if load) for seeds in ("one", "own"))
    total = len(found["one"])
    width = math.isqrt(total)
    yield shape(
        f"uplinks of {width} switches behind a switch with {width} that carry flows, with one seed for all",
        f"{width} of {total}",
        f"{one} of {total}",
        one == width,
    )
    yield shape("the same with a seed for each switch", f"{total} of {total}", f"{own} of {total}", own == total)
    yield absent("dual-plane instead of three tiers: training throughput", "+14.9 %", "a matter of 15000 GPUs")


def steady_queue() -> Iterator[Row]:
    frame = 1024 + 62
    found = figures("dcqcn_queue.py")
    for run in sorted(found.values(), key=lambda run: run["pairs"]):
        flows, (least, most, highest), given = run["pairs"], run["marking"], run["values"]
        plain, scale = fluid.Parameters(), given["scale"]
        cnp, alpha, increase = (seconds * scale for seconds in (plain.cnp, plain.alpha, plain.increase))
        additive, hyper, floor = (given[name] / scale for name in ("additive_bps", "hyper_bps", "least_bps"))
        values = fluid.Parameters(
            cnp=cnp,
            alpha=alpha,
            increase=increase,
            increase_packets=given["increase_bytes"] / frame,
            additive=additive / 8 / frame,
        )
        p = fluid.marking_probability(run["link"] / 8 / frame / flows, values)
        yield close(
            f"DCQCN, {flows} flows: mean queue in bytes, the fluid model's fixed point (p = {100 * p:.1f} %)",
            fluid.queue(p, least, most, highest),
            run["mean_queue"],
            "{:.0f}",
            known="rates and a queue of some packets change in steps, in the model they flow: see the next row",
        )
        link = packets.Link(run["link"], frame, least, most, highest, run["window"])
        algorithm = packets.Algorithm(cnp, alpha, increase, given["increase_bytes"], additive, hyper, floor)
        exact = packets.mean_queue(link, algorithm, flows, 40, 10)
        name = f"DCQCN, {flows} flows: the same, the paper's algorithm computed packet by packet"
        yield close(name, exact, run["mean_queue"], "{:.0f}")


def balls_in_bins() -> Iterator[Row]:
    computed = {(4, 4): 0.472, (4, 16): 0.651, (8, 8): 0.384, (8, 16): 0.477, (8, 32): 0.568, (16, 16): 0.325}
    for found in figures("balls_in_bins.py")["balls_in_bins"]["efficiency"]:
        uplinks, flows, fullest = found["uplinks"], found["flows"], found["fullest"]
        published, mean = computed[uplinks, flows], statistics.fmean(fullest)
        ours = flows / uplinks / mean
        error = ours * statistics.stdev(fullest) / mean / math.sqrt(len(fullest))
        yield Row(
            f"{flows} flows by ECMP over {uplinks} uplinks: efficiency",
            f"{published:.3f}",
            f"{ours:.3f} ± {1.96 * error:.3f}",
            ours / published,
            abs(ours - published) <= SIGMAS * error,
        )


def watchdog() -> Iterator[Row]:
    found = figures("watchdog.py")["watchdog"]
    low, high = min(found["found"]), max(found["found"])
    yield shape(
        f"SONiC's PFC watchdog, {len(found['found'])} phases: a storm is found after",
        "200 to 600 ms",
        f"{1000 * low:.0f} to {1000 * high:.0f} ms",
        found[""] <= low <= high < 0.6,
    )
    low, high = min(found["restored"]), max(found["restored"])
    yield shape(
        "it lets go on so long after the last pause",
        f"{1000 * found['_restoration']:.0f} ms or more",
        f"{1000 * low:.0f} to {1000 * high:.0f} ms",
        low >= found["_restoration"],
    )


GUO, DCQCN = "Guo et al., SIGCOMM 2016", "Zhu et al., SIGCOMM 2015"
EXPERIMENTS: Sequence[Experiment] = (
    Experiment("E1", f"{GUO}, 4.1", go_back_n),
    Experiment("E2", f"{GUO}, 4.2", deadlock),
    Experiment("E3", f"{GUO}, 4.3", storm),
    Experiment("E4", GUO, utilisation),
    Experiment("E5", GUO, latency),
    Experiment("E6", f"{DCQCN}, figure 3", unfairness),
    Experiment("E7", f"{DCQCN}, figure 4", victim),
    Experiment("E8", f"{DCQCN}, 6", pauses),
    Experiment("E9", "Mittal et al., SIGCOMM 2018", lossy),
    Experiment("E10", "Lumina, SIGCOMM 2023", lumina),
    Experiment("E11", "Meta, SIGCOMM 2024", entropy),
    Experiment("E12", "Alibaba HPN, SIGCOMM 2024", polarisation),
    Experiment("E13", "Zhu et al., CoNEXT 2016", steady_queue),
    Experiment("E14", "balls in bins, computed", balls_in_bins),
    Experiment("E15", "SONiC, pfc_detect and pfc_restore", watchdog),
)
