"""The agent as a Python function."""

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
            said = await self._handler(turn)
        else:
            said = await _in_thread(self._handler, turn)
        if inspect.isawaitable(said):
            said = await said
        return Answer(replies_of(said))


async def _in_thread(handler: Handler, turn: Turn) -> object:
    """Runs a plain function beside the event loop, in a daemon: a stuck one keeps no process from ending."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[object] = loop.create_future()
    context = contextvars.copy_context()

    def run() -> None:
        try:
            said, error = context.run(handler, turn), None
        except BaseException as raised:
            said, error = None, raised
        with suppress(RuntimeError):  # the loop is gone, and whoever waited with it
            loop.call_soon_threadsafe(_resolve, done, said, error)

    threading.Thread(target=run, name="turntake-handler", daemon=True).start()
    return await done


def _resolve(done: "asyncio.Future[object]", said: object, error: BaseException | None) -> None:
    if done.done():
        return
    if error is None:
        done.set_result(said)
    else:
        done.set_exception(error if isinstance(error, Exception) else RuntimeError(repr(error)))


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
