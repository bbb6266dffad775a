"""Published results, and what the lab has in their place: an experiment each, with the rows that it gives the table."""

import math
import random
import statistics
from collections import Counter
from collections.abc import Iterator, Sequence

import balancing
import fluid
import packets
from measure import SEEDS, Figures, figures, seeded, variant, variants
from rows import CLOSE, Experiment, Mean, Published, Row, absent, number, shape, shown

FRAME, PAYLOAD = 1024 + 62, 1024


def go_back_n() -> Iterator[Row]:
    found = figures("go_back_n.py")["go_back_n"]
    without, dropped = found["without"]["seconds"], found["with"]["seconds"]
    window = 65
    yield number(
        "go-back-N, 1 packet of 256 dropped: goodput against none dropped",
        without / dropped,
        published=Published("no livelock", "section 4.1"),
        computed=1 / (1 + window / found["one_of"]),
        why=f"1/(1 + pW), W is soft-RoCE's window of {window} packets; the paper has no figure",
    )
    stuck = Published("no progress, at line rate", "section 4.1")
    yield absent("go-back-0, the same drops", "soft-RoCE has go-back-N only", published=stuck)


def deadlock() -> Iterator[Row]:
    stuck, fixed = (variant("pfc-deadlock-unknown-mac", name) for name in ("as-is", "drop"))
    held = zip(stuck["stuck_bytes"], stuck["moved"], strict=True)
    yield shape(
        "ports of the cycle that hold packets and send none, a minute after the load stopped",
        f"{sum(waits > 0 and not moved for waits, moved in held)} of 4",
        all(stuck["stuck_bytes"]) and not any(stuck["moved"]),
        published=Published("a deadlock that outlives its load", "section 4.2"),
    )
    yield shape(
        "with the paper's fix: bytes left in the cycle",
        str(sum(fixed["stuck_bytes"])),
        sum(fixed["stuck_bytes"]) == 0,
        published=Published("no deadlock", "section 4.2"),
    )


def storm() -> Iterator[Row]:
    plain, watched = (variant("pause-storm-watchdog", name, storm=1.0) for name in ("as-is", "watchdog"))
    before = sum(plain["before"])
    yield shape(
        "rate of flows to other hosts while a NIC pauses for ever",
        f"{sum(plain['during']) / before:.2f} of theirs",
        sum(plain["during"]) == 0,
        published=Published("they are blocked", "section 4.3"),
    )
    left = sum(watched["during"]) / sum(watched["before"])
    yield shape(
        "the same with a watchdog in the switch",
        f"{left:.2f} of theirs",
        left > 1 - CLOSE,
        published=Published("they are not", "section 4.3"),
    )


def fullest(flows: int, uplinks: int, draws: int) -> float:
    """The mean number of flows on the fullest of some uplinks, if each flow takes any of them."""
    dice = random.Random(1)  # noqa: S311
    return statistics.fmean(max(Counter(dice.choices(range(uplinks), k=flows)).values()) for _ in range(draws))


def utilisation() -> Iterator[Row]:
    found = figures("balls_in_bins.py")["balls_in_bins"]["guo"]
    flows, uplinks = found["flows"], found["uplinks"]
    yield number(
        f"{flows} equal flows by ECMP over {uplinks} uplinks: utilisation when the fullest is full",
        Mean.of(found["fullest"]).inverse(flows / uplinks),
        published=Published(0.60, "section 5.4"),
        computed=flows / uplinks / fullest(flows, uplinks, 500),
        why="the paper: by collisions of the hash, not by PFC; its flows cross three tiers, here one",
    )


def latency() -> Iterator[Row]:
    why = "CPU time is emulated: a latency says nothing"
    yield absent("99th percentile, RDMA and TCP", why, published=Published("90 us, 700 us", "section 5.4"))


def unfairness() -> Iterator[Row]:
    plain, near = variant("pfc-unfairness", "pfc-only"), Published("more than each of the others", "figure 3")
    why = "a port is divided among the ports by which packets come, and each of those among its flows"
    yield number("PFC alone: the near sender's share", share(plain), published=near, computed=1 / 2, why=why)
    whole = plain["near"] + sum(plain["far"])
    furthest = max((rate / whole for rate in plain["far"]), key=lambda far: abs(far - 1 / 6))
    yield number("PFC alone: a far sender's share (the one that is most off)", furthest, computed=1 / 6, form="{:.3f}")
    yield number(
        "DCQCN: the near sender's share",
        Mean.of([share(run) for run in variants("pfc-unfairness", "dcqcn")]),
        published=Published("as much as each of the others", "figure 8"),
        computed=1 / 4,
    )


