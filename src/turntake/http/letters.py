"""`/v1/dead-letters`: messages that nobody answered, until somebody retries or discards them.

A letter is named by its turn's id.
"""

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from turntake.errors import Problem
from turntake.http.conversations import Cursor, Limit
from turntake.http.json import answer, page_of, query_of
from turntake.http.views import LetterView, conversation_view, letter_detail, letter_view
from turntake.rules.records import Letter
from turntake.service import TurnTake


class LetterQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The latest letters come first."""

    limit: Limit = 50
    cursor: Cursor = ""


class LetterPage(msgspec.Struct, frozen=True, rename="camel"):
    """Some dead letters, and the cursor for the next ones; null at the end."""

    dead_letters: list[LetterView]
    cursor: str | None


async def list_page(turns: TurnTake, request: Request) -> Response:
    asked = query_of(request, LetterQuery)
    page = await page_of(turns.store.letters.list(asked.limit, asked.cursor))
    return answer(LetterPage([letter_view(letter) for letter in page.items], page.cursor or None))


async def show(turns: TurnTake, request: Request) -> Response:
    return answer(letter_detail(await _letter(turns, request)))


async def discard(turns: TurnTake, request: Request) -> Response:
    if not await turns.store.letters.discard(request.path_params["id"]):
        raise _unknown()
    return Response(status_code=204)


async def retry(turns: TurnTake, request: Request) -> Response:
    letter = await _letter(turns, request)
    conversation = await turns.retry_letter(letter.id)
    if conversation is None:
        raise _unknown()
    return answer(conversation_view(letter.key, conversation, turns.clock.now()), 202)


async def _letter(turns: TurnTake, request: Request) -> Letter:
    letter = await turns.store.letters.get(request.path_params["id"])
    if letter is None:
        raise _unknown()
    return letter


def _unknown() -> Problem:
    return Problem(404, "There is no such dead letter: it never was one, or was retried or discarded already.")
