"""Rules for links that are up but lose packets, or drop those that are too large."""

from collections import Counter
from collections.abc import Mapping
from statistics import median

from testbed.protocol import events
from testbed.records.counter_names import find
from testbed.report.diagnosis.case import Case
from testbed.report.diagnosis.observations import at
from testbed.report.diagnosis.rules.balance import SMALL, large_only, missing
from testbed.report.diagnosis.rules.facts import (
    LOST,
    MOST_FACTS,
    SHARE,
    SLOWER,
    Finding,
    evidence,
    hits,
    losses,
    lost_packets,
    of_the_network,
    refused,
    retries,
    stopped,
)
from testbed.report.diagnosis.rules.link_failures import downs, link_name, own_link, ranks_at

MISSED_BESIDE = 2
"""Packets missed by a rank whose link is well, while another one's is down."""
FEWEST = 3
"""Minimum of NICs to know what comes to all of them."""
ETHERNET_MTU = 1500
PAYLOADS = (256, 512, 1024, 2048, 4096)
"""The MTUs of queue pairs (InfiniBand)."""
ROCE_HEADERS, LEAST_HEADERS = 80, 44
"""Bytes that a driver keeps for a packet's headers below its interface's MTU (rxe), and those of the smallest RoCE
packet over IPv4."""
SMALLER = 2.0
"""Packets are small where others have so many times the bytes, on average."""


def lossy_link(case: Case) -> Finding | None:
    """Find a link that loses packets, or whose queue drops them, while no end of it was down."""
    was_down = {link_name(case, down.node, down.interface) for down in downs(case)}
    lost: Counter[str] = Counter()
    facts: dict[str, list[tuple[int, str]]] = {}
    ends = {}
    for (node, interface), count, text in lost_packets(case):
        name = link_name(case, node, interface)
        if name in was_down or count < LOST:
            continue
        lost[name] += count
        ends[name] = node, interface
        facts.setdefault(name, []).append((case.counted_at, text))
    if not lost or not any(True for _ in retries(case)):
        return None
    [(name, count)] = lost.most_common(1)
    ranks = ranks_at(case, *ends[name])
    text = f"the link {name} loses packets: {count}{f'; it is that of {case.ranks(ranks)}' if ranks else ''}"
    since = next((one.began for one in case.pauses), case.job.began)
    return Finding("lossy-link", since, text, ranks, name, evidence=[*facts[name], *retries(case)][:MOST_FACTS])


def corruption(case: Case) -> Finding | None:
    """Find a rank's NIC that received packets which its RDMA device did not take: damaged ones, by their ICRC."""
    bad = {rank: count for rank, count in _refused(case).items() if count >= LOST}
    if not bad or not any(True for _ in retries(case)) or downs(case):
        return None
    rank = max(bad, key=lambda number: bad[number])
    link = own_link(case, rank)
    text = f"packets to {case.rank(rank)} arrive damaged: its RDMA device takes {bad[rank]} fewer than its NIC receives"
    since = next((one.began for one in case.pauses), case.job.began)
    facts = [(case.counted_at, f"{case.job.devices[n]}: {count} packets not taken") for n, count in sorted(bad.items())]
    return Finding("corruption", since, text, [rank], link, evidence=[*facts, *retries(case)][:MOST_FACTS])


def _refused(case: Case) -> dict[int, int]:
    """Return how many packets each rank's NIC received that its RDMA device did not take, beyond the median of all:
    what is no RoCE comes to all of them. A NIC that counts packets with a wrong ICRC says it itself."""
    found: dict[int, int] = {}
    for (node, interface), ranks in case.nics.items():
        device = case.job.devices[ranks[0]]
        counted = case.growth.get((node, device, "rx_icrc_encapsulated"))
        received = case.growth.get((node, interface, "rx_packets"))
        pauses = sum(case.growth.get((node, interface, f"rx_prio{priority}_pause"), 0) for priority in range(8))
        taken = case.growth.get((node, device, "rcvd_pkts"))
        if counted is not None or (received is not None and taken is not None):
            found[ranks[0]] = counted if counted is not None else (received or 0) - pauses - (taken or 0)
    if len(found) < FEWEST:
        return {}
    usual = median(found.values())
    return {rank: round(count - usual) for rank, count in found.items()}


