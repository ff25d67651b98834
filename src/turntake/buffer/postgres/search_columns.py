"""The columns beside a row's body that the server searches by. The body is right; columns that differ are repaired."""

from collections.abc import Iterable
from typing import NamedTuple, Self

from turntake.buffer.engine.draft import Draft, Row
from turntake.buffer.postgres.binary_arrays import Numbers, Texts
from turntake.rules.key import ConversationKey


class SearchColumns(NamedTuple):
    """Of one row, as it was at `version`."""

    key: str
    version: int
    state: str
    due_at: int | None
    open_from: int

    @classmethod
    def of(cls, key: ConversationKey, row: Row) -> Self:
        """As they should be."""
        conversation = row.conversation
        return cls(str(key), row.version, conversation.state, conversation.due_at, Draft(key, row, 0).open_from)


def arrays(rows: Iterable[SearchColumns]) -> tuple[object, ...]:
    """As the statement `repair` takes them."""
    keys, versions, states, due_ats, open_froms = zip(*rows, strict=True)
    return Texts(keys), Numbers(versions), Texts(states), Numbers(due_ats), Numbers(open_froms)
