"""`GET /v1/events`: what happens in this process, as server-sent events. No message text except replies.

How this works: each watcher has a queue of its own, which the service fills and this stream writes out. Four tasks
run side by side, and the first to end ends the stream: one writes events, one writes a sign of life while nothing
happens, one waits for the watcher to leave, one for the server to stop. A queue that is full drops what comes next,
so that a slow watcher misses events and slows nobody.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from turntake.accept.caller import caller_of
from turntake.errors import Problem
from turntake.http.json import conversation_key, query_of
from turntake.instants import rfc3339
from turntake.observe.stream import Happening
from turntake.rules.api_keys import Caller
from turntake.rules.key import ConversationKey
from turntake.service import TurnTake

MAX_WATCHERS = 200  # each holds a connection and a queue, and every event is put into every queue
MAX_WATCHERS_OF_TENANT = 50  # so that one tenant leaves some to the others
HEARTBEAT_MS = 15_000  # proxies close a connection that is quiet for 60 s, some for 30 s
HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-accel-buffering", b"no"),  # nginx would collect events before it passes them on
]


class EventQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which events to send: those of one conversation, or all."""

    conversation: str = ""


class EventStream:
    """One stream per watcher."""

    def __init__(self, turns: TurnTake) -> None:
        self._turns = turns
        self._ends: dict[asyncio.Event, Caller] = {}

    def close(self) -> None:
        """Ends every stream. A server that shuts down calls this, for it waits until all answers are complete."""
        for end in self._ends:
            end.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        asked, caller = query_of(Request(scope), EventQuery), caller_of(scope)
        only = conversation_key(asked.conversation) if asked.conversation else None
        if only is not None and not caller.sees(only):
            raise Problem(404, "No such conversation is known.")
        if scope["method"] == "HEAD":
            await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
            await send({"type": "http.response.body", "body": b""})
            return

        def wants(key: ConversationKey) -> bool:
            return key == only if only is not None else caller.sees(key)

        async with self._slot(caller) as end, self._turns.events.watch(wants) as queue:
            await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
            await _write(send, b": watching\n\n")
            tasks = [
                asyncio.create_task(self._write_events(queue, caller, send)),
                asyncio.create_task(self._write_heartbeats(caller, send)),
                asyncio.create_task(_left(receive)),
                asyncio.create_task(end.wait()),
            ]
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
        await send({"type": "http.response.body", "body": b""})

    async def _write_events(self, queue: "asyncio.Queue[Happening]", caller: Caller, send: Send) -> None:
        """Numbered from 1. Ends when the watcher's key was revoked: nothing is shown from then on."""
        for number in count(1):
            event = await queue.get()
            if not self._turns.keys.is_in_force(caller):
                return
            await _write(send, frame(event, number))

    async def _write_heartbeats(self, caller: Caller, send: Send) -> None:
        while True:
            await self._turns.clock.sleep(HEARTBEAT_MS)
            if not self._turns.keys.is_in_force(caller):
                return
            await _write(send, b": still here\n\n")

    @asynccontextmanager
    async def _slot(self, caller: Caller) -> AsyncIterator[asyncio.Event]:
        """One of the few places for watchers; the event in it ends the stream."""
        if len(self._ends) >= MAX_WATCHERS:
            raise _crowded(MAX_WATCHERS)
        if sum(each.shares_tenant_with(caller) for each in self._ends.values()) >= MAX_WATCHERS_OF_TENANT:
            raise _crowded(MAX_WATCHERS_OF_TENANT)
        end = asyncio.Event()
        self._ends[end] = caller
        try:
            yield end
        finally:
            del self._ends[end]


def frame(event: Happening, number: int) -> bytes:
    """One event as the stream writes it."""
    about = {"at": rfc3339(event.at), "conversation_key": str(event.key), "turn_id": event.turn_id}
    data = msgspec.json.encode(outward(about | event.facts))
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (number, event.kind.encode(), data)


def _crowded(watchers: int) -> Problem:
    return Problem(503, f"{watchers} others watch already; try again later.", headers={"Retry-After": "5"})


def outward(facts: dict[str, Any]) -> dict[str, Any]:
    """The same facts as JSON shows them: every name in camelCase, every `…_at` an instant."""
    return {
        _camel(name): rfc3339(value) if name.endswith("_at") and isinstance(value, int) else value
        for name, value in facts.items()
    }


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)


async def _left(receive: Receive) -> None:
    """Returns once the watcher left."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def _write(send: Send, chunk: bytes) -> None:
    await send({"type": "http.response.body", "body": chunk, "more_body": True})
