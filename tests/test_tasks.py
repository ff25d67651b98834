"""Tasks that run until they are cancelled, and how they are ended."""

import asyncio
from contextlib import suppress

from turntake.tasks import end


async def test_a_task_that_loses_a_cancellation_is_told_again() -> None:
    """As one does that is cancelled at the moment at which a command of its is sent. It would keep a process alive."""
    cancelled = 0

    async def endless() -> None:
        nonlocal cancelled
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        cancelled += 1
        await asyncio.Event().wait()

    deaf, prompt = asyncio.ensure_future(endless()), asyncio.ensure_future(asyncio.Event().wait())
    await asyncio.wait([deaf], timeout=0)
    await end([deaf, prompt])
    assert (deaf.cancelled(), prompt.cancelled(), cancelled) == (True, True, 1)


async def test_one_that_failed_is_as_good_as_ended() -> None:
    async def failing() -> None:
        raise OSError

    task = asyncio.ensure_future(failing())
    await asyncio.wait([task])
    await end([task])
    assert isinstance(task.exception(), OSError)
