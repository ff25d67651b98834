"""`/v1/dead-letters`: messages that nobody answered, until somebody retries or discards them."""

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from turntake.errors import Problem
from turntake.http.conversations import Cursor, Limit
from turntake.http.requests import Endpoint, answer, page, query
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


class DeadLetters:
    """A letter is named by its turn's id."""

    def __init__(self, turns: TurnTake) -> None:
        self._turns = turns

    def endpoints(self) -> list[Endpoint]:
        return [
            Endpoint("/v1/dead-letters", self.list),
            Endpoint("/v1/dead-letters/{id}", self.one, ("GET", "DELETE")),
            Endpoint("/v1/dead-letters/{id}/retry", self.retry, ("POST",)),
        ]

    async def list(self, request: Request) -> Response:
        asked = query(request, LetterQuery)
        found = await page(self._turns.store.letters.list(asked.limit, asked.cursor))
        return answer(LetterPage([letter_view(letter) for letter in found.items], found.cursor or None))

    async def one(self, request: Request) -> Response:
        if request.method == "DELETE":
            return await self._discard(request)
        return answer(letter_detail(await self._letter(request)))

    async def retry(self, request: Request) -> Response:
        letter = await self._letter(request)
        conversation = await self._turns.retry_letter(letter.id)
        if conversation is None:
            raise _unknown()
        return answer(conversation_view(letter.key, conversation, self._turns.clock.now()), 202)

    async def _discard(self, request: Request) -> Response:
        if not await self._turns.store.letters.discard(request.path_params["id"]):
            raise _unknown()
        return Response(status_code=204)

    async def _letter(self, request: Request) -> Letter:
        letter = await self._turns.store.letters.get(request.path_params["id"])
        if letter is None:
            raise _unknown()
        return letter


def _unknown() -> Problem:
    return Problem(404, "There is no such dead letter: it never was one, or was retried or discarded already.")
