"""Tasks side by side, whose failure is one error."""

import asyncio
from collections.abc import Awaitable, Iterator
from types import TracebackType

from testbed.errors import TestbedError


class TaskGroup(asyncio.TaskGroup):  # noqa: TID251
    """asyncio's, but it raises the error for which the other tasks were cancelled, not a group of errors. A command,
    the keeper of a lab and a worker of a sweep then report it as that of a single task."""

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            await super().__aexit__(kind, error, traceback)
        except BaseExceptionGroup as group:
            raise min(leaves(group), key=lambda leaf: not isinstance(leaf, TestbedError)) from None


def leaves(error: BaseException) -> Iterator[BaseException]:
    """Yield the errors of a group, in the order in which they came."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from leaves(inner)
    else:
        yield error


async def first_of(*awaited: Awaitable[object]) -> None:
    """Return when one of them has ended, or raise its error; cancel the others."""
    tasks = [asyncio.ensure_future(one) for one in awaited]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
