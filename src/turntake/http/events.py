"""`GET /v1/events`: what happens in this process, as server-sent events. No message text except replies."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count

import msgspec
from starlette.datastructures import QueryParams
from starlette.types import Receive, Scope, Send

from turntake import wire
from turntake.accept.body import misfit
from turntake.errors import Problem
from turntake.http.requests import conversation_key
from turntake.instants import rfc3339
from turntake.observe.stream import Event
from turntake.service import TurnTake

MOST_WATCHERS = 200
HEARTBEAT_MS = 15_000
HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]


class EventQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which events to send: those of one conversation, or all."""

    conversation: str = ""


class EventStream:
    """One stream a watcher. A watcher too slow to follow misses events; nobody waits for it."""

    def __init__(self, turns: TurnTake) -> None:
        self._turns = turns
        self._streams: set[asyncio.Event] = set()

    def close(self) -> None:
        """Ends every stream. A server that shuts down calls this, for it waits until all answers are complete."""
        for end in self._streams:
            end.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        only = _wanted(scope)
        async with self._place() as end, self._turns.events.watch() as queue:
            await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
            await _write(send, b": watching\n\n")
            tasks = [
                asyncio.create_task(_pour(queue, only, send)),
                asyncio.create_task(self._beat(send)),
                asyncio.create_task(_gone(receive)),
                asyncio.create_task(end.wait()),
            ]
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
        await send({"type": "http.response.body", "body": b""})

    async def _beat(self, send: Send) -> None:
        """Keeps proxies from closing a quiet stream."""
        while True:
            await self._turns.clock.sleep(HEARTBEAT_MS)
            await _write(send, b": still here\n\n")

    @asynccontextmanager
    async def _place(self) -> AsyncIterator[asyncio.Event]:
        if len(self._streams) >= MOST_WATCHERS:
            raise Problem(503, f"{MOST_WATCHERS} others watch already; try again later.", headers={"Retry-After": "5"})
        end = asyncio.Event()
        self._streams.add(end)
        try:
            yield end
        finally:
            self._streams.discard(end)


def frame(event: Event, number: int) -> bytes:
    """One event as the stream writes it."""
    about = {"at": rfc3339(event.at), "conversation_key": str(event.key), "turn_id": event.turn_id}
    data = msgspec.json.encode(wire.outward(about | event.facts))
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (number, event.kind.encode(), data)


async def _pour(queue: "asyncio.Queue[Event]", only: str, send: Send) -> None:
    for number in count(1):
        event = await queue.get()
        while only and str(event.key) != only:
            event = await queue.get()
        await _write(send, frame(event, number))


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _write(send: Send, chunk: bytes) -> None:
    await send({"type": "http.response.body", "body": chunk, "more_body": True})


def _wanted(scope: Scope) -> str:
    try:
        asked = msgspec.convert(dict(QueryParams(scope["query_string"])), EventQuery)
    except msgspec.ValidationError as error:
        raise misfit(error) from None
    return str(conversation_key(asked.conversation)) if asked.conversation else ""
