"""Runs side by side: who gets a place next, and who begins with the lab of another."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from testbed.machine.shared_lab import SharedLab
from testbed.machine.slots import Slots

SOURCE: Any = SimpleNamespace()
SAVED: Any = SimpleNamespace()


async def turns() -> None:
    """Let all that is ready go on."""
    for _ in range(10):
        await asyncio.sleep(0)


def test_the_lowest_ticket_is_next_even_if_it_came_last() -> None:
    order: list[int] = []

    async def run(slots: Slots, ticket: int) -> None:
        async with slots.taken(ticket):
            order.append(ticket)
            await turns()

    async def go() -> None:
        slots = Slots(1)
        tickets = [slots.ticket() for _ in range(4)]
        running = [asyncio.create_task(run(slots, tickets[number])) for number in (0, 2, 3)]
        await asyncio.sleep(0)
        await asyncio.gather(run(slots, tickets[1]), *running)

    asyncio.run(go())
    assert order == [0, 1, 2, 3]


@pytest.mark.parametrize("given", [False, True])
def test_a_place_is_not_lost_with_one_that_waited_for_it(given: bool) -> None:
    """It is cancelled while it waits, or just after it was given the place."""

    async def go() -> None:
        slots = Slots(1)
        holds, ends = asyncio.Event(), asyncio.Event()

        async def hold() -> None:
            async with slots.taken(0):
                holds.set()
                await ends.wait()

        async def wait(ticket: int) -> None:
            async with slots.taken(ticket):
                pass

        holder = asyncio.create_task(hold())
        await holds.wait()
        waits = asyncio.create_task(wait(1))
        await turns()
        if given:
            ends.set()
            await asyncio.sleep(0)
        waits.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waits
        ends.set()
        await holder
        await asyncio.wait_for(wait(2), 5)

    asyncio.run(go())


def test_others_wait_until_the_lab_of_the_first_is_up() -> None:
    async def go() -> None:
        lab = SharedLab()
        await asyncio.wait_for(lab.turn(), 5)
        other = asyncio.create_task(lab.turn())
        await turns()
        assert not other.done()
        lab.keep(SOURCE, SAVED)
        await asyncio.wait_for(other, 5)
        assert lab.saved == (SOURCE, SAVED)

    asyncio.run(go())


def test_others_have_their_own_if_that_of_the_first_did_not_come_up() -> None:
    async def go() -> None:
        lab = SharedLab()
        await lab.turn()
        lab.pass_on()
        await asyncio.wait_for(lab.turn(), 5)
        assert lab.saved is None

    asyncio.run(go())
