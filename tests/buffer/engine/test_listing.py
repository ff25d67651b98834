"""A listing of conversations: a page is a bounded amount of work, whatever is asked for."""

from typing import cast

import pytest

from turntake.buffer.cursor import Cursor
from turntake.buffer.engine.backend import PAGE, Backend
from turntake.buffer.engine.draft import Row
from turntake.buffer.engine.history import LOOKED_AT, CasHistory
from turntake.buffer.store import Query
from turntake.rules.conversation import Conversation
from turntake.rules.key import ConversationKey

CROWD = 2 * LOOKED_AT + 10


class Crowded:
    """A backend, and its archive, with so many idle conversations; `rare` ones are on a channel of their own."""

    def __init__(self, rare: tuple[int, ...] = ()) -> None:
        names = [("rare" if n in rare else "api", f"{n:06}") for n in range(CROWD)]
        self._keys = sorted(str(ConversationKey.of(name, channel=channel)) for channel, name in names)
        self.read = 0
        self.archive = self

    async def conversations(self, after: Cursor | None, limit: int) -> list[tuple[Cursor, Row]]:
        key = after.key if after else ""
        start = next((index for index, name in enumerate(self._keys) if name > key), CROWD)
        found = self._keys[start : start + limit]
        self.read += len(found)
        return [(Cursor(None, name), Row(1, Conversation())) for name in found]


@pytest.mark.parametrize("query", [Query(channel="none"), Query(tenant="none"), Query(state="idle", channel="none")])
async def test_a_filter_that_matches_nobody_looks_at_a_bounded_part(query: Query) -> None:
    backend = Crowded()
    page = await CasHistory(cast(Backend, backend)).conversations(query)
    assert page.items == ()
    assert page.cursor
    assert backend.read <= LOOKED_AT


async def test_who_is_far_behind_is_found_by_the_pages_that_follow() -> None:
    backend = Crowded(rare=(0, CROWD - 1))
    history = CasHistory(cast(Backend, backend))
    found, cursor, pages = [], "", 0
    while cursor or not pages:
        page = await history.conversations(Query(channel="rare", cursor=cursor))
        found += [key.conversation for key, _ in page.items]
        cursor, pages = page.cursor, pages + 1
    assert sorted(found) == ["000000", f"{CROWD - 1:06}"]
    assert pages == CROWD // LOOKED_AT + 1
    assert backend.read == CROWD


async def test_a_page_that_is_full_reads_no_further() -> None:
    backend = Crowded()
    page = await CasHistory(cast(Backend, backend)).conversations(Query(limit=50))
    assert (len(page.items), backend.read) == (50, PAGE)
