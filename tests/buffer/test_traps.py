"""How other designs lost, doubled, swapped or stalled messages, as tests that every store passes: docs/promises.md."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from harness.databases import Postgres, Valkey
from turntake.buffer.memory import MemoryStore
from turntake.buffer.postgres.store import PostgresStore
from turntake.buffer.redis.store import RedisStore
from turntake.buffer.sqlite.store import SqliteStore
from turntake.buffer.store import Store
from turntake.rules.conversation import Answered, Dead, Progress, Retry, Settlement, Touch
from turntake.rules.key import ConversationKey
from turntake.rules.retry import after_failure, before_attempt
from turntake.rules.rules import Rules
from turntake.testing.clock import VirtualClock
from turntake.testing.store_contract import ANN, BOB, LEASE_MS, OFF, ids_of, open_ids, order, say, take

OUTAGE_MS = 90 * 24 * 3_600_000


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture(scope="module")
def valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Valkey]:
    with Valkey(tmp_path_factory.mktemp("valkey")) as server:
        yield server


@pytest.fixture(scope="module")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    with Postgres(tmp_path_factory.mktemp("postgres"), is_safe=False) as server:
        yield server


@pytest.fixture
def memory_store(clock: VirtualClock) -> Store:
    return MemoryStore(clock)


@pytest.fixture
def sqlite_store(clock: VirtualClock, tmp_path: Path) -> Store:
    return SqliteStore(str(tmp_path / "turntake.db"), clock)


@pytest.fixture
def redis_store(clock: VirtualClock, valkey: Valkey) -> Store:
    valkey.ask("FLUSHALL")
    return RedisStore.open(valkey.url, clock)


@pytest.fixture
def postgres_store(clock: VirtualClock, postgres: Postgres) -> Store:
    return PostgresStore.open(postgres.database("traps"), clock)


@pytest.fixture(params=["memory", "sqlite", "redis", "postgres"])
async def store(request: pytest.FixtureRequest) -> AsyncIterator[Store]:
    """An empty store of each kind; only those asked for have their server started."""
    opened: Store = request.getfixturevalue(f"{request.param}_store")
    async with opened as store:
        yield store


async def test_cleanup_removes_only_what_was_read(store: Store, clock: VirtualClock) -> None:
    """A message arrives between reading the buffer and cleaning it up, and is answered in the next turn."""
    await say(store, "m1")
    await clock.advance(1_000)
    claim = await take(store)
    await say(store, "m2")
    await store.settle(claim, Answered())
    await clock.advance(3_000)
    assert ids_of(await take(store)) == ["m2"]


async def test_a_busy_conversation_is_looked_at_again(store: Store, clock: VirtualClock) -> None:
    """A second message falls due during an answer whose worker then dies: both are still handed over."""
    await say(store, "m1", rules=OFF)
    await take(store)
    await say(store, "m2")
    await clock.advance(30_000)
    assert await store.claim(5, LEASE_MS) == []
    await clock.advance(30_000)
    again = await take(store)
    assert ids_of(again) == ["m1"]
    await store.settle(again, Answered())
    assert ids_of(await take(store)) == ["m2"]


async def test_a_crash_right_after_claiming_leaves_a_deadline(store: Store, clock: VirtualClock) -> None:
    """The worker dies between taking the conversation and starting on it, and nobody writes again."""
    await say(store, "m1", rules=OFF)
    await take(store)
    assert await store.next_due() == clock.now() + LEASE_MS
    await clock.advance(LEASE_MS)
    assert ids_of(await take(store)) == ["m1"]


async def test_every_crashed_conversation_is_recovered(store: Store, clock: VirtualClock) -> None:
    """Fifty workers die with a claim each; when the leases end all fifty conversations are due, none forgotten."""
    for number in range(50):
        await say(store, "m1", key=ConversationKey.of(f"c{number}"), rules=OFF)
    assert len(await store.claim(50, LEASE_MS)) == 50
    await clock.advance(LEASE_MS)
    assert len(await store.claim(100, LEASE_MS)) == 50


async def test_a_handler_slower_than_its_lease_destroys_nothing(store: Store, clock: VirtualClock) -> None:
    """A outlives its lease, B takes over, A finishes late: B's claim and the messages since are untouched."""
    await say(store, "m1", rules=OFF)
    a = await take(store)
    await clock.advance(LEASE_MS)
    b = await take(store)
    await say(store, "m2", rules=OFF)
    assert not await store.save(a, Progress(("late",), 0, True))
    assert not await store.settle(a, Answered())
    assert await store.claim(5, LEASE_MS) == []
    assert await open_ids(store) == ["m1", "m2"]
    assert await store.settle(b, Answered())
    assert ids_of(await take(store)) == ["m2"]