def share(run: Figures) -> float:
    """The near sender's."""
    return float(run["near"] / (run["near"] + sum(run["far"])))


def victim() -> Iterator[Row]:
    plain = figures("victim.py", "none")
    none, two = (plain[f"victim[none-{more}]"]["victim"] for more in (0, 2))
    each = [run["victim"] for run in victims_with_dcqcn()]
    controlled = Mean.of(each)
    goodput = PAYLOAD / FRAME
    form = "{:.3f}"
    shared = "as much as each sender that shares its uplink"
    yield number("the victim with PFC alone, over the link's rate", none, computed=goodput / 4, form=form, why=shared)
    yield number("the same with two senders on T3", two, computed=goodput / 8, form=form, why=shared)
    yield number(
        "the same with DCQCN",
        controlled,
        computed=goodput * 2 / 3,
        form=form,
        why="what two of six equal flows leave of its uplink",
    )
    yield shape(
        "the victim with no and with two senders on T3, and with DCQCN and two",
        f"{none:.2f}, {two:.2f}, {controlled.mean:.2f}",
        two < 0.75 * none and none < min(each),
        published=Published("middle, least, most", "figures 4 and 9"),
    )


def victims_with_dcqcn() -> list[Figures]:
    return [run["victim[dcqcn-2]"] for run in seeded("victim.py", "dcqcn")]


def pauses() -> Iterator[Row]:
    plain = figures("victim.py", "none")["victim[none-2]"]["switch_pauses"]
    controlled = [run["switch_pauses"] for run in victims_with_dcqcn()]
    yield shape(
        f"pause frames that switches get in a second, without and with DCQCN (the most of {len(controlled)} seeds)",
        f"{plain:.0f}, {max(controlled):.0f}",
        plain > 100 * max(*controlled, 1),
        published=Published("without by far more", "section 6"),
        why="steady flows here, flows that come and go there: the order is comparable, a count is not",
    )


def lossy() -> Iterator[Row]:
    runs = seeded("load.py")
    ratios = [run["load[lossy]"]["completion_s"] / run["load[lossless]"]["completion_s"] for run in runs]
    yield shape(
        "go-back-N at 70 % load: mean time of a flow without PFC over with it",
        shown(Mean.of(ratios), "{:.2f}"),
        min(ratios) > 1 and all(run["load[lossless]"]["drops"] == 0 < run["load[lossy]"]["drops"] for run in runs),
        published=Published("longer without", "section 4.2"),
        why=f"longer with each of {len(runs)} seeds, which draw the flows; a switch with six hosts and 250 kB, no fat "
        "tree of 54 hosts",
    )
    better = Published("6 to 83 % better", "abstract")
    yield absent("IRN without PFC against RoCE with it", "soft-RoCE has no selective repeat", published=better)


def lumina() -> Iterator[Row]:
    why = "they are times of NICs' hardware and firmware; soft-RoCE's are of its code"
    yield absent("times until NACK and retransmission, of four NICs", why)


def entropy() -> Iterator[Row]:
    found = figures("queue_pairs.py")["queue_pairs"]
    pairs, uplinks = found["pairs"], found["uplinks"]
    one, four = (Mean.of([step["seconds"] for step in found[count]]) for count in ("1", "4"))
    yield number(
        "four queue pairs a peer instead of one: speed of a step that waits for all",
        one.over(four),
        published=Published(1.40, "the authors' article of August 2024, section on routing"),
        computed=4 * fullest(pairs, uplinks, 20_000) / fullest(4 * pairs, uplinks, 20_000),
        why=f'published: "up to"; the mean of {len(found["1"])} draws, {pairs} pairs of hosts over {uplinks} uplinks',
    )


def polarisation() -> Iterator[Row]:
    found = figures("balls_in_bins.py")["polarisation"]
    one, own = (sum(1 for load in found[seeds] if load) for seeds in ("one", "own"))
    total = len(found["one"])
    width = math.isqrt(total)
    yield shape(
        f"uplinks of {width} switches behind a switch with {width} that carry flows, with one seed for all",
        f"{one} of {total}",
        one == width,
        published=Published("hash polarisation", "abstract"),
        computed=f"{width} of {total}",
    )
    name = "the same with a seed for each switch"
    yield shape(name, f"{own} of {total}", own == total, computed=f"{total} of {total}")
    better = Published("+14.9 %", "evaluation")
    yield absent("dual-plane, not three tiers: training throughput", "a matter of 15000 GPUs", published=better)