def silent_drop(case: Case) -> Finding | None:
    """Find packets that were sent again though no counter of a drop and no link or route says where they were lost: by
    what switches received and did not send on, else only by who sent and missed them."""
    if downs(case) or any(case.job.ok or t < stopped(case) for t, _ in case.routes):
        return None
    missed, again = _counted(case, "gap"), _counted(case, "retry")
    return _lost(case, missed, again) if max(missed.total(), again.total()) >= LOST else None


def lost_beside(case: Case) -> Finding | None:
    """Find ranks that missed packets while the link of another one was down: those behind it miss none before the
    next one that arrives."""
    was_down = [ranks_at(case, down.node, down.interface) for down in downs(case)]
    if not all(was_down) or case.routes:
        return None
    behind = {rank for ranks in was_down for rank in ranks}
    missed = Counter({rank: count for rank, count in _counted(case, "gap").items() if rank not in behind})
    return _lost(case, missed, Counter()) if missed.total() >= MISSED_BESIDE else None


def _counted(case: Case, role: str) -> Counter[int]:
    """Return the growth of the counters of ranks' devices with a role."""
    found: Counter[int] = Counter()
    for rank, device in enumerate(zip(case.job.hosts, case.job.devices, strict=False)):
        for (node, place, name), count in case.growth.items():
            if (node, place) == device and find(name).role == role:
                found[rank] += count
    return found


def _lost(case: Case, missed: Counter[int], again: Counter[int]) -> Finding:
    """Return the finding of packets that were lost without a counter; `missed` and `again` are how many packets ranks
    missed, and sent again."""
    since = next((one.began for one in case.pauses), case.job.began) if case.job.ok else stopped(case)
    rank, others = _common(case, missed, again)
    lost = max(missing(case, case.growth, LOST), key=lambda one: one.flow.packets, default=None)
    if lost is None:
        whose, link = ([rank], own_link(case, rank)) if rank is not None else (others[:1], "")
        text = f"packets of or to {case.ranks(whose)} are lost on the way, and no counter of a link shows where"
        facts = evidence(hits(case), retries(case))
        return Finding("silent-drop", since, text, whose, link, evidence=facts[:MOST_FACTS])
    count = f"{lost.switch} receives {lost.flow.packets} packets more than it sends"
    facts = evidence((case.counted_at, f"{count}, and no counter has them as dropped"), hits(case), retries(case))
    if rank is not None and _at(case, rank, lost.switch):
        link = own_link(case, rank)
        text = f"the link {link}, that of {case.rank(rank)}, loses packets: {count}"
        return Finding("lossy-link", since, text, [rank], link, evidence=facts[:MOST_FACTS])
    there = [other for other in others if _at(case, other, lost.switch)]
    ports = f", by the port of {' or '.join(map(case.rank, there))}, or between switches" if there else " or behind it"
    text = f"packets are lost in {lost.switch}{ports}: {count}"
    return Finding("silent-drop", since, text, there, evidence=facts[:MOST_FACTS])


def _common(case: Case, missed: Counter[int], again: Counter[int]) -> tuple[int | None, list[int]]:
    """Return the rank that all lost packets are of or to, None where that may be several, and all that they are of or
    to: those that count more than a third of the most."""
    if case.cut_off:
        return case.cut_off[0], list(case.cut_off)
    to, of = (
        {rank for rank, count in found.items() if count * SLOWER >= max(found.values())} for found in (missed, again)
    )
    whose = to & of or (to if len(of) > 1 else of if len(to) > 1 else set())
    return whose.pop() if len(whose) == 1 else None, sorted(to | of)


def _at(case: Case, rank: int, switch: str) -> bool:
    """Return whether the link of a rank ends at a switch."""
    ends = [end for end, ranks in case.ports.items() if rank in ranks]
    return any(case.seen.peers.get(end, ("", ""))[0] == switch for end in ends)


