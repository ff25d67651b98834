"""The agent as a Python function: its calls, and what its return value means."""

import asyncio
import contextvars
import inspect
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack, aclosing, suppress
from typing import Any, NamedTuple

from turntake.deliver.answer_shapes import replies_in_object
from turntake.deliver.options import HandlerOptions, Yields
from turntake.deliver.sink import Answer, Pending, Sink
from turntake.deliver.turn import Turn
from turntake.errors import GiveUp

Handler = Callable[[Turn], Any]
_DEFAULTS = HandlerOptions()
# By these the event loop and its owner end a handler. Whatever else it raises, such as sys.exit or the panic of a
# library in Rust, is its own failure, and must not end the process and the other turns.
OURS = (asyncio.CancelledError, KeyboardInterrupt, GeneratorExit)


class HandlerSink(Sink):
    """Awaits an async function; runs a plain one in a thread of its own, so that it cannot stop the others.

    What an async generator yields leaves at once, as `turn.reply` does, or joined at its end; what a plain one yields
    always leaves at its end.
    """

    def __init__(self, handler: Handler, yields: Yields = _DEFAULTS.yields) -> None:
        self._handler = handler
        self._yields = yields
        # An object with an async __call__ is a handler too.
        called = handler if inspect.isroutine(handler) else getattr(handler, "__call__", handler)  # noqa: B004
        self._is_async = inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(called)
        self._is_generator = inspect.isasyncgenfunction(handler) or inspect.isasyncgenfunction(called)

    async def deliver(self, turn: Turn) -> Answer | Pending:
        try:
            if self._is_generator:
                result = self._handler(turn)
            elif self._is_async:
                result = await self._handler(turn)
            else:
                result = await _in_thread(self._handler, turn)
            if result is None or type(result) is str:  # which most handlers return
                return Answer(replies_of(result))
            return await self._answer(turn, result)
        except (Exception, *OURS):
            raise
        except BaseException as error:
            raise RuntimeError(repr(error)) from error

    async def _answer(self, turn: Turn, result: object) -> Answer:
        if inspect.isawaitable(result):
            result = await result
        if isinstance(result, AsyncIterator):
            return await self._answer_in_pieces(turn, result)
        if isinstance(result, _Pieces) and self._yields == "joined":
            return Answer(tuple(filter(None, ["".join(replies_of(result.texts))])))
        return Answer(replies_of(result.texts if isinstance(result, _Pieces) else result))

    async def _answer_in_pieces(self, turn: Turn, pieces: AsyncIterator[object]) -> Answer:
        joined: list[str] = []
        async with AsyncExitStack() as stack:
            if isinstance(pieces, AsyncGenerator):
                await stack.enter_async_context(aclosing(pieces))
            async for piece in pieces:
                for text in replies_of(piece):
                    if self._yields == "joined":
                        joined.append(text)
                    else:
                        await turn.reply(text)
        return Answer(tuple(filter(None, ["".join(joined)])))


class _Pieces(NamedTuple):
    """What a plain generator yielded, all of it."""

    texts: list[object]


async def _in_thread(handler: Handler, turn: Turn) -> object:
    """Runs a plain function beside the event loop, in a daemon thread: one that is stuck lets the process end."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[object] = loop.create_future()
    context = contextvars.copy_context()

    def run() -> None:
        try:
            result, error = context.run(_called, handler, turn), None
        except BaseException as raised:
            result, error = None, raised
        with suppress(RuntimeError):  # the loop is closed, and nobody waits any more
            loop.call_soon_threadsafe(_resolve, done, result, error)

    threading.Thread(target=run, name="turntake-handler", daemon=True).start()
    return await done


def _called(handler: Handler, turn: Turn) -> object:
    result = handler(turn)
    # A generator does its work while it is gone through, so that belongs into the thread too.
    return _Pieces([piece for piece in result if piece is not None]) if inspect.isgenerator(result) else result


def _resolve(done: "asyncio.Future[object]", result: object, error: BaseException | None) -> None:
    if done.done():
        return
    if error is None:
        done.set_result(result)
    else:
        done.set_exception(error if isinstance(error, Exception) else RuntimeError(repr(error)))


def replies_of(result: object) -> tuple[str, ...]:
    """The replies in a handler's return value: None, a text, several texts, or an object as HTTP agents answer it."""
    if result is None or result == "":
        return ()
    if isinstance(result, str):
        return (result,)
    if isinstance(result, dict) and (replies := replies_in_object(result)) is not None:
        return tuple(reply for reply in replies if reply)
    if isinstance(result, Iterable) and not isinstance(result, bytes | dict):
        replies = tuple(result)
        if all(isinstance(reply, str) for reply in replies):
            return replies
    raise GiveUp(
        f'A handler returns or yields a text, a list of texts, {{"reply": …}}, or None; '
        f"this one brought {_described(result)}."
    )


def _described(result: object) -> str:
    if isinstance(result, dict):
        return f"a dict with the keys {sorted(map(str, result))}"
    if isinstance(result, list | tuple):
        return f"a {type(result).__name__} that holds {', '.join(sorted({type(item).__name__ for item in result}))}"
    return type(result).__name__
