"""`/v1/turns`: what became of a turn, and its end from outside by an agent that answered 202."""

from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from turntake.accept.body import Text
from turntake.clock import DAY_MS
from turntake.errors import Problem
from turntake.http.requests import Endpoint, answer, body
from turntake.http.views import turn_view
from turntake.rules.records import TurnRecord
from turntake.service import TurnTake

REPLIES = 100


class CompleteBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The answer: one reply, or several, or nothing to say."""

    reply: Text | None = None
    replies: Annotated[tuple[Text, ...], Meta(max_length=REPLIES)] | None = None

    def texts(self) -> tuple[str, ...]:
        if self.reply is not None and self.replies is not None:
            raise Problem(400, "Send `reply` or `replies`, not both.")
        return tuple(text for text in (self.reply or "", *(self.replies or ())) if text)


class FailBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Why the attempt failed, and if it matters how long to wait before the next.

    With `attempt` (the event's), a report that comes late leaves a newer attempt alone.
    """

    error: Annotated[str, Meta(max_length=4_096)]
    retry_after_ms: Annotated[int, Meta(ge=0, le=DAY_MS)] | None = None
    attempt: Annotated[int, Meta(ge=1)] | None = None


class ExtendBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """How long the lease shall run from now; at least as long as a new one if left out, and never cut short."""

    lease_ms: Annotated[int, Meta(ge=1, le=DAY_MS)] | None = None


_complete = msgspec.json.Decoder(CompleteBody)
_fail = msgspec.json.Decoder(FailBody)
_extend = msgspec.json.Decoder(ExtendBody)


class Turns:
    """A turn that is over stays as it ended: orders that come too late are refused and say so."""

    def __init__(self, turns: TurnTake) -> None:
        self._turns = turns

    def endpoints(self) -> list[Endpoint]:
        return [
            Endpoint("/v1/turns/{turnId}", self.show),
            Endpoint("/v1/turns/{turnId}/complete", self.complete, ("POST",)),
            Endpoint("/v1/turns/{turnId}/fail", self.fail, ("POST",)),
            Endpoint("/v1/turns/{turnId}/extend", self.extend, ("POST",)),
        ]

    async def show(self, request: Request) -> Response:
        return answer(turn_view(await self._record(request)))

    async def complete(self, request: Request) -> Response:
        replies = (await body(request, _complete)).texts()
        record = await self._turns.complete(request.path_params["turnId"], replies)
        return answer(turn_view(_in(record, "answered", "replying")))

    async def fail(self, request: Request) -> Response:
        said = await body(request, _fail)
        _in(await self._record(request), "answering")
        record = await self._turns.fail(request.path_params["turnId"], said.error, said.retry_after_ms, said.attempt)
        return answer(turn_view(_in(record, "answering", "dead")))

    async def extend(self, request: Request) -> Response:
        said = await body(request, _extend)
        record = _in(await self._turns.extend(request.path_params["turnId"], said.lease_ms), "answering", "replying")
        if record.turn is not None and not record.turn.is_leased:
            raise Problem(409, "Nobody holds this turn: it waits for its next attempt, so there is nothing to extend.")
        return answer(turn_view(record))

    async def _record(self, request: Request) -> TurnRecord:
        return _known(await self._turns.store.history.turn(request.path_params["turnId"]))


def _known(record: TurnRecord | None) -> TurnRecord:
    if record is None:
        raise Problem(404, "There is no such turn, or it was forgotten; its id is `turnId` in what the agent received.")
    return record


def _in(record: TurnRecord | None, *statuses: str) -> TurnRecord:
    found = _known(record)
    if found.status not in statuses:
        raise Problem(409, f"This turn is {found.status}, so this came too late and changed nothing; drop it.")
    return found
