"""Rules by probes between all pairs of NICs (a pingmesh): what no counter of a switch or a NIC shows."""

from collections.abc import Iterator, Sequence

from testbed.protocol import events
from testbed.report.diagnosis.case import Case
from testbed.report.diagnosis.observations import at
from testbed.report.diagnosis.rules.facts import MOST_FACTS, Finding
from testbed.report.diagnosis.rules.link_failures import link_name, ranks_at

FEWEST = 2
"""Probes that one port has to lose."""


def lost_probes(case: Case) -> Finding | None:
    """Find the port at which most probes of the last pingmesh since the job's begin were lost."""
    if (last := _last(case)) is None:
        return None
    t, probed = last
    places = list(_places(probed))
    end, count = next(((end, count) for _, end, count in places if end and count >= FEWEST), ("", 0))
    if not end:
        return None
    lost = sum(count for _, _, count in places)
    facts = [(t, f"{count} probes last seen: {text}") for text, _, count in places]
    return _found(
        case, "lost-probes", end, f"probes are lost at {end}: {count} of the {lost} that are lost at all", facts
    )


def long_link(case: Case) -> Finding | None:
    """Find the port that keeps probes for much longer than others do."""
    if (last := _last(case)) is None or not last[1].slow_ports:
        return None
    t, probed = last
    end, slowest = max(probed.slow_ports.items(), key=lambda item: item[1])
    facts = [(t, f"probes are at {port} for {median / 1e3:.1f} ms") for port, median in probed.slow_ports.items()]
    return _found(case, "long-link", end, f"packets are at {end} for {slowest / 1e3:.1f} ms", facts)


def _found(case: Case, cause: str, end: str, text: str, facts: Sequence[tuple[int, str]]) -> Finding:
    node, _, interface = end.partition(":")
    ranks = ranks_at(case, node, interface)
    whose = f"; it is that of {case.ranks(ranks)}" if ranks else ""
    link = link_name(case, node, interface)
    return Finding(cause, case.job.began, text + whose, ranks, link, evidence=facts[:MOST_FACTS])


def _places(probed: events.Probed) -> Iterator[tuple[str, str, int]]:
    """Yield where probes were lost, the interface there, and how many."""
    for one in probed.lost_at:
        match one:
            case {"place": str(place), "end": str(end), "count": int(count)}:
                yield place, end, count


def _last(case: Case) -> tuple[int, events.Probed] | None:
    found = [(at(event), data) for event, data in case.seen.of(events.Probed) if data.protocol == "rdma"]
    return next(((t, data) for t, data in reversed(found) if t >= case.job.began), None)
