"""What the end of a turn leaves behind: on every kind of store."""

from turntake.buffer.store import Store
from turntake.rules.conversation import Answered, Dead, Progress, Retry, Settlement
from turntake.rules.key import ConversationKey
from turntake.testing.clock import VirtualClock
from turntake.testing.store_contract import LEASE_MS, OFF, ids_of, open_ids, order, say, take


async def test_cleanup_removes_only_what_was_read(store: Store, clock: VirtualClock) -> None:
    """A message arrives between reading the buffer and cleaning it up, and is answered in the next turn."""
    await say(store, "m1")
    await clock.advance(1_000)
    claim = await take(store)
    await say(store, "m2")
    await store.settle(claim, Answered())
    await clock.advance(3_000)
    assert ids_of(await take(store)) == ["m2"]


async def test_messages_during_generation_are_not_marked_as_processed(store: Store) -> None:
    """Two messages come while the answer is being written; none of them counts as answered."""
    await say(store, "m1", rules=OFF)
    claim = await take(store)
    await say(store, "m2", "m3")
    await store.save(claim, Progress(("hello",), 0, True))
    await store.settle(claim, Answered())
    assert await open_ids(store) == ["m2", "m3"]


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


async def test_what_was_cleared_by_order_can_be_brought_back(store: Store) -> None:
    """What somebody clears can be read and brought back."""
    await say(store, "m1", "m2")
    await order(store, "clear")
    (letter,) = (await store.letters.list(5)).items
    await store.letters.retry(letter.id)
    assert await open_ids(store) == ["m1", "m2"]