def late_by_a_loss(case: Case) -> Finding | None:
    """Find a collective of a group that took far longer than another of its kind, while a rank missed packets."""
    if not case.job.collectives or downs(case):
        return None
    for one in case.done:
        usual = min(other.lasted for other in case.done if other.operation == one.operation)
        if one.lasted - usual < SHARE * usual:
            continue
        growth = case.seen.growth(one.began, one.ended)
        gaps = {(node, place): count for (node, place, name), count in growth.items() if find(name).role == "gap"}
        devices = enumerate(zip(case.job.hosts, case.job.devices, strict=False))
        missed = {rank: gaps[device] for rank, device in devices if device in gaps}
        if not missed:
            continue
        rank = max(missed, key=lambda number: missed[number])
        late = f"{one} takes {one.lasted / 1e9:.2f} s, another {usual / 1e9:.2f} s"
        text = f"packets to {case.rank(rank)} are lost on the way, and all ranks wait for them: {late}"
        facts = evidence((one.began, late), retries(case))
        return Finding("lossy-link", one.began, text, [rank], own_link(case, rank), evidence=facts)
    return None


def mtu_mismatch(case: Case) -> Finding | None:
    """Find a rank's link of which one end got another MTU than the other end has."""
    known = _changed_mtus(case)
    for end, (mtu, since) in known.items():
        other = known.get(case.seen.peers.get(end, ("", "")))
        if (other[0] == mtu if other else not case.seen.whole) or not (ranks := ranks_at(case, *end)):
            continue
        if other and _fits(case, end, mtu, other[0]):
            continue
        name = link_name(case, *end)
        text = f"{case.ranks(ranks)}: the ends of its link {name} have different MTUs: {end[0]}:{end[1]} has {mtu}"
        facts = evidence((since, f"{end[0]}: {end[1]} has MTU {mtu}"), hits(case), retries(case), losses(case))
        return Finding("mtu-mismatch", since, text, ranks, name, evidence=facts)
    return _too_large(case) or _narrow(case, known)


Mtus = Mapping[tuple[str, str], tuple[int, int]]
"""MTUs by ends of links, and since when."""


def _changed_mtus(case: Case) -> Mtus:
    """Return the MTUs that ends of links have got; of a real cluster those that they have."""
    return {
        (event["node"], link.interface): (link.mtu, at(event))
        for event, link in case.seen.of(events.Link)
        if link.mtu is not None and at(event) <= case.job.ended
    }


def _first_mtus(case: Case) -> Mtus:
    """Return the MTUs that ends of links have had from the start."""
    found = {}
    for event, data in case.seen.of(events.Mtus):
        for name, mtu in data.sizes.items():
            node, _, interface = name.partition(":")
            if (node, interface) in case.seen.peers:
                found[node, interface] = mtu, at(event)
    return found


def _narrow(case: Case, changed: Mtus) -> Finding | None:
    """Find a link between switches that full packets of ranks on both sides do not fit through, and a job that died of
    the network. Where paths are known it is on one of them."""
    if case.job.ok or not (case.job.status or of_the_network(case.job.failure)):
        return None
    known = {**_first_mtus(case), **changed}
    sizes = [known.get(end, (ETHERNET_MTU, 0))[0] for end in case.nics]
    full = max((size for size in PAYLOADS if sizes and size + ROCE_HEADERS <= min(sizes)), default=0)
    on_paths = {end for path in case.paths.values() for end in path}
    for end, (mtu, since) in sorted(known.items()):
        inside = {end[0], case.seen.peers.get(end, ("", ""))[0]} <= case.seen.gateways
        if not inside or mtu >= full + LEAST_HEADERS or (on_paths and ":".join(end) not in on_paths):
            continue
        name = link_name(case, *end)
        pairs = case.over(name)
        whose = f"; the flows of {len(pairs)} pairs of ranks pass it" if pairs else ""
        text = f"packets with {full} bytes do not fit through the link {name}: its MTU is {mtu}{whose}"
        facts = evidence((since, f"{end[0]}: {end[1]} has MTU {mtu}"), hits(case), retries(case), losses(case))
        return Finding("mtu-mismatch", since, text, [], name, evidence=facts)
    return None


