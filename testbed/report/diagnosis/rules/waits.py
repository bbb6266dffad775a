"""Rules for programs whose ranks wait for each other: in different calls, in a circle, or for a rank that hangs."""

from collections.abc import Iterator, Mapping, Sequence

from testbed.report.diagnosis.calls import Collective, blocked, ranks
from testbed.report.diagnosis.case import Case
from testbed.report.diagnosis.rules.facts import BEHIND_NS, MOST_FACTS, Finding, lagging, stopped


def collective_mismatch(case: Case) -> Finding | None:
    """Find a collective in which ranks call different operations, sizes or roots."""
    one = next((one for one in case.collectives if not one.matches), None)
    if one is None:
        return None
    usual, *others = one.by_call.values()
    odd = sorted(call.rank for calls in others for call in calls)
    whose = odd if len(odd) < len(usual) else []
    text = f"ranks call different collectives as number {one.sequence} of {one.of}: {one.asked}"
    return Finding("collective-mismatch", one.began, text, whose, evidence=_entered(one))


def _entered(one: Collective) -> list[tuple[int, str]]:
    return [
        (min(call.began for call in calls), f"{ranks([call.rank for call in calls])} on "
         f"{', '.join(dict.fromkeys(call.host for call in calls))}: {words}")
        for words, calls in one.by_call.items()
    ]  # fmt: skip


def deadlock(case: Case) -> Finding | None:
    """Find ranks that wait in a circle, each for what the next one does only after its own wait."""
    waiting = _waiting(case)
    circle = next((found for rank in sorted(waiting) if (found := _circle(waiting, rank))), None)
    if circle is None:
        return None
    facts = [fact for rank in circle for fact in _in_call(case, rank)]
    text = f"{case.ranks(circle)} wait for each other: {'; '.join(words for _, words in facts)}"
    return Finding("deadlock", max(t for t, _ in facts), text, circle, evidence=facts)


def _circle(waiting: Mapping[int, Sequence[int]], start: int) -> list[int] | None:
    """Return the ranks of a circle through a rank."""
    paths = [[start]]
    seen = {start}
    while paths:
        path = paths.pop(0)
        for rank in waiting.get(path[-1], ()):
            if rank == start:
                return path
            if rank not in seen:
                seen.add(rank)
                paths.append([*path, rank])
    return None


def rank_hangs(case: Case) -> Finding | None:
    """Find a rank outside of MPI for which others wait, or all ranks there."""
    waiting = _waiting(case)
    since = {rank: left for rank in range(len(case.job.hosts)) if (left := _outside_since(case, rank)) is not None}
    needed = {rank for ranks_ in waiting.values() for rank in ranks_} & since.keys()
    behind = [rank for rank in needed if case.job.ended - since[rank] >= BEHIND_NS]
    if behind:
        rank = min(behind, key=lambda one: (since[one], one))
        last = _last_call(case, rank)
        text = f"{case.rank(rank)} stalled first: since its call of {last} it is outside of MPI, and {_for_it(case)}"
        return Finding(
            "rank-hangs", since[rank], text, [rank], evidence=[(since[rank], f"{case.rank(rank)} leaves MPI")]
        )
    if found := _by_ras(case):
        return found
    whole = len(since) == len(case.job.hosts)
    if case.job.late and whole and case.job.ended - max(since.values()) >= BEHIND_NS:
        first = max(since.values())
        text = "no rank waits in MPI: all of them compute, or wait for something else"
        return Finding("rank-hangs", first, text, sorted(since), evidence=[(first, "the last rank leaves MPI")])
    return None


def _by_ras(case: Case) -> Finding | None:
    """Find ranks that do not answer NCCL's RAS, or launched fewer operations than others while the job stands."""
    facts = list(lagging(case))
    ras = case.seen.ras.get(case.job.name)
    if ras is None or not facts or case.sent_again_since(stopped(case)):
        return None
    stands = case.stuck is not None or ras.again
    whose = sorted(ras.missing) or (sorted(ras.behind()) if stands else [])
    if not whose or 2 * len(whose) >= len(case.job.hosts):
        return None
    text = f"{case.ranks(whose)} stalled first, by NCCL's RAS: {facts[0][1]}"
    return Finding("rank-hangs", stopped(case), text, whose, evidence=facts[:MOST_FACTS])


def _for_it(case: Case) -> str:
    stuck = case.stuck
    if stuck and stuck.absent:
        return f"it did not enter {stuck}, in which the others wait"
    return "; ".join(str(wait) for wait in case.waits[:3])


def _last_call(case: Case, rank: int) -> str:
    return max((call for call in case.calls if call.rank == rank), key=lambda call: call.number).operation


def _outside_since(case: Case, rank: int) -> int | None:
    """Return since when a rank that made calls is in none of MPI; None for one that is in a call, or has finished."""
    own = [call for call in case.calls if call.rank == rank]
    last = max(own, key=lambda call: call.number, default=None)
    if last is None or last.ended is None or last.operation == "Finalize":
        return None
    return last.ended


def _waiting(case: Case) -> Mapping[int, Sequence[int]]:
    """Return the ranks that wait for what others have not done, with these. Nothing while packets are sent again: then
    the network has it."""
    if case.sent_again_since(stopped(case)):
        return {}
    found = {rank: list(others) for rank, others in blocked(case.calls, case.waits).items()}
    for one in case.collectives:
        for rank in one.waiting:
            found.setdefault(rank, []).extend(one.absent)
    return found


def _in_call(case: Case, rank: int) -> Iterator[tuple[int, str]]:
    for wait in case.waits:
        if wait.call.rank == rank:
            yield wait.call.began, str(wait)
    for one in case.collectives:
        if rank in one.waiting:
            began = next(call.began for call in one.calls if call.rank == rank)
            yield began, f"rank {rank} waits in {one}, without {ranks(one.absent)}"
