"""`memory://`: the model itself behind `async`. For tests and simulations; it forgets everything when it ends."""

from collections.abc import AsyncIterator, Sequence
from operator import attrgetter
from typing import Self

from turntake.buffer.cursor import Cursor
from turntake.buffer.documents import Document, Documents
from turntake.buffer.open import Examined
from turntake.buffer.store import History, Letters, Page, Query, Store
from turntake.clock import Clock
from turntake.finding import Finding
from turntake.rules.conversation import Conversation, Lease, Progress, ReplyReport, Settlement, Touch
from turntake.rules.fairness import ClaimOrder
from turntake.rules.key import ConversationKey
from turntake.rules.model import Model
from turntake.rules.records import (
    Append,
    Appended,
    Claim,
    ClosedPoint,
    IsChosen,
    IsOurs,
    Letter,
    Looked,
    Snapshot,
    TurnRecord,
    letter_of,
)
from turntake.rules.rules import RulesByAgent


class MemoryStore(Store, Examined):
    """No await in it ever yields, so every verb is atomic."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.model = Model()
        self.history = _MemoryHistory(self.model)
        self.letters = _MemoryLetters(self.model, clock)
        self.documents = _MemoryDocuments()

    @classmethod
    def open(cls, url: str, clock: Clock) -> Self:
        return cls(clock)

    @classmethod
    async def examine(cls, url: str, clock: Clock) -> AsyncIterator[Finding]:
        text = "memory:// forgets everything when the server stops; use sqlite:/// to keep it"
        yield Finding("warn", "store", text)

    async def append(self, arrivals: Sequence[Append]) -> list[Appended]:
        return self.model.append(arrivals, self.clock.now())

    async def touch(self, key: ConversationKey, touch: Touch, rules: RulesByAgent) -> Conversation | None:
        return self.model.touch(key, touch, rules, self.clock.now())

    async def claim(self, limit: int, lease_ms: int, order: ClaimOrder | None = None) -> list[Claim]:
        return self.model.claim(limit, lease_ms, self.clock.now(), order)

    async def extend(self, claims: Sequence[Claim], lease_ms: int, lease: Lease | None = None) -> Sequence[bool | None]:
        return self.model.extend(claims, lease_ms, self.clock.now(), lease)

    async def save(self, claim: Claim, progress: Progress, lease_ms: int = 0) -> bool:
        return self.model.save(claim, progress, lease_ms, self.clock.now())

    async def absorb(self, claim: Claim, rules: RulesByAgent) -> Claim | None:
        return self.model.absorb(claim, rules, self.clock.now())

    async def settle(self, claim: Claim, settlement: Settlement) -> bool:
        return self.model.settle(claim, settlement, self.clock.now())

    async def next_due(self) -> int | None:
        return self.model.next_due()

    async def find(self, key: ConversationKey) -> Snapshot | None:
        return self.model.find(key)


class _MemoryHistory(History):
    def __init__(self, model: Model) -> None:
        self._model = model

    async def turn(self, turn_id: str) -> TurnRecord | None:
        return self._model.turn(turn_id)

    async def turns(self, key: ConversationKey, limit: int, before: tuple[int, int] | None = None) -> list[TurnRecord]:
        records = (self._model.turn(turn_id) for turn_id, owner in self._model.owners.items() if owner == key)
        earlier = (record for record in records if record and (before is None or record.range < before))
        return sorted(earlier, key=attrgetter("range"), reverse=True)[:limit]

    async def conversations(self, query: Query) -> Page[tuple[ConversationKey, Conversation]]:
        matching = (item for item in self._model.conversations.items() if query.matches(*item))
        places = [(Cursor(item[1].due_at, str(item[0])), item) for item in matching]
        if query.cursor:
            # By the last conversation and not by a number: those before it may have moved between two pages.
            after = _order(Cursor.parse(query.cursor))
            places = [(place, item) for place, item in places if _order(place) > after]
        places.sort(key=lambda entry: _order(entry[0]))
        page = places[: query.limit]
        return Page(tuple(item for _, item in page), str(page[-1][0]) if len(places) > query.limit else "")

    async def forget(self, before: int, ids_before: int | None = None) -> int:
        return self._model.forget(before, ids_before)

    async def forget_chosen(
        self, is_chosen: IsChosen, after: ClosedPoint, before: int, ids_before: int | None = None
    ) -> Looked:
        return self._model.forget_chosen(is_chosen, after, before, ids_before)


class _MemoryLetters(Letters):
    def __init__(self, model: Model, clock: Clock) -> None:
        self._model = model
        self._clock = clock

    async def list(self, limit: int, cursor: str = "") -> Page[Letter]:
        letters = [letter_of(self._model.owners[id], closed) for id, closed in self._model.letters.items()]
        newest_first = sorted(letters, key=lambda letter: (letter.at, letter.id), reverse=True)
        if cursor:
            # By the last letter and not by a number: those before it may be retried between two pages.
            at, _, id = cursor.partition("-")
            last = int(at), id
            newest_first = [letter for letter in newest_first if (letter.at, letter.id) < last]
        page = tuple(newest_first[:limit])
        return Page(page, f"{page[-1].at}-{page[-1].id}" if len(newest_first) > limit else "")

    async def get(self, letter_id: str) -> Letter | None:
        return self._model.letter(letter_id)

    async def retry(self, letter_id: str) -> Conversation | None:
        return self._model.retry_letter(letter_id, self._clock.now())

    async def report(self, turn_id: str, report: ReplyReport, is_ours: IsOurs) -> ConversationKey | None:
        return self._model.report(turn_id, report, is_ours, self._clock.now())

    async def discard(self, letter_id: str) -> bool:
        return self._model.discard_letter(letter_id)

    async def discard_older(self, before: int) -> int:
        return self._model.discard_letters(before)


class _MemoryDocuments(Documents):
    def __init__(self) -> None:
        self._documents: dict[str, Document] = {}

    async def read(self, name: str) -> Document | None:
        return self._documents.get(name)

    async def versions(self, names: Sequence[str]) -> list[int]:
        return [self._version(name) for name in names]

    async def swap(self, name: str, version: int, body: bytes) -> bool:
        if version != self._version(name):
            return False
        self._documents[name] = Document(version + 1, body)
        return True

    def _version(self, name: str) -> int:
        return self._documents[name].version if name in self._documents else 0


def _order(place: Cursor) -> tuple[bool, int, str]:
    return place.due_at is None, place.due_at or 0, place.key