def _fits(case: Case, end: tuple[str, str], mtu: int, other: int) -> bool:
    """Return whether only the switch takes larger packets: ports of real ones often do, and hosts do not send them."""
    switch_is_larger = (end[0] in case.seen.gateways) == (mtu > other)
    both = {end[0] in case.seen.gateways, case.seen.peers[end][0] in case.seen.gateways}
    return not case.seen.whole and len(both) > 1 and switch_is_larger


def _too_large(case: Case) -> Finding | None:
    """Find a node that answers, by ICMP, that packets to a rank are larger than an MTU on the way."""
    one = next((one for one in case.seen.refusals if one.mtu is not None and one.ip in case.addresses), None)
    if one is None:
        return None
    ranks = case.addresses[one.ip].ranks
    size = f"the MTU {one.mtu} of" if one.mtu else "an MTU of"
    text = f"{case.ranks(ranks)}: packets to its address {one.ip} are larger than {size} a link behind {one.node}"
    facts = evidence(refused(case), hits(case), retries(case))
    return Finding("mtu-mismatch", one.t, text, ranks, address=one.ip, evidence=facts)


def large_packets_end(case: Case) -> Finding | None:
    """Find a switch that sends on small packets of a job that stands, and no large one."""
    if case.job.ok or case.job.status != "RETRY_EXC_ERR":
        return None
    for one in missing(case, case.growth_since(stopped(case)), LOST):
        ends = sorted(large_only(one), key=lambda end: _suspect(case, end, SMALL * one.flow.size))
        if not ends:
            continue
        names = ", ".join(f"{end[0]}:{end[1]}" for end in ends)
        link, whose = link_name(case, *ends[0]), ranks_at(case, *ends[0])
        to = f" for {case.ranks(whose)}" if whose else ""
        text = f"{one.switch} sends on small packets{to} and no large one: the MTU at {names} is too small"
        sizes = f"{one.flow.packets} packets of {one.flow.size:.0f} bytes come in and do not go out"
        facts = evidence((case.counted_at, f"{one.switch}: {sizes}"), hits(case), retries(case))
        return Finding("mtu-mismatch", stopped(case), text, whose, link, evidence=facts)
    return None


def _suspect(case: Case, end: tuple[str, str], size: float) -> int:
    """Return the place of a port among those with the wrong MTU: first that of a rank which no other one reaches, or
    whose host never got a large packet; then those between switches."""
    peer = case.seen.peers[end]
    packets = case.growth.get((*peer, "rx_packets"), 0)
    ranks = case.ports.get(peer, ())
    if ranks and packets and case.growth.get((*peer, "rx_bytes"), 0) / packets < size:
        return 0
    if not {*ranks}.isdisjoint(case.cut_off):
        return 0
    return 1 if peer[0] in case.seen.gateways else 2


def small_packets_only(case: Case) -> Finding | None:
    """Find collectives of few bytes that are done and a larger one that is not, with only small packets at a rank."""
    stuck, done = case.stuck, [one.bytes for one in case.collectives if not one.waiting and not one.absent]
    if stuck is None or case.job.status != "RETRY_EXC_ERR" or not done or max(done) >= stuck.bytes:
        return None
    sizes = {
        end: case.growth.get((*end, "rx_bytes"), 0) / packets
        for end in case.ports
        if (packets := case.growth.get((*end, "rx_packets"), 0))
    }
    if len(sizes) < 2:
        return None
    small = min(sizes, key=lambda end: sizes[end])
    others = median(size for end, size in sizes.items() if end != small)
    if SMALLER * sizes[small] > others:
        return None
    ranks, name = case.ports[small], link_name(case, *small)
    text = f"{case.ranks(ranks)}: small packets pass its link {name}, large ones do not: an MTU on the way is too small"
    facts = evidence(
        (stuck.began, f"collectives of {max(done)} bytes are done, none of {stuck.bytes}"),
        hits(case),
        (case.counted_at, f"{small[0]}:{small[1]} receives {sizes[small]:.0f} bytes a packet, the others {others:.0f}"),
        retries(case),
    )
    return Finding("mtu-mismatch", stuck.began, text, ranks, name, evidence=facts)
