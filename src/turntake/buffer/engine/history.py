"""What a backend holds, put together for readers.

Nothing a reader needs is removed by anything but `forget`, so several reads one after the other make a true picture.
"""

from turntake.buffer.cursor import Cursor
from turntake.buffer.engine.archive import TurnRow
from turntake.buffer.engine.backend import PAGE, Backend, Messages
from turntake.buffer.store import History, Page, Query
from turntake.rules.conversation import AT_REST, Conversation
from turntake.rules.key import ConversationKey
from turntake.rules.message import Message, as_said, in_order
from turntake.rules.records import ClosedPoint, IsChosen, Looked, Snapshot, TurnRecord, shown
from turntake.rules.transitions import shown_ranges

# A bounded part of what is old, so that appends and claims come in between.
FORGOTTEN_AT_ONCE = 200
# Conversations that one page of a listing looks at, at most: some 50 ms in all, in pieces of a few.
LOOKED_AT = 10 * PAGE
IDLE = Cursor(None, "")


class CasHistory(History):
    """What happened, read from the turns' own rows."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def turn(self, turn_id: str) -> TurnRecord | None:
        row = await self._backend.archive.turn(turn_id)
        return None if row is None else await self._record(row)

    async def turns(self, key: ConversationKey, limit: int, before: tuple[int, int] | None = None) -> list[TurnRecord]:
        records = [await self._record(row) for row in await self._backend.archive.turns(key, limit, before)]
        return [record for record in records if record]

    async def conversations(self, query: Query) -> Page[tuple[ConversationKey, Conversation]]:
        """Walks a bounded part of the index; where few match, the cursor leads on. One that moves meanwhile is there
        once."""
        matching: dict[ConversationKey, Conversation] = {}
        after = _start(query)
        last = IDLE
        for _ in range(0, LOOKED_AT, PAGE):
            rows = await self._backend.archive.conversations(after, PAGE)
            for at, row in rows:
                if at.due_at is None and query.state not in ("", *AT_REST):
                    return Page(tuple(matching.items()))
                key = ConversationKey.parse(at.key)
                if not (row.version and query.matches(key, row.conversation)):
                    continue
                if len(matching) == query.limit and key not in matching:
                    return Page(tuple(matching.items()), str(last))
                matching[key] = row.conversation
                last = at
            if len(rows) < PAGE:
                return Page(tuple(matching.items()))
            after = rows[-1][0]
        return Page(tuple(matching.items()), str(after))

    async def forget(self, before: int, ids_before: int | None = None) -> int:
        until = before if ids_before is None else ids_before
        return await self._backend.archive.forget(before, until, FORGOTTEN_AT_ONCE)

    async def forget_chosen(
        self, is_chosen: IsChosen, after: ClosedPoint, before: int, ids_before: int | None = None
    ) -> Looked:
        until = before if ids_before is None else ids_before
        return await self._backend.archive.forget_chosen(is_chosen, after, before, until, FORGOTTEN_AT_ONCE)

    async def _record(self, row: TurnRow) -> TurnRecord | None:
        """An open turn's facts are its conversation's, unless it closed since its row was read."""
        if row.closed is None:
            (loaded,) = await self._backend.load([row.key])
            conversation = loaded.conversation
            turn = next((turn for turn in conversation.open_turns if turn.id == row.id), None)
            if turn is not None:
                messages = await self._backend.messages(row.key, turn.head, turn.tail)
                said = in_order(as_said(messages.values()))
                return TurnRecord(row.key, row.id, turn.state, conversation.epoch, turn, said)
            again = await self._backend.archive.turn(row.id)
            if again is None or again.closed is None:
                return None
            row = again
        closed = row.closed
        assert closed is not None
        said = await shown_of(self._backend, row)
        return TurnRecord(row.key, row.id, closed.status, closed.epoch, closed.turn, said, closed)


async def snapshot(backend: Backend, key: ConversationKey) -> Snapshot | None:
    """The conversation with its open messages, as far as they are shown."""
    (row,) = await backend.load([key])
    if not row.version:
        return None
    messages: list[Message] = []
    for numbers in shown_ranges(row.conversation):
        by_number = await backend.messages(key, numbers.start, numbers.stop - 1)
        messages += as_said(by_number[seq] for seq in numbers if seq in by_number)
    return Snapshot(key, row.conversation, tuple(messages))


async def messages_of(backend: Backend, row: TurnRow) -> Messages:
    """All that a closed turn holds, as it is stored."""
    assert row.closed is not None
    return await backend.messages(row.key, row.closed.numbers.start, row.closed.tail)


async def shown_of(backend: Backend, row: TurnRow) -> tuple[Message, ...]:
    """The messages of a closed turn for readers."""
    assert row.closed is not None
    return shown(row.closed, (await messages_of(backend, row)).values())


def _start(query: Query) -> Cursor | None:
    if query.cursor:
        return Cursor.parse(query.cursor)
    return IDLE if query.state in AT_REST else None
