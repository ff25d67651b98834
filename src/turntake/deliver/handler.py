"""The agent as a Python function."""

import asyncio
import inspect
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from turntake.deliver.sink import Answer, Pending, Sink
from turntake.deliver.turn import Turn
from turntake.errors import GiveUp

Handler = Callable[[Turn], Any]


class HandlerSink(Sink):
    """Awaits an async function; runs a plain one in a thread of its own, so that it cannot stop the others."""

    def __init__(self, handler: Handler, threads: int = 100) -> None:
        self._handler = handler
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="turntake-handler")
        self._is_async = inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(
            getattr(handler, "__call__", None)  # noqa: B004 - an object with an async __call__ is a handler too
        )

    async def deliver(self, turn: Turn) -> Answer | Pending:
        if self._is_async:
            said = await self._handler(turn)
        else:
            said = await asyncio.get_running_loop().run_in_executor(self._threads, self._handler, turn)
        if inspect.isawaitable(said):
            said = await said
        return Answer(replies_of(said))

    async def aclose(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


def replies_of(said: object) -> tuple[str, ...]:
    """The replies in a handler's return value: None, a text, or several texts."""
    if said is None or said == "":
        return ()
    if isinstance(said, str):
        return (said,)
    if isinstance(said, Iterable) and not isinstance(said, bytes | dict):
        replies = tuple(said)
        if all(isinstance(reply, str) for reply in replies):
            return replies
    raise GiveUp(f"A handler returns a text, a list of texts, or None; this one returned {type(said).__name__}.")
