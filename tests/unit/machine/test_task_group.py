"""Tasks side by side fail with one error, whichever process their command is."""

import asyncio

import pytest

from testbed.errors import InputError
from testbed.machine.task_group import TaskGroup, first_of


async def fail(*errors: Exception) -> None:
    """Fail with these errors at the same moment, each in a task of its own."""

    async def one(error: Exception) -> None:
        raise error

    async with TaskGroup() as group:
        for error in errors:
            group.create_task(one(error))


def test_the_error_that_ended_the_tasks_is_raised_itself() -> None:
    with pytest.raises(OSError, match="first"):
        asyncio.run(fail(OSError("first"), ValueError("second")))


def test_an_error_of_ours_counts_more_than_what_came_of_it() -> None:
    with pytest.raises(InputError, match="the cause"):
        asyncio.run(fail(OSError("a consequence"), InputError("the cause")))


def test_groups_of_others_inside_are_opened_too() -> None:
    with pytest.raises(InputError, match="the cause"):
        asyncio.run(fail(ExceptionGroup("outer", [OSError(), ExceptionGroup("inner", [InputError("the cause")])])))


def test_tasks_that_were_cancelled_are_no_error() -> None:
    async def cancelled() -> None:
        async with TaskGroup() as group:
            group.create_task(asyncio.sleep(60)).cancel()

    asyncio.run(cancelled())


def test_the_first_of_several_ends_the_others_or_is_their_error() -> None:
    async def check() -> None:
        never = asyncio.get_running_loop().create_future()
        await first_of(never, asyncio.sleep(0))
        assert never.cancelled()
        with pytest.raises(OSError, match="broken"):
            await first_of(fail(OSError("broken")), asyncio.get_running_loop().create_future())

    asyncio.run(check())
