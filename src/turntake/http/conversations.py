"""`/v1/conversations`: who waits, why, and orders to flush, hold or clear."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from turntake.buffer.store import Query
from turntake.clock import DAY_MS
from turntake.errors import Problem
from turntake.http.requests import Endpoint, answer, body, conversation_key, page, query
from turntake.http.views import ConversationView, conversation_detail, conversation_view
from turntake.rules.conversation import Touch
from turntake.rules.key import ConversationKey
from turntake.service import TurnTake

LATEST_TURNS = 10

Limit = Annotated[int, Meta(ge=1, le=500)]
Cursor = Annotated[str, Meta(max_length=256)]


class ConversationQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which conversations to list; those due first come first."""

    status: Literal["", "idle", "collecting", "answering", "replying"] = ""
    tenant: str = ""
    channel: str = ""
    limit: Limit = 50
    cursor: Cursor = ""


class ConversationPage(msgspec.Struct, frozen=True):
    """Some conversations, and the cursor for the next ones; null at the end."""

    conversations: list[ConversationView]
    cursor: str | None


class HoldBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """For how long to hold what waits."""

    for_ms: Annotated[int, Meta(ge=1, le=DAY_MS)] = 60_000


class NoBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Nothing to say: an empty object, or no body at all."""


_hold = msgspec.json.Decoder(HoldBody)
_nothing = msgspec.json.Decoder(NoBody)


class Conversations:
    """Reads come from the store, so that every process gives the same answer."""

    def __init__(self, turns: TurnTake) -> None:
        self._turns = turns

    def endpoints(self) -> list[Endpoint]:
        return [
            Endpoint("/v1/conversations", self.list),
            Endpoint("/v1/conversations/{key}", self.show),
            Endpoint("/v1/conversations/{key}/flush", self.flush, ("POST",)),
            Endpoint("/v1/conversations/{key}/hold", self.hold, ("POST",)),
            Endpoint("/v1/conversations/{key}/clear", self.clear, ("POST",)),
        ]

    async def list(self, request: Request) -> Response:
        asked = query(request, ConversationQuery)
        wanted = Query(asked.status, asked.tenant, asked.channel, asked.limit, asked.cursor)
        found = await page(self._turns.store.history.conversations(wanted))
        now = self._turns.clock.now()
        views = [conversation_view(key, conversation, now) for key, conversation in found.items]
        return answer(ConversationPage(views, found.cursor or None))

    async def show(self, request: Request) -> Response:
        return await self._view(conversation_key(request.path_params["key"]))

    async def flush(self, request: Request) -> Response:
        await body(request, _nothing)
        return await self._order(request, Touch("flush"))

    async def hold(self, request: Request) -> Response:
        said = await body(request, _hold)
        return await self._order(request, Touch("hold", said.for_ms))

    async def clear(self, request: Request) -> Response:
        await body(request, _nothing)
        return await self._order(request, Touch("clear"))

    async def _order(self, request: Request, order: Touch) -> Response:
        key = conversation_key(request.path_params["key"])
        if await self._turns.touch(key, order) is None:
            raise _unknown()
        return await self._view(key)

    async def _view(self, key: ConversationKey) -> Response:
        snapshot = await self._turns.store.find(key)
        if snapshot is None:
            raise _unknown()
        turns = await self._turns.store.history.turns(key, LATEST_TURNS)
        return answer(conversation_detail(snapshot, turns, self._turns.clock.now()))


def _unknown() -> Problem:
    return Problem(404, "No message of such a conversation is known; GET /v1/conversations lists those there are.")
