"""A store that an earlier release wrote opens, and every conversation in it goes on."""

import itertools
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from harness import recorded_stores
from harness.databases import Postgres, Valkey
from harness.recorded_stores import (
    AMENDED,
    DEAD,
    END_AT,
    INTERRUPTED,
    LEASED,
    PLAIN,
    REPLYING,
    RETRYING,
    RICH,
    SETTLED,
    WAITING,
)
from turntake.buffer.open import Maintained, open_store
from turntake.buffer.store import Query, Store
from turntake.rules.conversation import Answered, Progress
from turntake.rules.key import ConversationKey
from turntake.rules.message import Message
from turntake.rules.records import Append, Claim
from turntake.testing.clock import VirtualClock
from turntake.testing.store_contract import LEASE_MS, ids_of, open_ids, texts_of

RECORDINGS = Path(__file__).parents[1] / "recordings" / "stores"
RELEASES = [*sorted(folder.name for folder in RECORDINGS.iterdir()), "this"]
STATES = {
    SETTLED: "idle",
    DEAD: "idle",
    INTERRUPTED: "collecting",
    LEASED: "answering",
    REPLYING: "replying",
    RETRYING: "answering",
    WAITING: "collecting",
    AMENDED: "collecting",
}

Load = Callable[[str], str]
"""Puts a recording into an empty store, if there is one; returns the store's URL."""


@pytest.fixture
def sqlite(tmp_path: Path) -> Load:
    def load(release: str) -> str:
        if release:
            recorded_stores.load_sqlite(tmp_path / "t.db", (RECORDINGS / release / "sqlite.sql").read_text())
        return f"sqlite:///{tmp_path / 't.db'}"

    return load


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[Load]:
    with Valkey(tmp_path / "redis", is_safe=False) as server:

        def load(release: str) -> str:
            if release:
                recorded_stores.load_redis(server, (RECORDINGS / release / "redis.json").read_text())
            return server.url

        yield load


@pytest.fixture
def postgres(tmp_path: Path) -> Iterator[Load]:
    with Postgres(tmp_path / "postgres", is_safe=False) as server:

        def load(release: str) -> str:
            if release:
                recorded_stores.load_postgres(server, (RECORDINGS / release / "postgres.sql").read_text())
            return server.url

        yield load


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(END_AT)


@pytest.fixture(
    params=[
        pytest.param((server, release), id=f"{server}-{release}")
        for server, release in itertools.product(("sqlite", "redis", "postgres"), RELEASES)
    ]
)
async def store(request: pytest.FixtureRequest, clock: VirtualClock) -> AsyncIterator[Store]:
    """The recorded store as this release opens it; one that this very release wrote must pass the same tests."""
    server, release = request.param
    load: Load = request.getfixturevalue(server)
    async with AsyncExitStack() as stack:
        if release == "this":
            before = VirtualClock()
            async with open_store(load(""), before) as written:
                await recorded_stores.live(written, before)
        url = load("" if release == "this" else release)
        yield await stack.enter_async_context(open_store(url, clock))


async def claim_all(store: Store) -> dict[ConversationKey, Claim]:
    return {claim.key: claim for claim in await store.claim(100, LEASE_MS)}


async def test_every_conversation_is_in_the_state_it_was_in(store: Store) -> None:
    page = await store.history.conversations(Query(limit=100))
    assert {key: conversation.state for key, conversation in page.items} == STATES
    assert await store.next_due() == END_AT + 3_000
    waiting = await store.find(WAITING)
    assert waiting is not None
    assert [(m.text, m.attachments, m.metadata) for m in waiting.messages] == [
        (RICH.text, RICH.attachments, RICH.metadata),
        ("", (), {}),
    ]
    assert waiting.conversation.agent == "sales"


