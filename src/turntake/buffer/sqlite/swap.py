"""Drafts written inside an open transaction, each if its row still has the version it was decided on.

How this works: nearly always every draft is taken. So all rows are written at once, one statement for many, and then
their messages, turns and letters. A row with another version and a message whose id is known are not written, which
shows in the number of rows changed. Only if that number is wrong, all of it is undone, each draft is compared on its
own, and those that hold are written again. `RETURNING` would tell at once and costs three times as much.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

import apsw

from turntake.buffer.codec import encode
from turntake.buffer.engine.backend import Refusal, refused
from turntake.buffer.engine.draft import Added, Draft
from turntake.buffer.engine.noted_time import NOTED_EVERY_MS
from turntake.buffer.sqlite.queries import SQL, one, run
from turntake.errors import StoreUnavailable
from turntake.rules.conversation import Closed

# Row numbers take about 100 bytes each; all are dropped at once when there are so many, since they are soon read again.
NUMBERS_REMEMBERED = 50_000


class Swap:
    """Knows the numbers of the rows it met, by which their messages and turns are kept.

    The number of a conversation that was forgotten may be another's by now, so a swap compares the key too.
    """

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._numbers: dict[str, int] = {}
        self._noted_at = 0

    def load(self, keys: Iterable[str]) -> Iterator[tuple[str, int, bytes]]:
        """The known ones among them, with version and body."""
        for key, number, version, body in self._connection.executemany(SQL["load"], ((key,) for key in keys)):
            self._remember(key, number)
            yield key, version, body

    def _remember(self, key: str, number: int) -> None:
        if len(self._numbers) >= NUMBERS_REMEMBERED:
            self._numbers.clear()
        self._numbers[key] = number

    def run(self, drafts: Sequence[Draft]) -> list[Refusal | None]:
        """One refusal or None for each draft in order; a draft is written whole or not at all."""
        now = drafts[0].now
        if now >= self._noted_at + NOTED_EVERY_MS:
            self._noted_at = now
            run(self._connection, "note_clock", now)
        if len(drafts) == 1 and self._takes_one(drafts[0]):
            return [None]
        self._connection.execute("SAVEPOINT swap")
        try:
            refusals = self._swap(drafts)
        except (apsw.Error, StoreUnavailable):
            raise
        except Exception as error:
            # One draft cannot be written, so that none was: each is tried alone, and the others go through.
            self._connection.execute("ROLLBACK TO swap")
            refusals = [Refusal(drafts[0].row, error=error)] if len(drafts) == 1 else self._each_alone(drafts)
        self._connection.execute("RELEASE swap")
        return refusals

    def _takes_one(self, draft: Draft) -> bool:
        """Writes a lone draft without a savepoint, which would be a tenth of its cost. False, with nothing written, if
        it does not hold, or is not of the commonest kind: a known row with one message more or none."""
        if not (draft.row.version and draft.body) or len(draft.added) > 1:
            return False
        key = str(draft.key)
        number = self._number(key)
        message = next(iter(draft.added.values()), None)
        if message is not None and not self._adds(number, message):
            return False
        if not self._is_written("swap", _row(number, key, draft)):
            if message is not None:
                self._drop(number, message.id, message.seq)
            return False
        if draft.opened or draft.closed or draft.ended:
            self._write_turns(number, draft)
        return True

    def _adds(self, number: int, message: Added) -> bool:
        """False, with nothing written, if its id is known or its number taken."""
        if not self._is_written("add_id", (number, message.id)):
            return False
        if not self._is_written("add_message", _message(number, message)):
            self._drop(number, message.id)
            return False
        return True

    def _drop(self, number: int, *parts: int | str) -> None:
        for part in parts:
            run(self._connection, "drop_part", number, part)

    def _is_written(self, query: str, bindings: tuple[Any, ...]) -> bool:
        try:
            self._connection.execute(SQL[query], bindings)
        except OverflowError:
            return False  # a number that no file can hold
        return self._connection.changes() == 1

    def _each_alone(self, drafts: Sequence[Draft]) -> list[Refusal | None]:
        return [self.run([draft])[0] for draft in drafts]

    def _swap(self, drafts: Sequence[Draft]) -> list[Refusal | None]:
        refusals: list[Refusal | None] = [None] * len(drafts)
        if not self._write(drafts):
            self._connection.execute("ROLLBACK TO swap")
            # A number that was met in a transaction which then failed may be another row's by now.
            self._numbers.clear()
            refusals = [self._compare(draft) for draft in drafts]
            if not self._write([draft for draft, refusal in zip(drafts, refusals, strict=True) if refusal is None]):
                raise StoreUnavailable("The SQLite file contradicts itself: PRAGMA integrity_check says more.")
        return refusals

    def _write(self, drafts: Sequence[Draft]) -> bool:
        """False, with some of it written, unless every draft holds."""
        new: list[tuple[int, Draft]] = []
        changed: list[tuple[int, Draft]] = []
        messages, next_number = 0, 0
        for draft in drafts:
            messages += len(draft.added)
            if draft.row.version and draft.body:
                changed.append((self._number(str(draft.key)), draft))
            elif draft.body:
                # New rows get the next numbers: this transaction is the only one that writes.
                next_number = next_number or one(self._connection, "next_number")[0]
                new.append((next_number, draft))
                next_number += 1
            elif self._compare(draft):
                return False
        # Ids first: of what can be wrong, a message that was sent again is the likeliest.
        is_whole = (
            self._all("add_id", messages, _ids(changed, new))
            and self._all("add_message", messages, _messages(changed, new))
            and self._all("swap", len(changed), _rows(changed))
            and self._all("add", len(new), _new_rows(new))
        )
        if is_whole:
            for number, draft in chain(changed, new):
                if draft.opened or draft.closed or draft.ended:
                    self._write_turns(number, draft)
        return is_whole

    def _all(self, query: str, count: int, bindings: Iterator[tuple[Any, ...]]) -> bool:
        """Whether each of them changed a row."""
        if not count:
            return True
        before = self._connection.total_changes()
        self._connection.executemany(SQL[query], bindings)
        return self._connection.total_changes() - before == count

    def _number(self, key: str) -> int:
        number = self._numbers.get(key)
        if number is None:
            (number,) = one(self._connection, "number", key) or (0,)
            self._remember(key, number)
        return number

    def _write_turns(self, number: int, draft: Draft) -> None:
        for opened in draft.opened:
            self._connection.execute(SQL["open_turn"], (number, opened.head, opened.tail, opened.id))
        for closed in draft.closed:
            self._connection.execute(SQL["close_turn"], _closed(number, closed))
        for letter in draft.ended:
            self._connection.execute(SQL["end_letter"], (letter.id,))
        if draft.moved:
            self._connection.executemany(SQL["move_message"], [(new, number, seq) for seq, new in draft.moved])

    def _compare(self, draft: Draft) -> Refusal | None:
        """What there is instead of what the draft was decided on."""
        _, _, version, body = one(self._connection, "load", str(draft.key)) or ("", 0, 0, b"")
        asked = [(str(draft.key), message_id) for message_id in draft.added]
        known = [id for (id,) in self._connection.executemany(SQL["known_id"], asked)] if asked else []
        if version != draft.row.version:
            return refused(version, body, known)
        return Refusal(draft.row, frozenset(known)) if known else None


def _closed(number: int, closed: Closed) -> tuple[Any, ...]:
    letter_at = closed.at if closed.is_letter else None
    return (number, closed.head, closed.tail, closed.id, closed.at, letter_at, encode(closed))


def _message(number: int, message: Added) -> tuple[Any, ...]:
    return number, message.seq, message.id, message.received_at, message.payload


def _row(number: int, key: str, draft: Draft) -> tuple[Any, ...]:
    conversation = draft.conversation
    state, due_at = conversation.state, conversation.due_at
    return draft.version, state, due_at, draft.body, number, draft.row.version, key


# Made one at a time, so that a large batch does not start Python's garbage collector.


def _ids(*numbered: list[tuple[int, Draft]]) -> Iterator[tuple[Any, ...]]:
    for number, draft in chain(*numbered):
        for message_id in draft.added:
            yield number, message_id


def _messages(*numbered: list[tuple[int, Draft]]) -> Iterator[tuple[Any, ...]]:
    for number, draft in chain(*numbered):
        for message in draft.added.values():
            yield _message(number, message)


def _rows(changed: list[tuple[int, Draft]]) -> Iterator[tuple[Any, ...]]:
    for number, draft in changed:
        yield _row(number, str(draft.key), draft)


def _new_rows(new: list[tuple[int, Draft]]) -> Iterator[tuple[Any, ...]]:
    for number, draft in new:
        conversation = draft.conversation
        yield number, str(draft.key), draft.version, conversation.state, conversation.due_at, draft.body
