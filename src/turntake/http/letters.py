"""`/v1/dead-letters`: messages that nobody answered, until somebody retries or discards them.

A letter is named by its turn's id.
"""

from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from turntake.accept.body import Instant, checked
from turntake.accept.caller import caller_of
from turntake.buffer.store import Page
from turntake.errors import Problem
from turntake.http.conversations import Cursor, Limit
from turntake.http.json import answer, body_of, page_of, query_of
from turntake.http.turns import turn_id_in
from turntake.http.views import LetterView, conversation_view, letter_detail, letter_view
from turntake.instants import rfc3339, to_ms
from turntake.rules.api_keys import Caller
from turntake.rules.records import Letter
from turntake.service import TurnTake

PAGES_LOOKED_AT = 20  # of 50 letters each, if nothing else is asked for: some 50 ms on a slow store


class LetterQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The latest letters come first."""

    limit: Limit = 50
    cursor: Cursor = ""


class LetterPage(msgspec.Struct, frozen=True, rename="camel"):
    """Some dead letters, and the cursor for the next ones; null at the end."""

    dead_letters: list[LetterView]
    cursor: str | None


class RetryBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which dead letters to retry: those from `since` on and before `before`, whose reason or error contains `reason`.

    Without any of them, all that there are now. What fails again becomes a new letter, so send the `before` of the
    first answer with every further call, or leave it to the server, which takes the time of the call.
    """

    since: Instant | None = None
    before: Instant | None = None
    reason: Annotated[str, Meta(max_length=256)] = ""
    limit: Limit = 50
    cursor: Cursor = ""


class RetriedPage(msgspec.Struct, frozen=True, rename="camel"):
    """How many of the letters that were looked at are due again, and the cursor and `before` for the next call."""

    retried: int
    before: Instant
    cursor: str | None


async def list_page(turns: TurnTake, request: Request) -> Response:
    asked = query_of(request, LetterQuery)
    page = await _own_letters(turns, caller_of(request.scope), asked.limit, asked.cursor)
    return answer(LetterPage([letter_view(letter) for letter in page.items], page.cursor or None))


async def show(turns: TurnTake, request: Request) -> Response:
    return answer(letter_detail(await _letter(turns, request)))


async def discard(turns: TurnTake, request: Request) -> Response:
    letter_id = turn_id_in(request, "id")
    if caller_of(request.scope).tenants is not None:
        letter_id = (await _letter(turns, request)).id
    if not await turns.store.letters.discard(letter_id):
        raise _unknown()
    return Response(status_code=204)


async def retry(turns: TurnTake, request: Request) -> Response:
    letter = await _letter(turns, request)
    conversation = await turns.retry_letter(letter.id)
    if conversation is None:
        raise _unknown()
    return answer(conversation_view(letter.key, conversation, turns.clock.now()), 202)


async def retry_several(turns: TurnTake, request: Request) -> Response:
    """Looks at `limit` letters, the latest first: there may be thousands, and a call must end soon."""
    asked = await body_of(request, RetryBody)
    since_at = 0 if asked.since is None else checked(_instant, ("since", asked.since))
    before_at = turns.clock.now() if asked.before is None else checked(_instant, ("before", asked.before))
    page = await _own_letters(turns, caller_of(request.scope), asked.limit, asked.cursor)
    chosen = [letter for letter in page.items if since_at <= letter.at < before_at and _is_about(letter, asked.reason)]
    retried = [await turns.retry_letter(letter.id) for letter in chosen]
    # Letters are listed latest first: once one is too old, all further ones are.
    is_over = any(letter.at < since_at for letter in page.items)
    cursor = None if is_over else page.cursor or None
    return answer(RetriedPage(sum(each is not None for each in retried), rfc3339(before_at), cursor), 202)


def _instant(field: tuple[str, str]) -> int:
    name, text = field
    try:
        return to_ms(text)
    except ValueError:
        raise ValueError(f"`{name}` is not an instant; write it like 2026-11-15T09:30:00.250Z.") from None


def _is_about(letter: Letter, reason: str) -> bool:
    return reason.lower() in f"{letter.reason}\n{letter.error}".lower()


async def _letter(turns: TurnTake, request: Request) -> Letter:
    """The dead letter in the path, if it is one that the caller sees."""
    letter = await turns.store.letters.get(turn_id_in(request, "id"))
    if letter is None or not caller_of(request.scope).sees(letter.key):
        raise _unknown()
    return letter


async def _own_letters(turns: TurnTake, caller: Caller, limit: int, cursor: str) -> Page[Letter]:
    """The next letters that the caller sees. A store lists those of all tenants: we go on until one is among them, and
    after many pages leave it to the next call, so that none takes long."""

    async def listing(start: str) -> Page[Letter]:
        for _ in range(PAGES_LOOKED_AT):
            page = await turns.store.letters.list(limit, start)
            items = tuple(letter for letter in page.items if caller.sees(letter.key))
            if items or not page.cursor:
                break
            start = page.cursor
        return Page(items, page.cursor)

    return await page_of(turns.keys, caller, cursor, listing)


def _unknown() -> Problem:
    return Problem(404, "There is no such dead letter: it never was one, or was retried or discarded already.")