async def test_a_poisonous_turn_stops_and_delays_nobody(store: Store, clock: VirtualClock) -> None:
    """A turn that always fails is tried a few times with growing pauses, then is a letter; others are on time."""
    rules = Rules(enabled=False, max_attempts=3)
    await say(store, "poison", rules=rules)
    pauses: list[int] = []
    while (due_at := await store.next_due()) is not None:
        await clock.advance(due_at - clock.now())
        claim = await take(store)
        settlement = after_failure(claim.turn, rules, "too large", clock.now(), chance=0.0)
        await store.settle(claim, settlement)
        if isinstance(settlement, Retry):
            pauses.append(settlement.after_ms)
            await say(store, f"healthy {len(pauses)}", key=BOB, rules=OFF)
            healthy = await take(store)
            assert healthy.key == BOB
            await store.settle(healthy, Answered())
    assert pauses == [500, 1_000]
    assert [letter.reason for letter in (await store.letters.list(5)).items] == ["failed 3 times"]


async def test_a_turn_that_kills_its_workers_stops_too(store: Store, clock: VirtualClock) -> None:
    """A turn whose every worker dies without a word is given up after as many attempts as any other."""
    await say(store, "poison", rules=OFF)
    for _ in range(3):
        claim = await take(store)
        assert before_attempt(claim.turn, OFF) is None
        await clock.advance(LEASE_MS)
    claim = await take(store)
    dead = before_attempt(claim.turn, OFF)
    assert dead is not None
    assert await store.settle(claim, dead)
    assert await store.next_due() is None


async def test_the_same_webhook_twice_is_one_message(store: Store, clock: VirtualClock) -> None:
    """A provider repeats a webhook whose answer it never saw, at once and a week later."""
    first, second = await asyncio.gather(say(store, "m1"), say(store, "m1"))
    assert sorted([first.status, second.status]) == ["buffered", "duplicate"]
    await clock.advance(1_000)
    claim = await take(store)
    assert ids_of(claim) == ["m1"]
    await store.settle(claim, Answered())
    await clock.advance(7 * 24 * 3_600_000)
    await store.history.forget(clock.now() - 8 * 24 * 3_600_000)
    assert (await say(store, "m1")).status == "duplicate"


async def test_a_buffer_outlives_any_outage(store: Store, clock: VirtualClock) -> None:
    """Nobody works for three months, and forgetting goes on: what waits is still there and is handed over."""
    await say(store, "m1")
    await clock.advance(OUTAGE_MS)
    await store.history.forget(clock.now())
    assert ids_of(await take(store)) == ["m1"]


async def test_going_idle_and_a_new_message_cannot_miss_each_other(store: Store, clock: VirtualClock) -> None:
    """A worker settles its last turn at the very moment a message arrives, in either order: a deadline stands."""
    for number, message_first in enumerate((True, False)):
        await say(store, f"{number} first", rules=OFF)
        claim = await take(store)
        steps = [say(store, f"{number} second"), store.settle(claim, Answered())]
        await asyncio.gather(*(steps if message_first else reversed(steps)))
        assert await store.next_due() == clock.now() + 1_000
        await clock.advance(1_000)
        last = await take(store)
        assert ids_of(last) == [f"{number} second"]
        await store.settle(last, Answered())


async def test_a_message_in_time_moves_the_deadline_for_every_worker(store: Store, clock: VirtualClock) -> None:
    """A worker saw that a conversation is due, a message comes in between, and the claim must not flush early."""
    await say(store, "m1")
    await clock.advance(1_000)
    seen_due_at = await store.next_due()
    assert seen_due_at == clock.now()
    await say(store, "m2")
    assert await store.claim(5, LEASE_MS) == []
    assert await store.next_due() == clock.now() + 3_000
    await clock.advance(3_000)
    assert ids_of(await take(store)) == ["m1", "m2"]


async def test_a_message_beside_a_release_is_never_stranded(store: Store, clock: VirtualClock) -> None:
    """Whoever fails to claim goes away; the message was buffered first, so the release itself arms it."""
    await say(store, "m1", rules=OFF)
    holder = await take(store)
    await say(store, "m2", rules=OFF)
    assert await store.claim(1, LEASE_MS) == []
    await store.settle(holder, Answered())
    assert await store.next_due() == clock.now()
    assert ids_of(await take(store)) == ["m2"]


async def test_messages_during_generation_are_not_marked_as_processed(store: Store) -> None:
    """Two messages come while the answer is being written; none of them counts as answered."""
    await say(store, "m1", rules=OFF)
    claim = await take(store)
    await say(store, "m2", "m3")
    await store.save(claim, Progress(("hello",), 0, True))
    await store.settle(claim, Answered())
    assert await open_ids(store) == ["m2", "m3"]


async def test_the_newest_message_decides_not_each_for_itself(store: Store, clock: VirtualClock) -> None:
    """The first message is old enough, the second is not: neither leaves alone."""
    rules = Rules(typing_inference_ms=0)
    await say(store, "m1", rules=rules)
    await clock.advance(900)
    await say(store, "m2", rules=rules)
    await clock.advance(900)
    assert await store.claim(5, LEASE_MS) == []
    await clock.advance(100)
    assert ids_of(await take(store)) == ["m1", "m2"]