async def test_what_happened_is_still_told_and_known_ids_are_known(store: Store) -> None:
    (settled,) = await store.history.turns(SETTLED, 10)
    assert (settled.status, texts_of(settled)) == ("answered", ["hi", "there"])
    assert settled.turn is not None
    assert settled.turn.progress.replies == ("fine", "bye")
    (interrupted,) = await store.history.turns(INTERRUPTED, 10)
    assert interrupted.status == "interrupted"
    for key, message_id in ((SETTLED, "s2"), (WAITING, "w1"), (DEAD, "d1"), (AMENDED, "a4")):
        (answer,) = await store.append([Append(key, Message(message_id, "again"), PLAIN)])
        assert answer.status == "duplicate"


async def test_waiting_messages_are_claimed_as_they_were_left(store: Store, clock: VirtualClock) -> None:
    (answer,) = await store.append([Append(WAITING, Message("w3"), PLAIN)])
    assert answer.seq == 3
    await clock.advance(10_000)
    claims = await claim_all(store)
    assert {key: ids_of(claim) for key, claim in claims.items()} == {WAITING: ["w1", "w2", "w3"], AMENDED: ["a1"]}
    assert texts_of(claims[AMENDED]) == ["better"]
    for claim in claims.values():
        assert await store.settle(claim, Answered(("yes",)))
    assert await store.find(WAITING) is not None
    assert await open_ids(store, WAITING) == []


async def test_a_claim_that_the_earlier_release_gave_out_can_be_settled(store: Store, clock: VirtualClock) -> None:
    """As if its worker still ran beside this one."""
    leased = await store.find(LEASED)
    assert leased is not None
    assert leased.conversation.turn is not None
    claim = Claim(LEASED, leased.conversation.epoch, leased.conversation.turn, ())
    assert await store.extend([claim], LEASE_MS) == [True]
    assert await store.settle(claim, Answered(("late",)))
    assert await store.settle(claim, Answered(("late",))), "again in the same way"
    assert await open_ids(store, LEASED) == ["l2"]
    await clock.advance(10_000)
    assert LEASED in await claim_all(store)


async def test_what_its_workers_left_behind_is_taken_up(store: Store, clock: VirtualClock) -> None:
    await clock.advance(11 * LEASE_MS)
    claims = await claim_all(store)
    assert claims.keys() == STATES.keys() - {SETTLED, DEAD}
    assert ids_of(claims[INTERRUPTED]) == ["i1", "i2"]
    assert (ids_of(claims[LEASED]), claims[LEASED].turn.attempt) == (["l1"], 2)
    assert claims[REPLYING].turn.progress == Progress(("one", "two"), 1, True)
    retried = claims[RETRYING].turn
    assert (retried.attempt, retried.failures, retried.error) == (2, 1, "TimeoutError")
    for claim in claims.values():
        assert await store.settle(claim, Answered())


async def test_a_dead_letter_is_read_and_retried(store: Store, clock: VirtualClock) -> None:
    (letter,) = (await store.letters.list(10)).items
    assert (letter.key, letter.reason, letter.error, letter.attempts) == (DEAD, "gave_up", "KeyError", 1)
    assert texts_of(await store.letters.get(letter.id)) == ["hello", ""]
    assert await store.letters.retry(letter.id) is not None
    assert (await store.letters.list(10)).items == ()
    claim = (await claim_all(store))[DEAD]
    assert (ids_of(claim), texts_of(claim)) == (["d1", "d2"], ["hello", ""])
    assert await store.settle(claim, Answered(("at last",)))


async def test_its_indexes_are_right_and_what_is_old_is_forgotten(store: Store, clock: VirtualClock) -> None:
    if isinstance(store, Maintained):
        assert await store.rebuild() == 0
        assert await store.finish_upgrade() == []
    assert await store.history.forget(END_AT) == 2
    assert await store.history.turns(SETTLED, 10) == []
    (answer,) = await store.append([Append(SETTLED, Message("s1", "again"), PLAIN)])
    assert (answer.status, answer.seq) == ("buffered", 1), "nothing was left of it, so it began anew"
    assert len((await store.letters.list(10)).items) == 1
