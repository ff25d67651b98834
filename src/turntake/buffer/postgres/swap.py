"""One call of the function `swap_1`: some drafts as the arrays it takes, and its answer as refusals and the time.

How this works: the function gets all drafts of a batch in one call, and decides about each on its own. It takes a draft
if the conversation's row still has the version that the draft was decided on, and holds none of the ids it adds; then
it writes all of the draft. Otherwise it writes nothing of it, and answers with the row as it is now. Each array has one
item per draft, message, turn, move or ended letter; the last four kinds name their draft by its number, from 1 on. The
drafts are sorted by their keys, so that two calls that lock the same rows never wait for each other in a circle.

The call has an id, which the function writes into each row it takes. If its answer was lost and it is sent again, the
rows that carry its id are not refused.

The function's name ends in a number. A release that needs other arguments brings a function with the next number, so
that releases can run side by side; this one's stays until an operator finishes the upgrade.
"""

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

HINT_BYTES = 7_999  # the longest payload that pg_notify takes


class SwapReply(NamedTuple):
    """`seen_at` is the latest time that any process noted."""

    server_at: int
    seen_at: int
    refusals: list[Refusal | None]


class SwapCall:
    """`parameters` are the function's, in its order. If it takes any draft, it also sends the hint and notes the time.

    `is_claim` if the drafts are claims.
    """

    def __init__(
        self,
        drafts: Sequence[Draft],
        channel: str,
        hint: Hint | None = None,
        *,
        is_claim: bool = False,
        noted_at: int | None = None,
    ) -> None:
        self._drafts = drafts
        self._order = sorted(range(len(drafts)), key=lambda index: str(drafts[index].key))
        ordered = [drafts[index] for index in self._order]
        self.parameters = [
            uuid4(),
            is_claim,
            *_rows(ordered),
            *_messages(ordered),
            *_turns(ordered),
            *_letters(ordered),
            noted_at,
            channel,
            None if hint is None else hint_text(hint),
        ]

    def read(self, answer: Sequence[Any]) -> SwapReply:
        """What the function's answer says, one refusal or None for each draft in order."""
        *others, (*_, server_at, seen_at) = answer
        refusals: list[Refusal | None] = [None] * len(self._order)
        for number, version, body, known, is_claimed, *_ in others:
            index = self._order[number - 1]
            refusal = refused(version, body, map(bytes.decode, known or ()))
            # This call's claim was taken, its answer lost, and somebody wrote to the conversation before it was sent
            # again. The claim is still ours if it still holds; the epoch alone could be that of somebody else's claim.
            decided = self._drafts[index].conversation
            is_ours = is_claimed and decided.turn and holds(refusal.row.conversation, decided.epoch, decided.turn.id)
            refusals[index] = None if is_ours else refusal
        return SwapReply(server_at, seen_at, refusals)


class _Turn(NamedTuple):
    draft: int
    id: str
    head: int
    tail: int
    status: str
    closed_at: int | None = None
    letter_at: int | None = None
    body: bytes | None = None


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
    froms, tos, numbers = Numbers(), Numbers(), Numbers()
    for number, draft in enumerate(drafts, 1):
        froms.append(len(numbers) + 1)
        numbers.extend([number] * len(draft.added))
        tos.append(len(numbers))
    added = list(chain.from_iterable(draft.added.values() for draft in drafts))
    return (
        froms,
        tos,
        numbers,
        Numbers(message.seq for message in added),
        Bodies(message.id.encode() for message in added),
        Numbers(message.received_at for message in added),
        Bodies(message.payload for message in added),
    )


def _turns(drafts: list[Draft]) -> tuple[object, ...]:
    """Each turn once, as it is in the end: one that a draft both opens and closes is closed."""
    turns: dict[str, _Turn] = {}
    for number, draft in enumerate(drafts, 1):
        turns |= {turn.id: _opened(number, turn) for turn in draft.opened}
        turns |= {closed.id: _closed(number, closed) for closed in draft.closed}
    rows = turns.values()
    return (
        Numbers(row.draft for row in rows),
        Texts(row.id for row in rows),
        Numbers(row.head for row in rows),
        Numbers(row.tail for row in rows),
        Texts(row.status for row in rows),
        Numbers(row.closed_at for row in rows),
        Numbers(row.letter_at for row in rows),
        Bodies(row.body for row in rows),
    )


def _opened(number: int, turn: SealedTurn) -> _Turn:
    return _Turn(number, turn.id, turn.head, turn.tail, "open")


def _closed(number: int, closed: Closed) -> _Turn:
    letter_at = closed.at if closed.is_letter else None
    return _Turn(number, closed.id, closed.head, closed.tail, closed.status, closed.at, letter_at, encode(closed))


def _letters(drafts: list[Draft]) -> tuple[object, ...]:
    moved = [(number, *seqs) for number, draft in enumerate(drafts, 1) for seqs in draft.moved]
    ended = [(number, letter.id) for number, draft in enumerate(drafts, 1) for letter in draft.ended]
    return (
        Numbers(number for number, _, _ in moved),
        Numbers(seq for _, seq, _ in moved),
        Numbers(new_seq for _, _, new_seq in moved),
        Numbers(number for number, _ in ended),
        Texts(letter_id for _, letter_id in ended),
    )


def hint_text(hint: Hint) -> str:
    """The hint in JSON. Of one that is too long only the deadline is sent; the rest is found within the horizon."""
    whole = msgspec.json.encode(hint)
    return (whole if len(whole) <= HINT_BYTES else msgspec.json.encode(Hint(hint.due_at))).decode()
