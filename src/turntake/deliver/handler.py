"""The agent as a Python function: its calls, and what its return value means."""

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from turntake.deliver.sink import Answer, Pending, Sink
from turntake.deliver.turn import Turn
from turntake.errors import GiveUp

Handler = Callable[[Turn], Any]


class HandlerSink(Sink):
    """Awaits an async function; runs a plain one in a thread of its own, so that it cannot stop the others."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._is_async = inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(
            getattr(handler, "__call__", None)  # noqa: B004 - an object with an async __call__ is a handler too
        )

    async def deliver(self, turn: Turn) -> Answer | Pending:
        if self._is_async:
            result = await self._handler(turn)
        else:
            result = await _in_thread(self._handler, turn)
        if inspect.isawaitable(result):
            result = await result
        return Answer(replies_of(result))


async def _in_thread(handler: Handler, turn: Turn) -> object:
    """Runs a plain function beside the event loop, in a daemon thread: one that is stuck lets the process end."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[object] = loop.create_future()
    context = contextvars.copy_context()

    def run() -> None:
        try:
            result, error = context.run(handler, turn), None
        except BaseException as raised:
            result, error = None, raised
        with suppress(RuntimeError):  # the loop is closed, and nobody waits any more
            loop.call_soon_threadsafe(_resolve, done, result, error)

    threading.Thread(target=run, name="turntake-handler", daemon=True).start()
    return await done


def _resolve(done: "asyncio.Future[object]", result: object, error: BaseException | None) -> None:
    if done.done():
        return
    if error is None:
        done.set_result(result)
    else:
        done.set_exception(error if isinstance(error, Exception) else RuntimeError(repr(error)))


def replies_of(result: object) -> tuple[str, ...]:
    """The replies in a handler's return value: None, a text, or several texts."""
    if result is None or result == "":
        return ()
    if isinstance(result, str):
        return (result,)
    if isinstance(result, Iterable) and not isinstance(result, bytes | dict):
        replies = tuple(result)
        if all(isinstance(reply, str) for reply in replies):
            return replies
    raise GiveUp(f"A handler returns a text, a list of texts, or None; this one returned {type(result).__name__}.")
