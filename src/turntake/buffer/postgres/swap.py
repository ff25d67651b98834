"""Drafts as the arrays that `swap_1` takes, and its answer as refusals and the time."""

from collections.abc import Sequence
from itertools import chain
from typing import Any, NamedTuple
from uuid import uuid4

import msgspec

from turntake.buffer.codec import encode
from turntake.buffer.engine.backend import Refusal, refused
from turntake.buffer.engine.draft import Draft
from turntake.buffer.postgres.binary_arrays import Bodies, Numbers, Texts
from turntake.buffer.store import Hint
from turntake.rules.conversation import Closed, SealedTurn
from turntake.rules.transitions import holds

HINT_BYTES = 7_999


class _Turn(NamedTuple):
    place: int
    id: str
    head: int
    tail: int
    status: str
    closed_at: int | None = None
    letter_at: int | None = None
    body: bytes | None = None


class Reply(NamedTuple):
    """`seen_at` is the latest time that any process noted."""

    refusals: list[Refusal | None]
    server_at: int
    seen_at: int


class Batch:
    """One request: it has an id, so that it may be sent again when its reply is lost."""

    def __init__(
        self,
        drafts: Sequence[Draft],
        schema: str,
        hint: Hint | None = None,
        *,
        is_claim: bool = False,
        noted_at: int | None = None,
    ) -> None:
        """The time `noted_at` is noted along with it."""
        self._drafts = drafts
        self._order = sorted(range(len(drafts)), key=lambda number: str(drafts[number].key))
        ordered = [drafts[number] for number in self._order]
        self.parameters = [
            uuid4(),
            is_claim,
            *_rows(ordered),
            *_messages(ordered),
            *_turns(ordered),
            *_letters(ordered),
            noted_at,
            schema,
            None if hint is None else written(hint),
        ]

    def read(self, answer: Sequence[Any]) -> Reply:
        *others, (*_, server_at, seen_at) = answer
        refusals: list[Refusal | None] = [None] * len(self._order)
        for place, version, body, known, is_claimed, *_ in others:
            number = self._order[place - 1]
            refusal = refused(version, body, map(bytes.decode, known or ()))
            # Its reply was lost, and somebody wrote since; ids and epochs alone would also be those of another's claim.
            is_ours = is_claimed and holds(refusal.row.conversation, self._drafts[number].conversation.epoch)
            refusals[number] = None if is_ours else refusal
        return Reply(refusals, server_at, seen_at)


def _rows(drafts: list[Draft]) -> tuple[object, ...]:
    conversations = [draft.conversation for draft in drafts]
    return (
        Texts(str(draft.key) for draft in drafts),
        Numbers(draft.row.version for draft in drafts),
        Numbers(draft.version for draft in drafts),
        Texts(conversation.state for conversation in conversations),
        Numbers(conversation.due_at for conversation in conversations),
        Numbers(draft.open_from for draft in drafts),
        Bodies(draft.body or None for draft in drafts),
    )


def _messages(drafts: list[Draft]) -> tuple[object, ...]:
    """First where each draft's begin and end, then all of them."""
    froms, tos, places = Numbers(), Numbers(), Numbers()
    for place, draft in enumerate(drafts, 1):
        froms.append(len(places) + 1)
        places.extend([place] * len(draft.added))
        tos.append(len(places))
    added = list(chain.from_iterable(draft.added for draft in drafts))
    return (
        froms,
        tos,
        places,
        Numbers(message.seq for message in added),
        Bodies(message.id.encode() for message in added),
        Numbers(message.received_at for message in added),
        Bodies(message.payload for message in added),
    )


def _turns(drafts: list[Draft]) -> tuple[object, ...]:
    """Each turn once, as it is in the end."""
    turns: dict[str, _Turn] = {}
    for place, draft in enumerate(drafts, 1):
        turns |= {turn.id: _opened(place, turn) for turn in draft.opened}
        turns |= {closed.id: _closed(place, closed) for closed in draft.closed}
    rows = turns.values()
    return (
        Numbers(row.place for row in rows),
        Texts(row.id for row in rows),
        Numbers(row.head for row in rows),
        Numbers(row.tail for row in rows),
        Texts(row.status for row in rows),
        Numbers(row.closed_at for row in rows),
        Numbers(row.letter_at for row in rows),
        Bodies(row.body for row in rows),
    )


def _opened(place: int, turn: SealedTurn) -> _Turn:
    return _Turn(place, turn.id, turn.head, turn.tail, "open")


def _closed(place: int, closed: Closed) -> _Turn:
    letter_at = closed.at if closed.is_letter else None
    return _Turn(place, closed.id, closed.head, closed.tail, closed.status, closed.at, letter_at, encode(closed))


def _letters(drafts: list[Draft]) -> tuple[object, ...]:
    moved = [(place, *numbers) for place, draft in enumerate(drafts, 1) for numbers in draft.moved]
    ended = [(place, letter.id) for place, draft in enumerate(drafts, 1) for letter in draft.ended]
    return (
        Numbers(place for place, _, _ in moved),
        Numbers(seq for _, seq, _ in moved),
        Numbers(new_seq for _, _, new_seq in moved),
        Numbers(place for place, _ in ended),
        Texts(letter_id for _, letter_id in ended),
    )


def written(hint: Hint) -> str:
    """The server takes no longer word; what is left out is found within the horizon."""
    whole = msgspec.json.encode(hint)
    return (whole if len(whole) <= HINT_BYTES else msgspec.json.encode(Hint(hint.due_at))).decode()
