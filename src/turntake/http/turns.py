"""`/v1/turns`: what became of a turn, what came since, and its end from outside by an agent that answered 202.

A turn that is over stays as it ended: orders that come too late are refused and say so.
"""

from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from turntake.accept.caller import caller_of
from turntake.clock import DAY_MS
from turntake.errors import Problem
from turntake.http.conversations import NoBody
from turntake.http.json import answer, body_of, query_of
from turntake.http.views import AbsorbedView, ArrivalsView, message_views, turn_view
from turntake.rules.message_limits import Text
from turntake.rules.records import TurnRecord
from turntake.service import TurnTake

LONGEST_ID = 64  # ours have 37 characters; a longer one is nobody's, and is not looked for
LONGEST_WAIT_MS = 20_000  # proxies between us and an agent cut a silent request after 30 s or more
REPLIES = 100  # nobody reads more in one answer


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


class ArrivalsQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """How long to wait for something to come; not at all if left out."""

    wait_ms: Annotated[int, Meta(ge=0, le=LONGEST_WAIT_MS)] = 0


async def show(turns: TurnTake, request: Request) -> Response:
    return answer(turn_view(await _record(turns, request)))


async def complete(turns: TurnTake, request: Request) -> Response:
    replies = (await body_of(request, CompleteBody)).texts()
    record = await turns.complete(await _own_turn(turns, request), replies)
    return answer(turn_view(_in_status(record, "answered", "replying")))


async def fail(turns: TurnTake, request: Request) -> Response:
    payload = await body_of(request, FailBody)
    _in_status(await _record(turns, request), "answering")
    turn_id = turn_id_in(request, "turnId")
    record = await turns.fail(turn_id, payload.error, payload.retry_after_ms, payload.attempt)
    return answer(turn_view(_in_status(record, "answering", "dead")))


async def extend(turns: TurnTake, request: Request) -> Response:
    payload = await body_of(request, ExtendBody)
    record = await turns.extend(await _own_turn(turns, request), payload.lease_ms)
    record = _in_status(record, "answering", "replying")
    if record.turn is not None and not record.turn.is_leased:
        raise Problem(409, "Nobody holds this turn: it waits for its next attempt, so there is nothing to extend.")
    return answer(turn_view(record))


async def arrivals(turns: TurnTake, request: Request) -> Response:
    asked = query_of(request, ArrivalsQuery)
    found = await turns.arrivals(await _own_turn(turns, request), asked.wait_ms)
    if found is None:
        raise _unknown()
    record, waiting = found
    return answer(ArrivalsView(record.id, record.status, message_views(waiting, record.key)))  # type: ignore[arg-type]


async def absorb(turns: TurnTake, request: Request) -> Response:
    await body_of(request, NoBody)
    record, claim, absorbed = await turns.absorb(await _own_turn(turns, request))
    known = _in_status(record, "answering", "replying")
    if claim is None:
        raise Problem(409, "Nobody holds this turn: it waits for its next attempt, which has what is absorbed then.")
    return answer(AbsorbedView(message_views(absorbed, known.key), turn_view(known)))


def turn_id_in(request: Request, name: str) -> str:
    """The id of a turn, or of the dead letter that it became, in the path."""
    written: str = request.path_params[name]
    if len(written) > LONGEST_ID:
        raise Problem(404, "This is not the id of a turn; it is `turnId` in what the agent received.")
    return written


async def _record(turns: TurnTake, request: Request) -> TurnRecord:
    """The turn in the path, if it is one that the caller sees."""
    turn_id, caller = turn_id_in(request, "turnId"), caller_of(request.scope)
    if caller.turn_id not in ("", turn_id):
        raise _unknown()
    record = await turns.store.history.turn(turn_id)
    return _known(record if record is not None and caller.sees(record.key) else None)


async def _own_turn(turns: TurnTake, request: Request) -> str:
    """The id in the path. A turn's tenant never changes, so whoever sees all need not look first."""
    caller = caller_of(request.scope)
    if caller.tenants is not None or caller.turn_id:
        await _record(turns, request)
    return turn_id_in(request, "turnId")


def _known(record: TurnRecord | None) -> TurnRecord:
    if record is None:
        raise _unknown()
    return record


def _unknown() -> Problem:
    return Problem(404, "There is no such turn, or it was forgotten; its id is `turnId` in what the agent received.")


def _in_status(record: TurnRecord | None, *statuses: str) -> TurnRecord:
    known = _known(record)
    if known.status not in statuses:
        raise Problem(409, f"This turn is {known.status}, so this came too late and changed nothing; drop it.")
    return known