def steady_queue() -> Iterator[Row]:
    runs = seeded("dcqcn_queue.py")
    for test in sorted(runs[0], key=lambda test: runs[0][test]["pairs"]):
        run = runs[0][test]
        measured = Mean.of([each[test]["mean_queue"] for each in runs])
        flows, (least, most, highest), given = run["pairs"], run["marking"], run["values"]
        plain, scale = fluid.Parameters(), given["scale"]
        cnp, alpha, increase = (seconds * scale for seconds in (plain.cnp, plain.alpha, plain.increase))
        additive, hyper, floor = (given[name] / scale for name in ("additive_bps", "hyper_bps", "least_bps"))
        values = fluid.Parameters(
            cnp=cnp,
            alpha=alpha,
            increase=increase,
            increase_packets=given["increase_bytes"] / FRAME,
            additive=additive / 8 / FRAME,
        )
        rate = run["link"] / 8 / FRAME / flows
        p = fluid.marking_probability(rate, values)
        yield number(
            f"DCQCN, {flows} flows: mean queue in bytes, the fluid model's fixed point (p = {100 * p:.1f} %)",
            measured,
            computed=fluid.queue(p, least, most, highest),
            form="{:.0f}",
            known=f"a flow sends {rate * cnp:.0f} packets in the time between two CNPs: its rate changes in steps, the "
            "model's flows; the next row has the steps",
        )
        link = packets.Link(run["link"], FRAME, least, most, highest, run["window"])
        algorithm = packets.Algorithm(cnp, alpha, increase, given["increase_bytes"], additive, hyper, floor)
        exact = Mean.of([packets.mean_queue(link, algorithm, flows, 40, 10, seed) for seed in SEEDS])
        name = f"DCQCN, {flows} flows: the same, the paper's algorithm computed packet by packet"
        yield number(name, measured, computed=exact, form="{:.0f}")


def balls_in_bins() -> Iterator[Row]:
    for found in figures("balls_in_bins.py")["balls_in_bins"]["efficiency"]:
        uplinks, flows = found["uplinks"], found["flows"]
        yield number(
            f"{flows} flows by ECMP over {uplinks} uplinks: efficiency",
            Mean.of(found["fullest"]).inverse(flows / uplinks),
            computed=flows / uplinks / fullest(flows, uplinks, 20_000),
            form="{:.3f}",
            strict=True,
        )


def watchdog() -> Iterator[Row]:
    run = figures("watchdog.py")["watchdog"]
    wide = max(after - before for key in ("found", "restored") for before, after in run[key])
    poll, why = run["_poll"], f"± {500 * wide:.1f} ms, by the looks at its counters"
    for name, key, least, most in (
        (f"SONiC's PFC watchdog, {len(run['found'])} phases: a storm is found after", "found", run[""], 0.6),
        ("it lets go so long after the last pause frame", "restored", run["_restoration"], run["_restoration"] + poll),
    ):
        middles = [1000 * statistics.fmean(bounds) for bounds in run[key]]
        yield shape(
            name,
            f"{min(middles):.0f} to {max(middles):.0f} ms",
            all(least <= after and before <= most for before, after in run[key]),
            computed=f"{1000 * least:.0f} to {1000 * most:.0f} ms",
            why=why,
        )


GUO, DCQCN = "Guo et al., SIGCOMM 2016", "Zhu et al., SIGCOMM 2015"
EXPERIMENTS: Sequence[Experiment] = (
    Experiment("E1", GUO, go_back_n),
    Experiment("E2", GUO, deadlock),
    Experiment("E3", GUO, storm),
    Experiment("E4", GUO, utilisation),
    Experiment("E5", GUO, latency),
    Experiment("E6", DCQCN, unfairness),
    Experiment("E7", DCQCN, victim),
    Experiment("E8", DCQCN, pauses),
    Experiment("E9", "Mittal et al., SIGCOMM 2018", lossy),
    Experiment("E10", "Lumina, SIGCOMM 2023", lumina),
    Experiment("E11", "Meta, SIGCOMM 2024", entropy),
    Experiment("E12", "Alibaba HPN, SIGCOMM 2024", polarisation),
    Experiment("E13", "Zhu et al., CoNEXT 2016", steady_queue),
    Experiment("E14", "balls in bins", balls_in_bins),
    Experiment("E15", "SONiC, pfc_detect_broadcom.lua and pfc_restore.lua", watchdog),
    *balancing.EXPERIMENTS,
)
