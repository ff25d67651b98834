"""What one process knows of what is due: a crowd hides nobody, and what is remembered is bounded."""

from typing import Any

import pytest

from turntake.buffer.cursor import Cursor
from turntake.buffer.engine import due_list
from turntake.buffer.engine.due_list import DueList
from turntake.rules.conversation import Conversation
from turntake.rules.fairness import DueTurn, Lane, Lanes
from turntake.rules.key import ConversationKey

NOW = 1_000_000


class Row:
    def __init__(self, agent: str) -> None:
        self.conversation = Conversation(agent=agent)


class Index:
    """A backend with nothing but an index of deadlines, and agents that are called like their conversations."""

    def __init__(self) -> None:
        self.archive = self
        self.found: list[tuple[int, str]] = []

    def add(self, due_at: int, name: str, tenant: str = "default") -> None:
        self.found = sorted([*self.found, (due_at, str(ConversationKey.of(name, tenant=tenant)))])

    async def due(self, after: Cursor | None, limit: int, now: int) -> list[tuple[int, str]]:
        return [each for each in self.found if each[0] <= now and (after is None or each > after)][:limit]

    async def load(self, keys: list[ConversationKey]) -> list[Row]:
        return [Row(key.conversation) for key in keys]


class Everybody:
    """An order that wants to see all lanes, and notes them."""

    def __init__(self, is_by_agent: bool = False) -> None:
        self.is_by_agent = is_by_agent
        self.lanes: Lanes = {}

    def lane_of(self, key: ConversationKey, agent: str) -> Lane:
        return Lane(key.tenant, len(agent))

    def first(self, lanes: Lanes, limit: int) -> list[DueTurn]:
        self.lanes = lanes
        return [turn for turns in lanes.values() for turn in turns][:limit]

    def seen(self, tenant: str) -> list[str]:
        return [turn.key.conversation for lane, turns in self.lanes.items() if lane.tenant == tenant for turn in turns]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look reads four, a page has three, and of a lane two are remembered."""
    for name, number in (("FIRST", 4), ("PAGE", 3), ("KEPT_IN_LANE", 2), ("MOST_KEPT", 5)):
        monkeypatch.setattr(due_list, name, number)


@pytest.fixture
def index() -> Index:
    return Index()


@pytest.fixture
def due(index: Index) -> DueList:
    backend: Any = index
    return DueList(backend)


async def look(due: DueList, order: Everybody | None = None, now: int = NOW) -> Everybody:
    order = order or Everybody()
    await due.first(order, 0, now)
    return order


def crowd(index: Index, count: int, tenant: str = "noisy") -> None:
    for number in range(count):
        index.add(number, f"c{number:02}", tenant)


async def test_what_one_look_reads_is_all_there_is(due: DueList, index: Index) -> None:
    """And nothing that was remembered of a crowd before."""
    crowd(index, 12)
    await look(due)
    index.found = index.found[:3]
    assert (await look(due)).seen("noisy") == ["c00", "c01", "c02"]


async def test_nothing_of_a_crowd_is_remembered_until_the_next_one(due: DueList, index: Index) -> None:
    crowd(index, 12)
    await look(due)
    index.found = index.found[:3]
    await look(due)
    index.found = []
    crowd(index, 4)
    assert (await look(due)).seen("noisy") == ["c00", "c01", "c02", "c03"]


async def test_what_is_among_the_earliest_by_now_is_there_once(due: DueList, index: Index) -> None:
    """Though it was remembered from beyond them."""
    crowd(index, 12)
    assert "c04" in (await look(due)).seen("noisy")
    index.found = index.found[2:]
    seen = (await look(due)).seen("noisy")
    assert "c04" in seen
    assert len(seen) == len(set(seen))


async def test_whoever_is_behind_a_crowd_is_found_page_by_page(due: DueList, index: Index) -> None:
    """Nobody of the crowd is seen twice for that, and few of it are remembered."""
    crowd(index, 30)
    index.add(100, "quiet", "quiet")
    looks = [await look(due) for _ in range(10)]
    assert any(order.seen("quiet") == ["quiet"] for order in looks)
    for order in looks:
        seen = order.seen("noisy")
        assert len(seen) == len(set(seen)) <= 4 + 2


async def test_exactly_as_many_as_a_look_reads_may_not_be_all(due: DueList, index: Index) -> None:
    crowd(index, 4)
    index.add(5, "quiet", "quiet")
    assert (await look(due)).seen("quiet") == ["quiet"]


async def test_what_just_fell_due_is_found_at_once(due: DueList, index: Index) -> None:
    """Also if its write became visible a moment later than its deadline."""
    crowd(index, 30)
    index.add(NOW - 50, "late", "quiet")
    assert (await look(due)).seen("quiet") == ["late"]
    index.add(NOW + 10, "latest", "quiet")
    assert (await look(due, now=NOW + 10)).seen("quiet") == ["late", "latest"]


async def test_what_is_claimed_is_forgotten(due: DueList, index: Index) -> None:
    crowd(index, 4)
    index.add(5, "quiet", "quiet")
    assert (await look(due)).seen("quiet") == ["quiet"]
    index.found.pop()
    due.forget([ConversationKey.of("quiet", tenant="quiet")])
    assert (await look(due)).seen("quiet") == []


async def test_where_priorities_go_by_agent_rows_are_read_for_it(due: DueList, index: Index) -> None:
    index.add(1, "ann")
    index.add(2, "heather")
    assert set((await look(due)).lanes) == {Lane("default")}
    assert set((await look(due, Everybody(is_by_agent=True))).lanes) == {Lane("default", 3), Lane("default", 7)}


async def test_a_name_that_is_no_key_hides_nobody(due: DueList, index: Index) -> None:
    index.found = [(0, "no key")]
    index.add(1, "ann")
    assert (await look(due)).seen("default") == ["ann"]


async def test_no_more_is_remembered_than_there_is_room_for(due: DueList, index: Index) -> None:
    for number in range(40):
        index.add(number, "ann", f"tenant-{number}")
    for _ in range(8):
        order = await look(due)
        assert sum(map(len, order.lanes.values())) <= 4 + 5