async def test_overlapping_workers_never_share_a_conversation(store: Store) -> None:
    """Two beats of a slow worker ask at once for the same due conversation: one gets it."""
    await say(store, "m1", rules=OFF)
    claims = await asyncio.gather(store.claim(5, LEASE_MS), store.claim(5, LEASE_MS))
    assert sorted(map(len, claims)) == [0, 1]


async def test_taking_is_not_deleting(store: Store, clock: VirtualClock) -> None:
    """A worker dies right after it took its work: the work is still there, visibly and to be claimed."""
    await say(store, "m1", "m2")
    await clock.advance(30_000)
    await take(store)
    assert await open_ids(store) == ["m1", "m2"]
    await clock.advance(LEASE_MS)
    assert ids_of(await take(store)) == ["m1", "m2"]


async def test_a_new_message_does_not_reopen_a_taken_conversation(store: Store, clock: VirtualClock) -> None:
    """A slow handler and one more message: no second worker gets the same person."""
    await say(store, "m1", rules=OFF)
    claim = await take(store, lease_ms=600_000)
    await say(store, "m2", rules=OFF)
    await clock.advance(599_999)
    assert await store.claim(5, LEASE_MS) == []
    assert await store.settle(claim, Answered())


@pytest.mark.parametrize("kind", ["message", "activity"])
async def test_a_person_who_never_pauses_is_answered_at_max_wait(store: Store, clock: VirtualClock, kind: str) -> None:
    """Writing or typing without pause delays the turn to max wait after the first message, and no further."""
    rules = Rules(max_messages=10_000, capacity=10_000, max_wait_ms=30_000)
    await say(store, "m0", rules=rules)
    for number in range(1, 300):
        await clock.advance(100)
        if kind == "message":
            await say(store, f"m{number}", rules=rules)
        else:
            await store.touch(ANN, Touch("composing"), rules)
        assert await store.claim(5, LEASE_MS) == []
    await clock.advance(100)
    claim = await take(store)
    assert len(claim.messages) == (300 if kind == "message" else 1)
    assert claim.turn.ready.at == claim.first_at + 30_000


async def test_twenty_concurrent_messages_are_twenty_messages(store: Store, clock: VirtualClock) -> None:
    """Twenty webhooks write to one conversation at the same time."""
    await asyncio.gather(*(say(store, f"m{number}") for number in range(20)))
    await clock.advance(30_000)
    claim = await take(store)
    assert [message.seq for message in claim.messages] == list(range(1, 21))
    assert set(ids_of(claim)) == {f"m{number}" for number in range(20)}


async def test_clearing_after_an_answer_spares_what_came_during_it(store: Store) -> None:
    """Messages added during the model call survive however the turn ends."""
    ends: list[Settlement] = [Answered(), Dead("gave up")]
    for number, end in enumerate(ends):
        key = ConversationKey.of(f"c{number}")
        await say(store, "m1", key=key, rules=OFF)
        claim = await take(store)
        await say(store, "m2", key=key)
        await store.settle(claim, end)
        assert await open_ids(store, key) == ["m2"]


async def test_two_turns_of_one_conversation_have_two_ids(store: Store, clock: VirtualClock) -> None:
    """Ids come from the range of messages, so nobody's idempotency drops the second turn, and a retry keeps its id."""
    seen: list[str] = []
    for id in ("m1", "m2"):
        await say(store, id, rules=OFF)
        claim = await take(store)
        await store.settle(claim, Retry(0))
        again = await take(store)
        assert again.turn.id == claim.turn.id
        await store.settle(again, Answered())
        seen.append(claim.turn.id)
    assert len(set(seen)) == 2


async def test_a_repeated_send_step_has_the_same_ids(store: Store, clock: VirtualClock) -> None:
    """A worker dies after the first of two replies left: its successor knows the turn, the texts and how many left."""
    await say(store, "m1", rules=OFF)
    claim = await take(store)
    progress = Progress(("one", "two"), 1, True)
    await store.save(claim, progress)
    await clock.advance(LEASE_MS)
    successor = await take(store)
    assert (successor.turn.id, successor.turn.progress) == (claim.turn.id, progress)


async def test_keys_that_look_alike_do_not_collide(store: Store) -> None:
    """ "1" + "23" and "12" + "3" are two people, also with separators inside the parts."""
    pairs = [("1", "23"), ("12", "3"), ("1:2", "3"), ("1", "2:3"), ("1~3A2", "3")]
    keys = [ConversationKey.of(conversation, account=account) for account, conversation in pairs]
    for key in keys:
        await say(store, "m1", key=key, rules=OFF)
    claims = await store.claim(10, LEASE_MS)
    assert [claim.key for claim in claims] == sorted(keys, key=str)
    assert len({claim.turn.id for claim in claims}) == len(pairs)


async def test_what_was_cleared_by_order_can_be_brought_back(store: Store) -> None:
    """What somebody clears can be read and brought back."""
    await say(store, "m1", "m2")
    await order(store, "clear")
    (letter,) = (await store.letters.list(5)).items
    await store.letters.retry(letter.id)
    assert await open_ids(store) == ["m1", "m2"]
