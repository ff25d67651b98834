"""`/v1/conversations`: who waits, why, and orders to flush, hold or clear.

Everything is read from the store, so that every process gives the same answer.
"""

from collections.abc import Awaitable
from typing import Annotated, Literal

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from turntake.accept.caller import caller_of
from turntake.buffer.store import Page, Query
from turntake.clock import DAY_MS, NEVER
from turntake.errors import Problem
from turntake.http.json import answer, body_of, conversation_key, page_of, query_of
from turntake.http.views import ConversationView, TurnView, conversation_detail, conversation_view, turn_view
from turntake.rules.conversation import Conversation, Status, Touch
from turntake.rules.key import ConversationKey
from turntake.rules.records import TurnRecord
from turntake.service import TurnTake

LATEST_TURNS = 10  # fit on a screen; all of them, and each with its messages, have endpoints of their own

Limit = Annotated[int, Meta(ge=1, le=500)]
# It holds a conversation's key, each byte of which may take three characters, a third more when it is sealed, and must
# fit into a request's headers.
Cursor = Annotated[str, Meta(max_length=5_200)]


class ConversationQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which conversations to list; those that are due soonest come first."""

    status: Literal["", Status] = ""
    tenant: str = ""
    channel: str = ""
    limit: Limit = 50
    cursor: Cursor = ""


class ConversationPage(msgspec.Struct, frozen=True):
    """Some conversations, and the cursor for the next ones; null at the end."""

    conversations: list[ConversationView]
    cursor: str | None


class HistoryQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How many turns, and from where on."""

    limit: Annotated[int, Meta(ge=1, le=100)] = 20
    cursor: Cursor = ""


class TurnPage(msgspec.Struct, frozen=True):
    """Some turns of a conversation, the latest first, and the cursor for the ones before; null at the end."""

    turns: list[TurnView]
    cursor: str | None


class HoldBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """For how long to hold what waits."""

    for_ms: Annotated[int, Meta(ge=1, le=DAY_MS)] = 60_000


class NoBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Nothing to say: an empty object, or no body at all."""


async def list_page(turns: TurnTake, request: Request) -> Response:
    asked, caller = query_of(request, ConversationQuery), caller_of(request.scope)
    if caller.tenants is not None and asked.tenant and asked.tenant not in caller.tenants:
        raise Problem(404, "This API key knows of no such tenant; leave `tenant` out to list what it sees.")

    def listing(cursor: str) -> Awaitable[Page[tuple[ConversationKey, Conversation]]]:
        wanted = Query(asked.status, asked.tenant, asked.channel, asked.limit, cursor, caller.tenants)
        return turns.store.history.conversations(wanted)

    page = await page_of(turns.keys, caller, asked.cursor, listing)
    now = turns.clock.now()
    views = [conversation_view(key, conversation, now) for key, conversation in page.items]
    return answer(ConversationPage(views, page.cursor or None))


async def show(turns: TurnTake, request: Request) -> Response:
    return await _detail(turns, _key(request))


async def list_turns(turns: TurnTake, request: Request) -> Response:
    asked, key, history = query_of(request, HistoryQuery), _key(request), turns.store.history

    async def listing(cursor: str) -> Page[TurnRecord]:
        found = tuple(await history.turns(key, asked.limit, _range_in(cursor)))
        return Page(found, _cursor_after(found[-1]) if len(found) == asked.limit else "")

    page = await page_of(turns.keys, caller_of(request.scope), asked.cursor, listing)
    if not page.items and await turns.store.find(key) is None:
        raise _unknown()
    return answer(TurnPage([turn_view(record) for record in page.items], page.cursor or None))


async def flush(turns: TurnTake, request: Request) -> Response:
    await body_of(request, NoBody)
    return await _touch(turns, request, Touch("flush"))


async def hold(turns: TurnTake, request: Request) -> Response:
    payload = await body_of(request, HoldBody)
    return await _touch(turns, request, Touch("hold", payload.for_ms))


async def clear(turns: TurnTake, request: Request) -> Response:
    await body_of(request, NoBody)
    return await _touch(turns, request, Touch("clear"))


async def _touch(turns: TurnTake, request: Request, touch: Touch) -> Response:
    key = _key(request)
    if await turns.touch(key, touch) is None:
        raise _unknown()
    return await _detail(turns, key)


async def _detail(turns: TurnTake, key: ConversationKey) -> Response:
    snapshot = await turns.store.find(key)
    if snapshot is None:
        raise _unknown()
    latest = await turns.store.history.turns(key, LATEST_TURNS)
    return answer(conversation_detail(snapshot, latest, turns.clock.now()))


def _key(request: Request) -> ConversationKey:
    """The conversation in the path, if it is one that the caller sees."""
    key = conversation_key(request.path_params["key"])
    if not caller_of(request.scope).sees(key):
        raise _unknown()
    return key


def _cursor_after(record: TurnRecord) -> str:
    head, tail = record.range
    return f"{head}-{tail}"


def _range_in(cursor: str) -> tuple[int, int] | None:
    """Raises ValueError for one that is not ours."""
    if not cursor:
        return None
    first, _, last = cursor.partition("-")
    head, tail = int(first), int(last)
    is_aside = -NEVER < tail < 0
    if not 0 < head < NEVER or not (is_aside or head <= tail < NEVER):
        raise ValueError("No turn has such a range.")
    return head, tail


def _unknown() -> Problem:
    return Problem(404, "No such conversation is known; `turntake conversations` and GET /v1/conversations list all.")
